"""A client that closes its HTTP/2 connection after an early response does not cut off the content
that weir has read."""

import signal
import threading

from http2_wire import Http2
from rig import eventually
from scripted import Scripted

CONTENT = b"0123456789abcdef" * (3 << 18)  # more than the kernel's buffers of a connection hold


def early_server(rig):
    """Responds before it reads the content, and reads it after `goes_on` is set."""
    goes_on, received = threading.Event(), []

    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a request")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert goes_on.wait(40)
        while len(peer.buffer) < len(CONTENT) and peer.fill():
            pass
        received.append(peer.buffer)
    return Scripted(rig, script), goes_on, received


def weir_with_large_windows(rig, server):
    return rig.weir(workers=1, upstreams={"api": {"servers": [server.text]}}, size_limits={"request_body": "64m"},
                    http2={"initial_window": "16m"})


def send_and_get_response(client):
    """Returns when weir has read all of the content."""
    client.read_until(lambda: client.acked and client.granted > 65535 and client.initial > 65535)
    stream = client.put_request("/", "POST", fields=[("content-length", str(len(CONTENT)))], end=False)
    client.flush()
    client.send_within_windows(stream, CONTENT)
    assert client.response(stream).body == b"ok"
    assert client.responds_to_ping(), "weir has read all of it"


def test_content_that_weir_has_read_reaches_the_server(rig):
    server, goes_on, received = early_server(rig)
    weir = weir_with_large_windows(rig, server)
    with Http2(weir.address) as client:
        send_and_get_response(client)
    weir.counts(1, "weir_requests_active")
    goes_on.set()
    weir.counts(0, "weir_requests_active")
    weir.counts(0, "weir_connections")
    eventually(lambda: received, seconds=20)
    assert len(received[0]) == len(CONTENT), len(received[0])
    assert received[0] == CONTENT


def test_an_incomplete_request_ends_with_its_connection(rig):
    server, goes_on, _ = early_server(rig)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [server.text]}})
    with Http2(weir.address) as client:
        stream = client.put_request("/", "POST", fields=[("content-length", "1000")], end=False)
        client.flush()
        client.send_body(stream, b"x" * 10, end=False)
        client.read_until(lambda: client.streams[stream].body == b"ok")
    weir.counts(0, "weir_requests_active")
    weir.counts(0, "weir_connections")
    goes_on.set()


def test_content_that_weir_has_read_reaches_the_server_after_goaway(rig):
    server, goes_on, received = early_server(rig)
    weir = weir_with_large_windows(rig, server)
    with Http2(weir.address) as client:
        send_and_get_response(client)
        weir.signal(signal.SIGTERM)
        client.read_until(lambda: len(client.goaways) == 2)
        assert not client.closed
        goes_on.set()
        client.read_to_end()
    eventually(lambda: received, seconds=20)
    assert received[0] == CONTENT, len(received[0])
    assert weir.wait() == 0
