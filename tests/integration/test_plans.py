"""Plans with their own periods, and blocked clients."""

import json
import time

from leasing import no_units_are_held
from rig import eventually
from shipped_limiters import ALL, BUCKETS
from wire import count, flood, get

FREE, GOLD = {"X-Client-Id": "someone"}, {"X-Client-Id": "golden"}


def weir_with_plans(rig, script="fixed_window", free=None, gold=None, clients=None, **more):
    gold = gold or dict(limit=3, period="1s")
    limit = dict(script=script, lease="off" if script in (*BUCKETS, "fixed_window") else None, **(free or dict(limit=2, period="1d")))
    limits = {"per-client": {key: value for key, value in limit.items() if value is not None}}
    return rig.weir(workers=1, limits=limits, plans={"gold": {"limits": {"per-client": gold}}},
                    clients=clients or {"golden": {"plan": "gold"}}, **more)


def test_each_client_is_limited_in_the_period_of_its_plan(rig):
    weir = weir_with_plans(rig)
    assert [get(weir.address, headers=FREE).status for _ in range(3)] == [200, 200, 429]
    assert get(weir.address, headers=FREE).number("Retry-After") > 80000
    for _ in range(3):
        rejected = eventually(lambda: (answer := get(weir.address, headers=GOLD)).status == 429 and answer, what="the limit of plan gold to be reached")
        assert rejected.number("Retry-After") == 1
        assert 'w=1' in rejected["RateLimit-Policy"] and "q=3" in rejected["RateLimit-Policy"], rejected
        eventually(lambda: get(weir.address, headers=GOLD).status == 200, what="the next period of plan gold")
    assert get(weir.address, headers=FREE).status == 429, "independent of the period of the other plan"


def test_periods_of_plans_without_redis(rig):
    weir = weir_with_plans(rig, redis={"on_failure": "local"})
    weir.expect_errors("^redis ")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    assert [get(weir.address, headers=FREE).status for _ in range(3)] == [200, 200, 429]
    eventually(lambda: get(weir.address, headers=GOLD).status == 429, what="the limit of plan gold to be reached")
    eventually(lambda: get(weir.address, headers=GOLD).status == 200, what="the next period of plan gold")
    assert get(weir.address, headers=FREE).status == 429


def test_another_plan_keeps_the_used_units(rig):
    """A client that used 3 units has 3 less in its new plan, with every script."""
    for script in ALL:
        weir = weir_with_plans(rig, script, dict(limit=1000, period="1d"), dict(limit=1000, period="30d"), {"other": {"plan": "gold"}},
                          redis={"key_prefix": script})
        assert count(flood(weir.address, 1000, connections=4, headers=GOLD)).get(200, 0) == 1000
        weir.reload(clients={"golden": {"plan": "gold"}}).wait_for_redis()
        eventually(lambda weir=weir: "w=2592000" in get(weir.address, headers=GOLD)["RateLimit-Policy"], what="the new plan to be in effect")
        assert count(flood(weir.address, 50, connections=4, headers=GOLD)).get(200, 0) <= 1, f"{script}: the limit is exhausted"


def test_leased_units_count_in_the_period_of_the_plan(rig):
    weir = rig.weir(workers=2, limits={"per-client": dict(script="gcra", limit=10, period="1d", lease=50)},
                    plans={"gold": {"limits": {"per-client": dict(limit=2000, period="1h")}}}, clients={"golden": {"plan": "gold"}})
    began = time.monotonic()
    admitted = count(flood(weir.address, 2400, connections=8, headers=GOLD))[200]

    def all_are_used():
        """Units that one worker gives back are missing for a moment, and another remembers its last rejection."""
        nonlocal admitted
        admitted += get(weir.address, headers=GOLD).status == 200
        return admitted >= 2000
    eventually(all_are_used, what="2000 admissions")
    no_units_are_held([weir])
    while get(weir.address, headers=GOLD).status == 200:
        admitted += 1
    assert admitted <= 2001 + (time.monotonic() - began) * 2000 / 3600, admitted


def test_calendar_and_clock_windows_of_plans(rig):
    weir = weir_with_plans(rig, free=dict(limit=2, period="1d", align="clock", time_zone="Asia/Tokyo"), gold=dict(limit=3, period="month"))
    assert "w=2678400" in get(weir.address, headers=GOLD)["RateLimit-Policy"]
    assert "w=86400" in get(weir.address, headers=FREE)["RateLimit-Policy"]


def test_the_api_shows_the_period_of_a_client(rig):
    weir = weir_with_plans(rig, gold=dict(limit=3, period="2h"))
    get(weir.address, headers=GOLD)
    shown = json.loads(get(weir.admin, "/api/v1/clients/golden").body)
    assert [(limit["limit"], limit["period_seconds"], limit["remaining"]) for limit in shown["limits"]] == [("per-client", 7200, 2)], shown
    assert rig.command("grant", "-c", weir.policy_file, "golden", "5", "1h").returncode == 0
    granted = eventually(lambda: (answer := get(weir.address, headers=GOLD))["X-RateLimit-Limit"] == "5" and answer, what="the grant")
    assert "w=86400" in granted["RateLimit-Policy"], "a grant applies in the limit's own period"


def test_a_blocked_client_gets_403(rig):
    limits = {"each": dict(script="gcra", limit=2, period="1d")}
    weir = rig.weir(limits=limits, clients={"bad": {"blocked": True}, "none": {"quota": 0}},
                    rules=[{"match": {"path": "/free"}, "limits": "none"}, {"limits": list(limits)}])
    for target in "/", "/free":
        answer = get(weir.address, target, headers={"X-Client-Id": "bad"})
        assert answer.status == 403 and answer["X-Rate-Limit-Policy"] is None, answer
    assert get(weir.address, headers={"X-Client-Id": "none"}).status == 429
    assert get(weir.address, headers={"X-Client-Id": "other"}).status == 200
    weir.counts(2, "weir_errors_total", cause="client_blocked")
