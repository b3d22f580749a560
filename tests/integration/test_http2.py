"""HTTP/2 with clients: requests, limits, flow control, shutdown. Floods: test_http2_attacks.py."""

import json
import os
import queue
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import zlib

from gate import Gate
from http2_wire import (CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, NO_ERROR, PING,
                        PROTOCOL_ERROR, RST_STREAM, WINDOW_UPDATE, Http2, Stream, frame)
from rig import eventually, time_scale, top
from scripted import OK, Scripted, kernel_queues
from wire import Connection, get

CERTIFICATE = {name: os.path.join(top, "tests/tls", file) for name, file in (("certificate", "cert.pem"), ("key", "key.pem"))}


def pattern(size):
    """The body of /bytes/N of the upstream: byte i is "a" + i mod 26."""
    return (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def echo(client, path="/echo", **more):
    return json.loads(client.get(path, **more).body)


def named(seen, name):
    return [value for key, value in seen["fields"] if key.lower() == name]


def curl(*arguments):
    return subprocess.run(["curl", "-s", "-m", "20", *arguments], capture_output=True, text=True, check=True).stdout


def test_requests_are_forwarded_as_http1(rig):
    weir = rig.weir(log={"access": "json"})
    with Http2(weir.address) as client:
        seen = echo(client, "/echo?a=1", fields=[("cookie", "a=1"), ("x-one", "1"), ("cookie", "b=2"), ("te", "trailers")])
        assert (seen["method"], seen["target"]) == ("GET", "/echo?a=1")
        assert named(seen, "host") == ["api.test"]
        assert named(seen, "cookie") == ["a=1; b=2"]
        assert re.fullmatch(r"2 weir-[0-9a-f]{8}", *named(seen, "via")) and named(seen, "te") == ["trailers"]
        assert named(seen, "transfer-encoding") == [] and named(seen, "connection") == ["TE"]
        head = client.get("/bytes/1000", method="HEAD")
        assert head.status == 200 and head["content-length"] == "1000" and head.body == b""
        assert client.get("/status/204").status == 204 and client.get("/status/304").status == 304
        response = client.get("/chunked/100000")
        assert response.body == pattern(100000) and response["transfer-encoding"] is None
        assert client.get("/bytes/100000")["via"].startswith("1.1 weir-")
        assert not client.goaways
    eventually(lambda: '"protocol":"HTTP/2.0"' in weir.output())
    assert weir.metric("weir_http2_connections_total") == 1


def test_streams_are_multiplexed(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, workers=1)
    with Http2(weir.address) as client:
        streams = [client.put_request(f"/{i}") for i in range(60)]
        client.flush()
        eventually(lambda: gate.now == 60)
        assert weir.metric("weir_requests_active") == 60
        gate.open.set()
        assert [client.response(stream).status for stream in streams] == [200] * 60


def test_request_bodies(rig):
    weir = rig.weir()
    body = pattern(60000)
    with Http2(weir.address) as client:
        for fields in [("content-length", "60000")], []:
            stream = client.start("/echo", method="POST", fields=fields, end=False)
            client.send_body(stream, body[:30000], end=False)
            assert client.responds_to_ping()
            client.send_body(stream, body[30000:])
            seen = json.loads(client.response(stream).body)
            assert (seen["content_length"], seen["content_crc32"]) == (60000, zlib.crc32(body)), seen
            assert named(seen, "content-length") == [value for _, value in fields]
        # the content length is known from the trailers on
        stream = client.start("/echo", method="POST", end=False)
        client.send_body(stream, b"hello", end=False)
        client.put_headers([("x-checksum", "1")], stream)
        client.flush()
        assert json.loads(client.response(stream).body)["content_length"] == 5


def test_every_stream_is_charged_as_a_request(rig):
    weir = rig.weir(limits={"few": dict(script="token_bucket", limit=5, period="1h")}).wait_for_redis()
    with Http2(weir.address) as client:
        streams = [client.put_request() for _ in range(12)]
        client.flush()
        responses = [client.response(stream) for stream in streams]
        assert sorted(r.status for r in responses) == [200] * 5 + [429] * 7
        rejected = [r for r in responses if r.status == 429]
        assert all(int(r["retry-after"]) > 0 and r["connection"] is None for r in rejected)
        assert all(json.loads(r.body)["status"] == 429 for r in rejected)
        upload = client.start(method="POST", fields=[("content-length", "1000000")], end=False)
        # at once; then weir asks the client to stop sending
        assert client.response(upload).status == 429
        client.read_until(lambda: client.streams[upload].reset is not None)
        assert client.streams[upload].reset == NO_ERROR
        assert client.get().status == 429 and not client.goaways
    weir.counts(9, "weir_requests_total", decision="limited")


def test_concurrency_limits_count_streams(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, limits={"at-once": dict(script="concurrency", limit=3)}).wait_for_redis()
    with Http2(weir.address) as client:
        first = [client.put_request() for _ in range(3)]
        client.flush()
        eventually(lambda: gate.now == 3)
        assert client.get().status == 429
        # a cancelled stream frees its slot
        client.send(RST_STREAM, 0, first[0], CANCEL.to_bytes(4, "big"))
        assert client.responds_to_ping()
        eventually(lambda: weir.metric("weir_requests_active") == 2)
        last = client.start()
        eventually(lambda: gate.total == 4)
        gate.open.set()
        assert [client.response(stream).status for stream in (first[1], first[2], last)] == [200] * 3


def test_connections_per_ip_counts_connections(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 100, "connections_per_ip": 2})
    with Http2(weir.address) as one, Http2(weir.address) as two:
        assert one.get().status == two.get().status == 200
        try:
            with Http2(weir.address) as three:
                three.read_to_end()
                assert three.closed and not three.streams
        except ConnectionError:
            pass
        for client in one, two:
            streams = [client.put_request() for _ in range(20)]
            client.flush()
            assert [client.response(s).status for s in streams] == [200] * 20


