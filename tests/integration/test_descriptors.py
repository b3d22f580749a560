"""weir without free file descriptors: a separate error cause, one log line, and a reserve for
servers and the admin listener."""

import re
import resource
import subprocess
import threading
import time

from few_descriptors import GONE, PARTIAL, exhaust
from http2_server import Http2Server, respond_to_requests
from http2_wire import MAX_CONCURRENT_STREAMS
from rig import address_of, eventually
from scripted import OK, Scripted
from wire import Connection, get, request_bytes

RESERVED = 32  # DESCRIPTORS_RESERVED
REST = b"Host: a\r\n\r\n"


def lines(weir, pattern):
    return re.findall(pattern, weir.output(), re.M)


def test_servers_and_the_admin_listener_work_without_free_descriptors(rig):
    weir = rig.weir(workers=2, size_limits={"connections": 0})
    served = [Connection(weir.address).send(PARTIAL) for _ in range(4)]
    weir.counts(4, "weir_connections")
    exhaust(rig, weir)
    for connection in served:  # with the beginning of a next request: idle ones are closed to make room
        assert connection.send(REST + PARTIAL).response().status == 200, "weir could connect to the server"
    for _ in range(5):
        began = time.monotonic()
        assert get(weir.admin, "/healthz").status == 200
        ready = get(weir.admin, "/readyz")
        assert (ready.status, ready.body) == (503, b"no file descriptor is free, so new clients wait\n")
        assert weir.metric("weir_problem", problem="descriptors") == 1
        assert "weir_descriptor_shortages_total" in get(weir.admin, "/metrics").body.decode()
        if time.monotonic() - began < 1:
            break
    else:
        raise AssertionError("every response of the admin listener took more than a second")
    assert weir.metric("weir_descriptor_shortages_total") >= 1


