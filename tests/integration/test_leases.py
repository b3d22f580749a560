"""Leases: units that a worker takes at once for a busy client. Never above the limit, and nothing lost for long."""

import time

from rig import eventually, timeout
from topology import Cluster
from wire import Connection, count, flood, get

ONE = {"X-Client-Id": "one"}


def admitted(responses):
    counts = count(responses)
    assert set(counts) <= {200, 429}, counts
    return counts.get(200, 0)


def used_units(weir):
    return weir.metric("weir_lease_units_total", result="used")


def take_the_rest(weirs, already, limit):
    """What was held is given back: in the end exactly the limit has been admitted."""
    total = already

    def all_taken():
        nonlocal total
        total += sum(get(weir.address, headers=ONE).status == 200 for weir in weirs)
        assert total <= limit, total
        return total == limit
    eventually(all_taken, what=f"{limit} admitted, not {already}")


def never_above_and_in_the_end_all(script):
    @timeout(120)
    def test(rig):
        limits = {"everybody": dict(script=script, limit=1000, period="20d", lease=20)}
        weirs = [rig.weir(workers=3, limits=limits) for _ in range(2)]
        passed = admitted(flood([weir.address for weir in weirs], 1500, connections=64, headers=ONE))
        assert 1000 - 6 * 20 <= passed <= 1000, passed
        assert sum(map(used_units, weirs)) > 50, "leases were used"
        take_the_rest(weirs, passed, 1000)
        time.sleep(0.2)  # whatever a lease may still hold has ended
        assert admitted(flood([weir.address for weir in weirs], 100, connections=16, headers=ONE)) == 0
    return test


for name in ("token_bucket", "gcra", "leaky_bucket", "fixed_window"):
    globals()[f"test_two_weirs_of_three_workers_{name}"] = never_above_and_in_the_end_all(name)


@timeout(120)
def test_a_refilling_bucket_admits_no_more_than_burst_and_rate(rig):
    """2,000 a second with a burst of 300, asked for more by two weirs: measured at the upstream's side of the clock."""
    limits = {"bucket": dict(script="gcra", limit=2000, period="1s", burst=300, lease=100)}
    weirs = [rig.weir(workers=2, limits=limits) for _ in range(2)]
    start = time.monotonic()
    passed = 0
    while time.monotonic() < start + 2:
        passed += admitted(flood([weir.address for weir in weirs], 400, connections=32, headers=ONE))
    took = time.monotonic() - start
    assert passed <= 300 + took * 2000 + 1, (passed, took)


@timeout(60)
def test_a_lease_does_not_outlive_its_window(rig):
    """Windows of 300 ms by the clock: what is admitted between two answers of the same window is never more than the limit."""
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=200, period="300ms", align="clock", lease=50)})
    redis, start, seen = rig.redis(), time.monotonic(), {}
    with Connection(weir.address) as connection:
        while time.monotonic() < start + 2.5:
            before = redis.ask("TIME")
            status = connection.request().status
            after = redis.ask("TIME")
            window, same = ((int(t[0]) * 1000000 + int(t[1])) // 300000 for t in (before, after))
            if status == 200 and window == same:
                seen[window] = seen.get(window, 0) + 1
    assert max(seen.values()) <= 200, seen
    assert used_units(weir) > 20


@timeout(60)
def test_a_killed_weir_takes_what_it_holds_along_and_no_more(rig):
    limits = {"everybody": dict(script="fixed_window", limit=1000, period="20d", lease=50)}
    weir, other = rig.weir(workers=2, limits=limits), rig.weir(workers=2, limits=limits)
    passed = admitted(flood(weir.address, 300, connections=16, headers=ONE))
    assert used_units(weir) > 20
    weir.expected_exit = None
    weir.kill()
    rest = admitted(flood(other.address, 1000, connections=16, headers=ONE))
    time.sleep(0.2)
    rest += admitted(flood(other.address, 400, connections=16, headers=ONE))
    assert 1000 - 2 * 50 <= passed + rest <= 1000, (passed, rest)


@timeout(60)
def test_a_reset_ends_leases(rig):
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=100, period="1d", lease=50)})
    flood(weir.address, 60, connections=8, headers=ONE)
    assert get(weir.admin, "/api/v1/clients/id:one", method="DELETE").status == 200
    assert get(weir.address, headers=ONE).number("X-RateLimit-Remaining") == 99


@timeout(60)
def test_a_stop_gives_back_and_a_reload_loses_little(rig):
    limits = {"everybody": dict(script="token_bucket", limit=1000, period="20d", lease=50)}
    weir, other = rig.weir(workers=2, limits=limits), rig.weir(limits=limits)
    passed = admitted(flood(weir.address, 200, connections=16, headers=ONE))
    assert used_units(weir) > 20
    weir.finish()
    passed += 1
    assert get(other.address, headers=ONE).number("X-RateLimit-Remaining") == 1000 - passed
    passed += admitted(flood(other.address, 200, connections=16, headers=ONE))
    other.reload(limits=limits)
    last = rig.weir(limits=limits)
    eventually(lambda: other.metric("weir_lease_units_total", result="lost") +
               other.metric("weir_lease_units_total", result="returned") > 0, what="the end of its leases")
    left = get(last.address, headers=ONE).number("X-RateLimit-Remaining")
    assert 1000 - passed - 1 - 2 * 50 <= left <= 1000 - passed - 1, (left, passed)


@timeout(60)
def test_without_redis_a_lease_is_used_up_before_on_failure(rig):
    weir = rig.weir(workers=1, limits={"w": dict(script="fixed_window", limit=1000, period="1d", lease=50, on_failure="deny")})
    passed = admitted(flood(weir.address, 200, connections=8, headers=ONE))
    assert passed == 200 and used_units(weir) > 20
    assert weir.metric("weir_redis_decisions_total") + used_units(weir) == 200


@timeout(60)
def test_auto_takes_leases_from_a_large_limit(rig):
    weir = rig.weir(workers=1, limits={"w": dict(script="token_bucket", limit=10000, period="20d", lease="auto")})
    left = sorted(r.number("X-RateLimit-Remaining") for r in flood(weir.address, 1500, connections=16, headers=ONE))
    assert used_units(weir) > 100, "auto: a lease for a limit of 10,000"
    assert left[-1] == 9999 and 8500 - 500 <= left[0] <= 8500, (left[0], left[-1])


@timeout(120)
def test_in_a_cluster(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="token_bucket", limit=600, period="20d", lease=20)}
    weirs = [rig.weir(limits=limits, redis=cluster.policy()) for _ in range(2)]
    for weir in weirs:
        weir.wait_for_redis()
    passed = admitted(flood([weir.address for weir in weirs], 900, connections=32, headers=ONE))
    assert 600 - 4 * 20 <= passed <= 600, passed
    assert sum(map(used_units, weirs)) > 20, "leases were used"
    take_the_rest(weirs, passed, 600)
