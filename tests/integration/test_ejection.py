"""Ejection of servers that fail too often: for how long, and which servers are never ejected. Each
request comes from another client address, since the failures of one client eject no server."""

import itertools
import re
import threading
import time

from rig import eventually, free_port
from scripted import OK, Scripted, respond_to_all
from wire import Connection, get, request_bytes

NO_RETRY = {"on": ["connect"]}
BEHIND_PROXY = {"from": ["ip"], "trusted_proxies": ["127.0.0.1"]}
numbers = itertools.count(1)


class Failing:
    """A server that closes without a response if `fails(request number)` is true, and responds with
    200 otherwise."""

    def __init__(self, rig, fails, bad=None):
        self.requests, self.lock = 0, threading.Lock()

        def serve(peer, _number):
            while peer.read_request() is not None:
                with self.lock:
                    self.requests += 1
                    failing = fails(self.requests)
                if failing and bad is None:
                    return
                peer.send(bad if failing else OK)
        self.text = Scripted(rig, serve).text


def always(_number):
    return True


def never(_number):
    return False


def one_in_three(number):
    return number % 3 == 0


def weir_before(rig, servers, eject=None, retry=None, **more):
    upstream = {"servers": [s if isinstance(s, str) else s.text for s in servers], "retry": retry or NO_RETRY, "eject": eject or {}}
    weir = rig.weir(**{"workers": 1, "upstreams": {"api": upstream}, "identity": BEHIND_PROXY, **more})
    weir.expect_errors("upstream|server|api")
    return weir


def another_client():
    return [("X-Forwarded-For", f"2001:db8:0:{next(numbers):x}::1")]


def get_once(weir):
    return get(weir.address, headers=another_client())


def statuses(weir, count, method="POST"):
    """Uses POST, which is not idempotent, so that no retry hides a failure."""
    with Connection(weir.address) as connection:
        return [connection.request(method=method, headers=another_client()).status for _ in range(count)]


def lines(weir, text):
    return [line for line in weir.output().splitlines() if text in line]


def test_a_server_that_fails_one_request_in_three_is_ejected(rig):
    """By default: at least 20 requests within 10 s, and a quarter of them failed."""
    bad, good = Failing(rig, one_in_three), Failing(rig, never)
    weir = weir_before(rig, [bad, good])
    result = statuses(weir, 100)
    assert 6 <= result.count(502) <= 8 and result[-50:] == [200] * 50
    assert 20 <= bad.requests <= 24
    weir.counts(1, "weir_upstream_ejections_total", reason="failure_rate")
    weir.counts(0, "weir_upstream_ejections_total", reason="failures")
    weir.counts(0, "weir_upstream_server_up", server=bad.text)
    ejection_lines = eventually(lambda: lines(weir, "ejected for"), what="the log line")
    assert len(ejection_lines) == 1 and re.search(rf"server {bad.text}: \d of its last 2\d requests failed \(the last one: .*\); ejected for 10 s", ejection_lines[0]), ejection_lines


def test_with_retries_clients_see_no_failures(rig):
    bad, good = Failing(rig, one_in_three), Failing(rig, never)
    weir = weir_before(rig, [bad, good], retry={"on": ["connect", "reset"]})
    assert statuses(weir, 100, "GET") == [200] * 100
    weir.counts(1, "weir_upstream_ejections_total", reason="failure_rate")


def test_a_server_that_rarely_fails_is_not_ejected(rig):
    bad, good = Failing(rig, lambda number: number % 10 == 0), Failing(rig, never)
    weir = weir_before(rig, [bad, good])
    assert statuses(weir, 200).count(502) == 10
    assert weir.metric("weir_upstream_ejections_total") == 0


def test_a_server_with_few_requests_is_not_ejected(rig):
    bad, good = Failing(rig, one_in_three), Failing(rig, never)
    weir = weir_before(rig, [bad, good], {"requests": 60})
    assert statuses(weir, 100).count(502) == 16
    assert weir.metric("weir_upstream_ejections_total") == 0


def test_failures_outside_the_window_do_not_count(rig):
    """Failures leave the window after its length."""
    bad, good = Failing(rig, lambda number: number in (3, 6, 9, 10)), Failing(rig, never)
    weir = weir_before(rig, [bad, good], {"requests": 10, "window": "100ms"})
    assert statuses(weir, 18).count(502) == 3
    over = time.monotonic() + 0.2
    eventually(lambda: time.monotonic() > over, what="the end of the window")
    assert statuses(weir, 20).count(502) == 1 and bad.requests == 19, "failures before the window ejected the server"
    assert weir.metric("weir_upstream_ejections_total") == 0


