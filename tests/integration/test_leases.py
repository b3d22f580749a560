"""Leases: units that a worker takes at once for a busy client. How they are used and returned.
test_exactness.py checks as well that they never exceed the limit."""

import json
import time

from leasing import ONE, admitted, no_units_are_held, send_pipelined, use_the_rest, units
from rig import eventually, time_scale, timeout
from topology import Cluster
from wire import Connection, flood, get, request_bytes

TWO = {"X-Client-Id": "two"}


def make_busy(weirs, total, **more):
    """Sends requests until leases are used. Returns the number of admitted requests."""
    passed = 0

    def used():
        nonlocal passed
        passed += admitted(send_pipelined(weirs, total, **more))
        return all(units([weir], "used") for weir in weirs)
    eventually(used, 60, "leases to be used")
    return passed


def remaining_of(weir, client="one"):
    """`remaining`, as the admin API shows it."""
    return json.loads(get(weir.admin, f"/api/v1/clients/id:{client}").body)["limits"][0]["remaining"]


@timeout(120)
def test_a_bucket_with_leases_admits_at_most_burst_and_rate(rig):
    """2,000 per second with a burst of 300; two weirs get more requests than that. Measured with
    the clock of the test."""
    limits = {"bucket": dict(script="gcra", limit=2000, period="1s", burst=300, lease=100)}
    weirs = [rig.weir(workers=2, limits=limits) for _ in range(2)]
    start = time.monotonic()
    passed = 0
    while time.monotonic() < start + 2:
        passed += admitted(send_pipelined(weirs, 400, connections=8))
    took = time.monotonic() - start
    assert passed <= 300 + took * 2000 + 1, (passed, took)


@timeout(60)
def test_a_lease_ends_with_its_window(rig):
    """Windows of 300 ms aligned to the clock, which Redis shares with the test: never more requests are admitted within
    one window than the limit. Every second window ends with units left, and the next one is exhausted. Requests that
    are pipelined over the end of a window do not count."""
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=80, period="300ms", align="clock", lease=20)})
    start, seen, exhausted, period = time.monotonic(), {}, set(), 300_000_000
    with Connection(weir.address) as connection:
        while time.monotonic() < start + 2.5 or (len(exhausted) < 3 and time.monotonic() < start + 30 * time_scale):
            window, since = divmod(time.time_ns(), period)
            if period - since < 10_000_000:
                time.sleep((period - since) / 1e9)
                continue
            few = window % 2
            size = 5 if few else 40
            connection.send(request_bytes() * size)
            statuses = [connection.response().status for _ in range(size)]
            if window == time.time_ns() // period:
                seen[window] = seen.get(window, 0) + statuses.count(200)
                if 429 in statuses:
                    exhausted.add(window)
            if few:
                time.sleep(0.02)
    assert max(seen.values()) <= 80, seen
    assert len(exhausted) >= 3 and units([weir], "used"), f"too few requests: {seen}"


@timeout(60)
def test_a_killed_weir_loses_at_most_its_leases(rig):
    limits = {"everybody": dict(script="fixed_window", limit=1000, period="20d", lease=50)}
    weir, other = rig.weir(workers=2, limits=limits), rig.weir(workers=2, limits=limits)
    passed = make_busy([weir], 50)
    weir.expected_exit = None
    weir.kill()

    def all_but_the_lost_units():
        nonlocal passed
        passed += admitted(send_pipelined([other], 100))
        assert passed <= 1000, passed
        return passed >= 1000 - 2 * 50
    eventually(all_but_the_lost_units, what="the remaining units")
    eventually(lambda: remaining_of(other) == 0 or not all_but_the_lost_units(), what="the last unit in Redis to be used")


@timeout(60)
def test_a_reset_ends_the_leases_of_the_client_on_every_weir(rig):
    limits = {"w": dict(script="fixed_window", limit=1000, period="1d", lease=50)}
    weir, other = rig.weir(workers=1, limits=limits), rig.weir(workers=1, limits=limits)

    def ended_on_the_other_weir():
        make_busy([weir, other], 100)
        assert get(weir.admin, "/api/v1/clients/id:one", method="DELETE").status == 200
        assert get(weir.address, headers=ONE).number("X-RateLimit-Remaining") == 999, "weir used units of the old lease"
        no_units_are_held([other])
        return units([other], "lost")
    eventually(ended_on_the_other_weir, 30, "the other weir to end a lease because of the reset")


@timeout(60)
def test_a_reset_keeps_the_leases_of_other_clients(rig):
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=5000, period="1d", lease=50)})
    passed = 0
    for _ in range(5):
        passed += make_busy([weir], 100)
        assert get(weir.admin, "/api/v1/clients/id:two", method="DELETE").status == 200
    no_units_are_held([weir])
    assert units([weir], "lost") == 0
    eventually(lambda: remaining_of(weir) == 5000 - passed, what="all unused units to be returned")


@timeout(60)
def test_a_shutdown_returns_leased_units(rig):
    limits = {"everybody": dict(script="token_bucket", limit=2000, period="20d", lease=50)}
    weir, other = rig.weir(workers=2, limits=limits), rig.weir(workers=2, limits=limits)
    passed = make_busy([weir], 100)
    weir.finish()
    assert remaining_of(other) == 2000 - passed


@timeout(60)
def test_a_reload_returns_leased_units(rig):
    limits = {"everybody": dict(script="token_bucket", limit=5000, period="20d", lease=50)}
    weir = rig.weir(workers=2, limits=limits)
    passed = 0
    for _ in range(3):
        passed += make_busy([weir], 200)
        weir.reload(limits=limits)
    no_units_are_held([weir])
    assert units([weir], "lost") == 0
    eventually(lambda: remaining_of(weir) == 5000 - passed, what="all unused units to be returned")