def test_tls_negotiates_http2_by_alpn(rig):
    weir = rig.weir(listen=[{"address": "127.0.0.1:0", "tls": CERTIFICATE},
                            {"address": "127.0.0.1:0", "tls": CERTIFICATE, "http2": False}])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(CERTIFICATE["certificate"])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with Http2(weir.addresses[0], tls=context, host="one.test") as client:
        assert client.socket.selected_alpn_protocol() == "h2"
        assert named(echo(client), "x-forwarded-proto") == ["https"]
        assert client.get("/bytes/300000").body == pattern(300000)
        stream = client.start("/echo", method="POST", end=False)
        client.send_body(stream, pattern(50000))
        assert json.loads(client.response(stream).body)["content_length"] == 50000
    with socket.create_connection(weir.addresses[1]) as raw, context.wrap_socket(raw, server_hostname="one.test") as other:
        assert other.selected_alpn_protocol() == "http/1.1"


def test_http2_can_be_disabled(rig):
    weir = rig.weir(listen=[{"address": "127.0.0.1:0", "http2": False}])
    with Http2(weir.address) as client:
        assert client.take(12) == b"HTTP/1.1 505"
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "http://%s:%d/" % weir.address) == "200"
    weir.reload(listen=[{"address": "127.0.0.1:0", "http2": True}])
    eventually(lambda: b"HTTP" not in first_bytes(weir), what="HTTP/2 after the reload")


def test_http1_after_the_http2_preface_is_not_a_request(rig):
    weir = rig.weir()
    with Http2(weir.address) as client:
        client.socket.sendall(b"GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n")
        client.read_to_end()
        assert client.goaways and client.goaways[-1][1] != NO_ERROR and not client.streams
    weir.counts(1, "weir_http2_errors_total", cause="protocol_error")
    assert rig.upstream().stats()["requests"] <= 1  # /stats itself


def first_bytes(weir):
    with Http2(weir.address) as client:
        client.start()
        return client.take(9)


