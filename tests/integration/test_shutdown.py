"""SIGTERM and SIGINT: requests in progress are finished within timeouts.shutdown."""

import json
import re
import signal
import socket
import time

from gate import Gate
from ports import accepts
from rig import eventually, time_scale
from wire import Connection, IncompleteResponse, request_bytes


def test_requests_in_progress_are_finished(rig):
    gate = Gate(rig)
    weir = rig.weir(timeouts={"shutdown": "20s"}, upstreams=gate.upstreams)
    slow = [Connection(weir.address).send(request_bytes()) for _ in range(8)]
    eventually(lambda: gate.now == 8)
    weir.signal(signal.SIGTERM)
    eventually(lambda: not accepts(weir.address), what="the listener to be closed")
    gate.open.set()
    for connection in slow:
        response = connection.response()
        assert response.status == 200
        assert connection.is_closed()
    assert weir.wait(10) == 0


def test_idle_connections_are_closed_at_once(rig):
    weir = rig.weir(timeouts={"shutdown": "20s"})
    with Connection(weir.address) as idle, Connection(weir.address) as silent:
        assert idle.request().status == 200
        start = time.monotonic()
        weir.signal(signal.SIGINT)
        assert idle.is_closed() and silent.is_closed()
        assert weir.wait(10) == 0
        assert time.monotonic() - start < 5 * time_scale


def ask_for_metrics(rig, requests):
    """Returns weir and a connection to its admin listener, from which only the first byte was read."""
    limits = {f"{n:03}{'x' * 50}": {"script": "gcra", "limit": 1, "period": "1d"} for n in range(256)}
    weir, client = rig.weir(limits=limits, rules=[{"limits": "none"}]), socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(weir.admin)
    client.sendall(request_bytes("/metrics") * requests)
    assert client.recv(1) == b"H"
    return weir, client


def test_responses_of_admin_listeners_are_finished(rig):
    weir, client = ask_for_metrics(rig, 12)
    text, began = b"", time.monotonic()
    weir.signal(signal.SIGTERM)
    with client:
        while piece := client.recv(65536):
            text += piece
    took = time.monotonic() - began
    while text and took < 1:  # weir waits for a second
        head, _, text = text.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        assert len(text) >= length, (len(text), length)
        text = text[length:]
    assert weir.wait(10) == 0


def test_a_client_of_an_admin_listener_that_does_not_read_is_closed(rig):
    """The responses fill the buffers of its socket."""
    weir, client = ask_for_metrics(rig, 60)
    weir.signal(signal.SIGTERM)
    with client:
        assert weir.wait(10) == 0
    assert "libevent" not in weir.output(), weir.output()


def assert_gets_503(connection):
    response = connection.response()
    assert (response.status, response["Connection"]) == (503, "close")
    assert json.loads(response.body)["detail"] == "weir is stopping"
    assert connection.is_closed()


def test_requests_beyond_the_timeout_get_503(rig):
    """Those without any part of a response: they wait for the server, or for their own content."""
    gate = Gate(rig)
    weir = rig.weir(timeouts={"shutdown": "500ms"}, upstreams=gate.upstreams, log={"access": "json"})
    with Connection(weir.address) as waiting, Connection(weir.address) as sending:
        waiting.send(request_bytes())
        sending.send(request_bytes(method="POST", headers={"Content-Length": "9"}) + b"part")
        eventually(lambda: gate.now == 1)
        weir.counts(2, "weir_requests_active")
        start = time.monotonic()
        weir.signal(signal.SIGTERM)
        assert_gets_503(waiting)
        assert_gets_503(sending)
        assert weir.wait(10) == 0
        assert 0.4 < time.monotonic() - start < 5 * time_scale
    assert weir.output().count('"error":"shutdown"') == 2
    assert weir.output().count("requests still in progress after timeouts.shutdown") <= 2, "once per worker"


def test_a_response_in_progress_is_cut_at_the_timeout(rig):
    """Also one whose client reads nothing."""
    weir = rig.weir(timeouts={"shutdown": "300ms"})
    with Connection(weir.address) as connection, Connection(weir.address) as idle:
        connection.send(request_bytes("/bytes/300000000"))
        idle.send(request_bytes("/bytes/300000000"))
        head = connection.read_head()
        assert (head.status, idle.read_head().status) == (200, 200)
        weir.signal(signal.SIGTERM)
        assert weir.wait(10) == 0
        try:
            connection.read_body(head)
        except (IncompleteResponse, ConnectionResetError):
            return
        raise AssertionError("the response is complete")


def test_a_request_that_waits_for_redis_gets_503(rig):
    weir = rig.weir(redis={"timeout": "10s"}, timeouts={"shutdown": "300ms"}, workers=1,
                    limits={"each": dict(script="gcra", limit=3, period="1h")})
    weir.expect_errors("[Rr]edis")
    rig.redis().freeze()
    try:
        with Connection(weir.address) as connection:
            connection.send(request_bytes())
            weir.counts(1, "weir_requests_active")
            weir.signal(signal.SIGTERM)
            assert_gets_503(connection)
        assert weir.wait(10) == 0
    finally:
        rig.redis().thaw()


def test_a_response_body_in_progress_is_finished(rig):
    weir = rig.weir(timeouts={"shutdown": "30s"})
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/bytes/30000000"))
        head = connection.read_head()
        weir.signal(signal.SIGTERM)
        eventually(lambda: not accepts(weir.address), what="the listener to be closed")
        assert len(connection.read_body(head)) == 30000000
    assert weir.wait(15) == 0


def test_shutdown_while_redis_is_down(rig):
    weir = rig.weir(redis={"on_failure": "allow", "timeout": "100ms"},
                    limits={"each": dict(script="gcra", limit=3, period="1h")})
    weir.expect_errors("[Rr]edis")
    rig.redis().freeze()
    try:
        weir.signal(signal.SIGTERM)
        assert weir.wait(10) == 0
    finally:
        rig.redis().thaw()
