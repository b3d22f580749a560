"""Limits are never exceeded, and reached exactly if the period is long, for every script, number of
workers and number of weirs. With leases, units that workers hold can be missing for a moment, at
most one lease per worker, and are available afterwards."""

import collections
import contextlib
import itertools
import signal
import threading

from leasing import ONE, admitted, no_units_are_held, send_pipelined, use_the_rest, units
from rig import eventually, timeout
from wire import IncompleteResponse, connect, count, flood, get, request_bytes

SCRIPTS = ("token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log",
           "sliding_window_counter", "gcra")


def exactly_the_limit(script):
    @timeout(120)
    def test(rig):
        limits = {"everybody": dict(script=script, limit=100, period="20d")}
        weirs = [rig.weir(workers=3, limits=limits) for _ in range(2)]
        responses = flood([weir.address for weir in weirs], 300, connections=64, headers={"X-Client-Id": "one"})
        assert count(responses) == {200: 100, 429: 200}
        for response in responses:
            assert response["X-RateLimit-Limit"] == "100", response
    return test


for name in SCRIPTS:
    globals()[f"test_64_connections_two_weirs_{name}"] = exactly_the_limit(name)


def exactly_the_limit_with_leases(script, lease, limit, lease_max):
    """`most`: the maximum size of a lease."""
    @timeout(120)
    def test(rig):
        limits = {"everybody": dict(script=script, limit=limit, period="20d", **({"lease": lease} if lease else {}))}
        weirs = [rig.weir(workers=3, limits=limits) for _ in range(2)]
        passed = admitted(flood([weir.address for weir in weirs], limit // 4, connections=64, headers=ONE))
        assert passed == limit // 4, passed
        passed += admitted(send_pipelined(weirs, limit, connections=12))
        assert limit - 6 * lease_max <= passed <= limit, passed
        use_the_rest(weirs, passed, limit)
        no_units_are_held(weirs)
        assert units(weirs, "lost") == 0
    return test


def with_leases_used(script, lease, limit, lease_max):
    """The same with one worker per weir, which is busy enough for leases even on a slow machine."""
    @timeout(120)
    def test(rig):
        limits = {"everybody": dict(script=script, limit=limit, period="20d", **({"lease": lease} if lease else {}))}
        weirs = [rig.weir(workers=1, limits=limits) for _ in range(2)]
        passed, number, headers = 0, 0, ONE

        def used():
            nonlocal passed, number, headers
            if passed == limit:  # a slow machine was not busy enough: with another client
                passed, number = 0, number + 1
                headers = {"X-Client-Id": f"client-{number}"}
            passed += admitted(send_pipelined(weirs, limit // 5, connections=4, depth=limit // 40, headers=headers))
            return units(weirs, "used")
        eventually(used, 60, "leases to be used")
        passed += admitted(send_pipelined(weirs, limit, connections=4, headers=headers))
        assert limit - 2 * lease_max <= passed <= limit, passed
        use_the_rest(weirs, passed, limit, headers)
        no_units_are_held(weirs)
        assert units(weirs, "lost") == 0
    return test


for name in ("token_bucket", "gcra", "leaky_bucket", "fixed_window"):
    globals()[f"test_leases_of_20_two_weirs_of_three_workers_{name}"] = exactly_the_limit_with_leases(name, 20, 600, 20)
    globals()[f"test_leases_by_default_two_weirs_of_three_workers_{name}"] = exactly_the_limit_with_leases(name, None, 1000, 50)
    globals()[f"test_leases_of_20_are_used_{name}"] = with_leases_used(name, 20, 600, 20)
    globals()[f"test_leases_by_default_are_used_{name}"] = with_leases_used(name, None, 10000, 500)


@timeout(120)
def test_killed_weirs_lose_at_most_their_leases_under_load(rig):
    """Counted at the upstream. A killed weir loses at most what its two workers hold and two
    requests in progress."""
    least = 4000 - 3 * (2 * 20 + 2)
    limits = {"everybody": dict(script="fixed_window", limit=4000, period="20d", lease=20)}
    weirs = [rig.weir(workers=2, limits=limits) for _ in range(3)]
    stats_requests, over = itertools.count(1), threading.Event()

    def arrived():  # without the requests for /stats itself
        return rig.upstream().stats()["requests"] - next(stats_requests)

    def load(number):
        while not over.is_set():
            try:
                send_pipelined([weirs[number % 3]], 25, connections=1)
            except (IncompleteResponse, OSError):  # the weir was killed; another one is started
                pass
    threads = [threading.Thread(target=load, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    used = 0
    for kills in range(1, 4):
        eventually(lambda some=700 * kills: arrived() >= some, 30, "requests to reach the upstream")
        victim = weirs[kills % 3]
        used += units([victim], "used")
        victim.expected_exit = None
        victim.kill()
        weirs[kills % 3] = rig.weir(workers=2, limits=limits)
    over.set()
    for thread in threads:
        thread.join()
    assert used > 0, "no lease was used"

    def all_but_the_lost_units():
        send_pipelined(weirs, 100, connections=3, depth=10)
        return arrived() >= least
    eventually(all_but_the_lost_units, 30, "the remaining units")
    no_units_are_held(weirs)
    send_pipelined(weirs, 300, connections=3)
    there = arrived()
    assert least <= there <= 4000, there


def test_clients_have_separate_counters(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=5, period="1d")})
    for client in range(20):
        responses = flood(weir.address, 8, connections=4, headers={"X-Client-Id": f"client-{client}"})
        assert count(responses) == {200: 5, 429: 3}


def all_or_none(rig, **more):
    return rig.weir(workers=3, limits={"wide": dict(script="token_bucket", limit=50, period="1d", **more),
                                       "narrow": dict(script="sliding_window_log", limit=30, period="1d", per="all")},
                    rules=[{"match": {"path": "/wide"}, "limits": ["wide"]}, {"limits": ["wide", "narrow"]}])


def test_several_limits_are_charged_all_or_none(rig):
    weir = all_or_none(rig)
    assert count(flood(weir.address, 200)) == {200: 30, 429: 170}
    assert get(weir.address, "/wide").number("X-RateLimit-Remaining") == 19, "rejections by one limit charged the other"


def test_several_limits_are_charged_all_or_none_while_one_is_leased(rig):
    weir, names = all_or_none(rig, lease=5), map("client-{}".format, itertools.count())

    def client_with_leases():  # a slow machine was not busy enough: with another client
        client = {"X-Client-Id": next(names)}
        assert admitted(send_pipelined([weir], 25, connections=1, target="/wide", headers=client)) == 25
        return units([weir], "used") > 0 and client
    client = eventually(client_with_leases, 30, "requests with a single limit to use leases")
    no_units_are_held([weir])
    eventually(lambda: get(weir.admin, "/api/v1/clients/id:" + client["X-Client-Id"]).body.count(b'"remaining":25'), what="the held units to be returned")
    used = units([weir], "used")
    assert admitted(send_pipelined([weir], 100, headers=client)) == 25
    assert units([weir], "used") == used, "a request with two limits used a lease"
    assert admitted(send_pipelined([weir], 25, target="/wide", headers=client)) == 0


def test_a_limit_per_all_is_shared_by_all_clients(rig):
    weir = rig.weir(limits={"all": dict(script="fixed_window", limit=10, period="1d", per="all")})
    statuses = [get(weir.address, headers={"X-Client-Id": f"c{i}"}).status for i in range(15)]
    assert statuses == [200] * 10 + [429] * 5


def test_limits_per_method_route_host_and_header(rig):
    weir = rig.weir(limits={"method": dict(script="gcra", limit=1, period="1d", per=["client", "method"])})
    assert [get(weir.address, method=m).status for m in ("GET", "GET", "DELETE")] == [200, 429, 200]
    weir = rig.weir(limits={"host": dict(script="gcra", limit=1, period="1d", per="host")})
    assert [get(weir.address, host=h).status for h in ("a.test", "A.TEST", "b.test")] == [200, 429, 200]
    weir = rig.weir(limits={"key": dict(script="gcra", limit=1, period="1d", per="header:X-Key")})
    assert [get(weir.address, headers={"X-Key": k}).status for k in ("x", "x", "y")] == [200, 429, 200]
    weir = rig.weir(limits={"route": dict(script="gcra", limit=1, period="1d", per=["client", "route"])},
                    rules=[{"match": {"path": "/a/**"}, "limits": ["route"]}, {"limits": ["route"]}])
    assert [get(weir.address, t).status for t in ("/a/1", "/a/2", "/b")] == [200, 429, 200]


def test_a_quota_replaces_limit_and_burst(rig):
    weir = rig.weir(limits={"each": dict(script="token_bucket", limit=100, period="1d", burst=50)},
                    clients={"small": {"quota": 4}})
    responses = flood(weir.address, 20, connections=8, headers={"X-Client-Id": "small"})
    assert count(responses) == {200: 4, 429: 16}
    assert responses[0]["X-RateLimit-Limit"] == "4"


def test_a_changed_limit_keeps_its_counter(rig):
    def limits(limit):
        return {"each": dict(script="fixed_window", limit=limit, period="1d")}
    first = rig.weir(limits=limits(5))
    assert [get(first.address).status for _ in range(6)] == [200] * 5 + [429]
    second = rig.weir(limits=limits(7))
    assert [get(second.address).status for _ in range(3)] == [200, 200, 429]


def test_a_custom_script(rig):
    script = rig.write("every_other.lua", """
        return function(state, now, limit, period, burst, cost, mode, offset)
          local n = tonumber(state) or 0
          if n % 2 == 1 and cost >= 0 and mode < 2 then return 0, 0, period, period, nil end
          if cost == 0 then return 1, 1, 0, 0, nil end
          return cost, 1, 0, period, n + 1
        end
    """)
    weir = rig.weir(limits={"own": dict(script=script, limit=1, period="1h")})
    assert [get(weir.address).status for _ in range(3)] == [200, 429, 429]


@timeout(120)
def test_thousands_of_connections_get_exactly_the_limit(rig):
    """All requests arrive at once, each on its own connection, at two workers; then again after the
    limit is exhausted."""
    weir = rig.weir(workers=2, size_limits={"connections_per_ip": 0, "requests_per_client": 0}, redis={"timeout": "10s"},
                    timeouts={"request_header": "100s"}, limits={"all": dict(script="gcra", limit=1500, period="10d", per="all", lease="off")})
    request = request_bytes("/x")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connect(weir.address)) for _ in range(4000)]
        for admitted in (1500, 0):
            weir.signal(signal.SIGSTOP)
            for connection in crowd:
                connection.sendall(request)
            weir.signal(signal.SIGCONT)
            statuses = collections.Counter()
            for connection in crowd:
                connection.settimeout(100)
                statuses[connection.recv(4096).split()[1]] += 1
            assert statuses == collections.Counter({b"200": admitted, b"429": 4000 - admitted}), statuses