def test_curl_and_nghttp(rig):
    weir = rig.weir()
    url = "http://%s:%d" % weir.address
    written = "%{http_version} %{http_code} %{size_download}"
    assert curl("--http2-prior-knowledge", "-o", "/dev/null", "-w", written, url + "/bytes/1000000") == "2 200 1000000"
    assert curl("--http2", "-o", "/dev/null", "-w", written, url + "/bytes/10") == "1.1 200 10"  # no h2c upgrade
    upload = curl("--http2-prior-knowledge", "-H", "Expect:", "--data-binary", "@" + rig.write("body", "x" * 400000), url + "/echo")
    assert json.loads(upload)["content_length"] == 400000
    waits = curl("--http2-prior-knowledge", "-H", "Expect: 100-continue", "-d", "hello", url + "/echo")
    assert json.loads(waits)["content_length"] == 5
    output = subprocess.run(["nghttp", "-ns", "-m", "20", url + "/bytes/5000"], capture_output=True, text=True, timeout=20, check=True)
    assert output.stdout.count(" 200 ") == 20, output.stdout
    loaded = subprocess.run(["h2load", "-n", "2000", "-c", "4", "-m", "50", url + "/"], capture_output=True, text=True, timeout=30,
                            check=True).stdout
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in loaded, loaded


def test_interim_and_early_responses(rig):
    def script(peer, _number):
        head, _ = peer.read_request()
        if b"/hint" in head:
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    api = Scripted(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}})
    with Http2(weir.address) as client:
        stream = client.start("/hint")
        assert client.response(stream).body == b"ok" and client.streams[stream].interim == [103]


def test_an_incomplete_response_resets_the_stream(rig):
    def script(peer, _number):
        head, _ = peer.read_request()
        chunks = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" if b"/chunked" in head else b"Content-Length: 10\r\n\r\nabc"
        peer.send(b"HTTP/1.1 200 OK\r\n" + chunks)
    api = Scripted(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}})
    with Http2(weir.address) as client:
        for path in "/length", "/chunked":
            stream = client.start(path)
            client.read_until(client.streams[stream].over)
            assert client.streams[stream].reset is not None and not client.streams[stream].ended
        assert client.responds_to_ping()


def test_a_stream_reset_closes_the_request_to_the_server(rig):
    left = threading.Event()

    def script(peer, _number):
        peer.read_request()
        if not peer.socket.recv(1):
            left.set()
    api = Scripted(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}})
    with Http2(weir.address) as client:
        stream = client.start()
        eventually(lambda: api.accepted == 1)
        client.send(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))
        assert left.wait(10 * time_scale)
        weir.counts(1, "weir_errors_total", cause="client_gone")


def test_malformed_requests_reset_only_their_stream(rig):
    weir = rig.weir(log={"level": "debug"})
    get_fields = [(":method", "GET"), (":scheme", "http"), (":authority", "api.test"), (":path", "/echo")]
    bad = [[*get_fields, ("transfer-encoding", "chunked")], [*get_fields, ("connection", "close")],
           [*get_fields, ("x-a", "b\r\nx-evil: 1")], [*get_fields, ("x-a\r\nx-evil", "1")], [*get_fields, ("x-a: 1\r\nx-evil", "1")],
           [*get_fields, ("X-A", "1")], [*get_fields, ("x a", "1")], [*get_fields, ("x-a", " b")], [*get_fields, ("host", "other.test")],
           [*get_fields, (":path", "/other")], [*get_fields[:3]], [*get_fields[:3], (":path", "/echo HTTP/1.1\r\nX-Evil: 1")],
           [(":method", "GET /x HTTP/1.1\r\nX-Evil:"), *get_fields[1:]], [*get_fields, ("te", "gzip")],
           # WebSocket over HTTP/2 (RFC 8441) is not offered and is refused
           [(":method", "CONNECT"), (":protocol", "websocket"), *get_fields[1:]]]
    with Http2(weir.address) as client:
        for fields in bad:
            stream = client.put_headers(fields)
            client.flush()
            client.read_until(client.streams[stream].over)
            assert client.streams[stream].reset == PROTOCOL_ERROR, fields
        assert client.get("/echo").status == 200
        # nghttp2 from 1.60 on refuses user information itself
        stream = client.put_headers([*get_fields[:2], (":authority", "u@a.test"), get_fields[3]])
        client.flush()
        client.read_until(client.streams[stream].over)
        by_nghttp2 = client.streams[stream].reset == PROTOCOL_ERROR
        assert by_nghttp2 or client.streams[stream].status == 400
        for fields, status in (([*get_fields[:3], (":path", "/%zz")], 400),
                               ([(":method", "CONNECT"), (":authority", "api.test:443")], 501), ([*get_fields, ("x-large", "a" * 20000)], 431)):
            stream = client.put_headers(fields)
            client.flush()
            assert client.response(stream).status == status, fields
        assert client.get("/echo").status == 200 and not client.goaways
    weir.counts(len(bad) + by_nghttp2, "weir_http2_errors_total", cause="malformed")
    assert "x-evil" not in rig.upstream().output().lower()


