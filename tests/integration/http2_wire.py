"""An HTTP/2 client for the tests. It writes and reads frames one by one, so that a test can violate
any rule. HPACK is Debian's python3-hpack (pure Python, so any Python 3 can import it)."""

import struct
import sys

from wire import connect

sys.path.append("/usr/lib/python3/dist-packages")
from hpack import Decoder, Encoder  # noqa: E402

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 2, 7, 8, 11
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE = 3, 4, 6


def window_updates(sizes):
    """Frames that extend the windows of the streams by these bytes, and that of the connection by all of them."""
    return b"".join(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", size)) for number, size in ((0, sum(sizes.values())), *sizes.items()) if size)


class Stream:
    """Everything received on one stream. `reset`: the error code of RST_STREAM; `cut`: the
    connection ended first; `granted`: bytes granted by WINDOW_UPDATE; `secret`: names of the fields
    that were never indexed."""

    def __init__(self):
        self.status, self.fields, self.body, self.interim, self.trailers = None, {}, b"", [], []
        self.ended, self.reset, self.cut, self.granted, self.secret = False, None, False, 0, []

    def __getitem__(self, name):
        return self.fields.get(name.lower())

    def over(self):
        return self.ended or self.reset is not None or self.cut


class Http2:
    """One connection. Extends the windows as content arrives, unless `hold` is set."""

    def __init__(self, address, settings=(), hold=False, tls=None, host=None, timeout=20, source=None):
        self.socket = self.connect(address, timeout, source)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.streams, self.next, self.buffer, self.hold = {}, 1, b"", hold
        self.goaways, self.pings, self.closed, self.sent = [], 0, False, b""
        self.acked, self.initial, self.granted, self.used = False, 65535, 65535, 0
        self.socket.sendall(PREFACE + frame(SETTINGS, payload=b"".join(struct.pack(">HI", *s) for s in settings)))

    def connect(self, address, timeout, source):
        return connect(address, timeout, source)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    # --- sending ---

    def put(self, *args, **more):
        """Buffers a frame until flush()."""
        self.sent += frame(*args, **more)

    def flush(self):
        data, self.sent = self.sent, b""
        self.socket.sendall(data)

    def send(self, *args, **more):
        self.put(*args, **more)
        self.flush()

    def put_headers(self, fields, stream=None, end=True):
        if stream is None:
            stream, self.next = self.next, self.next + 2
        self.streams.setdefault(stream, Stream())
        self.put(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, self.encoder.encode(fields))
        return stream

    def put_request(self, path="/", method="GET", fields=(), end=True):
        return self.put_headers([(":method", method), (":scheme", "http"), (":authority", "api.test"), (":path", path),
                                 *fields], end=end)

    def start(self, *args, **more):
        stream = self.put_request(*args, **more)
        self.flush()
        return stream

    def send_body(self, stream, body, end=True):
        for at in range(0, max(len(body), 1), 16384):
            piece = body[at:at + 16384]
            self.put(DATA, END_STREAM if end and at + 16384 >= len(body) else 0, stream, piece)
        self.flush()

    def send_within_windows(self, stream, body):
        """Sends all the content; reads frames while the windows are exhausted. Stops when the
        stream ends."""
        at, got = 0, self.streams[stream]
        while True:
            n = min(len(body) - at, self.initial + got.granted - at, self.granted - self.used, 16384)
            if n > 0 or not body:
                self.send(DATA, END_STREAM if at + n == len(body) else 0, stream, body[at:at + n])
                at, self.used = at + n, self.used + n
            if at == len(body) or got.over() or n <= 0 and self.read_frame() is None:
                return

    def answer(self, *args, **more):
        """Answers a frame. If the peer has closed the connection, the next read finds its end."""
        try:
            self.send(*args, **more)
        except ConnectionError:
            pass

    # --- receiving ---

    def read_frame(self):
        """Reads and applies one frame. Returns its type, or None at the end of the connection."""
        header = self.take(9)
        if header is None:
            return None
        size, kind, flags, stream = int.from_bytes(header[:3], "big"), header[3], header[4], int.from_bytes(header[5:], "big")
        payload = self.take(size)
        if payload is None:
            return None
        self.apply(kind, flags, stream, payload)
        return kind

    def take(self, size):
        while len(self.buffer) < size:
            try:
                data = self.socket.recv(65536)
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            if not data:
                self.closed = True
                for stream in self.streams.values():
                    stream.cut = not stream.over()
                return None
            self.buffer += data
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def apply(self, kind, flags, number, payload):
        stream = self.streams.setdefault(number, Stream()) if number else None
        if kind == HEADERS:
            fields = self.decoder.decode(payload)
            assert flags & END_HEADERS
            stream.secret += never_indexed(fields)
            status = int(dict(fields).get(":status", 0))
            if stream.status is not None:
                stream.trailers = fields
            elif status < 200:
                stream.interim.append(status)
            else:
                stream.status, stream.fields = status, {name: value for name, value in fields if name[0] != ":"}
        elif kind == DATA:
            stream.body += payload
            if payload and not self.hold:
                self.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload)))
                self.answer(WINDOW_UPDATE, 0, number, struct.pack(">I", len(payload)))
        elif kind == RST_STREAM:
            stream.reset = struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.goaways.append(struct.unpack(">II", payload[:8]))
        elif kind == PING and not flags & ACK:
            self.answer(PING, ACK, 0, payload)
        elif kind == PING:
            self.pings += 1
        elif kind == SETTINGS and not flags & ACK:
            self.initial = dict(struct.iter_unpack(">HI", payload)).get(INITIAL_WINDOW_SIZE, self.initial)
            self.answer(SETTINGS, ACK)
        elif kind == WINDOW_UPDATE and number:
            stream.granted += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE:
            self.granted += int.from_bytes(payload, "big")
        elif kind == SETTINGS:
            self.acked = True
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            stream.ended = True

    def release(self):
        """Ends `hold`: extends the windows by the content that has arrived."""
        self.hold = False
        self.socket.sendall(window_updates({number: len(stream.body) for number, stream in self.streams.items()}))

    def read_until(self, condition):
        """Reads frames until the condition holds or the connection ends."""
        while not condition() and self.read_frame() is not None:
            pass

    def response(self, stream):
        """Waits for the complete response on a stream."""
        got = self.streams[stream]
        self.read_until(got.over)
        assert got.ended, f"stream {stream}: status {got.status}, reset {got.reset}, cut {got.cut}, {self.goaways}"
        return got

    def get(self, *args, **more):
        return self.response(self.start(*args, **more))

    def responds_to_ping(self):
        """Sends a PING and waits for its ACK, so everything sent before was processed. Returns
        False if the connection ended."""
        before = self.pings
        try:
            self.send(PING, 0, 0, b"pingping")
        except OSError:
            pass
        self.read_until(lambda: self.pings > before)
        return not self.closed

    def read_to_end(self):
        self.read_until(lambda: False)
        return self.goaways


def never_indexed(fields):
    """The names of decoded fields that are never indexed (RFC 7541 section 6.2.3)."""
    return [field[0] for field in fields if not field.indexable]


def in_table(coder):
    """The names in the dynamic table of an encoder or decoder."""
    return {name.decode() for name, _ in coder.header_table.dynamic_entries}


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload
