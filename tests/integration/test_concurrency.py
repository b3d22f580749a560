"""The concurrency limiter: never more requests in flight than the limit, over all workers and
weirs. Slots are freed with the request or with the weir that holds them."""

import contextlib
import json
import re
import select
import signal
import socket
import struct
import threading
import time
from collections import deque
from random import Random

from gate import Gate, send_request, concurrency
from http2_server import Http2Server
from rig import eventually, free_port, timeout
from scripted import Scripted
from tunnels import ASKED, SWITCH, echo_after
from wire import Connection, connect, count, flood, get, request_bytes


def admitted(weir, gate):
    """Sends a request. Returns its connection if the request was admitted and waits at the gate,
    None if it was rejected."""
    before, c = gate.total, send_request(weir)
    eventually(lambda: gate.total > before or select.select([c.socket], [], [], 0)[0])
    return c if gate.total > before else None


def free_slots(weir, client="ip:127.0.0.1", limit="c"):
    look = json.loads(get(weir.admin, f"/api/v1/clients/{client}").body)
    return [row["remaining"] for row in look["limits"] if row["limit"] == limit][0]


def test_exact_under_load_over_weirs_and_workers(rig):
    gate = Gate(rig)
    limits = {"c": concurrency(5, per="all")}
    weirs = [rig.weir(workers=2, limits=limits, upstreams=gate.upstreams) for _ in range(2)]
    responses = []
    clients = threading.Thread(target=lambda: responses.extend(flood([w.address for w in weirs], 800, connections=24)))
    clients.start()
    eventually(lambda: gate.now == 5, what="all slots to be used")
    gate.pause = 0.004
    gate.open.set()
    clients.join()
    counts = count(responses)
    assert set(counts) == {200, 429} and gate.most == 5, (counts, gate.most)
    assert gate.total == counts[200], (gate.total, counts)
    rejected = next(r for r in responses if r.status == 429)
    assert rejected["Retry-After"] == "1"
    eventually(lambda: rig.redis().command("EXISTS", "weir:{all}:l:c") == 0, what="the key without requests in flight")


def test_slots_are_freed_however_a_request_ends(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(3)},
                    upstreams={**gate.upstreams, "away": {"servers": [f"127.0.0.1:{free_port()}"]},
                               "closing": {"servers": [Scripted(rig, lambda peer, _: peer.read_request()).text]}},
                    rules=[{"match": {"path": f"/{name}"}, "limits": ["c"], "upstream": name} for name in ("away", "closing")] +
                    [{"limits": ["c"]}])
    weir.expect_errors("upstream (away|closing)")
    assert [get(weir.address, "/away").status for _ in range(6)] == [502] * 6
    assert [get(weir.address, "/closing").status for _ in range(6)] == [502] * 6
    for _ in range(3):
        waiting = [send_request(weir) for _ in range(3)]
        eventually(lambda: gate.now == 3)
        assert get(weir.address).status == 429
        for c in waiting:
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        eventually(lambda: free_slots(weir) == 3)
        gate.open.set()
        eventually(lambda: gate.now == 0)
        gate.open.clear()
    gate.open.set()
    answer = get(weir.address)
    assert answer.status == 200 and answer["RateLimit-Policy"] == '"c";q=3;qu="concurrent-requests"', answer
    assert answer["RateLimit"] == '"c";r=2' and answer["X-RateLimit-Remaining"] == "2"
    assert answer["X-RateLimit-Limit"] == "3" and answer["X-RateLimit-Reset"] is None
    assert answer["X-Rate-Limit-Used"] == "1" and answer["X-Rate-Limit-Reset"] is None


def test_a_slot_is_freed_at_once_if_an_http2_server_closes_the_connection(rig):
    """Also if nothing else happens: HTTP/2 connections are flushed after the limiter. A request begins when the last slot
    was freed: a release that waits for the timer of a second needs most of it."""
    def script(connection, _number):
        connection.next_request()
    upstreams = {"api": {"servers": [Http2Server(rig, script).text], "protocol": "http2", "eject": {"failures": 0}}}
    weir = rig.weir(workers=1, limits={"c": concurrency(3)}, upstreams=upstreams, rules=[{"limits": ["c"]}])
    weir.expect_errors("upstream")
    waits, client = [], Connection(weir.address)
    for _ in range(4):
        assert client.request().status == 502
        began = time.monotonic()
        eventually(lambda: not rig.redis().command("KEYS", "weir:*:l:c"), what="the release")
        waits.append(time.monotonic() - began)
    client.close()
    assert min(waits) < 0.5, waits


def test_a_denial_is_not_cached(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(1)}, upstreams=gate.upstreams)
    waiting = send_request(weir)
    eventually(lambda: gate.now == 1)
    with Connection(weir.address) as c:
        assert c.request().status == 429
        gate.open.set()
        assert waiting.response().status == 200
        eventually(lambda: free_slots(weir) == 1)
        assert c.request().status == 200


@timeout(90)
def test_the_slots_of_a_killed_weir_are_freed_after_its_lease(rig):
    gate = Gate(rig)
    limits = {"c": concurrency(4, lease="5s", per="all")}
    dying, other = (rig.weir(workers=2, limits=limits, upstreams=gate.upstreams) for _ in range(2))
    waiting = [send_request(dying) for _ in range(3)]
    eventually(lambda: gate.now == 3)
    kept = send_request(other)
    eventually(lambda: gate.now == 4)
    assert get(other.address).status == 429
    dying.expected_exit = None
    start = time.monotonic()
    dying.kill()
    fresh = [eventually(lambda: admitted(other, gate), 12, "a free slot")]
    assert time.monotonic() - start > 1.5
    fresh += [eventually(lambda: admitted(other, gate), 12, "the slots of its other worker") for _ in range(2)]
    assert get(other.address).status == 429, "the slot of the running weir still counts"
    gate.open.set()
    kept.socket.settimeout(20)
    assert kept.response().status == 200


@timeout(90)
def test_long_requests_and_tunnels_renew_their_lease(rig):
    gate = Gate(rig)
    tunnels = Scripted(rig, echo_after(SWITCH))
    weir = rig.weir(workers=1, limits={"c": concurrency(2, lease="5s")}, upstreams={**gate.upstreams, "t": {"servers": [tunnels.text]}},
                    rules=[{"match": {"path": "/tunnel"}, "limits": ["c"], "upstream": "t"}, {"limits": ["c"]}])
    waiting = send_request(weir)
    eventually(lambda: gate.now == 1)
    with Connection(weir.address) as tunnel:
        tunnel.send(request_bytes("/tunnel", headers=ASKED))
        assert tunnel.read_head().status == 101
        deadline = time.monotonic() + 11
        with Connection(weir.address) as c:
            # a busy client must not prevent the renewal of the lease
            while time.monotonic() < deadline:
                assert c.request().status == 429
                time.sleep(0.01)
        tunnel.socket.shutdown(socket.SHUT_WR)
        tunnel.read_exactly(7, "goodbye")
        eventually(lambda: free_slots(weir) == 1, what="the tunnel's place")
    gate.open.set()
    assert waiting.response().status == 200
    eventually(lambda: free_slots(weir) == 2)


@timeout(90)
def test_slots_freed_during_a_redis_outage_are_returned_afterwards(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(2, lease="60s", on_failure="deny")}, upstreams=gate.upstreams)
    weir.expect_errors("[Rr]edis")
    waiting = [send_request(weir), send_request(weir)]
    eventually(lambda: gate.now == 2)
    redis = rig.redis()
    redis.command("CLIENT", "KILL", "TYPE", "normal")
    redis.freeze()
    gate.open.set()
    assert [c.response().status for c in waiting] == [200, 200]
    redis.thaw()
    weir.wait_for_redis()
    eventually(lambda: free_slots(weir) == 2, 20)


def test_returned_slots_do_not_flood_a_redis_that_does_not_read(rig):
    gate, longer = Gate(rig), Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(2, lease="60s")}, upstreams={**gate.upstreams, "longer": longer.upstreams["api"]},
                    rules=[{"match": {"path": "/longer"}, "limits": ["c"], "upstream": "longer"}, {"limits": ["c"]}])
    weir.expect_errors("[Rr]edis")
    waiting = [send_request(weir), send_request(weir, "/longer")]
    eventually(lambda: gate.now + longer.now == 2)
    rig.redis().command("CONFIG", "SET", "maxmemory", "1")
    gate.open.set()
    assert waiting[0].response().status == 200
    eventually(lambda: weir.metric("weir_redis_calls_total") >= 4, what="a second attempt")
    start, before = time.monotonic(), weir.metric("weir_redis_calls_total")
    eventually(lambda: weir.metric("weir_redis_calls_total") >= before + 3)
    assert time.monotonic() - start > 0.15
    rig.redis().command("CONFIG", "SET", "maxmemory", "0")
    eventually(lambda: free_slots(weir) == 1, 20)
    longer.open.set()
    assert waiting[1].response().status == 200
    eventually(lambda: free_slots(weir) == 2, 20)


