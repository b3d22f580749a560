"""Connections as an attack: clients with many or slow connections must not lock out other
clients."""

import socket
import threading
import time

from rig import eventually, time_scale
from tls_client import TlsConnection, weir_with_tls
from wire import Connection, request_bytes

CONNECTIONS_MAX = 16
THE_ADDRESS, ANOTHER = "127.0.0.1", "127.0.0.2"


def connected(weir, count, data=b"", source=THE_ADDRESS):
    return [Connection(weir.address, source=source).send(data) for _ in range(count)]


def served(weir, source=ANOTHER):
    """Whether a client from `source` is served at once. The attacker's connections last ten
    seconds."""
    start = time.monotonic()
    with Connection(weir.address, source=source, timeout=5 * time_scale) as connection:
        return connection.request().status == 200 and time.monotonic() - start < 3 * time_scale


def v1(source):
    return b"PROXY TCP4 %s 192.0.2.1 4711 443\r\n" % source.encode()


def close(connections):
    for connection in connections:
        connection.close()


def kept(connections):
    """The number of connections that weir has not closed."""
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


def test_one_address_gets_a_quarter_of_the_connections(rig):
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX})
    silent = connected(weir, CONNECTIONS_MAX)
    eventually(lambda: kept(silent) == CONNECTIONS_MAX // 4, what="the excess connections to be closed")
    weir.counts(CONNECTIONS_MAX - CONNECTIONS_MAX // 4, "weir_connections_refused_total")
    assert served(weir)
    close(silent)
    refused = weir.wait_for_output(r"refused: its address has \d+ connections \(size_limits.connections_per_ip\)")
    assert len(refused) == 1, "one log line, not one per connection"


def test_slow_heads_from_one_address_do_not_lock_out_others(rig):
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX})
    half = connected(weir, CONNECTIONS_MAX)
    eventually(lambda: kept(half) == CONNECTIONS_MAX // 4)
    for connection in half:
        try:
            connection.send(b"GET / HTTP/1.1\r\n")
        except OSError:
            pass
    assert served(weir)
    assert kept(half) == CONNECTIONS_MAX // 4
    close(half)


def test_the_quarter_applies_to_all_workers_together(rig):
    weir = rig.weir(workers=2, size_limits={"connections": CONNECTIONS_MAX})
    silent = connected(weir, CONNECTIONS_MAX)
    eventually(lambda: kept(silent) == CONNECTIONS_MAX // 4)
    close(silent)
    eventually(lambda: weir.metric("weir_connections") == 0)
    again = connected(weir, CONNECTIONS_MAX // 4)
    weir.counts(CONNECTIONS_MAX // 4, "weir_connections")
    assert kept(again) == CONNECTIONS_MAX // 4, "closed connections free their slots"
    close(again)


def test_silent_connections_are_closed_first_and_at_once(rig):
    """Stands for an attack from many addresses: here one address can use all connections."""
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX, "connections_per_ip": 0})
    idle = connected(weir, 2)
    assert [connection.request().status for connection in idle] == [200] * 2
    threading.Event().wait(0.3)  # by now these could be closed, and the silent ones not yet
    silent = connected(weir, CONNECTIONS_MAX - 2)
    weir.counts(CONNECTIONS_MAX, "weir_connections")
    for _ in range(5):
        assert served(weir)
    weir.counts(1, "weir_connections_evicted_total")
    assert kept(idle) == 2 and kept(silent) == len(silent) - 1 and kept(silent[:1]) == 0, "the oldest silent connection"
    close(idle + silent)


def test_slow_heads_from_many_addresses_do_not_lock_out_others(rig):
    """Slowloris: a head can take ten seconds, unless its connection is needed for another
    client."""
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX, "connections_per_ip": 0})
    half = connected(weir, CONNECTIONS_MAX, b"GET / HTTP/1.1\r\n")
    weir.counts(CONNECTIONS_MAX, "weir_connections")
    assert served(weir)
    assert kept(half) == CONNECTIONS_MAX - 1 and kept(half[:1]) == 0, "the oldest"
    close(half)


def test_a_flood_of_silent_connections_does_not_lock_out_others(rig):
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX, "connections_per_ip": 0})
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
        weir.counts(CONNECTIONS_MAX, "weir_connections")
        for _ in range(5):
            assert served(weir)
    finally:
        over.set()
        thread.join()
        close(opened)


def handshakes(weir, tries, **more):
    """How many of these handshakes weir admits."""
    admitted = 0
    for _ in range(tries):
        try:
            with TlsConnection(weir.address, **more) as connection:
                admitted += connection.request().status == 200
        except OSError:
            pass
    return admitted


