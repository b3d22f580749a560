"""Upgrade: after the server's 101 to a requested upgrade, weir relays bytes in both directions
unchanged."""

import json
import random
import select
import socket
import threading
import time

from rig import eventually
from scripted import OK, Scripted
from tunnels import ASKED, SWITCH, open_tunnel, tunnel
from wire import Connection, get, request_bytes


def test_a_tunnel_lasts_until_both_sides_have_closed(rig):
    api, weir = tunnel(rig, limits={"each": dict(script="gcra", limit=5, period="1h")}, rules=[{"limits": ["each"]}])
    with Connection(weir.address) as connection:
        assert open_tunnel(connection)["X-RateLimit-Remaining"] == "4"
        for piece in (b"\x00\xff\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"x" * 100000):
            connection.socket.sendall(piece)
            assert connection.read_exactly(len(piece), "the echo") == piece
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_exactly(7, "the data after the client's FIN") == b"goodbye"
        assert connection.socket.recv(1) == b""
    head = api.peers[0].head.lower()
    assert b"upgrade: websocket" in head and b"connection: upgrade" in head
    weir.counts(1, "weir_requests_total", decision="allowed")
    eventually(lambda: weir.metric("weir_requests_active") == 0)


def test_the_status_101_adjusts_the_charge(rig):
    """A tunnel is charged, or not, as soon as it begins, and stays charged when it ends."""
    limits = {"tunnels": dict(script="fixed_window", limit=6, period="10d", count=["1xx", "2xx"]),
              "failures": dict(script="fixed_window", limit=2, period="10d", count=[401]),
              "cost": dict(script="fixed_window", limit=10, period="10d")}
    rules = [{"limits": list(limits), "cost": {"response_header": "X-Cost"}}]
    _, weir = tunnel(rig, switch=SWITCH[:-2] + b"X-Cost: 3\r\n\r\n", limits=limits, rules=rules)

    def left():
        return {row["limit"]: row["remaining"] for row in json.loads(get(weir.admin, "/api/v1/clients/ip:127.0.0.1").body)["limits"]}
    for n in range(1, 3):
        with Connection(weir.address) as connection:
            open_tunnel(connection)
            eventually(lambda: left() == {"tunnels": 6 - 3 * n, "failures": 2, "cost": 10 - 3 * n})  # noqa: B023
        eventually(lambda: weir.metric("weir_requests_active") == 0)
    with Connection(weir.address) as connection:
        assert connection.request(headers=ASKED).status == 429


def test_large_data_in_both_directions_and_after_a_half_close(rig):
    """More than weir buffers: most of the data is spliced through pipes."""
    up, down, after = (random.Random(seed).randbytes(3000000 + seed) for seed in (1, 2, 3))
    got = []

    def script(peer, _number):
        peer.read_request()
        peer.send(SWITCH)
        sender = threading.Thread(target=lambda: peer.send(down))
        sender.start()
        received = peer.buffer
        while piece := peer.socket.recv(100000):
            received += piece
        got.append(received == up)
        sender.join()
        peer.send(after)
        peer.socket.shutdown(socket.SHUT_WR)
        peer.socket.recv(1)
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Connection(weir.address) as connection:
        connection.send(request_bytes(headers=ASKED))
        assert connection.read_head().status == 101

        def send():
            connection.send(up)
            connection.socket.shutdown(socket.SHUT_WR)
        sender = threading.Thread(target=send)
        sender.start()
        assert connection.read_exactly(len(down) + len(after), "the server's data") == down + after
        assert connection.socket.recv(1) == b""
        sender.join()
    assert got == [True]
    eventually(lambda: weir.metric("weir_requests_active") == 0)


def test_data_before_the_101_is_sent_after_it(rig):
    _, weir = tunnel(rig)
    with Connection(weir.address) as connection:
        open_tunnel(connection, early=b"early bird")
        assert connection.read_exactly(10, "the echo") == b"early bird"


def test_data_sent_with_the_101_is_relayed(rig):
    _, weir = tunnel(rig, switch=SWITCH + b"first words")
    with Connection(weir.address) as connection:
        open_tunnel(connection)
        assert connection.read_exactly(11, "the server's first words") == b"first words"


def test_back_pressure_limits_a_tunnel_to_two_buffers(rig):
    _, weir = tunnel(rig)
    with Connection(weir.address) as connection:
        open_tunnel(connection)
        before = weir.resident_kib()
        connection.socket.setblocking(False)
        sent, moved = 0, time.monotonic()
        while sent < 200_000_000 and time.monotonic() < moved + 1:
            try:
                sent += connection.socket.send(b"y" * 65536)
                moved = time.monotonic()
            except BlockingIOError:  # also if the socket is writable and the kernel is short of memory
                select.select([], [connection.socket], [], 0.05)
        assert sent < 200_000_000, "neither side reads, so sending must block"
        assert weir.resident_kib() - before < 4000
        connection.socket.setblocking(True)
        got = 0
        while got < sent:
            got += len(connection.socket.recv(65536))
        assert got == sent


def test_an_idle_tunnel_times_out(rig):
    _, weir = tunnel(rig, timeouts={"tunnel": "300ms"})
    with Connection(weir.address) as connection:
        open_tunnel(connection)
        assert connection.socket.recv(1) == b""


def test_an_unrequested_101_is_a_502(rig):
    _, weir = tunnel(rig)
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as connection:
        assert connection.request().status == 502


def test_an_upgrade_with_content_or_to_h2c_is_not_forwarded(rig):
    def script(peer, number):
        while request := peer.read_request():
            assert b"upgrade" not in request[0].lower(), request[0]
            peer.socket.sendall(OK)
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Connection(weir.address) as connection:
        assert connection.request(method="POST", headers=ASKED, body=b"content").status == 200
        assert connection.request(headers={**ASKED, "Upgrade": "h2c", "HTTP2-Settings": "x"}).status == 200
        for protocols in "websocket, h2c", '"h2c"', "websocket, \"h2c\"", "x h2c", "websocket/", "/h2c", "a/b/h2c", "a;h2c":
            assert connection.request(headers={**ASKED, "Upgrade": protocols}).status == 200
        assert connection.request(headers={**ASKED, "Connection": "keep-alive"}).status == 200
    assert api.failures == []


def test_the_server_can_decline_the_upgrade(rig):
    def script(peer, number):
        while peer.read_request():
            peer.socket.sendall(OK)
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Connection(weir.address) as connection:
        assert [connection.request(headers=ASKED).status for _ in range(2)] == [200, 200]
