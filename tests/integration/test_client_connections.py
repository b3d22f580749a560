"""Client connections: limits on them, heads in pieces, content that stalls, Expect."""

import os
import signal
import socket
import threading
import time

from rig import eventually, time_scale
from scripted import OK, Scripted
from wire import Connection, request_bytes

FIN_WAIT1 = 4  # the first byte of TCP_INFO: the peer has not acknowledged the FIN


def scripted_weir(rig, script, upstream=None, **settings):
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text], **(upstream or {})}}, **settings)
    weir.expect_errors("upstream|server|api")
    return api, weir


def respond_to_each(peer, number):
    while peer.read_request():
        peer.socket.sendall(OK)


def test_a_connection_without_a_request_yet_is_not_closed_for_a_new_one(rig):
    """At the limit, weir closes an idle connection that has had a request, never one without a
    request yet."""
    weir = rig.weir(workers=1, size_limits={"connections": 3, "connections_per_ip": 0})
    busy = [Connection(weir.address) for _ in range(2)]
    for connection in busy:
        connection.send(b"GET /slow HTTP/1.1\r\n")  # an incomplete head: not idle
    eventually(lambda: weir.metric("weir_connections") == 2)
    for _ in range(10):
        with Connection(weir.address) as newcomer:
            assert newcomer.request().status == 200
            eventually(lambda: weir.metric("weir_connections") == 3)
    for connection in busy:
        connection.close()


def test_an_idle_connection_is_closed_for_a_new_one(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 2, "connections_per_ip": 0})
    first, second = Connection(weir.address), Connection(weir.address)
    assert [c.request().status for c in (first, second)] == [200, 200]
    with Connection(weir.address) as third:
        assert third.request().status == 200
    assert first.is_closed(), "the longest-idle connection"
    assert second.request().status == 200
    weir.counts(1, "weir_connections_evicted_total")


def test_a_connection_with_an_unread_request_is_not_idle(rig):
    """A new connection arrives before a request on an idle one. weir finds both in one loop
    iteration."""
    weir = rig.weir(workers=1, size_limits={"connections": 2, "connections_per_ip": 0})
    first, second = Connection(weir.address), Connection(weir.address)
    assert [c.request().status for c in (first, second)] == [200, 200]
    weir.signal(signal.SIGSTOP)
    newcomer = Connection(weir.address)
    first.send(request_bytes())
    weir.signal(signal.SIGCONT)
    assert first.response().status == 200
    assert newcomer.request().status == 200
    assert second.is_closed()
    # Both have sent requests: the new connection waits until one of them is idle.
    second = newcomer
    weir.signal(signal.SIGSTOP)
    newcomer = Connection(weir.address)
    for connection in first, second:
        connection.send(request_bytes())
    newcomer.send(request_bytes())
    weir.signal(signal.SIGCONT)
    assert [c.response().status for c in (first, second, newcomer)] == [200] * 3
    weir.counts(2, "weir_connections")


def test_a_refused_connection_uses_no_slot(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 3, "connections_per_ip": 2})
    near = [Connection(weir.address) for _ in range(2)]
    far = Connection(weir.address, source="127.0.0.2")
    assert [c.request().status for c in near + [far]] == [200] * 3
    for _ in range(5):
        assert Connection(weir.address).is_closed()
    assert [c.request().status for c in near + [far]] == [200] * 3
    assert weir.metric("weir_connections_evicted_total") == 0


def test_requests_that_arrived_in_time_are_served_even_if_weir_is_late(rig):
    """More requests are pending in the kernel than one loop iteration handles, and their deadline
    has passed."""
    weir = rig.weir(workers=1, timeouts={"keepalive": "5s", "request_body": "5s"})
    clients = [Connection(weir.address) for _ in range(400)]
    for connection in clients:
        connection.send(request_bytes())
    assert all(connection.response().status == 200 for connection in clients)
    for connection in clients[:200]:  # half of them with incomplete content
        connection.send(request_bytes("/echo", "POST", {"Content-Length": "5"}) + b"1")
    weir.signal(signal.SIGSTOP)
    for n, connection in enumerate(clients):
        connection.send(b"2345" if n < 200 else request_bytes())
    threading.Event().wait(6)
    weir.signal(signal.SIGCONT)
    for connection in clients:
        assert connection.response().status == 200


