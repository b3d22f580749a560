"""Several workers share no writable memory and still enforce one limit together."""

import contextlib
import threading

from rig import eventually
from wire import Connection, count, flood, get, request_bytes


def test_four_workers_enforce_one_limit(rig):
    weir = rig.weir(workers=4, limits={"all": dict(script="gcra", limit=200, period="10d", per="all")})
    assert count(flood(weir.address, 500, connections=64)) == {200: 200, 429: 300}


def test_the_local_fallback_of_two_workers_stays_within_the_limit(rig):
    rig.redis(start=False)
    weir = rig.weir(workers=2, redis={"on_failure": "local", "timeout": "100ms"},
                    limits={"each": dict(script="token_bucket", limit=50, period="10d")})
    weir.expect_errors("[Rr]edis")
    counts = count(flood(weir.address, 300, connections=64))
    assert counts == {200: 50, 429: 250}, counts


def test_connections_open_and_close_while_metrics_are_read(rig):
    weir = rig.weir(workers=4, limits={"each": dict(script="sliding_window_log", limit=100, period="10d")})
    done = threading.Event()

    def watch():
        while not done.is_set():
            assert get(weir.admin, "/metrics").status == 200
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(5):
            flood(weir.address, 300, connections=48, target="/bytes/3000")
            for _ in range(20):
                with Connection(weir.address) as connection:
                    connection.send(b"GET /slow?ms=50 HT")
    finally:
        done.set()
        watcher.join()
    eventually(lambda: weir.metric("weir_connections") == 0, what="all connections to be closed")


def test_every_worker_gets_connections(rig):
    weir = rig.weir(workers=4)
    connections = [Connection(weir.address) for _ in range(64)]
    for connection in connections:
        assert connection.request().status == 200
    weir.counts(64, "weir_connections")
    assert all(weir.metric("weir_worker_connections", worker=str(w)) for w in range(4))
    for connection in connections:
        connection.close()


def test_the_connection_limit_is_exact(rig):
    """Thirty clients with incomplete content, and ten slots: accepted connections are not closed, and
    the others wait for a free slot."""
    weir = rig.weir(workers=2, size_limits={"connections": 10, "connections_per_ip": 0})
    begun = request_bytes("/echo", "POST", {"Content-Length": "2"}) + b"1"
    connections = [Connection(weir.address).send(begun) for _ in range(30)]
    eventually(lambda: weir.metric("weir_connections") == 10)
    for connection in connections:
        assert weir.metric("weir_connections") <= 10
        connection.send(b"2")
    assert [connection.response("POST").status for connection in connections] == [200] * 30
    assert weir.metric("weir_connections") <= 10
    for connection in connections:
        connection.close()
    eventually(lambda: get(weir.address).status == 200)



def test_a_reload_is_complete_when_every_worker_uses_the_new_policy(rig):
    weir = rig.weir(workers=4, limits={"c": dict(script="gcra", limit=1000, period="1s")})
    # workers use the old policy as long as they cannot connect to Redis for the new one
    rig.redis().freeze()
    weir.reload(clients={"pest": {"quota": 0}})
    assert [get(weir.address, headers={"X-Client-Id": "pest"}).status for _ in range(16)] == [429] * 16
    rig.redis().thaw()


def test_a_worker_with_more_connections_passes_new_ones_on(rig):
    """To a worker with fewer connections, if the difference is above 4 and an eighth of its own. The
    kernel chooses the accepting worker: the test closes connections of other workers."""
    weir = rig.weir(workers=3)
    open_connections = []

    def shares():
        return [weir.metric("weir_worker_connections", worker=str(w)) for w in range(3)]

    def connect():
        """Opens a connection, and returns it and the number of its worker."""
        weir.counts(len(open_connections), "weir_connections")
        before, connection = shares(), Connection(weir.address)
        assert connection.request().status == 200
        return connection, [now - then for now, then in zip(shares(), before)].index(1)

    connection, busiest = connect()
    open_connections.append(connection)
    for _ in range(200):
        connection, worker = connect()
        if worker == busiest:
            open_connections.append(connection)
        else:
            connection.close()
        if len(open_connections) == 5:
            break
    else:
        raise AssertionError("a worker with fewer than 5 connections passes them on")
    for _ in range(20):
        connection, worker = connect()
        assert worker != busiest
        connection.close()
    for connection in open_connections:
        connection.close()


def test_every_connection_slot_of_every_worker_is_used(rig):
    """Ten slots for four workers: a worker without free slots uses those of the others, and never
    more than ten are used."""
    weir = rig.weir(workers=4, size_limits={"connections": 10, "connections_per_ip": 0})
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            connections = [stack.enter_context(Connection(weir.address)) for _ in range(10)]
            for connection in connections:
                # not idle, so it is not closed for a new connection
                connection.send(b"GET / HTTP/1.1\r\n")
            weir.counts(10, "weir_connections")
            shares = sorted(weir.metric("weir_worker_connections", worker=str(w)) for w in range(4))
            assert shares == [2, 2, 3, 3], shares
            for connection in connections:
                connection.send(b"Host: x\r\n\r\n")
                assert connection.response().status == 200
                connection.close()
            weir.counts(0, "weir_connections")
    assert weir.metric("weir_connections_evicted_total") == 0