def test_flow_control_to_a_slow_client(rig):
    """Content beyond the client's window stays in the server's socket: weir buffers one chunk per
    stream."""
    weir = rig.weir(workers=1)
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True) as client:
        streams = [client.put_request("/bytes/2000000") for _ in range(20)]
        client.flush()
        client.read_until(lambda: all(client.streams[s].status for s in streams))
        assert client.responds_to_ping() and get(weir.address, "/bytes/1000").status == 200
        client.hold = False
        client.put(WINDOW_UPDATE, 0, streams[0], (2000000).to_bytes(4, "big"))
        client.flush()
        assert client.response(streams[0]).body == pattern(2000000)
        assert 0 < weir.metric("weir_buffer_memory_bytes") < 20 * 150 * 1024
        assert not any(client.streams[s].body for s in streams[1:])


def test_streams_share_the_window_of_the_connection(rig):
    """The client reads at full speed. No response may be cut because others take its windows."""
    weir = rig.weir(workers=1)
    with Http2(weir.address, hold=True) as client:
        streams = {number: client.streams[number] for number in [client.put_request("/bytes/3000000") for _ in range(5)]}
        client.flush()
        client.read_until(lambda: all(stream.status for stream in streams.values()))
        client.release()
        begun = sum(len(stream.body) for stream in streams.values())
        client.read_until(lambda: sum(len(stream.body) for stream in streams.values()) - begun >= 2000000)
        streams = list(streams.values())
        assert min(len(stream.body) for stream in streams) > 200000, [len(stream.body) for stream in streams]


class Download:
    """An endless response to /large that the client has stopped reading."""

    def __init__(self, rig, **keys):
        self.requests, self.sent, self.cancelled = queue.Queue(), 0, threading.Event()
        self.weir = rig.weir(workers=1, upstreams={"api": {"servers": [Scripted(rig, self.script).text]}}, **keys)
        self.client = Http2(self.weir.address, settings=[(INITIAL_WINDOW_SIZE, 2 ** 31 - 1)], hold=True)
        self.client.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2 ** 31 - 65536))
        self.stream = self.client.start("/large")
        rig.add_cleanup(self.client.socket.close)
        for _ in range(1500):  # frames; the kernel's buffers grow with the speed
            self.client.take(int.from_bytes(self.client.take(9)[:3], "big"))
        eventually(self.waits, what="the kernel's buffers to be full")

    def script(self, peer, _number):
        while (request := peer.read_request()) is not None:
            target = request[0].split()[1].decode()
            self.requests.put(target)
            if target != "/large":
                peer.send(OK)
                continue
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True:
                    peer.send(b"x" * 65536)
                    self.sent += 65536
            except OSError:
                self.cancelled.set()
                return

    def waits(self):
        before = self.sent
        time.sleep(0.2)
        return self.sent == before and self.unsent() > 0

    def unsent(self):
        """The bytes that the kernel stores for the client."""
        return kernel_queues(self.weir.address[1], self.client.socket.getsockname()[1])[0]


