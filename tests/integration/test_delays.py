"""leaky_bucket with max_delay: requests are delayed to the configured rate. A request that leaves
the queue frees its slot."""

import bisect
import json
import signal
import socket
import threading
import time

from http2_wire import Http2
from queues import queue, reset
from rig import eventually, free_port
from scripted import OK, Scripted
from wire import Connection, get, request_bytes


def recording_upstream(rig):
    """An upstream that records (number, time, target) of each request, in the order of weir's
    connections (one per request)."""
    seen, lock = [], threading.Lock()

    def script(peer, number):
        request = peer.read_request()
        with lock:
            bisect.insort(seen, (number, time.monotonic(), request[0].split(b" ")[1].decode()))
        peer.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    return seen, Scripted(rig, script)


def send_request(weir, target, client=None):
    connection = Connection(weir.address)
    return connection.send(request_bytes(target, headers={"X-Client-Id": client} if client else None))


def lines(weir, number):
    """The access log entries, as soon as there are `number` of them."""
    found = eventually(lambda: (all_ := [l for l in weir.output().splitlines() if l.startswith('{"time"')]) and len(all_) >= number and all_)
    return [json.loads(line) for line in found]


def held_requests(weir):
    return weir.metric("weir_requests_held")


def test_requests_leave_in_order_at_the_configured_rate(rig):
    seen, api = recording_upstream(rig)
    weir = rig.weir(workers=1, limits={"q": queue(limit=10)}, upstreams={"api": {"servers": [api.text]}}, log={"access": "json"})
    tried = 0

    def ten():
        nonlocal tried
        tried, client, connections = tried + 1, f"client-{tried}", []
        start = time.monotonic()
        seen.clear()
        for i in range(10):
            connections.append(send_request(weir, f"/{i}", client))
            weir.counts(10 * (tried - 1) + i + 1, "weir_limit_decisions_total", limit="q", decision="allowed")
        answers = [c.response() for c in connections]
        assert [a.status for a in answers] == [200] * 10
        assert [t for *_, t in seen] == [f"/{i}" for i in range(10)]
        assert all(moment >= start + i * 0.1 for i, (_, moment, _) in enumerate(seen)), (start, seen)
        assert answers[0].number("X-RateLimit-Limit") == 1000
        # requests that have left the queue use no slot
        assert 990 <= answers[9].number("X-RateLimit-Remaining") < 1000
        every = lines(weir, 10 * tried)
        times = {line["target"]: line.get("held_us", 0) for line in every[-10:]}
        weir.counts(0, "weir_requests_held")
        weir.counts(sum(line.get("held_us", 0) > 0 for line in every), "weir_held_seconds_count")
        assert times["/0"] == 0, times
        for c in connections:
            c.close()
        return seen[-1][1] < start + 0.9 + 0.3 and 0 < times["/9"] <= 900000 + 300000
    eventually(ten, 30, "ten requests at their times (a slow machine can need several attempts)")


def test_a_request_is_never_released_too_early(rig):
    """weir and Redis use the same clock here. The request is held for at least the delay that the
    script returned."""
    seen, api = recording_upstream(rig)
    weir = rig.weir(workers=1, limits={"q": queue(limit=20)}, upstreams={"api": {"servers": [api.text]}}, log={"access": "json"})
    start = time.monotonic()
    connections = [send_request(weir, f"/{i}") for i in range(20)]
    assert [c.response().status for c in connections] == [200] * 20
    waits = [line.get("held_us", 0) for line in lines(weir, 20)]
    assert len(waits) == 20 and sum(w > 0 for w in waits) >= 10, waits
    assert all(moment >= start + i * 0.05 for i, (_, moment, _) in enumerate(seen)), (start, seen)


