"""Random requests, responses, resets, stalls, GOAWAYs, lost connections and reloads, with HTTP/2 and
HTTP/1.1 on both sides.

The content of each request and of its response repeats the request's id, so that bytes of another
message are noticed. A server decides at once whether it processes a request. weir must not send a
POST that was processed again. SEED=N repeats the choices of a run, not its timing."""

import collections
import os
import random
import select
import socket
import struct
import threading
import time

from http2_server import Http2Peer
from http2_wire import (CANCEL, DATA, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, INITIAL_WINDOW_SIZE, INTERNAL_ERROR,
                        MAX_CONCURRENT_STREAMS, NO_ERROR, PING, REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2)
from rig import time_scale, sanitized, timeout
from scripted import Scripted
from wire import Connection, IncompleteResponse

SECONDS, HTTP2_CLIENTS, HTTP1_CLIENTS = 6, 5, 3
CONNECTION_ERRORS = OSError, IncompleteResponse
SIZES = [0, 0, 1, 5, 300, 5000, 16384, 20000, 65535, 65536, 65537, 90000]


def content(marker, size):
    piece = f"<{marker}>".encode()
    return (piece * (size // len(piece) + 1))[:size]


class Run:
    """State that all clients and servers share."""

    def __init__(self, seed):
        self.seed, self.failures, self.lock = seed, [], threading.Lock()
        self.processed, self.counts, self.ids = collections.Counter(), collections.Counter(), iter(range(1, 1 << 30))
        self.over = threading.Event()

    def random(self, *names):
        return random.Random(" ".join(map(str, (self.seed, *names))))

    def new_id(self):
        with self.lock:
            return next(self.ids)

    def fail(self, what):
        with self.lock:
            self.failures.append(what)

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def process(self, method, marker):
        """A server processes the request."""
        with self.lock:
            self.processed[marker] += 1
            again = self.processed[marker] > 1
        if again and method == "POST":
            self.fail(f"POST {marker} was processed twice")

    def check_request(self, marker, size, body):
        if body != content(marker, size):
            self.fail(f"request {marker}: {len(body)} bytes of {size}, or others: {body[:40]}")

    def check_response(self, marker, status, fields, body):
        """A complete response: of a server, or of weir."""
        self.count(f"status {status}")
        if fields.get("x-id") is None:
            if status < 400 and "grpc-status" not in fields:
                self.fail(f"response {status} to {marker} is not of a server")
        elif fields["x-id"] != marker or body != content(marker, int(fields["x-size"])):
            self.fail(f"response to {marker}: id {fields['x-id']}, {len(body)} bytes of {fields['x-size']}: {body[:40]}")


# ---- servers ---------------------------------------------------------------------------------------------------------------------

class RandomHttp2:
    """A connection to weir: interleaves its streams."""

    def __init__(self, run, peer, chosen):
        self.run, self.random = run, chosen
        settings = [(INITIAL_WINDOW_SIZE, chosen.choice([10, 1000, 65535, 200000])), (MAX_CONCURRENT_STREAMS, chosen.choice([1, 3, 50]))]
        self.connection = Http2Peer(peer, settings, hold=chosen.random() < 0.1)
        self.socket, self.live, self.sent, self.last = peer.socket, [], {}, 0
        self.leaving = False

    def play(self):
        connection, chosen = self.connection, self.random
        while not self.run.over.is_set() and not connection.closed:
            if select.select([self.socket], [], [], 0.02 if not self.live else 0)[0]:
                connection.read_frame()
                self.accept()
                continue
            self.live = [r for r in self.live if r.reset is None]
            if chosen.random() < 0.01:
                self.act_on_connection()
            elif self.live:
                self.act(chosen.choice(self.live))
            if self.leaving and not self.live:
                return
            if self.live and chosen.random() < 0.2:
                time.sleep(0.002)

    def accept(self):
        while self.connection.new:
            request = self.connection.new.pop()
            if self.leaving:
                continue  # after the last stream of the GOAWAY: weir knows that it is not processed
            if self.random.random() < 0.05:
                self.run.count("refused")
                request.rst(REFUSED_STREAM)
                continue
            self.last = max(self.last, request.stream)
            request.marker, request.method = request["x-id"], request[":method"]
            self.run.process(request.method, request.marker)
            self.live.append(request)
            self.sent[request] = None

    def act_on_connection(self):
        chosen, connection = self.random, self.connection
        what = chosen.choice(["ping", "window", "streams", "leave", "leave", "close", "reset", "stall"])
        self.run.count("server: " + what)
        if what == "ping":
            connection.put(PING, 0, 0, b"12345678")
        elif what == "window":
            connection.put(SETTINGS, payload=struct.pack(">HI", INITIAL_WINDOW_SIZE, chosen.choice([0, 1, 65535, 100000])))
        elif what == "streams":
            connection.put(SETTINGS, payload=struct.pack(">HI", MAX_CONCURRENT_STREAMS, chosen.choice([0, 1, 100])))
        elif what == "leave" and not self.leaving:
            connection.go_away(self.last, chosen.choice([NO_ERROR, NO_ERROR, INTERNAL_ERROR]))
            self.leaving = True
        elif what == "close":
            self.socket.shutdown(socket.SHUT_WR)
            connection.closed = True
        elif what == "reset":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.closed = True
        elif what == "stall":
            time.sleep(chosen.choice([0.1, 0.5]))

    def act(self, request):
        chosen = self.random
        if request.ended and not hasattr(request, "checked"):
            request.checked = True
            self.run.check_request(request.marker, int(request["x-size"]), request.body)
        if chosen.random() < 0.03:
            # after a response header without Content-Length, NO_ERROR ends the content
            none = [NO_ERROR] if self.sent[request] is None else []
            request.rst(chosen.choice([*none, INTERNAL_ERROR, CANCEL, ENHANCE_YOUR_CALM]))
            self.live.remove(request)
        elif self.sent[request] is None:
            if not request.ended and chosen.random() < 0.9:
                return
            if chosen.random() < 0.1:
                request.head(103, [("x-hint", "1")])
                return
            self.head(request)
        else:
            self.body(request)

    def head(self, request):
        chosen = self.random
        size = chosen.choice(SIZES)
        fields = [("x-id", request.marker), ("x-size", str(size if request.method != "HEAD" else 0))]
        if chosen.random() < 0.5:
            fields.append(("content-length", str(size)))
        if chosen.random() < 0.02:
            fields.append(("connection", "close"))  # malformed
        end = request.method == "HEAD" or size == 0 and chosen.random() < 0.5
        request.head(200, fields, end=end)
        self.sent[request], request.size = 0, size
        if end:
            self.live.remove(request)

    def body(self, request):
        chosen, connection, at = self.random, self.connection, self.sent[request]
        n = min(request.size - at, chosen.choice([1, 100, 16384]), connection.window, connection.windows[request.stream])
        if at == request.size:
            n = 0
        if n > 0 or at == request.size:
            last = at + n == request.size and chosen.random() < 0.7
            connection.put(DATA, END_STREAM if last else 0, request.stream, content(request.marker, request.size)[at:at + n])
            connection.window -= n
            connection.windows[request.stream] -= n
            self.sent[request] = at + n
            if last:
                self.live.remove(request)
            elif at + n == request.size:
                request.raw_head([("x-trailer", request.marker)], end=True)
                self.live.remove(request)


def random_http1(run, peer, chosen):
    while not run.over.is_set() and (got := peer.read_request()) is not None:
        head, body = got
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        fields = {name.lower(): value for name, value in fields.items()}
        method, marker = head.split()[0].decode(), fields["x-id"]
        run.process(method, marker)
        run.check_request(marker, int(fields["x-size"]), body)
        if chosen.random() < 0.05:
            return
        if chosen.random() < 0.1:
            peer.send(b"HTTP/1.1 103 Early Hints\r\nx-hint: 1\r\n\r\n")
        if chosen.random() < 0.02:
            time.sleep(2)
        size = 0 if method == "HEAD" else chosen.choice(SIZES)
        data, chunks = content(marker, size), chosen.random() < 0.5
        length = "Transfer-Encoding: chunked" if chunks else f"Content-Length: {size}"
        out = f"HTTP/1.1 200 OK\r\nx-id: {marker}\r\nx-size: {size}\r\n{length}\r\n\r\n".encode()
        if chunks and method != "HEAD":
            step = chosen.choice([1000, 30000])
            out += b"".join(b"%x\r\n%s\r\n" % (len(data[at:at + step]), data[at:at + step]) for at in range(0, size, step)) + b"0\r\n\r\n"
        else:
            out += data
        if chosen.random() < 0.05:
            peer.send(out[:chosen.randrange(len(out))])
            return
        peer.send(out)


# ---- clients ---------------------------------------------------------------------------------------------------------------------

class RandomClient:
    """An HTTP/2 connection of a client, with several streams."""

    def __init__(self, run, address, chosen):
        self.run, self.random, self.live = run, chosen, {}
        settings = [(INITIAL_WINDOW_SIZE, chosen.choice([0, 5, 1000, 65535, 1000000]))]
        self.client = Http2(address, settings=settings, hold=chosen.random() < 0.2)

    def play(self):
        chosen, client = self.random, self.client
        for _ in range(chosen.choice([20, 200, 600])):
            if self.run.over.is_set() or client.closed or client.goaways:
                break
            if chosen.random() < 0.3 and len(self.live) < 8:
                self.start()
            if self.live:
                self.act(chosen.choice(list(self.live)))
            while select.select([client.socket], [], [], 0.002)[0] and client.read_frame() is not None:
                pass
            self.collect()
        if chosen.random() < 0.5:  # completes its streams
            client.socket.settimeout(3 * time_scale)
            for stream in list(self.live):
                self.finish(stream)
        client.socket.close()

    def start(self):
        chosen, marker = self.random, str(self.run.new_id())
        method = chosen.choice(["GET", "GET", "POST", "POST", "PUT", "HEAD"])
        size = chosen.choice(SIZES) if method in ("POST", "PUT") else 0
        fields = [("x-id", marker), ("x-size", str(size))]
        if size and chosen.random() < 0.5:
            fields.append(("content-length", str(size)))
        if method == "POST" and chosen.random() < 0.1:
            fields += [("content-type", "application/grpc"), ("grpc-timeout", chosen.choice(["1m", "50m", "1S"]))]
        end = not size and chosen.random() < 0.8
        stream = self.client.start(chosen.choice(["/one", "/two", "/two", "/two"]), method=method, fields=fields, end=end)
        self.live[stream] = [marker, method, size, 0, end]

    def act(self, stream):
        chosen, client, state = self.random, self.client, self.live[stream]
        choice = chosen.random()
        if choice < 0.03:
            client.send(RST_STREAM, 0, stream, struct.pack(">I", chosen.choice([CANCEL, NO_ERROR])))
            del self.live[stream]
        elif choice < 0.05:
            client.send(PING, 0, 0, b"12345678")
        elif choice < 0.1:
            client.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", chosen.choice([1, 1000, 100000])))
            client.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 100000))
        elif not state[4]:
            self.send(stream, chosen.choice([1, 100, 5000, 16384]))

    def send(self, stream, most):
        """Sends a piece of content as the windows permit. Returns whether anything was sent."""
        client, state = self.client, self.live[stream]
        marker, _, size, at, _ = state
        n = min(size - at, most, client.initial + client.streams[stream].granted - at, client.granted - client.used)
        if at == size:
            n = 0
        elif n <= 0:
            return False
        trailers = at + n == size and self.random.random() < 0.2
        last = at + n == size and not trailers
        client.send(DATA, END_STREAM if last else 0, stream, content(marker, size)[at:at + n])
        client.used += n
        state[3], state[4] = at + n, last or trailers
        if trailers:
            client.put_headers([("x-trailer", marker)], stream=stream)
            client.flush()
        return True

    def finish(self, stream):
        client = self.client
        got = client.streams[stream]
        client.hold = False
        client.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", 100000))
        client.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 100000))
        while not got.over():
            if self.live[stream][4] or not self.send(stream, 16384):
                client.read_frame()
        self.collect()

    def collect(self):
        for stream in list(self.live):
            got = self.client.streams[stream]
            if got.over():
                marker = self.live.pop(stream)[0]
                if got.ended:
                    self.run.check_response(marker, got.status, got.fields, got.body)
                else:
                    self.run.count("client: stream cut")


