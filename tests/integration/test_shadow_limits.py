"""Shadow limits, gradual enforcement, and limits without response fields."""

import json

from rig import eventually
from wire import get

IETF = "RateLimit-Policy"


def daily(limit, **more):
    return dict(script="fixed_window", limit=limit, period="1d", **more)


def statuses(weir, count, client="a"):
    return [get(weir.address, headers={"X-Client-Id": client}).status for _ in range(count)]


def decisions(weir, limit, decision):
    return weir.metric("weir_limit_decisions_total", limit=limit, decision=decision) or 0


def test_a_shadow_limit_rejects_no_request_and_appears_in_metrics_and_log(rig):
    weir = rig.weir(limits={"tried": daily(2, shadow=True), "real": daily(4)}, log={"access": "json"}, workers=1)
    answers = [get(weir.address, headers={"X-Client-Id": "a"}) for _ in range(6)]
    assert [a.status for a in answers] == [200] * 4 + [429] * 2
    assert [a.number("X-RateLimit-Remaining") for a in answers] == [3, 2, 1, 0, 0, 0], "the enforced limit is charged"
    assert all(a[IETF] == '"real";q=4;w=86400' for a in answers), "a shadow limit appears in no field"
    assert all("tried" not in str(a.body) for a in answers)
    assert decisions(weir, "tried", "allowed") == 2
    assert decisions(weir, "tried", "shadow") == 4
    assert decisions(weir, "tried", "limited") == 0
    assert decisions(weir, "real", "limited") == 2

    def entries():
        lines = [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")]
        return len(lines) >= 6 and lines
    log = eventually(entries, what="the access log lines")
    assert [e.get("shadow") for e in log] == [None, None] + [["tried"]] * 4
    assert [e["decision"] for e in log] == ["allowed"] * 4 + ["limited"] * 2
    assert [e.get("limit") for e in log] == [None] * 4 + ["real"] * 2


def test_a_policy_can_be_in_shadow_mode(rig):
    weir = rig.weir(shadow=True, limits={"one": daily(1), "two": daily(2)}, clients={"blocked": {"quota": 0}})
    assert statuses(weir, 5) == [200] * 5
    assert statuses(weir, 2, "blocked") == [200] * 2
    assert get(weir.address)[IETF] is None
    assert decisions(weir, "one", "shadow") == 4 + 2
    assert decisions(weir, "two", "shadow") == 3 + 2


def test_enforce_selects_the_same_clients_on_all_weirs(rig):
    limits = {"half": daily(1, enforce="50%")}
    first, second = rig.weir(limits=limits), rig.weir(limits=limits)
    held = 0
    for client in (f"client-{i}" for i in range(60)):
        seen = statuses(first, 1, client) + statuses(second, 1, client) + statuses(first, 1, client)
        assert seen in ([200, 429, 429], [200, 200, 200]), seen
        answer = get(second.address, headers={"X-Client-Id": client})
        assert (answer[IETF] is not None) == (seen[1] == 429)
        held += seen[1] == 429
    assert 15 <= held <= 45, held


def test_a_limit_without_headers_still_rejects(rig):
    weir = rig.weir(limits={"open": daily(10), "hidden": daily(2, headers=False)})
    answers = [get(weir.address) for _ in range(3)]
    assert [a.status for a in answers] == [200, 200, 429]
    assert [a[IETF] for a in answers] == ['"open";q=10;w=86400'] * 3
    assert [a.number("X-RateLimit-Limit") for a in answers] == [10] * 3
    assert answers[2].number("Retry-After") > 86000
    assert "hidden" in str(answers[2].body), "the body contains the limit that rejected"


def test_a_request_with_only_hidden_limits_has_no_fields(rig):
    weir = rig.weir(limits={"hidden": daily(1, headers=False)}, clients={"free": {"quota": "unlimited"}, "no": {"quota": 0}})
    names = {"x-ratelimit-limit", "x-rate-limit-policy", "ratelimit", "ratelimit-policy"}
    for client in "a", "a", "free", "no":
        assert not names & get(weir.address, headers={"X-Client-Id": client}).names(), client


def test_allowed_counts_admitted_requests_only(rig):
    """If another limit rejects, a limit that would have allowed the request counts it as
    not_charged, also if the denial is cached."""
    weir = rig.weir(workers=1, limits={"many": daily(100), "few": daily(2)})
    assert statuses(weir, 10) == [200] * 2 + [429] * 8
    weir.counts(2, "weir_limit_decisions_total", limit="many", decision="allowed")
    weir.counts(8, "weir_limit_decisions_total", limit="many", decision="not_charged")
    weir.counts(2, "weir_limit_decisions_total", limit="few", decision="allowed")
    weir.counts(8, "weir_limit_decisions_total", limit="few", decision="limited")
    assert decisions(weir, "few", "not_charged") == 0
    assert weir.metric("weir_remembered_denials_total") > 0, "some denials are decided without Redis"
    assert weir.metric("weir_requests_total", decision="not_charged") is None, "a request is either charged or rejected"


def test_admitted_requests_near_the_limit_are_counted(rig):
    weir = rig.weir(limits={"ten": daily(10), "half": daily(10, near="50%"), "never": daily(10, near="0%")}, workers=1)
    assert statuses(weir, 12) == [200] * 10 + [429] * 2
    weir.counts(2, "weir_limit_near_total", limit="ten")
    weir.counts(5, "weir_limit_near_total", limit="half")
    weir.counts(0, "weir_limit_near_total", limit="never")