def test_a_request_with_too_long_a_delay_is_rejected(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    waiting = send_request(weir, "/")
    eventually(lambda: held_requests(weir) == 1)
    answer = get(weir.address)
    assert answer.status == 429 and 1700 < answer.number("Retry-After") <= 1800
    reset(waiting)


def test_a_client_that_disconnects_frees_its_slot_for_later_requests_only(rig):
    seen, api = recording_upstream(rig)
    weir = rig.weir(workers=1, limits={"q": queue(limit=2)}, upstreams={"api": {"servers": [api.text]}})
    tried = 0

    def all_in_time():
        """None if the machine was too slow for the comparison."""
        nonlocal tried
        tried, client = tried + 1, f"client-{tried}"
        seen.clear()
        assert get(weir.address, "/first", headers={"X-Client-Id": client}).status == 200
        start, waiting = time.monotonic(), []
        late = start + 0.49
        for i in range(1, 5):  # due after 500, 1,000, 1,500 and 2,000 ms
            waiting.append(send_request(weir, f"/{i}", client))
            eventually(lambda: time.monotonic() > late or held_requests(weir) == i)
        reset(waiting[1])
        eventually(lambda: time.monotonic() > late or held_requests(weir) == 3)
        waiting[1] = send_request(weir, "/late", client)  # gets the second slot
        eventually(lambda: time.monotonic() > late or held_requests(weir) == 4)
        in_time = time.monotonic() < late
        for c in waiting:
            assert c.response().status == 200
            c.close()
        return [t for *_, t in seen] if in_time and seen[2][1] < start + 1.49 and seen[4][1] < start + 2.49 else None
    targets = eventually(all_in_time, 30, "each request in its slot (a busy machine can need several attempts)")
    assert targets == ["/first", "/1", "/late", "/3", "/4"], seen
    eventually(lambda: 1 <= weir.metric("weir_errors_total", cause="client_gone") < tried + 1)


def test_the_last_slot_of_the_queue_is_freed(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    for _ in range(5):
        waiting = send_request(weir, "/")
        eventually(lambda: held_requests(weir) == 1)
        reset(waiting)
        eventually(lambda: held_requests(weir) == 0)
    waiting = send_request(weir, "/")
    eventually(lambda: held_requests(weir) == 1)
    assert get(weir.address).status == 429
    reset(waiting)


def test_a_call_that_ends_before_its_decision_frees_its_slot(rig):
    """The deadline of the call passes while Redis does not reply. The reply then has a delay."""
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")}).wait_for_redis()
    assert get(weir.address).status == 200
    for _ in range(3):
        with Http2(weir.address) as client:
            rig.redis().freeze()
            stream = client.start("/", method="POST", fields=[("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "20m")])
            eventually(lambda: weir.metric("weir_requests_active") == 1)
            passed = time.monotonic() + 0.1
            eventually(lambda: time.monotonic() > passed)  # noqa: B023
            rig.redis().thaw()
            assert client.response(stream)["grpc-status"] == "4"
        eventually(lambda: weir.metric("weir_requests_active") == 0)
    waiting = send_request(weir, "/")
    eventually(lambda: held_requests(weir) == 1)
    reset(waiting)


def test_half_closed_clients_get_their_response_if_half_close_is_allowed(rig):
    weir = rig.weir(workers=1, half_close="allow", limits={"q": queue(limit=4)})
    assert get(weir.address).status == 200
    with send_request(weir, "/") as c:
        c.socket.shutdown(socket.SHUT_WR)
        assert c.response().status == 200


def test_a_client_whose_content_cannot_be_completed_frees_its_slot(rig):
    weir = rig.weir(workers=1, half_close="allow", limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    with Connection(weir.address) as c:
        c.send(request_bytes("/echo", method="POST", headers={"Content-Length": "1000"}) + b"x" * 100)
        eventually(lambda: held_requests(weir) == 1)
        c.socket.shutdown(socket.SHUT_WR)
        eventually(lambda: held_requests(weir) == 0)
        assert c.is_closed()


def test_content_received_while_a_request_is_held_is_forwarded(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=4)})
    body = bytes(i % 251 for i in range(300_000))

    def one_is_held():
        assert get(weir.address).status == 200
        with Connection(weir.address) as c:
            answer = c.request("/echo", method="POST", body=body)
            assert answer.status == 200 and json.loads(answer.body)["content_length"] == len(body)
        return weir.metric("weir_held_seconds_count")
    eventually(one_is_held, what="content within 250 ms of another request")


def test_a_request_that_no_server_accepted_frees_its_slot(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=2, period="1h", max_delay="30m")},
                    upstreams={"api": {"servers": [rig.upstream().text]}, "away": {"servers": [f"127.0.0.1:{free_port()}"]}},
                    rules=[{"match": {"path": "/away"}, "limits": ["q"], "upstream": "away"}, {"limits": ["q"]}])
    weir.expect_errors("upstream away")
    assert [get(weir.address, "/away").status for _ in range(3)] == [502] * 3
    assert get(weir.address).status == 200, "at once: the queue is empty"


def test_held_requests_are_served_at_shutdown(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1)}, timeouts={"shutdown": "20s"})
    start = time.monotonic()
    assert get(weir.address).status == 200
    waiting = [send_request(weir, "/") for _ in range(3)]
    weir.counts(4, "weir_limit_decisions_total", limit="q", decision="allowed")
    weir.signal(signal.SIGTERM)
    assert [c.response().status for c in waiting] == [200] * 3
    assert time.monotonic() - start >= 3, "the shutdown releases no request early"
    assert weir.wait(10) == 0