def random_http1_client(run, address, chosen):
    with Connection(address) as connection:
        for _ in range(chosen.choice([1, 5, 20])):
            if run.over.is_set():
                return
            marker, method = str(run.new_id()), chosen.choice(["GET", "POST", "PUT", "HEAD"])
            size = chosen.choice(SIZES) if method in ("POST", "PUT") else 0
            head = f"{method} {chosen.choice(['/one', '/two', '/two'])} HTTP/1.1\r\nHost: api.test\r\nx-id: {marker}\r\nx-size: {size}\r\n"
            data = content(marker, size)
            if chosen.random() < 0.5 and size:
                out = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (size, data)
            else:
                out = head.encode() + b"Content-Length: %d\r\n\r\n" % size + data
            cut = chosen.randrange(len(out)) if chosen.random() < 0.1 else len(out)
            connection.send(out[:cut])
            if cut < len(out) or chosen.random() < 0.05:
                return
            got = connection.response(method)
            run.check_response(marker, got.status, {name.lower(): value for name, value in got.fields}, got.body)


# ---- the test --------------------------------------------------------------------------------------------------------------------

def start_server(rig, run, name, serve):
    def script(peer, number):
        try:
            serve(run, peer, run.random(name, number))
        except CONNECTION_ERRORS:
            run.count("server: connection lost")
        except Exception as failure:
            run.fail(f"{name}: {failure!r}")
    return Scripted(rig, script)


