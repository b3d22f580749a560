"""Connections as an attack: nobody keeps others out by opening many, or by what is done on them after an answer."""

import socket
import threading
import time

from rig import eventually, time_scale
from wire import Connection, request_bytes

PLACES = 16
THE_ADDRESS, ANOTHER = "127.0.0.1", "127.0.0.2"


def connected(weir, count, data=b"", source=THE_ADDRESS):
    return [Connection(weir.address, source=source).send(data) for _ in range(count)]


def served(weir, source=ANOTHER):
    """Is a client from there answered at once? The places are taken for ten seconds."""
    start = time.monotonic()
    with Connection(weir.address, source=source, timeout=5 * time_scale) as connection:
        return connection.request().status == 200 and time.monotonic() - start < 3 * time_scale


def v1(source):
    return b"PROXY TCP4 %s 192.0.2.1 4711 443\r\n" % source.encode()


def close(connections):
    for connection in connections:
        connection.close()


def kept(connections):
    """How many of them weir has not closed."""
    count = 0
    for connection in connections:
        connection.socket.setblocking(False)
        try:
            count += connection.socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            count += 1
        except ConnectionResetError:
            pass
        connection.socket.setblocking(True)
    return count


def test_one_address_gets_a_quarter_of_the_places(rig):
    weir = rig.weir(workers=1, size_limits={"connections": PLACES})
    silent = connected(weir, PLACES)
    eventually(lambda: kept(silent) == PLACES // 4, what="the end of those that are too many")
    weir.counts(PLACES - PLACES // 4, "weir_connections_refused_total")
    assert served(weir)
    assert sum("size_limits.connections_per_ip" in line for _, line in weir.log()) == 1, "not a line each"
    close(silent)


def test_one_address_that_dribbles_heads_keeps_nobody_out(rig):
    weir = rig.weir(workers=1, size_limits={"connections": PLACES})
    half = connected(weir, PLACES)
    eventually(lambda: kept(half) == PLACES // 4)
    for connection in half:
        try:
            connection.send(b"GET / HTTP/1.1\r\n")
        except OSError:
            pass
    assert served(weir)
    assert kept(half) == PLACES // 4
    close(half)


def test_the_quarter_is_one_for_all_workers(rig):
    weir = rig.weir(workers=2, size_limits={"connections": PLACES})
    silent = connected(weir, PLACES)
    eventually(lambda: kept(silent) == PLACES // 4)
    close(silent)
    eventually(lambda: weir.metric("weir_connections") == 0)
    again = connected(weir, PLACES // 4)
    weir.counts(PLACES // 4, "weir_connections")
    assert kept(again) == PLACES // 4, "places are given back"
    close(again)


def test_silent_connections_make_room_first_and_at_once(rig):
    """From as many addresses as it takes: here one that may have all places."""
    weir = rig.weir(workers=1, size_limits={"connections": PLACES, "connections_per_ip": 0})
    idle = connected(weir, 2)
    assert [connection.request().status for connection in idle] == [200] * 2
    threading.Event().wait(0.3)  # these may be closed by now, and the silent ones not yet
    silent = connected(weir, PLACES - 2)
    weir.counts(PLACES, "weir_connections")
    for _ in range(5):
        assert served(weir)
    weir.counts(1, "weir_connections_evicted_total")
    assert kept(idle) == 2 and kept(silent) == len(silent) - 1 and kept(silent[:1]) == 0, "the oldest of the silent"
    close(idle + silent)


def test_heads_that_dribble_from_many_addresses_keep_nobody_out(rig):
    """Slowloris: each connection may take ten seconds for its head, unless others need its place."""
    weir = rig.weir(workers=1, size_limits={"connections": PLACES, "connections_per_ip": 0})
    half = connected(weir, PLACES, b"GET / HTTP/1.1\r\n")
    weir.counts(PLACES, "weir_connections")
    assert served(weir)
    assert kept(half) == PLACES - 1 and kept(half[:1]) == 0, "the oldest"
    close(half)


def test_a_flood_of_silent_connections_keeps_nobody_out(rig):
    weir = rig.weir(workers=1, size_limits={"connections": PLACES, "connections_per_ip": 0})
    over, opened = threading.Event(), []

    def flood():
        while not over.is_set():
            opened.append(Connection(weir.address))
            if len(opened) > 400:
                opened.pop(0).close()
            over.wait(0.01)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        weir.counts(PLACES, "weir_connections")
        for _ in range(5):
            assert served(weir)
    finally:
        over.set()
        thread.join()
        close(opened)


def test_trusted_proxies_and_unix_sockets_have_no_such_limit(rig):
    path = f"{rig.directory}/weir.sock"
    weir = rig.weir(workers=1, listen=["127.0.0.1:0", f"unix:{path}"], size_limits={"connections": PLACES},
                    identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    proxies = connected(weir, PLACES // 2)
    local = [Connection(path) for _ in range(PLACES // 2 - 1)]
    weir.counts(PLACES - 1, "weir_connections")
    assert kept(proxies + local) == PLACES - 1
    assert [connection.request().status for connection in proxies + local] == [200] * (PLACES - 1)
    close(proxies + local)


def test_whom_the_proxy_protocol_names_is_counted(rig):
    weir = rig.weir(workers=1, listen=[{"address": "127.0.0.1:0", "proxy_protocol": True}],
                    size_limits={"connections": PLACES}, identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    named = connected(weir, PLACES - 1, v1("203.0.113.7"))
    eventually(lambda: kept(named) == PLACES // 4)
    with Connection(weir.address) as other:
        assert other.send(v1("203.0.113.8") + request_bytes()).response().status == 200
    close(named)
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as again:
        assert again.send(v1("203.0.113.7") + request_bytes()).response().status == 200
    # A proxy that names nobody is not counted, and neither takes from nor gives to anybody's places.
    nobody = connected(weir, PLACES - 1, b"PROXY UNKNOWN\r\n" + request_bytes())
    assert [connection.response().status for connection in nobody] == [200] * (PLACES - 1)
    close(nobody)


def test_who_is_trusted_later_gives_no_places_back_that_were_not_taken(rig):
    """Counted or not is decided once for each connection: a reload between its begin and its end changes no count."""
    weir = rig.weir(workers=1, size_limits={"connections": PLACES, "connections_per_ip": 4}, identity={"from": ["ip"]})
    counted = connected(weir, 4)
    weir.counts(4, "weir_connections")
    weir.reload(identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    not_counted = connected(weir, 4)
    weir.counts(8, "weir_connections")
    weir.reload(identity={"from": ["ip"]})
    close(not_counted)
    weir.counts(4, "weir_connections")
    assert connected(weir, 1)[0].is_closed(), "four are counted still"
    close(counted)
    weir.counts(0, "weir_connections")
    again = connected(weir, 4)
    weir.counts(4, "weir_connections")
    close(again)


def test_connections_that_linger_make_room(rig):
    """Clients that go on sending after their answers hold a quarter of the places at most, and those only while nobody needs them."""
    weir = rig.weir(workers=1, size_limits={"connections": 4, "connections_per_ip": 0, "request_body": "1k"})
    lingering = connected(weir, 2, request_bytes(method="POST", headers={"Content-Length": "1000000"}))
    assert [connection.response("POST").status for connection in lingering] == [413] * 2
    weir.counts(1, "weir_connections_lingering")
    half = connected(weir, 3, b"GET / HTTP/1.1\r\n")
    weir.counts(4, "weir_connections")
    assert served(weir)
    weir.counts(0, "weir_connections_lingering")
    close(lingering + half)


def test_silent_connections_do_not_hold_up_the_end(rig):
    weir = rig.weir(workers=1)
    silent = connected(weir, 4)
    weir.counts(4, "weir_connections")
    weir.signal(15)
    assert weir.wait(10) == 0
    close(silent)