@timeout(90)
def test_after_flushall_workers_report_their_requests_again(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=2, limits={"c": concurrency(3, lease="5s")}, upstreams=gate.upstreams)
    waiting = [send_request(weir) for _ in range(3)]
    eventually(lambda: gate.now == 3)
    rig.redis().command("FLUSHALL")
    eventually(lambda: free_slots(weir) == 0, 10, "three requests in flight again")
    row = json.loads(get(weir.admin, "/api/v1/clients/ip:127.0.0.1").body)["limits"][0]
    assert row["period_seconds"] is None and row["resets_in_seconds"] is None, row
    shown = rig.command("inspect", "-c", weir.policy_file, "ip:127.0.0.1").stdout
    assert re.search(r"^c +client +3 in flight +0 of 3 +-$", shown, re.M), shown
    assert get(weir.address).status == 429
    gate.open.set()
    assert [c.response().status for c in waiting] == [200] * 3
    eventually(lambda: free_slots(weir) == 3)


def test_without_redis_each_process_counts_its_requests(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=2, redis={"on_failure": "local", "timeout": "5s"}, limits={"c": concurrency(3)}, upstreams=gate.upstreams)
    weir.expect_errors("[Rr]edis")
    # admitted by Redis, but in flight in this process
    before = [send_request(weir), send_request(weir)]
    eventually(lambda: gate.now == 2)
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    third = send_request(weir)
    eventually(lambda: gate.now == 3)
    assert get(weir.address).status == 429
    gate.open.set()
    assert [c.response().status for c in before + [third]] == [200] * 3
    weir.counts(0, "weir_requests_active")
    responses = flood(weir.address, 200, connections=3)
    assert count(responses) == {200: 200}, count(responses)


@timeout(90)
def test_requests_admitted_without_redis_count_when_it_returns(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, redis={"on_failure": "local", "timeout": "5s"}, limits={"c": concurrency(3)}, upstreams=gate.upstreams)
    weir.expect_errors("[Rr]edis")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    waiting = [send_request(weir)]
    eventually(lambda: gate.now == 1)
    with send_request(weir) as ended:
        eventually(lambda: gate.now == 2)
        ended.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    weir.counts(1, "weir_requests_active")
    rig.redis().start()
    weir.wait_for_redis()
    waiting += [eventually(lambda: admitted(weir, gate), what="Redis has two slots left") for _ in range(2)]
    assert admitted(weir, gate) is None and free_slots(weir) == 0
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    assert admitted(weir, gate) is None
    gate.open.set()
    assert [c.response().status for c in waiting] == [200] * 3
    weir.counts(0, "weir_requests_active")
    gate.open.clear()
    waiting = [admitted(weir, gate) for _ in range(3)]
    assert all(waiting) and admitted(weir, gate) is None
    gate.open.set()
    rig.redis().start()
    eventually(lambda: rig.redis().command("EXISTS", "weir:{ip:127.0.0.1}:l:c") == 0, what="the key without requests in flight")


def test_a_late_grant_counts_as_long_as_its_request(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, redis={"on_failure": "local", "timeout": "100ms"}, limits={"c": concurrency(3)}, upstreams=gate.upstreams)
    weir.expect_errors("[Rr]edis")
    rig.redis().freeze()
    waiting = [send_request(weir)]
    eventually(lambda: gate.now == 1, what="the decision without Redis")
    rig.redis().thaw()
    weir.wait_for_redis()
    waiting += [admitted(weir, gate) for _ in range(2)]
    assert all(waiting) and admitted(weir, gate) is None
    eventually(lambda: (rig.redis().command("GET", "weir:{ip:127.0.0.1}:l:c") or "::").split(":")[1] == "3", what="three units")
    gate.open.set()
    assert [c.response().status for c in waiting] == [200] * 3
    eventually(lambda: rig.redis().command("EXISTS", "weir:{ip:127.0.0.1}:l:c") == 0, what="the key without requests in flight")


class LongLink(Scripted):
    """Forwards bytes between weir and a Redis that is 20 ms away. Calls overlap on it."""

    def __init__(self, rig, redis):
        self.redis = redis
        super().__init__(rig, self.relay)

    def relay(self, peer, _number):
        with connect(self.redis.address) as server:
            back = threading.Thread(target=self.forward, args=(server, peer.socket), daemon=True)
            back.start()
            self.forward(peer.socket, server)
            back.join()

    def forward(self, source, to):
        with contextlib.suppress(OSError):  # the other direction has ended
            self.forward_all(source, to)

    def forward_all(self, source, to):
        waiting = deque()
        while True:
            pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
            if select.select([source], [], [], pause)[0]:
                data = source.recv(65536)
                waiting.append((time.monotonic() + 0.02, data))
            while waiting and waiting[0][0] <= time.monotonic():
                data = waiting.popleft()[1]
                if not data:
                    to.shutdown(socket.SHUT_WR)
                    return
                to.sendall(data)


