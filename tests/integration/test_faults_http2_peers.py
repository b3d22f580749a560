"""Frames of other people's HTTP/2 programs, at full speed: no flood limit is exceeded. tests/peers/run
runs the programs themselves."""

import hashlib
import socket
import struct

from http2_server import Http2Server
from http2_wire import ENHANCE_YOUR_CALM, INITIAL_WINDOW_SIZE, WINDOW_UPDATE, Http2
from wire import get

STEP = 4096  # Go updates the windows of stream and connection for this many bytes
GO_STREAM_WINDOW, GO_CONNECTION_WINDOW = 4 << 20, 1 << 30
SIZE = 8 << 20


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
        while (request := connection.next_request()) is not None:
            granted = 0
            while not request.ended and connection.read_frame():
                while not request.ended and granted + step <= len(request.body):
                    grant(connection, request.stream, step)
                    granted += step
            request.respond(hashlib.sha256(request.body).hexdigest().encode())
    server = Http2Server(rig, script, hold=True)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [server.text], "protocol": "http2"}}, rules=[])
    response = get(weir.address, "/upload", method="POST", body=body)
    assert (response.status, response.body.decode()) == (200, hashlib.sha256(body).hexdigest())
    weir.counts(0, "weir_upstream_http2_errors_total")


def test_a_server_updates_its_windows_for_every_4_kib(rig):
    upload(rig, b"x" * SIZE, STEP)
