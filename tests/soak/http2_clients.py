"""HTTP/2 clients of the soak test: several concurrent requests per connection, and clients that
reset streams, stall, or violate the protocol."""

import os
import ssl
import struct

import http2_upstream
import rig
from clients import CLIENTS, LIMITED, Client
from http2_wire import (CANCEL, CONTINUATION, DATA, HEADERS, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, PING, PRIORITY, RST_STREAM, SETTINGS,
                        WINDOW_UPDATE, Http2)
from upstream import BAD, GOOD, content_of


class Http2Connection(Http2):
    """An HTTP/2 connection to one of the listeners."""

    def __init__(self, s, settings=(), hold=False):
        self.entered = s
        super().__init__(None, settings, hold)

    def connect(self, _address, _timeout, _source):
        return self.entered

    def take(self, size):
        try:
            return super().take(size)
        except ssl.SSLError:  # truncated
            self.closed = True
            for stream in self.streams.values():
                stream.cut = not stream.over()
            return None


class Http2Client(Client):
    def open(self, settings=(), hold=False):
        door = self.random.choice(self.soak.http2_listeners)
        return Http2Connection(door.connect_to_weir(self.random, 30 * rig.time_scale), settings, hold)

    def start(self, client, path, how, size, method="GET", body=None):
        marker, target = self.target(path, how, size)
        fields = [("x-client-id", f"client-{self.random.randrange(CLIENTS)}")]
        stream = client.start(target, method=method, fields=fields, end=body is None)
        if body is not None:
            client.send_within_windows(stream, body)
        return stream, marker


class Multiplexing(Http2Client):
    """Conforms to HTTP/2 and expects one response per stream: the right one, or an error of
    weir."""

    def step(self):
        r, soak = self.random, self.soak
        with self.open() as client:
            for _ in range(r.choice([1, 3, 20])):
                started = soak.now()
                asked = [self.start_request(client) for _ in range(r.randrange(1, 7)) if soak.spend()]
                try:
                    for stream, *_ in asked:
                        client.read_until(client.streams[stream].over)
                except TimeoutError:
                    soak.report_problem(f"HTTP/2: no response for {soak.now() - started:.1f} s: {asked}")
                    return
                for stream, marker, path, how, size, method, body in asked:
                    self.check(client.streams[stream], marker, path, how, size, method, body, started)
                if client.closed or client.goaways:
                    if client.goaways and client.goaways[-1][1]:
                        soak.report_problem(f"HTTP/2: GOAWAY {client.goaways}")
                    return
                soak.pause(r.random() * 0.04)

    def start_request(self, client):
        r = self.random
        path = r.choice(["free", "two-free", "two-free"] + LIMITED[:4])
        good, bad = (http2_upstream.GOOD, http2_upstream.BAD) if path == "two-free" else (GOOD, BAD)
        how = r.choice(bad) if r.random() < 0.05 else r.choice(good)
        if how == "silent" and r.random() < 0.8:
            how = "length"
        size, method = r.choice([0, 10, 5000, 200000]), r.choice(["GET", "GET", "HEAD", "POST", "PUT"])
        body = b"x" * r.choice([0, 1, 1000, 100000]) if method in ("POST", "PUT") else None
        stream, marker = self.start(client, path, how, size, method, body)
        return stream, marker, path, how, size, method, body

    def check(self, got, marker, path, how, size, method, body, started):
        """An invalid response ends its stream. Any other response ends it only if a server was
        down."""
        soak, what = self.soak, f"HTTP/2 {method} /{path} how={how}"
        broken = how in BAD + http2_upstream.BAD
        excused = broken or soak.upstream_trouble(started) or got.status in (502, 504) and (method == "POST" or body is not None)
        # Streams share the fate of their server connection: a silent or closing server ends them as
        # well.
        excused = excused or path == "two-free"
        if not got.ended:
            soak.count("http2: cut" if got.cut else f"http2: reset {got.reset}")
            if not excused:
                soak.report_problem(f"{what}: reset {got.reset}, cut {got.cut}, status {got.status}")
            return
        soak.count(f"http2: {got.status}")
        if b"POISON" in got.body:
            soak.report_problem(f"{what}: received bytes of another message")
        if got.status == 200:
            if method != "HEAD" and got.body != content_of(marker, size):
                soak.report_problem(f"{what}: a wrong or damaged response of {len(got.body)} bytes")
        elif not (got.status in (429, 503) and "free" not in path or got.status in (502, 504) and excused):
            soak.report_problem(f"{what}: unexpected status {got.status}")


class Rough(Http2Client):
    """Resets streams, stalls windows, floods, sends garbage, and disconnects at any time."""

    def step(self):
        if self.soak.spend():
            self.random.choice([self.resets, self.stalls, self.small_windows, self.floods, self.garbage, self.leaves])()
        self.soak.pause(self.random.random() * 0.3)

    def several(self, client):
        r = self.random
        return [self.start(client, *r.choice([("two-free", "pieces"), ("free", "chunked"), ("two-free", "length")]), r.choice([10, 500000]))[0]
                for _ in range(r.randrange(1, 10)) if self.soak.spend()]

    def resets(self):
        with self.open() as client:
            for stream in self.several(client):
                client.send(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
            client.responds_to_ping()

    def stalls(self):
        with self.open([(INITIAL_WINDOW_SIZE, 0), (MAX_CONCURRENT_STREAMS, 0)], hold=True) as client:
            self.several(client)
            client.responds_to_ping()
            self.soak.pause(self.random.random() * 2)

    def small_windows(self):
        with self.open([(INITIAL_WINDOW_SIZE, 100)], hold=True) as client:
            for stream in self.several(client):
                for _ in range(5):
                    client.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", 100))
                    client.responds_to_ping()

    def floods(self):
        kind, stream, payload = self.random.choice([(SETTINGS, 0, b""), (PING, 0, b"12345678"), (PRIORITY, 1, b"\0\0\0\0\1"), (0x77, 0, b"")])
        with self.open() as client:
            for _ in range(300):
                for _ in range(10):
                    client.put(kind, 0, stream, payload)
                client.flush()

    def garbage(self):
        with self.open() as client:
            self.several(client)
            kind = self.random.choice([DATA, HEADERS, CONTINUATION, SETTINGS, 0xff])
            client.send(kind, self.random.randrange(256), self.random.randrange(5), os.urandom(self.random.choice([0, 5, 1000])))
            client.read_to_end() if self.random.random() < 0.2 else client.responds_to_ping()

    def leaves(self):
        with self.open() as client:
            self.several(client)
            for _ in range(self.random.randrange(5)):
                client.read_frame()


HTTP2_KINDS = {Multiplexing: 4, Rough: 2}
