"""Connection timeouts: between requests, in a tunnel, and while the client reads a response. They
are independent."""

import socket
import threading
import time

from scripted import Scripted, respond_to_all
from tunnels import open_tunnel, tunnel
from wire import Connection, get, request_bytes

SHORT = "300ms"


def stays_open(connection, seconds=1):
    """Whether the connection stays open for `seconds` without data."""
    connection.socket.settimeout(seconds)
    try:
        return connection.socket.recv(1) != b""
    except TimeoutError:
        return True


def test_keepalive_and_send_timeouts_do_not_end_a_quiet_tunnel(rig):
    _, weir = tunnel(rig, timeouts={"keepalive": SHORT, "send": SHORT})
    with Connection(weir.address) as connection:
        open_tunnel(connection)
        assert stays_open(connection)
        connection.socket.settimeout(20)
        connection.send(b"ping")
        assert connection.read_exactly(4, "an echo") == b"ping"


def test_tunnel_and_send_timeouts_do_not_end_an_idle_connection(rig):
    weir = rig.weir(workers=1, timeouts={"tunnel": SHORT, "send": SHORT})
    with Connection(weir.address) as connection:
        assert connection.request().status == 200
        assert stays_open(connection)
        connection.socket.settimeout(20)
        assert connection.request().status == 200


def stalled_download(weir):
    """A client whose kernel buffers are full and which does not read for a second."""
    s = socket.socket()
    s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(weir.address)
    s.sendall(request_bytes("/bytes/50000000"))
    return s


def test_keepalive_and_tunnel_timeouts_do_not_end_a_paused_download(rig):
    weir = rig.weir(workers=1, timeouts={"keepalive": SHORT, "tunnel": SHORT})
    with stalled_download(weir) as s:
        weir.counts(1, "weir_requests_active")
        threading.Event().wait(1)
        assert weir.metric("weir_requests_active") == 1
        received = 0
        while received < 50_000_000 and (data := s.recv(1 << 20)):
            received += len(data)
        assert received >= 50_000_000


def test_each_timeout_ends_its_own_kind_of_connection(rig):
    weir = rig.weir(workers=1, timeouts={"keepalive": SHORT})
    with Connection(weir.address) as connection:
        assert connection.request().status == 200
        assert connection.is_closed()
    weir.reload(timeouts={"send": SHORT})
    with stalled_download(weir):
        weir.counts(1, "weir_errors_total", cause="client_stalled")


def test_timeouts_idle_is_the_default_of_the_others(rig):
    _, weir = tunnel(rig, timeouts={"idle": SHORT, "keepalive": "1h"})
    with Connection(weir.address) as connection:
        open_tunnel(connection)
        assert connection.is_closed()
    with Connection(weir.address) as connection:
        assert connection.request("/", headers={"X-Plain": "1"})["Keep-Alive"] == "timeout=3599"
        assert stays_open(connection)


def test_keep_alive_contains_the_timeout(rig):
    weir = rig.weir(workers=1, limits={"few": dict(script="fixed_window", limit=2, period="1h")}, timeouts={"keepalive": "20s"})
    with Connection(weir.address) as connection:
        for status in 200, 200, 429:
            response = connection.request()
            assert response.status == status
            assert response["Connection"] == "keep-alive" and response["Keep-Alive"] == "timeout=19", response
        response = connection.request(headers={"Connection": "close"})
        assert response["Connection"] == "close" and response["Keep-Alive"] is None


def connections_used(rig, fields, pause=0):
    """How many connections weir uses for three requests to a server that sends these fields, and never closes."""
    api = Scripted(rig, respond_to_all(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % fields))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Connection(weir.address) as connection:
        for _ in range(3):
            assert connection.request().status == 200
            time.sleep(pause)
    return api.accepted


def test_weir_uses_a_server_connection_until_a_second_before_its_timeout(rig):
    for timeout in b"0", b"1":
        assert connections_used(rig, b"Keep-Alive: timeout=%b, max=9\r\n" % timeout) == 3, timeout
    for fields in b"", b"Keep-Alive: timeout=1000\r\n", b"Keep-Alive: timeout=-1\r\n", b"Keep-Alive: max=1\r\n":
        assert connections_used(rig, fields) == 1, fields
    assert connections_used(rig, b"Keep-Alive: timeout=2\r\n", pause=1.1) == 3


def test_connection_fields_of_the_server_are_not_forwarded(rig):
    def script(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close, keep-alive\r\nKeep-Alive: timeout=5, max=3\r\nContent-Length: 2\r\n\r\nok")

    api = Scripted(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}})
    response = get(weir.address)
    assert response["Connection"] == "keep-alive" and response["Keep-Alive"] == "timeout=74"
