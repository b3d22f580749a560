"""Servers that respond before they have read the whole request, and then close: the response still
reaches the client."""

import socket
import ssl
import threading

from scripted import Scripted
from tls_server import CA, TlsServer, context
from wire import Connection, IncompleteResponse, request_bytes

UPLOAD = 20_000_000
UPLOADS = 25


def response_bytes(status, framing):
    head = b"HTTP/1.1 %d X\r\n" % status
    if framing == "length":
        return head + b"Content-Length: 5\r\n\r\nearly"
    if framing == "chunked":
        return head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n"
    return head + b"\r\nearly"


def close_notify(peer):
    """Sends close_notify without waiting for the client's, which is still sending content."""
    if isinstance(peer.socket, ssl.SSLSocket):
        try:
            peer.socket.unwrap()
        except (ssl.SSLError, OSError):
            pass


def respond_early(status, framing, after=0, fin=False):
    """Reads the head and `after` bytes of content, responds, and closes with unread content, so
    that the kernel sends RST. With `fin`, it first shuts down its sending side. TCP_NODELAY:
    otherwise the response can wait behind unacknowledged session tickets, and RST drops it."""
    def script(peer, _number):
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.read_until(b"\r\n\r\n", "a head")
        peer.read_exactly(after, "content")
        peer.send(response_bytes(status, framing))
        close_notify(peer)
        if fin:
            peer.socket.shutdown(socket.SHUT_WR)
        peer.close()
    return script


def upload(weir, size=UPLOAD):
    """Uploads `size` bytes while reading, and returns the response."""
    with Connection(weir.address) as connection:
        def send():
            try:
                connection.send(request_bytes("/", "POST", {"Content-Length": str(size)}))
                for _ in range(size // 100_000):
                    connection.send(b"x" * 100_000)
            except OSError:
                pass
        sender = threading.Thread(target=send)
        sender.start()
        try:
            return connection.response()
        finally:
            try:
                connection.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sender.join()


def uploads(rig, make_server, tls, variants):
    for variant in variants:
        api = make_server(rig, respond_early(**variant))
        weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text], "connect_timeout": "20s", **tls}})
        for number in range(UPLOADS):
            response = upload(weir)
            assert (response.status, response.body) == (variant["status"], b"early"), (variant, number, response)


VARIANTS = [
    dict(status=401, framing="length"), dict(status=200, framing="chunked"),
    dict(status=401, framing="length", after=3_000_000), dict(status=200, framing="length", after=3_000_000, fin=True),
]


def test_early_responses_of_a_tls_server_reach_the_client(rig):
    uploads(rig, TlsServer, {"tls": {"ca": CA}}, VARIANTS + [dict(status=200, framing="until close", after=1_000_000)])


def test_early_responses_of_a_tls_1_2_server_reach_the_client(rig):
    make_server = context(version=ssl.TLSVersion.TLSv1_2)
    uploads(rig, lambda rig, script: TlsServer(rig, script, lambda _: make_server), {"tls": {"ca": CA}}, VARIANTS[:1])


def test_early_responses_of_a_server_reach_the_client(rig):
    uploads(rig, Scripted, {}, VARIANTS + [dict(status=200, framing="until close", after=1_000_000, fin=True)])


def test_a_reset_is_not_the_end_of_a_response_delimited_by_close(rig):
    """The kernel reports a reset only once. If writing the request has received it, reading returns
    EOF as after a FIN."""
    def script(peer, _number):
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.read_exactly(3_000_000, "content")
        peer.send(response_bytes(200, "until close"))
        peer.reset()
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    weir.expect_errors("upstream|server|api")
    for _ in range(UPLOADS):
        try:
            response = upload(weir)
        except (IncompleteResponse, OSError):
            continue
        assert response.status == 502, response