def test_frames_are_read_while_output_waits_for_the_client(rig):
    """A slow download does not delay the client's other requests, and it can be cancelled."""
    download = Download(rig)
    assert download.requests.get(timeout=20) == "/large"
    download.client.start("/other")
    assert download.requests.get(timeout=20) == "/other"
    download.client.send(RST_STREAM, 0, download.stream, struct.pack(">I", CANCEL))
    assert download.cancelled.wait(20)


def test_requests_do_not_prolong_the_time_for_output(rig):
    download = Download(rig, timeouts={"send": "2s"})
    client = download.client

    def is_closed():
        time.sleep(0.3)
        try:
            client.send(RST_STREAM, 0, client.start("/other"), struct.pack(">I", CANCEL))
        except OSError:
            return True
        return download.weir.metric("weir_connections") == 0
    eventually(is_closed, 20)


def test_input_after_a_fault_is_not_read_while_output_waits(rig):
    client = Download(rig).client
    client.socket.settimeout(1)
    client.socket.sendall(frame(PING, 0, 0, b"at once ") * 300)
    try:
        for _ in range(1024):  # more than the kernel stores
            client.socket.sendall(b"x" * 65536)
    except TimeoutError:
        return
    raise AssertionError("weir has read all of it")


def test_little_output_waits_in_the_kernel(rig):
    """The next response of the connection waits behind it."""
    assert Download(rig).unsent() < 512 * 1024


def test_a_rejection_waits_for_the_window(rig):
    """A configured body is several pieces of content."""
    parts = "a" * 3000, "b" * 3000
    body = rig.write("rejected.txt", "{limit}".join(parts))
    weir = rig.weir(workers=1, limits={"one": dict(script="token_bucket", limit=1, period="1h")}, rejection={"body_file": body})
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True) as client:
        assert client.get("/status/204").status == 204
        stream = client.start()
        assert client.responds_to_ping()
        client.send(WINDOW_UPDATE, 0, stream, (10000).to_bytes(4, "big"))
        rejected = client.response(stream)
        assert rejected.status == 429 and rejected.body == "one".join(parts).encode()


def test_rejections_are_patched_from_one_protocol_to_the_other(rig):
    """A rejection is made from the last one of its rule, which the other protocol may have sent."""
    weir = rig.weir(workers=1, limits={"one": dict(script="gcra", limit=1, period="1d")})
    with Http2(weir.address) as client, Connection(weir.address) as kept:
        assert client.get("/status/204").status == 204
        ids = set()
        for turn in "2211211":
            number = f"{len(ids):016d}" if len(ids) % 3 else f"longer-{len(ids):016d}"
            if turn == "2":
                rejected = client.get("/", fields=[("x-request-id", number)])
            else:
                rejected = kept.request(headers={"X-Request-Id": number})
            document = json.loads(rejected.body)
            assert rejected.status == document["status"] == 429 and int(rejected["content-length"]) == len(rejected.body)
            assert rejected["x-request-id"] == number and rejected["content-type"] == "application/problem+json"
            assert int(rejected["retry-after"]) > 86000 and ";r=0;" in rejected["ratelimit"]
            ids.add(rejected["x-request-id"])
        assert len(ids) == 7
        head = client.get("/", method="HEAD")
        assert head.status == 429 and head.body == b"" and int(head["content-length"]) > 0


