"""The end of all file descriptors: its own cause, one line in the log, and a reserve for servers and the admin listener."""

import re
import resource
import threading
import time

from few_descriptors import GONE, PARTIAL, exhaust
from rig import eventually
from scripted import Scripted
from wire import Connection, get, request_bytes

RESERVED = 32  # DESCRIPTORS_RESERVED
REST = b"Host: a\r\n\r\n"


def lines(weir, pattern):
    return re.findall(pattern, weir.output(), re.M)


def test_servers_and_the_admin_listener_are_reached_without_a_free_descriptor(rig):
    weir = rig.weir(workers=2, size_limits={"connections": 0})
    served = [Connection(weir.address).send(PARTIAL) for _ in range(4)]
    weir.counts(4, "weir_connections")
    exhaust(rig, weir)
    for connection in served:
        assert connection.send(REST).response().status == 200, "a connection to its server was to be had"
    for _ in range(5):
        began = time.monotonic()
        assert get(weir.admin, "/healthz").status == 200
        assert "weir_descriptor_shortages_total" in get(weir.admin, "/metrics").body.decode()
        if time.monotonic() - began < 1:
            break
    else:
        raise AssertionError("the admin listener took more than a second each time")
    assert weir.metric("weir_descriptor_shortages_total") >= 1


def test_it_is_one_line_whatever_it_costs_and_one_when_it_is_over(rig):
    """More requests at once than the reserve has descriptors: those that get none are told so, and not that there is no memory."""
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
    assert len(lines(weir, r"Z error ")) == 1 and len(lines(weir, r"no file descriptor")) < 8, "not a line for each request"
    assert "memory" not in weir.output()
    for connection in held + served:
        connection.close()
    took = float(weir.wait_for_output(r"descriptors: some are free again after ([\d.]+) s")[0])
    assert took < 60, took
    assert get(weir.address).status == 200
    assert len(lines(weir, GONE)) == 1


def test_no_more_clients_than_each_can_have_a_server(rig):
    """A low limit from the start: of many clients at once, those that are accepted are served, and the others wait."""
    limit = 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # of this test's own process, and of those it starts
    weir = rig.weir(workers=1, size_limits={"connections": 10000, "connections_per_ip": 0}, wait=False)
    most = int(weir.wait_for_output(r"at most (\d+) clients are accepted at a time; raise LimitNOFILE")[0])
    assert 2 * most < limit - RESERVED, most
    from rig import address_of
    weir.address = address_of(weir.wait_for_output(r"listening on (\S+)$")[0])
    weir.admin = address_of(weir.wait_for_output(r"admin on (\S+)$")[0])
    clients = [Connection(weir.address) for _ in range(most + 20)]
    for client in clients:
        client.send(request_bytes())
    assert {client.response().status for client in clients} == {200}
    assert weir.metric("weir_descriptor_shortages_total") == 0


def test_health_checks_do_not_take_it_for_the_servers_fault(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 0}, rules=[], log={"level": "debug", "access": "off"},
                    upstreams={"api": {"servers": [rig.upstream().text], "health": {"path": "/", "interval": "20ms", "unhealthy": 1}}})
    get(weir.address)
    limit = 3
    weir.expect_errors(GONE)
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, 20000))  # even the reserve is above it
    weir.wait_for_output(GONE)
    weir.wait_for_output(r"debug upstream api: server \S+: health check: no descriptor", count=3)  # they go on meanwhile
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (20000, 20000))
    weir.wait_for_output(r"descriptors: some are free again")
    assert "receives no requests" not in weir.output() and "ejected" not in weir.output()
    assert get(weir.address).status == 200