@timeout(60)
def test_without_redis_a_lease_is_used_before_on_failure_applies(rig):
    """Redis fails while a worker holds a lease: the lease admits some requests, then on_failure
    applies."""
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=100000, period="1d", lease=50)},
                    redis={"on_failure": "deny", "timeout": "100ms"})
    weir.expect_errors("redis")

    def admitted_by_a_lease():
        eventually(lambda: send_pipelined([weir], 200) and units([weir], "used"), 60, "leases to be used")
        rig.redis().freeze()
        before = weir.metric("weir_redis_decisions_total"), units([weir], "used")
        statuses = [response.status for response in send_pipelined([weir], 100, connections=1)]
        rig.redis().thaw()
        assert set(statuses) <= {200, 503}, statuses
        eventually(lambda: get(weir.address, headers=TWO).status == 200, what="Redis to respond again")
        return 200 in statuses and units([weir], "used") > before[1]
    eventually(admitted_by_a_lease, 30, "a lease in use while Redis is down")


@timeout(60)
def test_leases_are_used_by_default_from_a_limit_of_1000(rig):
    # A large limit, so that leases begin before it is used.
    weir = rig.weir(workers=1, limits={"w": dict(script="token_bucket", limit=10_000_000, period="20d")})
    make_busy([weir], 2000, connections=4, depth=250)
    small = rig.weir(workers=1, limits={"s": dict(script="token_bucket", limit=999, period="20d")})
    send_pipelined([small], 1000, connections=4, depth=250)
    assert units([small], "used") == 0
    off = rig.weir(workers=1, limits={"o": dict(script="token_bucket", limit=100000, period="20d", lease="off")})
    send_pipelined([off], 4000, connections=4, depth=250)
    assert units([off], "used") == 0


def test_without_a_busy_client_each_request_is_decided_by_redis(rig):
    """As many concurrent requests as a web page causes: each gets its own value of remaining."""
    weir = rig.weir(workers=2, limits={"hourly": dict(script="token_bucket", limit=5000, period="20d")})
    left = sorted(r.number("X-RateLimit-Remaining") for r in flood(weir.address, 39, connections=13, headers=ONE))
    assert left == list(range(5000 - 39, 5000)), left
    assert units([weir], "used") == 0


@timeout(60)
def test_a_small_quota_disables_leases_for_the_client(rig):
    weir = rig.weir(workers=1, limits={"w": dict(script="token_bucket", limit=50000, period="20d")}, clients={"one": {"quota": 300}})
    left = sorted(r.number("X-RateLimit-Remaining") for r in send_pipelined([weir], 300, connections=4, depth=75))
    assert left == list(range(300)), left
    assert admitted(send_pipelined([weir], 1000, connections=4, depth=250)) == 0
    assert units([weir], "used") == 0


@timeout(60)
def test_requests_that_cannot_use_leases_are_decided_by_redis(rig):
    each = dict(script="fixed_window", limit=100000, period="20d", lease=50)
    limits = {"best": {**each, "best_effort": True}, "tried": {**each, "shadow": True}, "share": {**each, "enforce": "0%"},
              "counted": {**each, "count": [200]}, "dear": {**each, "cost": 2}, "one": each, "other": each}
    rules = [{"match": {"path": f"/{name}"}, "limits": [name]} for name in limits if name != "other"]
    rules += [{"match": {"path": "/both"}, "limits": ["one", "other"]}, {"match": {"path": "/rule"}, "limits": ["one"], "cost": 3},
              {"match": {"path": "/learnt"}, "limits": ["one"], "cost": {"reserve": 1, "response_header": "X-Cost"}}]
    weir = rig.weir(workers=1, limits=limits, rules=rules)
    for path in ("best", "tried", "share", "counted", "dear", "both", "rule", "learnt"):
        assert admitted(send_pipelined([weir], 100, connections=1, depth=50, target="/" + path)) == 100, path
        assert units([weir], "used") == 0, path
    make_busy([weir], 250, target="/one")


@timeout(60)
def test_remaining_is_exact_with_leases_of_one_worker(rig):
    """A worker's own lease counts as remaining: each request shows one unit less than the one
    before."""
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=5000, period="20d", lease=50)})
    left = [r.number("X-RateLimit-Remaining") for _ in range(4) for r in send_pipelined([weir], 250, connections=1, depth=250)]
    assert units([weir], "used") > 0
    assert left == list(range(4999, 3999, -1)), left


@timeout(120)
def test_refunds_with_leases(rig):
    """Without an upstream, each request is charged, also from leases, and refunded. In the end no
    unit is used."""
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=5000, period="20d", lease=50)},
                    upstreams={"api": {"servers": ["unix:" + rig.directory + "/nobody.sock"]}})

    def used():
        assert {response.status for response in send_pipelined([weir], 200, connections=2)} <= {502, 503}
        return units([weir], "used")
    eventually(used, 60, "leases to be used")
    no_units_are_held([weir])
    eventually(lambda: remaining_of(weir) == 5000, what="all units to be returned")


@timeout(120)
def test_leases_in_a_cluster(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="token_bucket", limit=1000, period="20d", lease=20)}
    weirs = [rig.weir(limits=limits, redis=cluster.policy()) for _ in range(2)]
    for weir in weirs:
        weir.wait_for_redis()
    passed = make_busy(weirs, 100, connections=4)
    passed += admitted(send_pipelined(weirs, 1000, connections=4))
    assert 1000 - 4 * 20 <= passed <= 1000, passed
    use_the_rest(weirs, passed, 1000)