def repeat(run, name, play):
    """Plays one client after the other."""
    number = 0
    while not run.over.is_set():
        number += 1
        try:
            play(run.random(name, number))
        except CONNECTION_ERRORS:
            run.count("client: connection lost")
        except Exception as failure:
            run.fail(f"{name}: {failure!r}")


def policy(servers, chosen):
    eject = {"failures": 0, "failure_rate": "0%"}
    return {"upstreams": {"one": {"servers": [servers[0].text], "response_timeout": "1s", "eject": eject},
                          "two": {"servers": [s.text for s in servers[1:]], "protocol": "http2", "response_timeout": "1s", "eject": eject}},
            "limits": {"at-once": dict(script="concurrency", limit=1000), "rate": dict(script="gcra", limit=1000000, period="1s")},
            "rules": [{"match": {"path": f"/{name}"}, "upstream": name, "limits": ["at-once", "rate"]} for name in ("one", "two")],
            "timeouts": {"request_body": "1s", "send": "1s", "keepalive": "1s"},
            "http2": {"max_concurrent_streams": chosen.choice([10, 100]), "resets_per_second": 1000}}


@timeout(90)
def test_random_order(rig):
    run = Run(int(os.environ.get("SEED", random.randrange(1 << 30))))
    servers = [start_server(rig, run, "http1", random_http1)]
    servers += [start_server(rig, run, f"http2 {n}", lambda *a: RandomHttp2(*a).play()) for n in range(2)]
    chosen = run.random("reloads")
    weir = rig.weir(workers=2, **policy(servers, chosen))
    weir.expect_errors("upstream|server|HTTP/2")
    plays = [lambda c: RandomClient(run, weir.address, c).play()] * HTTP2_CLIENTS
    plays += [lambda c: random_http1_client(run, weir.address, c)] * HTTP1_CLIENTS
    threads = [threading.Thread(target=repeat, args=(run, f"client {n}", play), daemon=True) for n, play in enumerate(plays)]
    for thread in threads:
        thread.start()
    began, seconds = time.monotonic(), SECONDS * (2 if sanitized else 1)

    def over():
        """A busy machine may take longer for the responses that the test requires."""
        return time.monotonic() - began > (seconds if run.counts["status 200"] > 100 else 5 * seconds)
    while not over() and weir.alive() and not run.failures:
        time.sleep(chosen.uniform(0.3, 1.5))
        weir.reload(**policy(servers, chosen))
    run.over.set()
    for thread in threads:
        thread.join(20 * time_scale)
        assert not thread.is_alive(), f"seed {run.seed}: a client does not end"
    print(f"seed {run.seed}: {dict(sorted(run.counts.items()))}")
    assert not run.failures, f"seed {run.seed}: {run.failures[:5]}"
    assert run.counts["status 200"] > 100, run.counts
    weir.counts(0, "weir_requests_active")
    weir.counts(0, "weir_connections")
