"""Frames of other people's HTTP/2 programs, at full speed: no flood limit is exceeded. tests/peers/run
runs the programs themselves."""

import hashlib
import queue
import socket
import struct

from http2_server import Http2Server
from http2_wire import (CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, INITIAL_WINDOW_SIZE, NO_ERROR, PRIORITY, PROTOCOL_ERROR,
                        RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2, frame)
from scripted import Scripted
from wire import get

STEP = 4096  # Go updates the windows of stream and connection for this many bytes
GO_STREAM_WINDOW, GO_CONNECTION_WINDOW = 4 << 20, 1 << 30
SIZE = 8 << 20
STREAM_CLOSED = 5


def grant(peer, stream, size):
    """Updates as golang.org/x/net/http2 sends them."""
    for number in (stream, 0):
        peer.put(WINDOW_UPDATE, 0, number, struct.pack(">I", size))


def go_client(weir):
    client = Http2(weir.address, [(INITIAL_WINDOW_SIZE, GO_STREAM_WINDOW)], hold=True)
    client.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", GO_CONNECTION_WINDOW - 65535))
    return client


def download(client, size, unread):
    """Reads a response as a Go program does that reads `unread` bytes behind the transport, in
    pieces of STEP bytes."""
    stream, granted = client.start(f"/bytes/{size}"), 0
    got = client.streams[stream]
    while not got.over():
        assert client.read_frame() is not None, client.goaways
        while not got.over() and len(got.body) >= granted + STEP + unread:
            # all that has arrived, in one write
            while len(got.body) >= granted + STEP:
                grant(client, stream, STEP)
                granted += STEP
            client.flush()
    assert got.ended and len(got.body) == size, (got.reset, got.cut, client.goaways)


def test_a_client_updates_its_windows_for_every_4_kib(rig):
    weir = rig.weir(workers=1)
    with go_client(weir) as client:
        download(client, SIZE, unread=0)
        assert client.get().status == 200
    weir.counts(0, "weir_http2_errors_total")


def test_a_client_reads_late(rig):
    """The client's program reads after the window is full: 2,048 updates at once."""
    weir = rig.weir(workers=1)
    with go_client(weir) as client:
        for _ in range(3):
            download(client, SIZE, unread=GO_STREAM_WINDOW - STEP)
    weir.counts(0, "weir_http2_errors_total")


def test_a_client_pings_for_every_frame_of_a_response(rig):
    """gRPC measures the bandwidth: a PING for DATA received, and the next when it has returned.
    Here, all of the response arrives before the first."""
    weir = rig.weir(workers=1)
    with go_client(weir) as client:
        download(client, GO_STREAM_WINDOW, unread=GO_STREAM_WINDOW)
        for _ in range(GO_STREAM_WINDOW // 16384):
            assert client.responds_to_ping(), client.goaways


def test_updates_beyond_the_credit_are_charged(rig):
    weir = rig.weir(workers=1)
    with go_client(weir) as client:
        client.hold = False
        download(client, 1 << 20, unread=1 << 20)
        try:
            client.socket.sendall(b"\0\0\4\x08\0\0\0\0\0\0\0\0\1" * 5000)
        except OSError:
            pass
        assert client.read_to_end()[-1][1] == ENHANCE_YOUR_CALM
    weir.counts(1, "weir_http2_errors_total", cause="window_updates")


def upload(rig, body, step):
    """Uploads through weir to a server that updates its windows for every `step` bytes."""
    def script(connection, _number):
        connection.peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2 * SIZE))
        while (request := connection.next_request()) is not None:
            granted = 0
            while not request.ended and connection.read_frame():
                while not request.ended and granted + step <= len(request.body):
                    grant(connection, request.stream, step)
                    granted += step
            request.respond(hashlib.sha256(request.body).hexdigest().encode())
    server = Http2Server(rig, script, [(INITIAL_WINDOW_SIZE, 2 * SIZE)], hold=True)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [server.text], "protocol": "http2"}}, rules=[])
    response = get(weir.address, "/upload", method="POST", body=body)
    assert (response.status, response.body.decode()) == (200, hashlib.sha256(body).hexdigest())
    weir.counts(0, "weir_upstream_http2_errors_total")


def test_a_server_updates_its_windows_for_every_4_kib(rig):
    upload(rig, b"x" * SIZE, STEP)


