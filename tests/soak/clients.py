"""The clients of the soak test. Each runs in a thread, with its own random numbers, until it is
stopped."""

import glob
import os
import random
import re
import socket
import ssl
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import rig  # noqa: E402
from upstream import BAD, GOOD, content_of  # noqa: E402
from wire import Connection, IncompleteResponse, chunked, connect, request_bytes  # noqa: E402

LIMITED = ["log", "window", "bucket", "gcra", "two", "held", "flight", "local"]
CLIENTS = 2  # ids that share each limit
TIMEOUTS = {"request_header": 2, "request_body": 2, "idle": 5}  # seconds

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http")


def malformed():
    """The requests of the HTTP corpus that weir refuses."""
    found = []
    for name in sorted(glob.glob(os.path.join(CORPUS, "*.req"))):
        with open(name[:-4] + ".out", encoding="latin-1") as out:
            if out.readline().startswith("refused"):
                with open(name, "rb") as request:
                    found.append((os.path.basename(name), request.read()))
    return found


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()


PROXIED = [b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", b"PROXY UNKNOWN\r\n",
           b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\xc0\0\x02\x01\x12\x67\x01\xbb"]


class Listener:
    """One listener of weir, and what it requires before HTTP (TLS, PROXY protocol header)."""

    def __init__(self, address, tls=None, proxied=False):
        self.address, self.tls, self.proxied = address, tls, proxied

    def connect_to_weir(self, random, timeout, room=None):
        s = socket.socket()
        if room:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        s.settimeout(timeout)
        s.connect(self.address)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.proxied:
            s.sendall(random.choice(PROXIED))
        return self.tls.wrap_socket(s, server_hostname="one.test") if self.tls else s


class Client:
    """`soak` provides listeners, stopping(), spend(), report_problem(), count() and upstreams."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.random = random.Random(f"{soak.seed} {soak.round} {type(self).__name__} {number}")
        self.serial = 0

    def run(self):
        while not self.soak.stopping():
            try:
                self.step()
            # weir may cut clients that violate the protocol; Good checks more strictly
            except (OSError, IncompleteResponse) as error:
                self.soak.count(f"{type(self).__name__}: {type(error).__name__}")
                self.soak.pause(0.05)

    def marker(self):
        self.serial += 1
        return f"{type(self).__name__}-{self.soak.round}-{self.number}-{self.serial}"

    def target(self, path, how, size):
        marker = self.marker()
        return marker, f"/{path}/x?m={marker}&how={how}&size={size}"

    def fields(self):
        return {"X-Client-Id": f"client-{self.random.randrange(CLIENTS)}"}

    def connect_to_weir(self, timeout=30 * rig.time_scale, room=None):
        """A socket connected to a random listener."""
        return self.random.choice(self.soak.listeners).connect_to_weir(self.random, timeout, room)

    def connection(self):
        return Counting(self.connect_to_weir())


class Counting(Connection):
    """A connection that counts the received bytes."""
    received = 0

    def __init__(self, s):
        self.socket, self.buffer, self.used_at = s, b"", time.monotonic()

    def is_old(self):
        """weir may close it at any moment: it has been idle, because other clients had the rate."""
        return time.monotonic() - self.used_at > min(TIMEOUTS.values()) / 2

    def fill(self):
        before = len(self.buffer)
        try:
            return super().fill()
        except ssl.SSLError:  # truncated
            return False
        finally:
            self.received += len(self.buffer) - before
            self.used_at = time.monotonic()

    def end(self):
        """Shuts down the sending side. Returns False if this kind of socket cannot do that and
        still read."""
        if isinstance(self.socket, ssl.SSLSocket):
            return False
        self.socket.shutdown(socket.SHUT_WR)
        return True


class Good(Client):
    """Conforms to HTTP and expects exactly one response to each request: the right one, or an error
    of weir."""

    def step(self):
        r = self.random
        with self.connection() as connection:
            for _ in range(r.choice([1, 3, 20, 100])):
                if self.soak.stopping() or not self.one(connection):
                    return
                self.soak.pause(r.random() * 0.04)
            # No unrequested bytes may arrive.
            if connection.end() and not connection.is_closed():
                self.soak.report_problem(f"{type(self).__name__} {self.number}: bytes after the last response: {connection.buffer[:200]!r}")

    def one(self, connection):
        """Returns True if the connection stays open."""
        r, soak = self.random, self.soak
        if not soak.spend() or connection.is_old():
            return False
        path = r.choice(["free"] * 3 + LIMITED)
        how = r.choice(BAD) if r.random() < 0.06 else r.choice(GOOD)
        if how == "silent" and r.random() < 0.8:
            how = "length"
        size = r.choice([0, 10, 100, 5000, 200000])
        method = r.choice(["GET", "GET", "GET", "HEAD", "POST", "PUT"])
        marker, target = self.target(path, how, size)
        headers, body = self.fields(), None
        if method in ("POST", "PUT"):
            body = b"x" * r.choice([0, 1, 1000, 100000])
            if r.random() < 0.4:
                headers["Transfer-Encoding"], body = "chunked", chunked(body, r.choice([100, 70000]))
        started, received = time.monotonic(), connection.received
        try:
            try:
                connection.send(request_bytes(target, method, headers, body))
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                pass  # an early response, to be read
            response = connection.response(method)
        except TimeoutError:
            soak.report_problem(f"{method} {target}: no response for {time.monotonic() - started:.1f} s")
            return False
        except IncompleteResponse as cut:
            soak.count("good: cut")
            if how not in BAD and not soak.upstream_trouble(started):
                soak.report_problem(f"{method} {target}: cut without a reason: {cut}")
            if connection.received == received:
                soak.report_problem(f"{method} {target}: no response at all")
            return False
        except AssertionError as error:
            soak.report_problem(f"{method} {target}: a malformed response: {error}")
            return False
        self.check(method, path, how, target, marker, size, body, response, started)
        return response["Connection"] != "close"

    def check(self, method, path, how, target, marker, size, body, response, started):
        soak, status = self.soak, response.status
        soak.count(f"good: {status}")
        if b"POISON" in response.body:
            soak.report_problem(f"{method} {target}: received bytes of another message")
        if status == 200:
            whole = how in GOOD or how == "extra" or method == "HEAD" and how in ("cut_length", "cut_chunked", "bad_chunk")
            if not whole:
                soak.report_problem(f"{method} {target}: 200 for an invalid response: {response}")
            elif method != "HEAD" and response.body != content_of(marker, size):
                soak.report_problem(f"{method} {target}: a wrong or damaged response: {response}")
        elif status == 429 and path != "free" or status == 503 and path not in ("free", "local"):
            pass
        elif status in (502, 504):
            # Requests with content, or that must not be repeated, can be lost when a server closes
            # its connection at the same time.
            lost_by_right = method == "POST" or body is not None
            if how not in BAD and not lost_by_right and not soak.upstream_trouble(started):
                soak.report_problem(f"{method} {target}: {status} without a reason: {response}")
        else:
            soak.report_problem(f"{method} {target}: unexpected {response}")


class Pipelining(Client):
    """Sends several requests at once and expects the responses in order."""

    def step(self):
        r, soak = self.random, self.soak
        with self.connection() as connection:
            asked = [self.target("free", "length", r.choice([0, 100])) for _ in range(r.randrange(2, 9)) if soak.spend()]
            connection.send(b"".join(request_bytes(target) for _, target in asked))
            for marker, target in asked:
                response = connection.response()
                if response.status == 200 and not response.body.startswith(marker.encode() + b":"):
                    soak.report_problem(f"GET {target}: pipelined, and the response was {response}")
        soak.pause(0.3)


class Slow(Client):
    """Slow in one phase: head, content or reading. The request can succeed or time out."""

    def step(self):
        if self.soak.spend():
            self.random.choice([self.head, self.content, self.reader, self.idle, self.threshold])()

    def send_slowly(self, s, data, pause):
        for i in range(len(data)):
            if self.soak.stopping():
                return
            s.sendall(data[i:i + 1])
            self.soak.pause(pause)

    def head(self):
        _, target = self.target("free", "length", 10)
        with self.connection() as c:
            self.send_slowly(c.socket, request_bytes(target, headers=self.fields()), self.random.choice([0.005, 0.2]))
            if not self.soak.stopping() and c.response().status not in (200, 408, 502):
                self.soak.report_problem("a slow head got neither a response nor 408")

    def content(self):
        _, target = self.target("free", "length", 10)
        with self.connection() as c:
            c.send(request_bytes(target, "POST", self.fields())[:-2] + b"Content-Length: 400\r\n\r\n")
            self.send_slowly(c.socket, b"y" * 400, self.random.choice([0.005, 0.3]))
            if not self.soak.stopping() and c.response().status not in (200, 408, 502):
                self.soak.report_problem("slow content got neither a response nor 408")

    def reader(self):
        marker, target = self.target("free", self.random.choice(["length", "chunked", "until_close"]), 2_000_000)
        with self.connect_to_weir(room=4096) as s:
            s.sendall(request_bytes(target, headers={"Connection": "close"}))
            for _ in range(self.random.choice([20, 200])):
                if self.soak.stopping() or not s.recv(65536):
                    return
                self.soak.pause(0.02)

    def idle(self):
        with self.connection() as c:
            _, target = self.target("free", "length", 10)
            c.request(target)
            self.soak.pause(self.random.random() * 6)


    def threshold(self):
        """Never sends a request: the PROXY protocol header or the handshake is slow or
        incomplete."""
        door = self.random.choice(self.soak.listeners)
        said = self.random.choice(PROXIED) if door.proxied else b""
        said += self.random.choice([b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET / HTTP", os.urandom(200)])
        with connect(door.address, 30 * rig.time_scale) as s:
            self.send_slowly(s, said, self.random.choice([0, 0.01, 0.2]))
            self.soak.pause(self.random.random() * 3)


class Broken(Client):
    """Sends requests that weir must refuse, and expects one refusal or a close."""

    cases = malformed()

    def step(self):
        r, soak = self.random, self.soak
        name, data = r.choice(self.cases)
        if not soak.spend():
            return
        with self.connection() as c:
            at = r.randrange(len(data) + 1)
            c.send(data[:at])
            if r.random() < 0.3:
                soak.pause(0.01)
            c.send(data[at:])
            c.end()
            while c.fill():
                pass
            starts = len(re.findall(rb"HTTP/1\.1 [1-5]\d\d ", c.buffer))
            if starts > 1 or b"HTTP/1.1 200" in c.buffer:
                soak.report_problem(f"{name}: {starts} responses to a request that must be refused: {c.buffer[:300]!r}")
        soak.pause(r.random() * 0.05)


class Aborting(Client):
    """Disconnects at any byte of the request or response, with a reset or a FIN."""

    def step(self):
        r, soak = self.random, self.soak
        if not soak.spend():
            return
        _, target = self.target(r.choice(["free"] + LIMITED), r.choice(GOOD + BAD), r.choice([10, 500000]))
        body = b"z" * r.choice([0, 5000, 300000]) if r.random() < 0.5 else None
        data = request_bytes(target, "POST" if body is not None else "GET", self.fields(), body)
        s = self.connect_to_weir(5 * rig.time_scale)
        try:
            s.sendall(data[:r.choice([len(data), r.randrange(len(data))])])
            wait = r.choice([0, 0, 0.001, 0.02, 0.2])
            if wait:
                soak.pause(wait)
            if r.random() < 0.3:
                s.recv(r.choice([1, 100, 10000]))
        except OSError:
            pass
        if r.random() < 0.6:
            reset(s)
        else:
            s.close()
        soak.pause(r.random() * 0.05)


class Tunnelling(Client):
    """Upgrades the connection and checks the echo. Then closes normally, half-closes or resets."""

    def step(self):
        r, soak = self.random, self.soak
        if not soak.spend():
            return
        with self.connection() as c:
            _, target = self.target("free", "length", 10)
            c.send(request_bytes(target, headers={"Connection": "Upgrade", "Upgrade": "echo"}))
            if c.read_head().status != 101:
                soak.count("tunnel refused")
                return
            soak.count("tunnels")
            for _ in range(r.randrange(1, 6)):
                data = bytes(r.randrange(256) for _ in range(r.choice([1, 100, 3000])))
                c.send(data)
                if c.read_exactly(len(data), "an echo") != data:
                    soak.report_problem("a tunnel changed the data")
            if r.random() < 0.5 and c.end():
                while c.fill():
                    pass
            elif r.random() < 0.5:
                reset(c.socket)
        soak.pause(0.1)


KINDS = {Good: 12, Pipelining: 2, Slow: 6, Broken: 3, Aborting: 5, Tunnelling: 2}