@timeout(240)
def test_the_slots_of_a_busy_client_are_freed_after_calls_were_repeated(rig):
    """A release that is sent again, since Redis has lost its scripts, may come after a later charge. The total corrects the
    count. Calls of the client are always in progress."""
    gate = Gate(rig)
    gate.pause = 0.004
    link = LongLink(rig, rig.redis())
    weir = rig.weir(workers=1, redis={"address": link.text, "timeout": "5s", "on_failure": "deny"},
                    limits={"c": concurrency(2, lease="1h")}, upstreams=gate.upstreams)
    weir.expect_errors("redis .* the connection was lost")  # at the end of the test
    weir.wait_for_redis()
    over, statuses = threading.Event(), []

    def client():
        with Connection(weir.address) as c:
            while not over.is_set():
                statuses.append(c.request().status)
    clients = [threading.Thread(target=client, daemon=True) for _ in range(8)]
    try:
        for thread in clients:
            thread.start()
        for _ in range(10):
            rig.redis().command("SCRIPT", "FLUSH")
            before = gate.total
            eventually(lambda: gate.total >= before + 10, what="admitted requests")
    finally:
        over.set()
        for thread in clients:
            thread.join()
    assert gate.most == 2 and set(statuses) == {200, 429}, (gate.most, set(statuses))


def test_a_rejected_request_is_not_charged_to_other_limits(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(2), "w": dict(script="fixed_window", limit=3, period="1d")}, upstreams=gate.upstreams)
    waiting = [send_request(weir), send_request(weir)]
    eventually(lambda: gate.now == 2)
    assert get(weir.address).status == 429
    assert free_slots(weir, limit="w") == 1, "a rejected request was charged"
    gate.open.set()
    assert [c.response().status for c in waiting] == [200, 200]
    eventually(lambda: free_slots(weir) == 2)
    assert get(weir.address).status == 200
    assert get(weir.address).status == 429, "the window"
    eventually(lambda: free_slots(weir) == 2)


def test_a_reload_keeps_requests_in_flight(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, limits={"c": concurrency(2)}, upstreams=gate.upstreams)
    waiting = [send_request(weir), send_request(weir)]
    eventually(lambda: gate.now == 2)
    weir.reload(limits={"c": concurrency(3)})
    third = eventually(lambda: admitted(weir, gate), what="the new policy in effect in the worker")
    assert get(weir.address).status == 429
    gate.open.set()
    assert [c.response().status for c in waiting + [third]] == [200] * 3
    eventually(lambda: free_slots(weir) == 3)


def test_a_stopped_weir_frees_all_slots(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=2, limits={"c": concurrency(5, lease="1h", per="all")}, upstreams=gate.upstreams)
    waiting = [send_request(weir) for _ in range(5)]
    eventually(lambda: gate.now == 5)
    weir.signal(signal.SIGTERM)
    gate.open.set()
    assert [c.response().status for c in waiting] == [200] * 5
    assert weir.wait(10) == 0
    assert rig.redis().command("EXISTS", "weir:{all}:l:c") == 0


@timeout(90)
def test_clients_that_disconnect_in_any_phase_free_their_slots(rig):
    gate = Gate(rig)
    gate.pause = 0.002
    limits = {"c": concurrency(4, per="all"), "q": dict(script="leaky_bucket", limit=400, period="1s", burst=1000, max_delay="10s", per="all")}
    weirs = [rig.weir(workers=2, limits=limits, upstreams=gate.upstreams) for _ in range(2)]
    until, failures = time.monotonic() + 30, []

    def client(number):
        random = Random(number)
        try:
            while gate.total < 400 and time.monotonic() < until:
                c = send_request(weirs[number % 2])
                if random.random() < 0.5:
                    time.sleep(random.random() * 0.006)
                    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    assert c.response().status in (200, 429)
                c.close()
        except Exception as failure:
            failures.append(failure)
    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    for w in weirs:
        w.counts(0, "weir_requests_held")
    assert gate.total > 100
    for w in weirs:  # permits in a response are returned after it
        eventually(lambda: rig.redis().command("EXISTS", "weir:{all}:l:c") == 0, what="the key without requests in flight")
        waiting = [send_request(w) for _ in range(4)]
        assert [c.response().status for c in waiting] == [200] * 4
