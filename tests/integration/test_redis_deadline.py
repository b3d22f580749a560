"""However slow Redis is, a decision takes redis.timeout at most; `bench/survival` has the percentiles of longer runs."""

import contextlib
import signal

from illness import ILLNESSES, TIMEOUT_MS, Sick, heading
from rig import patience, sanitized, timeout
from turns import Turns
from wire import connect, request_bytes


@timeout(180)
def test_decisions_in_time_whatever_redis_does(rig):
    sick = Sick(rig)
    table = [heading()]
    for illness in ILLNESSES:
        what = sick.suffer(illness, 1.5)
        table.append(what.line(illness))
        print(table[-1])
        # What the machine adds: nobody is woken in time where others have its cores.
        allowed_us = (TIMEOUT_MS * 2.5 * patience + 20) * 1000 + 3 * what.lag.most_us
        assert len(what.every) > 50 and what.every[-1] <= allowed_us, "\n".join(table)
    assert len(sick.suffer("none", 1).by_redis) > 0, "Redis decides again"
    lines = [m for _, m in sick.weir_log() if "redis " in m]
    assert len(lines) < 100, f"a line for each change, and pauses that grow: {len(lines)}"


def test_no_turn_of_the_loop_is_long_however_many_connections_are_ready(rig):
    """Else a deadline would be looked at as much too late. What counts is what weir computes, whatever the machine does beside it."""
    if sanitized:  # it wants to be loaded first
        return
    turns = Turns(rig)
    rig.redis()
    weir = rig.weir(workers=1, environment=turns.environment, rules=[{"limits": []}], limits={})
    request = request_bytes("/x")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connect(weir.address)) for _ in range(1000)]
        for _ in range(4):
            weir.signal(signal.SIGSTOP)
            for connection in crowd:
                connection.sendall(request)
            weir.signal(signal.SIGCONT)
            for connection in crowd:
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    weir.counts(4000, "weir_request_duration_seconds_count")
    worker = turns.worker()
    assert max(events for *_, events in worker) >= 100, "they were ready at once, and come in batches"
    longest = sorted(worker, key=lambda turn: -turn[2])[:5]
    assert longest[1][2] < 8000, longest  # one aside: the kernel's work for others is counted with whoever it interrupts


def test_no_turn_of_the_loop_is_long_when_thousands_of_decisions_come_at_once(rig):
    """They are taken at once, in time, and acted on bit by bit: at their deadlines, and when Redis answers all of them."""
    if sanitized:
        return
    turns = Turns(rig)
    redis = rig.redis()
    weir = rig.weir(workers=1, environment=turns.environment, redis={"timeout": "2s", "on_failure": "deny"}, size_limits={"connections_per_ip": 0},
                    limits={"each": dict(script="gcra", limit=100_000_000, period="1h")})
    weir.expect_errors("redis ")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connect(weir.address)) for _ in range(3000)]
        for until_asked, answer in ((True, b"HTTP/1.1 200"), (False, b"HTTP/1.1 503")):
            redis.freeze()
            for n, connection in enumerate(crowd):
                connection.sendall(request_bytes("/x", headers=[("X-Client-Id", f"c{n}")]))
            if until_asked:
                weir.counts(3000, "weir_requests_active")
                redis.thaw()
            for connection in crowd:
                connection.settimeout(60)
                assert connection.recv(2000).startswith(answer)
            redis.thaw()
    longest = sorted(turns.worker(), key=lambda turn: -turn[2])[:5]
    assert longest[1][2] < 12000, longest