def test_responses_with_configured_statuses_are_failures(rig):
    for eject, ejections in ({}, 0), ({"status": [503]}, 1), ({"status": ["5xx"]}, 1), ({"status": [502]}, 0):
        bad, good = Failing(rig, always, b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"), Failing(rig, never)
        weir = weir_before(rig, [bad, good], eject)
        assert statuses(weir, 40).count(503) == (5 if ejections else 20)
        weir.counts(ejections, "weir_upstream_ejections_total", reason="failures")


def test_incomplete_responses_are_failures(rig):
    bad, good = Failing(rig, always, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx"), Failing(rig, never)
    closing = Scripted(rig, lambda peer, _: peer.read_request() and peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx"))
    weir = weir_before(rig, [closing, good])
    cut = 0
    for _ in range(80):
        try:
            get_once(weir)
        except Exception:
            cut += 1
    assert 19 <= cut <= 21 and bad.requests == 0
    weir.counts(1, "weir_upstream_ejections_total", reason="failure_rate")


def test_a_server_returns_after_the_ejection_time_which_doubles(rig):
    failing = threading.Event()
    failing.set()
    bad, good = Failing(rig, lambda _: failing.is_set()), Failing(rig, never)
    weir = weir_before(rig, [bad, good], {"time": "1s"})
    for number, seconds in (1, 1), (2, 2):
        before = bad.requests
        eventually(lambda: get_once(weir) and weir.metric("weir_upstream_ejections_total") == number, 20, "its ejection")
        assert bad.requests - before == 5, "five failures eject the server again"
        weir.wait_for_output(f"ejected for {seconds} s")
    failing.clear()
    before = bad.requests
    eventually(lambda: get_once(weir).status == 200 and bad.requests > before, 20, "requests to the returned server")
    assert statuses(weir, 20) == [200] * 20
    eventually(lambda: len(lines(weir, f"{bad.text} gets requests again")) == 2, what="both lines")
    weir.counts(2, "weir_upstream_ejections_total")
    weir.counts(1, "weir_upstream_server_up", server=bad.text)


def test_a_late_response_does_not_end_the_ejection(rig):
    gate = threading.Event()
    rig.add_cleanup(gate.set)
    received = []

    def serve(bad, received):
        def script(peer, _number):
            while (request := peer.read_request()) is not None:
                received.append(request[0])
                if b"GET /slow" in request[0]:
                    gate.wait()
                elif bad:
                    return
                peer.send(OK)
        return script
    others = []
    bad, good = Scripted(rig, serve(True, received)), Scripted(rig, serve(False, others))
    weir = weir_before(rig, [bad, good])
    slow = [Connection(weir.address).send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(2)]
    eventually(lambda: received and others, what="a request on each server")
    eventually(lambda: get_once(weir) and lines(weir, "ejected for 10 s"), what="its ejection")
    gate.set()
    for connection in slow:
        assert connection.response().status == 200
        connection.close()
    before = len(received)
    assert statuses(weir, 20) == [200] * 20 and len(received) == before


def test_the_log_tells_that_a_server_is_down_after_its_last_responses(rig):
    """A server that stops gracefully finishes its requests, but accepts no connections any more."""
    received, finish = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    rig.add_cleanup(finish[0].set)
    rig.add_cleanup(finish[1].set)

    def serve_once(peer, number):
        peer.read_request()
        received[number].set()
        finish[number].wait()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    server = Scripted(rig, serve_once)
    weir = weir_before(rig, [server])
    waiting = []
    for number in range(2):
        waiting.append(Connection(weir.address).send(request_bytes("/")))
        assert received[number].wait(20)
    server.listener.shutdown(2)
    server.listener.close()
    assert get_once(weir).status == 502
    for number in range(2):
        finish[number].set()
        assert waiting[number].response().status == 200
        assert get_once(weir).status == 502
    eventually(lambda: len(lines(weir, "until it accepts connections again")) == 2, what="its second ejection")
    told = lines(weir, f"upstream api: server {server.text}")
    assert "answers again" in told[1] and "ejected" in told[-1], told


def test_the_last_server_is_never_ejected_for_failures(rig):
    alone = Failing(rig, always)
    weir = weir_before(rig, [alone])
    assert statuses(weir, 30) == [502] * 30 and alone.requests == 30
    assert weir.metric("weir_upstream_ejections_total") == 0
    assert get(weir.admin, "/readyz").status == 200
    down = f"127.0.0.1:{free_port()}"
    weir = weir_before(rig, [alone, down], {"at_most": "100%"})
    statuses(weir, 30)
    weir.counts(0, "weir_upstream_ejections_total", reason="failures")
    weir.counts(1, "weir_upstream_ejections_total", reason="connect")


def test_at_most_the_configured_share_of_servers_is_ejected(rig):
    for at_most, most in ("50%", 2), ("100%", 3), ("10%", 1), ("0%", 0):
        servers = [Failing(rig, always) for _ in range(4)]
        weir = weir_before(rig, servers, {"at_most": at_most})
        assert statuses(weir, 100) == [502] * 100
        weir.counts(most, "weir_upstream_ejections_total", reason="failures")
        assert weir.metric("weir_upstream_server_up") == 4 - most


def test_ejected_servers_are_preferred_to_servers_that_refuse_connections(rig):
    """If no other server is available."""
    failing = threading.Event()
    failing.set()
    bad, port = Failing(rig, lambda _: failing.is_set()), free_port()
    other = Scripted(rig, respond_to_all(), ("127.0.0.1", port))
    weir = weir_before(rig, [bad, other])
    eventually(lambda: get_once(weir) and lines(weir, "ejected for 10 s"), what="its ejection")
    failing.clear()
    other.close()
    eventually(lambda: "Connection refused" in weir.output() or not get_once(weir), what="the other server to be down")
    before = bad.requests
    assert statuses(weir, 10) == [200] * 10 and bad.requests == before + 10


def with_one_ejected(rig, answer, retry_on):
    """Returns weir before two servers: a good one, ejected, and one that always fails with `answer`."""
    failing = threading.Event()
    failing.set()
    good = Failing(rig, lambda _: failing.is_set())
    other = Failing(rig, lambda _: not failing.is_set(), answer)
    weir = weir_before(rig, [good, other], {"time": "60s"}, {"on": ["connect", retry_on], "budget_min": 1000})
    eventually(lambda: statuses(weir, 1) and lines(weir, "ejected for 60 s"), what="its ejection")
    failing.clear()
    return weir, good


def test_an_ejected_server_gets_the_request_that_the_last_other_one_has_lost(rig):
    weir, good = with_one_ejected(rig, None, "reset")
    before = good.requests
    assert statuses(weir, 10, "GET") == [200] * 10
    assert good.requests == before + 10


def test_an_ejected_server_gets_no_request_that_another_one_has_answered(rig):
    weir, good = with_one_ejected(rig, b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", 503)
    before = good.requests
    assert statuses(weir, 10, "GET") == [503] * 10
    assert good.requests == before


def test_after_a_reused_connection_the_same_server_is_tried_before_an_ejected_one(rig):
    """It closes the connection when it has read the third request. The other one is down, and was
    tried before."""
    def serve(peer, number):
        if number > 0:
            respond_to_all()(peer, number)
            return
        for _ in range(2):
            if peer.read_request() is not None:
                peer.send(OK)
        peer.read_request()
    weir = weir_before(rig, [f"127.0.0.1:{free_port()}", Scripted(rig, serve)], retry={"on": ["connect", "reset"]})
    assert statuses(weir, 6, "GET") == [200] * 6
    weir.counts(1, "weir_upstream_retries_total", cause="idle_closed")


def test_ejection_can_be_disabled(rig):
    bad, good = Failing(rig, always), Failing(rig, never)
    weir = weir_before(rig, [bad, good], {"failures": 0, "failure_rate": "0%"})
    assert sorted(statuses(weir, 60)) == [200] * 30 + [502] * 30
    assert weir.metric("weir_upstream_ejections_total") == 0


def test_a_reload_ends_ejections(rig):
    bad, good = Failing(rig, always), Failing(rig, never)
    weir = weir_before(rig, [bad, good])
    assert statuses(weir, 20).count(502) == 5
    weir.reload(log={"access": "off", "level": "info"})
    assert weir.metric("weir_upstream_server_up") == 2
    assert statuses(weir, 20).count(502) == 5
    weir.counts(2, "weir_upstream_ejections_total", reason="failures")


def test_a_server_that_a_reload_has_removed_is_not_ejected(rig):
    """Its TLS handshake fails later. It is not probed, so the end of its ejection would not be logged."""
    silent = Scripted(rig, lambda peer, _number: eventually(lambda: not peer.socket.recv(65536), 60))
    weir = rig.weir(workers=1, rules=[], upstreams={"api": {"servers": [silent.text], "tls": {"verify": False}, "connect_timeout": "6s"}})
    with Connection(weir.address) as connection:
        connection.send(request_bytes())
        eventually(lambda: silent.accepted == 1)
        weir.reload(upstreams={"api": {"servers": [Failing(rig, never).text]}})
        assert connection.response().status == 504
    assert weir.metric("weir_upstream_ejections_total") == 0 and not lines(weir, "ejected")


def test_an_ejection_is_logged_once_for_all_workers(rig):
    bad, good = Failing(rig, always), Failing(rig, never)
    upstream = {"servers": [bad.text, good.text], "retry": NO_RETRY, "eject": {"failures": 1}}
    weir = rig.weir(workers=4, upstreams={"api": upstream}, identity=BEHIND_PROXY)
    weir.expect_errors("upstream|server|api")
    connections = one_per_worker(weir, 4)
    for _ in range(4):  # enough for each worker to choose the bad server
        for connection in connections:
            connection.request(method="POST", headers=another_client())
    for connection in connections:
        connection.close()
    weir.counts(4, "weir_upstream_ejections_total")
    weir.wait_for_output("ejected for")
    assert len(lines(weir, "ejected for")) == 1


def test_a_server_that_responds_early_and_stops_reading_has_not_failed(rig):
    """The server has responded and does not need the rest of the content."""
    gate = threading.Event()
    rig.add_cleanup(gate.set)

    def early(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(OK)
        gate.wait()
    servers = [Scripted(rig, early) for _ in range(2)]
    upstream = {"servers": [s.text for s in servers], "response_timeout": "3s", "eject": {"failures": 1}}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, identity=BEHIND_PROXY)
    weir.expect_errors("upstream|server|api")
    for _ in range(4):
        with Connection(weir.address) as connection:
            connection.send(request_bytes(method="POST", headers=[*another_client(), ("Content-Length", "100000000")]))
            assert connection.response().status == 200
            try:
                for _ in range(1000):
                    connection.send(b"x" * 100000)
            except OSError:
                pass
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="their end")
    assert weir.metric("weir_upstream_ejections_total") == 0


def test_readyz_while_a_server_is_ejected(rig):
    """The server is ejected, but receives requests while the other server is down."""
    bad, port = Failing(rig, one_in_three), free_port()
    other = Scripted(rig, respond_to_all(), ("127.0.0.1", port))
    weir = weir_before(rig, [bad, other])
    eventually(lambda: statuses(weir, 10) and lines(weir, "ejected for 10 s"), what="the ejection")
    assert get(weir.admin, "/readyz").status == 200
    other.close()
    eventually(lambda: get_once(weir) and "Connection refused" in weir.output(), what="the other server to be down")
    assert get(weir.admin, "/readyz").status == 200
    assert statuses(weir, 9).count(200) == 6


def one_per_worker(weir, workers):
    """A client connection to each worker."""
    taken, others = {}, []
    while len(taken) < workers:
        before = [weir.metric("weir_worker_connections", worker=str(w)) for w in range(workers)]
        connection = Connection(weir.address)
        eventually(lambda: sum(weir.metric("weir_worker_connections", worker=str(w)) for w in range(workers)) > sum(before))
        worker = next(w for w in range(workers) if weir.metric("weir_worker_connections", worker=str(w)) > before[w])
        if taken.setdefault(worker, connection) is not connection:
            others.append(connection)
    for connection in others:
        connection.close()
    return [taken[worker] for worker in range(workers)]


def test_readyz_when_only_one_worker_has_requests(rig):
    """The other workers have no request from which they could learn that the server is down."""
    port = free_port()
    server = Scripted(rig, respond_to_all(), ("127.0.0.1", port))
    weir = rig.weir(workers=4, upstreams={"api": {"servers": [server.text], "retry": NO_RETRY}})
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as connection:
        assert connection.request(method="POST").status == 200
        assert get(weir.admin, "/readyz").status == 200
        server.close()
        eventually(lambda: connection.request(method="POST").status == 502 and "Connection refused" in weir.output())
        not_ready = get(weir.admin, "/readyz")
        assert not_ready.status == 503 and b"no server of an upstream can be reached" in not_ready.body, not_ready
        assert weir.metric("weir_upstream_server_up") == 0
        Scripted(rig, respond_to_all(), ("127.0.0.1", port))
        assert connection.request(method="POST").status == 200
        assert get(weir.admin, "/readyz").status == 200


def test_readyz_while_another_worker_still_gets_responses(rig):
    """The server accepts no more connections, but serves those that it has."""
    server = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=2, upstreams={"api": {"servers": [server.text], "retry": NO_RETRY}})
    weir.expect_errors("upstream|server|api")
    with_connection, without = one_per_worker(weir, 2)
    assert with_connection.request(method="POST").status == 200
    server.listener.shutdown(2)
    server.listener.close()
    assert without.request(method="POST").status == 502
    assert get(weir.admin, "/readyz").status == 503
    assert with_connection.request(method="POST").status == 200
    assert get(weir.admin, "/readyz").status == 200
    with_connection.close()
    without.close()