def test_descriptor_exhaustion_and_its_end_are_logged_once(rig):
    """More concurrent requests than reserved descriptors: requests without a descriptor fail with
    that cause, not as out of memory."""
    gate = threading.Event()

    def script(peer, _):
        peer.read_request()
        gate.wait()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    server = Scripted(rig, script)
    weir = rig.weir(workers=1, size_limits={"connections": 0}, upstreams={"api": {"servers": [server.text]}}, rules=[])
    served = [Connection(weir.address).send(PARTIAL) for _ in range(RESERVED + 8)]
    weir.counts(RESERVED + 8, "weir_connections")
    held = exhaust(rig, weir)
    for connection in served:
        connection.send(REST)
    eventually(lambda: (weir.metric("weir_errors_total", cause="no_descriptors") or 0) >= RESERVED // 2)
    assert weir.metric("weir_errors_total", cause="no_memory") == 0
    assert weir.metric("weir_errors_total", cause="upstream_connect") == 0
    gate.set()
    statuses = {connection.response().status for connection in served}
    assert statuses == {200, 503}, statuses
    assert len(lines(weir, r"Z error ")) == 1 and len(lines(weir, r"no file descriptor")) < 8, "not one log line per request"
    assert not re.search(r"(no|out of) memory", weir.output())
    for connection in held + served:
        connection.close()
    took = float(weir.wait_for_output(r"descriptors: some are free again after ([\d.]+) s")[0])
    assert took < 60, took
    assert get(weir.address).status == 200
    assert len(lines(weir, GONE)) == 1


def weir_with(rig, limit):
    """A weir with a low descriptor limit from the start, and the number of clients that it accepts."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # for this process and its children
    weir = rig.weir(workers=1, size_limits={"connections": 10000, "connections_per_ip": 0}, wait=False)
    most = int(weir.wait_for_output(r"at most (\d+) clients are accepted at a time; raise LimitNOFILE")[0])
    assert 2 * most < limit - RESERVED, most
    weir.address = address_of(weir.wait_for_output(r"listening on (\S+)$")[0])
    weir.admin = address_of(weir.wait_for_output(r"admin on (\S+)$")[0])
    return weir, most


def test_weir_accepts_only_as_many_clients_as_it_can_connect_to_servers(rig):
    """Accepted clients are served, and the others wait in the backlog."""
    weir, most = weir_with(rig, 200)
    clients = [Connection(weir.address) for _ in range(most + 20)]
    for client in clients:
        client.send(request_bytes())
    assert {client.response().status for client in clients} == {200}
    assert weir.metric("weir_descriptor_shortages_total") == 0


def test_pipes_for_large_content_take_no_descriptors_of_clients(rig):
    limit = 400
    weir, most = weir_with(rig, limit)

    def pipes():
        return subprocess.run(["ls", "-l", f"/proc/{weir.pid}/fd"], stdout=subprocess.PIPE, text=True).stdout.count("pipe:")
    others, clients = pipes(), [Connection(weir.address) for _ in range(most)]
    for client in clients:  # which do not read the content
        client.send(request_bytes(f"/bytes/{64 << 20}"))
    assert {client.read_head().status for client in clients} == {200}
    eventually(lambda: pipes() == others + 2 * (limit // 16), what="as many pipes as the limit of descriptors allows")
    assert weir.metric("weir_descriptor_shortages_total") == 0


def test_requests_that_wait_for_a_stream_use_the_reserve(rig):
    """They wait for the only stream of a connection, whose server then accepts no more requests on it."""
    arrived, leave, end = threading.Event(), threading.Event(), threading.Event()

    def script(connection, number):
        if number:
            respond_to_requests(connection, number)
            return
        request = connection.next_request()
        arrived.set()
        leave.wait(20)
        connection.go_away(request.stream)
        end.wait(20)
        request.respond()
    server = Http2Server(rig, script, settings=[(MAX_CONCURRENT_STREAMS, 1)])
    weir = rig.weir(workers=1, size_limits={"connections": 0}, upstreams={"api": {"protocol": "http2", "servers": [server.text]}}, rules=[])
    busy, waiting = Connection(weir.address).send(request_bytes()), Connection(weir.address).send(PARTIAL)
    assert arrived.wait(20)
    weir.counts(2, "weir_connections")
    exhaust(rig, weir)
    waiting.send(REST)
    weir.counts(2, "weir_requests_active")
    most, _ = resource.prlimit(weir.pid, resource.RLIMIT_NOFILE)
    eventually(lambda: weir.descriptors() == most, what="the descriptor of the admin connection in the reserve again")
    leave.set()
    assert waiting.response().status == 200
    end.set()
    assert busy.response().status == 200


def test_idle_connections_to_servers_are_closed_before_idle_clients(rig):
    """Four of each server's at a time: enough for the clients that wait, the reserve and the admin listener. There are
    more, since weir closes four again if the machine keeps it from filling the reserve for 0.1 s."""
    many = 96
    arrived = threading.Barrier(many)

    def script(peer, _):
        while peer.read_request():
            arrived.wait(20)
            peer.send(OK)
    servers = [Scripted(rig, script).text for _ in range(3)]
    weir = rig.weir(workers=1, size_limits={"connections": 0}, upstreams={"api": {"servers": servers}}, rules=[])
    idle = [Connection(weir.address).send(request_bytes()) for _ in range(many)]
    assert {client.response().status for client in idle} == {200}
    weir.counts(many, "weir_upstream_connections")
    held = exhaust(rig, weir)
    weir.counts(len(idle + held), "weir_connections")
    assert weir.metric("weir_connections_evicted_total") == 0


def test_busy_servers_do_not_protect_idle_clients(rig):
    """Requests of other clients open the connections again that weir closes: those of one upstream are
    idle while those of the other are in use."""
    def upstream():
        arrived = threading.Barrier(8)

        def script(peer, _):
            while peer.read_request():
                arrived.wait(20)
                peer.send(OK)
        return {"servers": [Scripted(rig, script).text]}
    weir = rig.weir(workers=1, size_limits={"connections": 0}, upstreams={name: upstream() for name in "ab"},
                    rules=[{"match": {"path": f"/{name}"}, "upstream": name} for name in "ab"])
    idle = [Connection(weir.address) for _ in range(40)]
    busy = [Connection(weir.address) for _ in range(8)]

    def use(path, clients):
        for client in clients:
            client.send(request_bytes(path))
        assert {client.response().status for client in clients} == {200}
    for clients in [idle[n:n + 8] for n in range(0, len(idle), 8)]:
        use("/a", clients)
    stop = threading.Event()

    def traffic():
        while not stop.is_set():
            use("/a", busy)
            use("/b", busy)
    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        held = exhaust(rig, weir) + [Connection(weir.address).send(PARTIAL) for _ in range(20)]
        weir.counts(len(idle + busy + held), "weir_connections_accepted_total")
    finally:
        stop.set()
        thread.join()


def test_descriptor_exhaustion_does_not_fail_health_checks(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 0}, rules=[], log={"level": "debug", "access": "off"},
                    upstreams={"api": {"servers": [rig.upstream().text], "health": {"path": "/", "interval": "20ms", "timeout": "20s", "unhealthy": 1}}})
    get(weir.address)
    limit = 3
    weir.expect_errors(GONE)
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, 20000))  # below even the reserve
    weir.wait_for_output(GONE)
    # health checks continue meanwhile
    weir.wait_for_output(r"debug upstream api: server \S+: health check: no descriptor", count=3)
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (20000, 20000))
    weir.wait_for_output(r"descriptors: some are free again")
    assert "receives no requests" not in weir.output() and "ejected" not in weir.output()
    assert get(weir.address).status == 200