def test_a_pipelined_head_of_several_kilobytes_is_served(rig):
    _, weir = scripted_weir(rig, respond_to_each)
    head = request_bytes("/b", headers={"X-Large": "x" * 6000})
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/a") + head[:3000])
        assert connection.response().status == 200
        connection.send(head[3000:])
        assert connection.response().status == 200


def test_a_large_response_head_in_pieces_after_an_interim_response(rig):
    def script(peer, number):
        while peer.read_request():
            large = b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * 6000 + b"\r\nContent-Length: 2\r\n\r\nok"
            peer.socket.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + large[:100])
            peer.go.wait(10)
            peer.socket.sendall(large[100:])
    gate = threading.Event()

    def with_gate(peer, number):
        peer.go = gate
        script(peer, number)
    _, weir = scripted_weir(rig, with_gate)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/"))
        assert connection.read_head().status == 103
        gate.set()
        assert connection.response().status == 200


def test_a_deadlock_of_client_and_server_ends_by_timeout(rig):
    """The server sends a large response and reads nothing, the client sends large content and reads
    nothing: a timeout ends the request."""
    def script(peer, number):
        peer.socket.recv(1000)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        peer.socket.settimeout(60)
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n" + b"x" * 100_000_000)
    _, weir = scripted_weir(rig, script, upstream={"response_timeout": "1s"}, timeouts={"send": "1s", "request_body": "1s"})
    with Connection(weir.address) as connection:
        connection.socket.settimeout(2)
        try:
            connection.socket.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n" + b"y" * 100_000_000)
        except OSError:
            pass
        eventually(lambda: weir.metric("weir_requests_active") == 0, seconds=20, what="the request to end")


def test_a_server_that_stops_reading_and_does_not_respond_is_a_504(rig):
    def script(peer, number):
        peer.socket.recv(100)
        peer.socket.shutdown(socket.SHUT_RD)
        weir_done.wait(20)
    weir_done = threading.Event()
    address = rig.directory + "/api.sock"
    api = Scripted(rig, script, address=address)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text], "response_timeout": "500ms"}})
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 200_000)
        connection.send(b"y" * 200_000)
        assert connection.read_head().status == 504
    weir_done.set()


def test_a_final_response_instead_of_100_closes_the_connection(rig):
    """weir cannot know whether the client will still send the content. The next bytes must not be
    read as content or as a request."""
    def script(peer, number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.socket.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
        peer.socket.recv(1000)
    _, weir = scripted_weir(rig, script)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", method="POST", headers={"Expect": "100-continue", "Content-Length": "10"}))
        response = connection.response()
        assert (response.status, response["Connection"]) == (417, "close")
        assert connection.is_closed()


def test_content_that_comes_after_100_and_a_response_of_weir_is_dropped(rig):
    """weir reads it and keeps the connection: the client has been told to send it."""
    def script(peer, number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" if number == 0 else OK)
    server = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [server.text]}})
    weir.expect_errors("upstream")
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", method="POST", headers={"Expect": "100-continue", "Content-Length": "10"}))
        assert connection.read_head().status == 100
        response = connection.response("POST")
        assert response.status == 502 and response["Connection"] != "close", response
        connection.send(b"0123456789")
        assert connection.request().status == 200