def test_a_server_resets_after_early_responses(rig):
    """A Go server whose handler does not read the content: it responds, resets the stream with
    NO_ERROR, and answers each further DATA frame with RST_STREAM."""
    def script(connection, _number):
        connection.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 28))
        while (request := connection.next_request()) is not None:
            request.read_all()
            request.respond(b"", 403)
            request.rst(NO_ERROR)
            for _ in range(len(request.body) // 16384):
                request.rst(STREAM_CLOSED)
    server = Http2Server(rig, script, [(INITIAL_WINDOW_SIZE, 1 << 20)], hold=True)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [server.text], "protocol": "http2"}}, rules=[])
    for _ in range(20):
        assert get(weir.address, "/upload", method="POST", body=b"x" * (1 << 20)).status == 403
    assert server.accepted == 1
    weir.counts(0, "weir_upstream_http2_errors_total")


# --- conformance ---

def assert_connection_error(weir, code, send):
    """`send(client)`: sends frames, the last of which is a connection error with this code."""
    with Http2(weir.address) as client:
        assert client.get().status == 200
        send(client)
        client.flush()
        assert client.read_to_end()[-1][1] == code, client.goaways


def test_frames_that_no_client_may_send(rig):
    """RFC 9113 sections 5.1, 5.1.1 and 6.3."""
    weir = rig.weir(workers=1)

    def after_reset(kind, payload):
        def send(client):
            stream = client.start("/echo", method="POST", end=False)
            client.put(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
            client.put(kind, END_STREAM | END_HEADERS, stream, payload)
        return send
    assert_connection_error(weir, STREAM_CLOSED, lambda client: client.put(DATA, END_STREAM, 1, b"late"))
    assert_connection_error(weir, STREAM_CLOSED, lambda client: client.put_headers([("a", "b")], stream=1))
    assert_connection_error(weir, STREAM_CLOSED, after_reset(DATA, b"late"))
    assert_connection_error(weir, STREAM_CLOSED, after_reset(HEADERS, b""))

    def lower(client):
        client.next = 7
        assert client.get().status == 200
        client.next = 5
        client.put_request()
    assert_connection_error(weir, PROTOCOL_ERROR, lower)
    assert_connection_error(weir, PROTOCOL_ERROR, lambda client: client.put_headers([("a", "b")], stream=2))
    assert_connection_error(weir, PROTOCOL_ERROR, lambda client: client.put(PRIORITY, 0, 0, b"\0\0\0\1\1"))
    weir.counts(7, "weir_http2_errors_total", cause="protocol_error")


def test_frames_under_way_on_streams_that_weir_resets(rig):
    """weir rejects uploads and resets their streams, while the client goes on sending content and
    trailers."""
    weir = rig.weir(workers=1, limits={"one": {"script": "token_bucket", "limit": 1, "period": "1h", "per": "all"}})
    with Http2(weir.address) as client:
        assert client.get().status == 200
        streams = [client.start("/echo", method="POST", end=False) for _ in range(20)]
        for stream in streams:
            client.read_until(client.streams[stream].over)
            assert client.streams[stream].status == 429
        for stream in streams:
            client.put(DATA, 0, stream, b"late")
            client.put_headers([("x-late", "1")], stream=stream)
        client.flush()
        assert client.responds_to_ping() and not client.goaways


def test_content_length_0_with_content(rig):
    """RFC 9113 section 8.1.1: the content makes the request malformed. No server may take it for a
    complete one before."""
    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        try:
            body = peer.read_chunks()
        except Exception:
            received.put(None)
            return
        received.put(body)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    received, length = queue.Queue(), [("content-length", "0")]
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [Scripted(rig, script).text]}}, rules=[])
    with Http2(weir.address) as client:
        stream = client.put_request(method="POST", fields=length, end=False)
        client.flush()
        assert client.responds_to_ping()
        client.send(DATA, END_STREAM, stream, b"content")
        client.read_until(client.streams[stream].over)
        assert client.streams[stream].reset == PROTOCOL_ERROR
        assert received.get(timeout=20) is None
        stream = client.start(method="POST", fields=length, end=False)  # complete, with an empty frame
        client.send(DATA, END_STREAM, stream)
        assert client.response(stream).body == b"ok"
        assert received.get(timeout=20) == b""


def test_a_flood_after_goaway_ends(rig):
    """A client that never reads, and sends SETTINGS without an end. weir reads on after GOAWAY, so
    that the client receives it, but not more than the windows permit."""
    weir = rig.weir(workers=1, timeouts={"linger": "300s"})
    with Http2(weir.address) as client:
        try:
            for _ in range(2000):  # 180 MB
                client.socket.sendall(frame(SETTINGS) * 10000)
            raise AssertionError("weir still reads")
        except (BrokenPipeError, ConnectionResetError):
            pass
    weir.counts(1, "weir_http2_errors_total", cause="settings")
    weir.counts(0, "weir_connections")