def test_requests_held_beyond_the_shutdown_timeout_get_503_and_free_their_slots(rig):
    limits = {"q": queue(limit=1, period="1h", max_delay="90m")}
    weir = rig.weir(workers=1, limits=limits, timeouts={"shutdown": "200ms"})
    assert get(weir.address).status == 200
    waiting = send_request(weir, "/")
    eventually(lambda: held_requests(weir) == 1)
    weir.signal(signal.SIGTERM)
    assert waiting.response().status == 503 and waiting.is_closed() and weir.wait(10) == 0
    other = rig.weir(workers=1, limits=limits)
    again = send_request(other, "/")
    eventually(lambda: held_requests(other) == 1)
    reset(again)


def test_held_requests_survive_a_reload(rig):
    limits = {"q": queue(limit=1, period="2s")}
    weir = rig.weir(workers=1, limits=limits)
    assert get(weir.address).status == 200
    waiting = send_request(weir, "/")
    weir.counts(2, "weir_limit_decisions_total", limit="q", decision="allowed")
    weir.reload(limits={"q": queue(limit=3)})
    assert waiting.response().status == 200


def test_shadow_limits_hold_no_requests(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", shadow=True), "w": dict(script="gcra", limit=100, period="1s")})
    assert [get(weir.address).status for _ in range(5)] == [200] * 5
    weir.counts(5, "weir_requests_total")
    assert weir.metric("weir_held_seconds_count") == 0


def test_without_redis_no_request_is_held(rig):
    weir = rig.weir(workers=1, redis={"on_failure": "local", "timeout": "5s"}, limits={"q": queue(limit=1, period="1h", burst=3)})
    weir.expect_errors("[Rr]edis")
    assert get(weir.address).status == 200
    rig.redis().kill()
    assert [get(weir.address).status for _ in range(4)] == [200] * 3 + [429], "the burst is admitted at once, as without max_delay"


def test_with_several_limits_the_longest_delay_applies_and_all_are_refunded(rig):
    limits = {"fast": queue(limit=10, period="1s"), "slow": queue(limit=1, period="1h", max_delay="90m"),
              "w": dict(script="fixed_window", limit=10, period="1d")}
    weir = rig.weir(workers=1, limits=limits)
    assert get(weir.address).status == 200
    waiting = send_request(weir, "/")
    eventually(lambda: held_requests(weir) == 1)
    reset(waiting)
    eventually(lambda: held_requests(weir) == 0)

    def left():
        return {row["limit"]: row["remaining"] for row in json.loads(get(weir.admin, "/api/v1/clients/ip:127.0.0.1").body)["limits"]}
    eventually(lambda: left()["w"] == 9, what="the refund")


def test_two_weirs_share_one_queue(rig):
    seen, api = recording_upstream(rig)
    weirs = [rig.weir(workers=2, limits={"q": queue(limit=50)}, upstreams={"api": {"servers": [api.text]}}) for _ in range(2)]
    clients = map(str, range(1000))

    def twenty():
        client, start = next(clients), time.monotonic()
        seen.clear()
        senders = [send_request(weirs[i % 2], f"/{i}", client) for i in range(20)]
        assert [c.response().status for c in senders] == [200] * 20
        moments = sorted(moment for _, moment, _ in seen)
        assert all(moment >= start + i * 0.02 for i, moment in enumerate(moments)), (start, moments)
        return moments[-1] < start + 0.38 + 0.3
    eventually(twenty, 30, "twenty requests at their times (a slow machine can need several attempts)")