def test_the_client_does_not_time_out_while_the_server_delays_100(rig):
    gate = threading.Event()

    def script(peer, number):
        peer.read_until(b"\r\n\r\n", "a head")
        gate.wait(20)
        peer.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.read_exactly(10, "the content")
        peer.socket.sendall(OK)
    _, weir = scripted_weir(rig, script, timeouts={"request_body": "2s"})
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", method="POST", headers={"Expect": "100-continue", "Content-Length": "10"}))
        connection.socket.settimeout(3)
        try:
            early = connection.socket.recv(1)
        except socket.timeout:
            early = None
        assert early is None, "no 408 while the server delays"
        connection.socket.settimeout(20)
        gate.set()
        assert connection.read_head().status == 100
        connection.send(b"x" * 10)
        assert connection.response().status == 200


def test_a_refused_head_gets_its_response_without_a_reset(rig):
    weir = rig.weir(workers=1, size_limits={"request_header": "2k"})
    for _ in range(5):
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", headers={"X-Large": "x" * 100_000}))
            assert connection.response().status == 431
            assert connection.is_closed()


def test_a_post_is_not_sent_on_a_connection_that_the_server_has_closed(rig):
    def script(peer, number):
        if peer.read_request():
            peer.socket.sendall(OK)
            peer.socket.shutdown(socket.SHUT_WR)  # without Connection: close
            eventually(lambda: peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != FIN_WAIT1, what="weir's kernel to know")
            closed.release()
    closed = threading.Semaphore(0)
    _, weir = scripted_weir(rig, script)
    with Connection(weir.address) as connection:
        for _ in range(20):
            assert connection.request(method="POST", body=b"x").status == 200
            assert closed.acquire(timeout=20)


def test_pending_connections_are_served_when_weir_stops(rig):
    weir = rig.weir(workers=1)
    waiting = [Connection(weir.address) for _ in range(300)]
    for connection in waiting:
        connection.send(request_bytes("/"))
    weir.signal(signal.SIGTERM)
    assert [connection.response().status for connection in waiting] == [200] * 300
    weir.wait()


def test_a_lingering_connection_is_no_request_in_progress(rig):
    weir = rig.weir(workers=1, timeouts={"shutdown": "100ms"}, size_limits={"request_body": "1k"})
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", {"Content-Length": 5000}))
        assert connection.response().status == 413
        eventually(lambda: weir.metric("weir_connections_lingering") == 1)
        weir.signal(signal.SIGTERM)
        assert weir.wait() == 0
    assert "still in progress" not in weir.output()


def test_a_stopping_weir_keeps_the_socket_file_of_its_successor(rig):
    path = rig.directory + "/weir.sock"
    gate = threading.Event()

    def slow(peer, number):
        while peer.read_request():
            gate.wait(20)
            peer.socket.sendall(OK)
    api = Scripted(rig, slow)
    upstreams = {"api": {"servers": [api.text]}}
    first = rig.weir(workers=1, listen=["unix:" + path], upstreams=upstreams)
    with Connection(path) as connection:
        connection.send(request_bytes("/"))
        eventually(lambda: first.metric("weir_requests_active") == 1)
        first.signal(signal.SIGTERM)
        first.wait_for_output("finishing requests in progress")
        eventually(lambda: not os.path.exists(path), what="the first weir to remove its socket file")
        second = rig.weir(workers=1, listen=["unix:" + path], upstreams=upstreams)
        gate.set()
        assert connection.response().status == 200
    first.wait()
    with Connection(path) as connection:
        assert connection.request().status == 200
    assert second.alive()


def test_a_reload_can_remove_the_limit_per_address(rig):
    weir = rig.weir(workers=1, size_limits={"connections_per_ip": 2})
    two = [Connection(weir.address) for _ in range(2)]
    assert [c.request().status for c in two] == [200, 200]
    with Connection(weir.address) as third:
        assert third.is_closed()
    weir.reload(size_limits={"connections_per_ip": 0})
    deadline = time.monotonic() + 10 * time_scale
    served = []
    while len(served) < 5 and time.monotonic() < deadline:
        connection = Connection(weir.address)
        try:
            if connection.request().status == 200:
                served.append(connection)
        except Exception:
            connection.close()
    assert len(served) == 5
