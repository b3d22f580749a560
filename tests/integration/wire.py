"""An HTTP/1.1 client for the tests: sends any bytes, and checks responses strictly."""

import socket
import threading


class MalformedResponse(AssertionError):
    """The first line of the response is no status line."""


class IncompleteResponse(Exception):
    """The connection ended, or the framing was invalid, before the response was complete."""

    def __init__(self, why, received=b""):
        super().__init__(f"{why}; received: {received[-2000:]!r}")
        self.received = received


class Response:
    def __init__(self, version, status, reason, fields):
        self.version, self.status, self.reason, self.fields = version, status, reason, fields
        self.body = b""

    def all(self, name):
        """All values of the field, in order."""
        return [value for n, value in self.fields if n.lower() == name.lower()]

    def __getitem__(self, name):
        """The value of a field that can appear once at most; None if it is absent."""
        values = self.all(name)
        assert len(values) < 2, f"{name} appears {len(values)} times in {self}"
        return values[0] if values else None

    def number(self, name):
        value = self[name]
        assert value is not None and value.isdigit(), f"{name} should be a number and is {value!r} in {self}"
        return int(value)

    def names(self):
        return {name.lower() for name, _ in self.fields}

    def __repr__(self):
        lines = "".join(f"\n      {name}: {value}" for name, value in self.fields)
        return f"{self.version} {self.status} {self.reason}{lines}\n      ({len(self.body)} bytes: {self.body[:200]!r})"


def parse_head(head):
    lines = head.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    status, _, reason = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or len(status) != 3 or not status.isdigit():
        raise MalformedResponse(f"status line {lines[0]!r}")
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        assert colon and name and " " not in name, f"field line {line!r}"
        fields.append((name, value.strip(" \t")))
    return Response(version, int(status), reason, fields)


def connect(address, timeout=20, source=None):
    """`address`: (host, port) or the path of a Unix socket; `source`: the local address."""
    if isinstance(address, str):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(address)
        return s
    s = socket.create_connection(address, timeout=timeout, source_address=source and (source, 0))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def request_bytes(target="/", method="GET", headers=None, body=None, host="api.test", version="HTTP/1.1"):
    lines = [f"{method} {target} {version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    headers = headers.items() if isinstance(headers, dict) else headers or []
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None and not any(line.lower().startswith("transfer-encoding:") for line in lines):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def chunked(body, size=1000):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class Connection:
    """A client connection. Responses are read in order; pipelined bytes are kept."""

    def __init__(self, address, timeout=20, source=None):
        self.socket = connect(address, timeout, source)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)
        return self

    def fill(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return len(data) > 0

    def take(self, size):
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def read_until(self, mark, what):
        while mark not in self.buffer:
            if not self.fill():
                raise IncompleteResponse(f"the connection ended in {what}", self.buffer)
        return self.take(self.buffer.index(mark) + len(mark))[:-len(mark)]

    def read_exactly(self, size, what):
        pieces, have = [self.take(size)], 0
        have = len(pieces[0])
        while have < size:
            if not self.fill():
                raise IncompleteResponse(f"the connection ended {size - have} bytes before the end of {what}", b"".join(pieces))
            pieces.append(self.take(size - have))
            have += len(pieces[-1])
        return b"".join(pieces)

    def read_head(self):
        """The next head, including interim ones (1xx). Does not read the body."""
        return parse_head(self.read_until(b"\r\n\r\n", "a head"))

    def read_chunks(self):
        body = []
        while True:
            size = int(self.read_until(b"\r\n", "a chunk's size").split(b";")[0], 16)
            if size == 0:
                self.trailers = []
                while line := self.read_until(b"\r\n", "the trailers"):
                    name, value = line.decode("latin-1").split(":", 1)
                    self.trailers.append((name, value.strip()))
                return b"".join(body)
            body.append(self.read_exactly(size, "a chunk"))
            assert self.read_exactly(2, "a chunk's end") == b"\r\n"

    def read_body(self, response, method="GET"):
        if method == "HEAD" or response.status in (204, 304) or response.status < 200:
            return b""
        coding, length = response["Transfer-Encoding"], response["Content-Length"]
        assert not (coding and length), f"both Transfer-Encoding and Content-Length in {response}"
        if coding:
            assert coding.lower() == "chunked", response
            return self.read_chunks()
        if length is not None:
            return self.read_exactly(int(length), "the body")
        while self.fill():
            pass
        return self.take(len(self.buffer))

    def response(self, method="GET"):
        """The next final response, complete."""
        while True:
            response = self.read_head()
            if response.status >= 200:
                break
        response.body = self.read_body(response, method)
        return response

    def request(self, target="/", method="GET", headers=None, body=None, **more):
        self.send(request_bytes(target, method, headers, body, **more))
        return self.response(method)

    def is_closed(self):
        """Waits for the peer to close. Returns False if the peer sends data, or on timeout."""
        try:
            return not self.buffer and not self.fill()
        except TimeoutError:
            return False


def get(address, target="/", **more):
    with Connection(address) as connection:
        return connection.request(target, **more)


def next_one(iterator, lock):
    with lock:
        return next(iterator, None) is not None


def run_in_threads(client, count):
    """Runs client(0), client(1), ... in one thread each. Raises the first exception."""
    errors = []

    def guarded(number):
        try:
            client(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def flood(addresses, total, connections=64, headers=None, target="/", **more):
    """Sends `total` requests over that many keep-alive connections, spread over the addresses.
    Returns the responses."""
    addresses = addresses if isinstance(addresses, list) else [addresses]
    todo = iter(range(total))
    lock, start = threading.Lock(), threading.Barrier(connections)
    responses = []

    def client(number):
        address = addresses[number % len(addresses)]
        connection = None
        try:
            connection = Connection(address)
            start.wait()
            while next_one(todo, lock):
                connection = connection or Connection(address)
                response = connection.request(target, headers=headers, **more)
                responses.append(response)
                if response["Connection"] == "close":
                    connection.close()
                    connection = None
        except Exception:
            start.abort()
            raise
        finally:
            if connection:
                connection.close()

    run_in_threads(client, connections)
    return responses


def count(responses):
    """The number of responses per status: {200: 1000, 429: 200}."""
    counts = {}
    for response in responses:
        counts[response.status] = counts.get(response.status, 0) + 1
    return counts