def test_flow_control_to_a_slow_server(rig):
    """A client can send at most one window per stream to a server that does not read."""
    gate = threading.Event()

    def script(peer, _number):
        head = peer.read_until(b"\r\n\r\n", "a head")
        if b"/stalled" not in head:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        gate.wait()
        received = peer.read_chunks()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d" % (len(str(len(received))), len(received)))
    api = Scripted(rig, script)
    api.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)  # with less, delayed ACKs take long
    rig.add_cleanup(gate.set)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}}, workers=1)
    with Http2(weir.address) as client:
        stalled = client.start("/stalled", method="POST", end=False)
        granted, sent, size = {"bytes": 65535}, 0, 16000000  # more than the kernel's buffers take
        client.apply = record_window_updates(client, stalled, granted)
        while sent < size:
            n = min(granted["bytes"] - sent, 16000, size - sent)
            if n > 0:
                client.send(DATA, END_STREAM if sent + n == size else 0, stalled, b"x" * n)
                sent += n
            else:
                before = sent
                assert client.responds_to_ping()
                if granted["bytes"] == before and not gate.is_set():
                    assert client.get("/other").status == 200  # other streams continue
                    gate.set()  # the window is exhausted: the server reads again
                    size = sent + 200000
                elif granted["bytes"] == before:
                    client.read_frame()
        assert gate.is_set(), "weir takes content although the server reads none"
        assert client.response(stalled).body == b"%d" % size


def record_window_updates(client, stream, granted):
    apply = client.apply

    def watching(kind, flags, number, payload):
        if kind == WINDOW_UPDATE and number == stream:
            granted["bytes"] += int.from_bytes(payload, "big")
        apply(kind, flags, number, payload)
    return watching


def test_a_shutdown_finishes_all_streams(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, timeouts={"shutdown": "20s"}, workers=1)
    with Http2(weir.address) as busy, Http2(weir.address) as idle:
        first = busy.start()
        assert idle.responds_to_ping()
        eventually(lambda: gate.now == 1)
        weir.signal(signal.SIGTERM)
        busy.read_until(lambda: busy.goaways)
        assert busy.goaways == [(0x7fffffff, NO_ERROR)]
        # was in flight: the PING after the first GOAWAY is acknowledged later
        second = busy.start()
        idle.read_to_end()
        assert idle.goaways == [(0x7fffffff, NO_ERROR), (0, NO_ERROR)]
        busy.read_until(lambda: len(busy.goaways) == 2)
        eventually(lambda: gate.total == len([n for n in (first, second) if n <= busy.goaways[1][0]]))
        gate.open.set()
        assert busy.response(first).status == 200
        if second <= busy.goaways[1][0]:
            assert busy.response(second).status == 200
        busy.read_to_end()
    assert weir.wait(10) == 0


def test_a_shutdown_ends_after_its_timeout(rig):
    """A stream without any part of a response gets 503; the others are reset."""
    begun = threading.Event()

    def serve(peer, _number):
        request = peer.read_request()
        if request and b"/begun" in request[0]:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")
        elif request:
            begun.set()
        peer.read_request()
    weir = rig.weir(upstreams={"api": {"servers": [Scripted(rig, serve).text]}}, timeouts={"shutdown": "300ms"})
    with Http2(weir.address) as client:
        waiting, answered = client.start(), client.start("/begun")
        client.read_until(lambda: client.streams[answered].body)
        eventually(begun.is_set)
        weir.signal(signal.SIGTERM)
        client.read_to_end()
        assert client.streams[waiting].ended and client.streams[waiting].status == 503
        assert not client.streams[answered].ended
        assert weir.wait(10) == 0
    assert "requests still in progress after timeouts.shutdown" in weir.output()


def test_a_reload_keeps_streams_open(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams)
    with Http2(weir.address) as client:
        stream = client.start()
        eventually(lambda: gate.now == 1)
        weir.reload(http2={"max_concurrent_streams": 50})
        gate.open.set()
        assert client.response(stream).status == 200 and client.get().status == 200 and not client.goaways