def test_tls_handshakes_of_one_address_are_limited(rig):
    tls = {"size_limits": {"handshakes_per_ip": 1}, "identity": {"from": ["ip"], "trusted_proxies": ["127.0.0.3"]}}
    weir = weir_with_tls(rig, workers=2, **tls)
    start = time.monotonic()
    admitted = handshakes(weir, 30)
    assert 2 <= admitted <= 3 + time.monotonic() - start
    weir.counts(30 - admitted, "weir_tls_handshake_failures_total", reason="too_many")
    weir.wait_for_output(r"warn  client 127.0.0.1:\d+ on \S+: TLS handshake refused, too_many: .*size_limits.handshakes_per_ip")
    for _ in range(5):  # checks of the port, which begin no handshake
        Connection(weir.address, source=ANOTHER).close()
    weir.counts(5, "weir_tls_handshake_failures_total", reason="closed")
    assert handshakes(weir, 1, source=ANOTHER) == 1
    assert handshakes(weir, 10, source="127.0.0.3") == 10, "a trusted proxy"
    weir.reload(**{**tls, "size_limits": {"handshakes_per_ip": 0}})
    eventually(lambda: handshakes(weir, 10) == 10, what="both workers to have the new policy")


def test_trusted_proxies_and_unix_sockets_are_not_limited(rig):
    path = f"{rig.directory}/weir.sock"
    weir = rig.weir(workers=1, listen=["127.0.0.1:0", f"unix:{path}"], size_limits={"connections": CONNECTIONS_MAX},
                    identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    proxies = connected(weir, CONNECTIONS_MAX // 2)
    local = [Connection(path) for _ in range(CONNECTIONS_MAX // 2 - 1)]
    weir.counts(CONNECTIONS_MAX - 1, "weir_connections")
    assert kept(proxies + local) == CONNECTIONS_MAX - 1
    assert [connection.request().status for connection in proxies + local] == [200] * (CONNECTIONS_MAX - 1)
    close(proxies + local)


def test_clients_behind_the_proxy_protocol_are_counted(rig):
    weir = rig.weir(workers=1, listen=[{"address": "127.0.0.1:0", "proxy_protocol": True}],
                    size_limits={"connections": CONNECTIONS_MAX}, identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    named = connected(weir, CONNECTIONS_MAX - 1, v1("203.0.113.7"))
    eventually(lambda: kept(named) == CONNECTIONS_MAX // 4)
    with Connection(weir.address) as other:
        assert other.send(v1("203.0.113.8") + request_bytes()).response().status == 200
    close(named)
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as again:
        assert again.send(v1("203.0.113.7") + request_bytes()).response().status == 200
    # A proxy header without an address (LOCAL, UNKNOWN) is not counted.
    without_address = connected(weir, CONNECTIONS_MAX - 1, b"PROXY UNKNOWN\r\n" + request_bytes())
    assert [connection.response().status for connection in without_address] == [200] * (CONNECTIONS_MAX - 1)
    close(without_address)


def test_a_reload_of_trusted_proxies_does_not_change_counts_of_open_connections(rig):
    """weir decides once per connection whether it is counted: a reload during the connection
    changes no count."""
    weir = rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX, "connections_per_ip": 4}, identity={"from": ["ip"]})
    counted = connected(weir, 4)
    weir.counts(4, "weir_connections")
    weir.reload(identity={"from": ["ip"], "trusted_proxies": [THE_ADDRESS]})
    not_counted = connected(weir, 4)
    weir.counts(8, "weir_connections")
    weir.reload(identity={"from": ["ip"]})
    close(not_counted)
    weir.counts(4, "weir_connections")
    assert connected(weir, 1)[0].is_closed(), "four are still counted"
    close(counted)
    weir.counts(0, "weir_connections")
    again = connected(weir, 4)
    weir.counts(4, "weir_connections")
    close(again)


def test_lingering_connections_are_closed_for_new_ones(rig):
    """Clients that continue to send after their response hold at most a quarter of the connections,
    and only while no other client needs them."""
    weir = rig.weir(workers=1, size_limits={"connections": 4, "connections_per_ip": 0, "request_body": "1k"})
    lingering = connected(weir, 2, request_bytes(method="POST", headers={"Content-Length": "1000000"}))
    assert [connection.response("POST").status for connection in lingering] == [413] * 2
    weir.counts(1, "weir_connections_lingering")
    half = connected(weir, 3, b"GET / HTTP/1.1\r\n")
    weir.counts(4, "weir_connections")
    assert served(weir)
    weir.counts(0, "weir_connections_lingering")
    close(lingering + half)


def test_silent_connections_do_not_delay_the_shutdown(rig):
    weir = rig.weir(workers=1, timeouts={"request_header": "60s"})
    silent = connected(weir, 4)
    weir.counts(4, "weir_connections")
    weir.signal(15)
    assert weir.wait(10) == 0
    close(silent)