def test_timeouts(rig):
    weir = rig.weir(timeouts={"keepalive": "1500ms", "request_header": "1500ms", "request_body": "1500ms", "send": "1500ms"})
    with Http2(weir.address) as client:
        assert client.get().status == 200
        assert client.read_to_end() == [(0x7fffffff, NO_ERROR), (1, NO_ERROR)]  # idle
    with Http2(weir.address) as client:
        assert client.responds_to_ping()
        client.send(HEADERS, END_STREAM, 1, client.encoder.encode([(":method", "GET")]))
        client.read_to_end()  # the rest of the head is not sent
        assert not client.streams.get(1) or client.streams[1].status is None
    weir.counts(1, "weir_errors_total", cause="request_header_timeout")
    with Http2(weir.address) as client:
        stream = client.start(method="POST", end=False)
        assert client.response(stream).status == 408 and client.get().status == 200
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 10)], hold=True) as client:
        stream = client.start("/bytes/1000")  # its window is not extended
        client.read_until(client.streams[stream].over)
        assert client.streams[stream].reset is not None and client.streams[stream].body == pattern(10)
    weir.counts(1, "weir_errors_total", cause="client_stalled")
    with Connection(weir.address) as half:
        half.send(b"PRI * HTTP/2.0\r\n")
        half.is_closed()


def test_a_request_that_weir_answers_at_once_ends_the_idle_time(rig):
    weir = rig.weir(timeouts={"keepalive": "4s"})
    with Http2(weir.address) as client:
        pause, since = threading.Event(), time.monotonic()
        while time.monotonic() - since < 6:
            assert client.get(method="OPTIONS", fields=[("max-forwards", "0")]).status == 204
            pause.wait(0.1)
        assert not client.goaways
        assert [code for _, code in client.read_to_end()] == [NO_ERROR] * 2  # idle


def test_an_incomplete_header_ends_the_other_requests(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, timeouts={"request_header": "1500ms"}, log={"access": "json"})
    with Http2(weir.address) as client:
        client.start("/under-way")
        assert client.responds_to_ping()
        eventually(lambda: gate.now == 1)
        client.send(HEADERS, END_STREAM, 3, client.encoder.encode([(":method", "GET")]))
        client.read_to_end()
    weir.counts(1, "weir_errors_total", cause="request_header_timeout")
    weir.wait_for_output(r'"target":"/under-way".*"error":"request_header_timeout"')
    assert weir.metric("weir_errors_total", cause="client_gone") == 0


def test_an_incomplete_header_ends_also_while_the_client_reads_slowly(rig):
    """The time for a header is the time in all, also if output waits for the client meanwhile."""
    def script(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            peer.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    weir = rig.weir(upstreams={"api": {"servers": [Scripted(rig, script).text]}}, timeouts={"request_header": "1500ms"})
    window = 2 ** 31 - 1
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, window)], hold=True) as client:
        client.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - 65535))
        client.start()
        client.send(HEADERS, END_STREAM, 3, client.encoder.encode([(":method", "GET")]))
        pause, since, size = threading.Event(), time.monotonic(), 0
        while (data := client.socket.recv(65536)) and time.monotonic() - since < 8 * time_scale:
            size += len(data)
            pause.wait(0.005)
        assert not data, f"still open, {size} bytes were read"
    weir.counts(1, "weir_errors_total", cause="request_header_timeout")


def test_each_header_has_its_own_time(rig):
    """A connection may have an incomplete header whenever weir has read all that arrived."""
    weir = rig.weir(timeouts={"request_header": "4s"})
    with Http2(weir.address) as client:
        assert client.get().status == 200
        pause, since, rest = threading.Event(), time.monotonic(), b""
        while time.monotonic() - since < 6:
            stream = client.put_request("/ok")
            data, client.sent = client.sent, b""
            client.socket.sendall(rest + data[:12])
            rest = data[12:]
            pause.wait(0.1)
        client.socket.sendall(rest)
        assert client.response(stream).status == 200


def test_continuation_frames(rig):
    weir = rig.weir()
    with Http2(weir.address) as client:
        block = client.encoder.encode([(":method", "GET"), (":scheme", "http"), (":authority", "api.test"), (":path", "/echo"),
                                       ("x-long", "y" * 3000)])
        client.streams[1] = Stream()
        client.send(HEADERS, END_STREAM, 1, block[:10])
        for at in range(10, len(block), 500):
            client.send(CONTINUATION, END_HEADERS if at + 500 >= len(block) else 0, 1, block[at:at + 500])
        assert named(json.loads(client.response(1).body), "x-long") == ["y" * 3000]
