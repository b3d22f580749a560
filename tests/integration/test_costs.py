"""Costs of requests: refunds, costs from requests and responses, and charges by status."""

import json
import re


from rig import eventually, free_port
from scripted import Scripted
from shipped_limiters import ALL
from wire import Connection, get, request_bytes

DAY = {"a": dict(script="token_bucket", limit=10, period="1d"), "b": dict(script="fixed_window", limit=20, period="1d")}


def remaining(response):
    """The remaining units, by limit."""
    return {name: int(r) for name, r in re.findall(r'"([^"]+)";r=(\d+)', response["RateLimit"])}


def test_charges_are_returned_if_the_upstream_never_received_the_request(rig):
    # With one worker, the refund comes after the response and before the next request.
    weir = rig.weir(workers=1, limits={**DAY, "flight": dict(script="concurrency", limit=5, cost=3, lease="1h")},
                    upstreams={"api": {"servers": [rig.upstream().text]}, "away": {"servers": [f"127.0.0.1:{free_port()}"]}},
                    rules=[{"match": {"path": "/away"}, "limits": ["a", "b", "flight"], "upstream": "away", "cost": 3},
                           {"limits": ["a", "b"]}])
    weir.expect_errors("upstream away")
    for _ in range(8):
        answer = get(weir.address, "/away")
        assert answer.status == 502
    assert remaining(get(weir.address)) == {"a": 9, "b": 19}
    client, = json.loads(get(weir.admin, "/api/v1/top?by=cost", host="127.0.0.1").body)["clients"]
    assert client["at_least"] == 8 + 1, "each request counts at least 1"


def test_requests_that_the_upstream_received_stay_charged(rig):
    def closing(peer, _number):
        peer.read_request()
    api = Scripted(rig, closing)
    weir = rig.weir(limits=DAY, upstreams={"api": {"servers": [api.text]}})
    seen = [remaining(get(weir.address)) for _ in range(3)]
    assert [s["a"] for s in seen] == [9, 8, 7], seen


def upstream_with(rig, fields=lambda target: b"", status=lambda target: b"200 OK"):
    """An upstream whose responses depend on the target."""
    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            target = request[0].split(b" ")[1].decode()
            peer.send(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n%s\r\n" % (status(target), fields(target)))
    return {"api": {"servers": [Scripted(rig, script).text]}}


def test_a_cost_in_a_request_header_requires_a_trusted_proxy(rig):
    rules = [{"limits": ["a"], "cost": {"request_header": "X-Cost", "max": 5}}]
    weir = rig.weir(limits={"a": DAY["a"]}, rules=rules, identity={"from": ["header:X-Client-Id"], "trusted_proxies": ["127.0.0.1"]})

    def fetch(client, *costs):
        answer = get(weir.address, headers=[("X-Client-Id", client)] + [("X-Cost", cost) for cost in costs])
        return answer.status == 400 or remaining(answer)["a"]
    assert fetch("one", "3") == 7
    assert fetch("none") == 9
    assert fetch("much", "1000000") == 5, "limited by max"
    assert fetch("more", "9" * 18) == 5
    for bad in ["0"], ["-1"], ["1.5"], ["x"], [""], ["1", "2"], ["9" * 30]:
        assert fetch("bad", *bad) is True, bad
    assert fetch("bad") == 9, "refused requests cost nothing"
    weir = rig.weir(limits={"c": DAY["a"]}, rules=[{**rules[0], "limits": ["c"]}], identity={"from": ["header:X-Client-Id"]})
    answer = get(weir.address, headers={"X-Client-Id": "two", "X-Cost": "4"})
    assert remaining(answer)["c"] == 9, "the header of an untrusted peer is ignored"


def test_a_cost_in_a_response_header_adjusts_the_charge(rig):
    def used(target):
        return b"X-Tokens-Used: %s\r\n" % target[1:].encode() if target != "/" else b""
    limits = {"a": dict(script="fixed_window", limit=10, period="1d"), "b": dict(script="token_bucket", limit=100, period="1d")}
    weir = rig.weir(workers=1, limits=limits, upstreams=upstream_with(rig, used),
                    rules=[{"limits": ["a", "b"], "cost": {"reserve": 2, "response_header": "X-Tokens-Used"}}])

    def fetch(target, client):
        answer = get(weir.address, target, headers={"X-Client-Id": client})
        return answer.status, remaining(answer)["a"], remaining(answer)["b"]
    assert fetch("/5", "c") == (200, 8, 98), "the fields show the reserved cost"
    assert fetch("/0", "c") == (200, 3, 93)
    assert fetch("/2", "c") == (200, 3, 93), "the whole reserve was returned"
    assert fetch("/", "c") == (200, 1, 91)
    assert fetch("/x", "c")[0] == 429, "without the header, the reserve is charged"
    assert fetch("/30", "d") == (200, 8, 98)
    assert fetch("/1", "d") == (429, 0, 70), "a debt"
    assert fetch("/99999999999", "e") == (200, 8, 98)
    assert fetch("/1", "e")[0] == 429


def test_only_responses_with_the_listed_statuses_are_charged(rig):
    """A login limit: only failures stay charged, and a client with too many failures is rejected
    before the upstream. The fields show the limit before the response's refund."""
    limits = {"failures": dict(script="sliding_window_log", limit=3, period="1d", count=[401, "5xx"]),
              "all": dict(script="fixed_window", limit=100, period="1d")}
    weir = rig.weir(workers=1, limits=limits,
                    upstreams=upstream_with(rig, status=lambda target: target[1:].encode() + b" Some Words"))

    def fetch(status, client="c"):
        answer = get(weir.address, f"/{status}", headers={"X-Client-Id": client})
        return answer.status, remaining(answer)["failures"], remaining(answer)["all"]
    assert [fetch(200) for _ in range(3)] == [(200, 2, 99), (200, 2, 98), (200, 2, 97)]
    assert fetch(401) == (401, 2, 96)
    assert fetch(403) == (403, 1, 95)
    assert fetch(503) == (503, 1, 94)
    assert fetch(401) == (401, 0, 93)
    assert fetch(200) == (429, 0, 93), "rejected before the upstream and not charged"
    assert fetch(200) == (429, 0, 93)
    assert fetch(401, "d") == (401, 2, 99)


def test_concurrent_failures_do_not_exceed_the_limit(rig):
    limits = {"failures": dict(script="token_bucket", limit=10, period="10h", count=[401])}
    weir = rig.weir(limits=limits, upstreams=upstream_with(rig, status=lambda _: b"401 No"))
    connections = [Connection(weir.address) for _ in range(20)]
    for connection in connections:
        connection.send(request_bytes("/", headers={"X-Client-Id": "c"}))
    statuses = [connection.response().status for connection in connections]
    for connection in connections:
        connection.close()
    assert sorted(statuses) == [401] * 10 + [429] * 10


def test_a_repeat_with_the_same_key_is_free_and_shows_the_first_numbers(rig):
    limits = {"a": dict(script="fixed_window", limit=3, period="1d", dedup="Idempotency-Key"),
              "b": dict(script="token_bucket", limit=20, period="1d")}
    weir, other = rig.weir(limits=limits), rig.weir(limits=limits)

    def fetch(key, client="c", weir=weir):
        answer = get(weir.address, headers=[("X-Client-Id", client)] + [("Idempotency-Key", k) for k in key])
        return answer.status, remaining(answer)["a"], remaining(answer)["b"]
    assert fetch(["one"]) == (200, 2, 19)
    assert fetch(["two"]) == (200, 1, 18)
    assert fetch(["one"]) == (200, 2, 17), "b has no deduplication"
    assert fetch(["one"], weir=other) == (200, 2, 16)
    assert fetch([]) == (200, 0, 15)
    assert fetch(["three"]) == (429, 0, 15)
    assert fetch(["three"]) == (429, 0, 15), "rejections are not deduplicated"
    assert fetch(["two"]) == (200, 1, 14), "free even if the limit is exhausted"
    assert fetch(["one"], "d") == (200, 2, 19), "keys are separate per client"
    assert [fetch(key, "e")[1] for key in (["{x}%"], ["{x}%"], ["%7Bx%7D%25"], ["x", "x"])] == [2, 2, 1, 0]
    assert fetch(["y" * 257], "e")[0] == 429, "too long for deduplication"


def test_a_failed_request_and_its_repeats_are_charged_once(rig):
    limits = {"a": dict(script="token_bucket", limit=10, period="10d", dedup="Idempotency-Key")}
    away = f"127.0.0.1:{free_port()}"
    weir = rig.weir(workers=1, limits=limits, upstreams={"api": {"servers": [rig.upstream().text]}, "away": {"servers": [away]}},
                    rules=[{"match": {"path": "/away"}, "limits": ["a"], "upstream": "away"}, {"limits": ["a"]}])
    weir.expect_errors("upstream away")
    key = {"Idempotency-Key": "k"}
    assert [get(weir.address, "/away", headers=key).status for _ in range(3)] == [502] * 3
    assert remaining(get(weir.address))["a"] == 8
    assert remaining(get(weir.address, headers=key))["a"] == 7, "with another path it is another request"


def test_many_concurrent_repeats_are_counted_exactly(rig):
    """Eight limits with one key each: more keys than one call takes."""
    names = [f"l{i}" for i in range(8)]
    weir = rig.weir(workers=1, limits={n: dict(script="fixed_window", limit=70, period="1d", dedup="X-Key", per="all") for n in names})
    connections = [Connection(weir.address) for _ in range(100)]
    for _ in range(2):
        for i, connection in enumerate(connections):
            connection.send(request_bytes("/", headers={"X-Key": f"{i % 50}-{'k' * 200}"}))
        assert [c.response().status for c in connections] == [200] * 100
    for i, connection in enumerate(connections):
        connection.send(request_bytes("/", headers={"X-Key": f"new-{i}"}))
    assert sorted(c.response().status for c in connections) == [200] * 20 + [429] * 80
    for connection in connections:
        connection.close()


def test_the_granted_units_are_forwarded_to_the_server(rig):
    """The client's own header is dropped, in any spelling. Without Redis, the local fallback
    supplies the number."""
    limits = {"units": dict(script="fixed_window", limit=10, period="1d", best_effort=True, granted_header="X-Granted")}
    weir = rig.weir(limits=limits, clients={"free": {"quota": "unlimited"}}, redis={"on_failure": "local"}, workers=1,
                    rules=[{"match": {"path": "/echo"}, "limits": ["units"], "cost": 4}, {"match": {"path": "/none/**"}, "limits": "none"}])

    def granted(client):
        answer = get(weir.address, "/echo", headers={"X-Client-Id": client, "X-Granted": "99", "X_Granted": "98"})
        return [value.strip() for name, value in json.loads(answer.body)["fields"] if name.lower().replace("_", "-") == "x-granted"]
    assert [granted("a") for _ in range(3)] == [["4"], ["4"], ["2"]]
    assert granted("free") == ["4"]
    weir.expect_errors("^redis ")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    assert [granted("b") for _ in range(3)] == [["4"], ["4"], ["2"]]


def rules_with_best_effort(name, cost):
    return [{"match": {"path": f"/{name}/all"}, "limits": [name], "cost": cost, "best_effort": False},
            {"match": {"path": f"/{name}/part"}, "limits": [name], "cost": cost, "best_effort": True}]


def use_all_and_part(weir, name):
    """Ten units, four at a time: the same count for both rules."""
    def status(kind):
        return get(weir.address, f"/{name}/{kind}").status
    assert [status("all") for _ in range(2)] == [200, 200], name
    # The second denial may come from the cache. It must not answer the other rule.
    assert [status("all") for _ in range(3)] == [429] * 3, name
    assert status("part") == 200, (name, "the two units that are left")
    assert [status("part"), status("all")] == [429] * 2, name


def test_a_rule_may_override_best_effort(rig):
    limits = {name: dict(script=name, limit=10, period="10h", best_effort=number % 2 == 0) for number, name in enumerate(ALL)}
    weir = rig.weir(workers=1, limits=limits, rules=[rule for name in ALL for rule in rules_with_best_effort(name, 4)])
    for name in ALL:
        use_all_and_part(weir, name)


def test_a_rule_may_override_best_effort_without_redis(rig):
    limits = {name: dict(script=name, limit=10, period="10h") for name in ("gcra", "fixed_window")}
    weir = rig.weir(workers=1, limits=limits, redis={"on_failure": "local"},
                    rules=[rule for name in limits for rule in rules_with_best_effort(name, 4)])
    weir.expect_errors("^redis ")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    for name in limits:
        use_all_and_part(weir, name)


def test_granted_units_of_a_rule_with_best_effort(rig):
    weir = rig.weir(limits={"units": dict(script="fixed_window", limit=10, period="1d", granted_header="X-Granted")},
                    rules=[{"match": {"path": "/echo"}, "limits": ["units"], "cost": 6, "best_effort": True}])
    fields = [json.loads(get(weir.address, "/echo").body)["fields"] for _ in range(2)]
    assert [[value.strip() for name, value in each if name == "X-Granted"] for each in fields] == [["6"], ["4"]]


def free_and_charged(names, **limit):
    """For each limit a rule that charges four units and one that only asks."""
    limits = {name: dict(script=name, limit=10, period="10h", **limit) for name in names}
    return dict(limits=limits, rules=[{"match": {"path": f"/{name}{path}"}, "limits": [name], "cost": cost}
                                      for name in names for path, cost in (("/status", 0), ("", 4))])


def check_free_status(weir, name):
    def left(path, status=200):
        response = get(weir.address, f"/{name}{path}")
        assert response.status == status, (name, response)
        assert response["Retry-After"] is None or status == 429
        return response.number("X-RateLimit-Remaining"), response.number("X-RateLimit-Reset")
    assert [left("/status") for _ in range(3)] == [(10, 0)] * 3, "nothing is used"
    assert [left("")[0] for _ in range(2)] == [6, 2]
    assert [left("/status")[0] for _ in range(3)] == [2] * 3
    assert [left("", 429)[0] for _ in range(2)] == [2] * 2
    assert left("/status")[0] == 2, "the cached denial of a charge does not answer it"


def test_a_cost_of_0_takes_nothing_and_is_never_rejected(rig):
    weir = rig.weir(workers=1, **free_and_charged((*ALL, "lockout")))
    for name in (*ALL, "lockout"):
        check_free_status(weir, name)


def test_a_cost_of_0_with_an_exhausted_limit(rig):
    weir = rig.weir(workers=1, limits={"a": dict(script="gcra", limit=1, period="10h"), "b": dict(script="fixed_window", limit=2, period="10h"),
                                       "failures": dict(script="fixed_window", limit=1, period="10h", count=[418])},
                    rules=[{"match": {"path": "/status"}, "limits": ["a"], "cost": 0},
                           {"match": {"path": "/both/status"}, "limits": ["a", "b", "failures"], "cost": 0},
                           {"match": {"path": "/a"}, "limits": ["a"]}, {"limits": ["a", "b"]}])
    assert get(weir.address, "/x").status == 200
    for path in "/status", "/both/status":
        for _ in range(3):
            response = get(weir.address, path)
            assert response.status == 200 and remaining(response)["a"] == 0, response
            assert response["Retry-After"] is None
    assert remaining(response) == {"a": 0, "b": 1, "failures": 1}
    assert get(weir.address, "/a").status == 429
    assert get(weir.address, "/status").status == 200


def test_a_cost_of_0_without_redis(rig):
    names = "gcra", "fixed_window"
    weir = rig.weir(workers=1, redis={"on_failure": "local"}, **free_and_charged(names))
    weir.expect_errors("^redis ")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    for name in names:
        check_free_status(weir, name)


def test_a_cost_of_0_is_free_of_ids_grants_and_queues(rig):
    """It uses no repeat of a deduplication id, is not delayed by a queue, and states 0 granted units."""
    weir = rig.weir(workers=1, limits={"ids": dict(script="fixed_window", limit=10, period="10h", dedup={"header": "Idempotency-Key", "repeats": 1}),
                                       "queue": dict(script="leaky_bucket", limit=1, burst=3, period="1h", max_delay="2h"),
                                       "part": dict(script="gcra", limit=10, period="10h", best_effort=True, granted_header="X-Granted")},
                    rules=[{"match": {"path": "/ids/status"}, "limits": ["ids"], "cost": 0},
                           {"match": {"path": "/queue/status"}, "limits": ["queue"], "cost": 0},
                           {"match": {"path": "/echo"}, "limits": ["part"], "cost": 0},
                           {"match": {"path": "/queue"}, "limits": ["queue"]}, {"limits": ["ids"]}])

    def left(path):
        return get(weir.address, path, headers={"Idempotency-Key": "one"}).number("X-RateLimit-Remaining")
    assert [left("/x"), left("/ids/status"), left("/ids/status"), left("/x"), left("/x")] == [9, 9, 9, 9, 8]
    assert get(weir.address, "/queue").status == 200
    assert [get(weir.address, "/queue/status").number("X-RateLimit-Remaining") for _ in range(2)] == [2, 2]
    fields = json.loads(get(weir.address, "/echo").body)["fields"]
    assert [value.strip() for name, value in fields if name == "X-Granted"] == ["0"]


LARGE = 999999999999999


def test_numbers_of_15_digits_are_exact(rig):
    """Budgets in millionths of a dollar: limits, costs before and after the response, quotas and grants."""
    limits = {script: dict(script=script, limit=LARGE, period="366d") for script in ("fixed_window", "token_bucket", "gcra", "leaky_bucket")}
    limits["gcra"]["cost"] = limits["leaky_bucket"]["cost"] = {"reserve": 10**14, "response_header": "X-Price"}
    fields = {"/more": b"X-Price: %d\r\n" % (3 * 10**14), "/none": b"X-Price: 0\r\n"}
    weir = rig.weir(workers=1, limits=limits, upstreams=upstream_with(rig, fields=lambda target: fields.get(target, b"")), redis={"timeout": "5s"},
                    identity={"from": ["header:X-Client-Id"]},
                    rules=[{"match": {"path": "/large"}, "limits": list(limits), "cost": 10**14 + 1}, {"limits": list(limits)}])

    def left(target, **headers):
        answer = get(weir.address, target, headers=headers)
        assert answer.status == 200, answer
        return remaining(answer)
    first = left("/large")
    # One unit arrives in less than a microsecond, so buckets fill by some 31 million units while a test runs for a second.
    assert first["fixed_window"] == LARGE - 10**14 - 1 and 0 <= first["token_bucket"] - (LARGE - 10**14 - 1) < 10**10
    assert all(0 <= first[name] - (LARGE - 10**14) < 10**10 for name in ("gcra", "leaky_bucket")), "a cost of their own"
    assert left("/more")["fixed_window"] == LARGE - 10**14 - 2
    second = left("/none")
    assert second["fixed_window"] == LARGE - 10**14 - 3
    third = left("/")
    assert all(0 <= third[name] - (LARGE - 5 * 10**14) < 10**10 for name in ("gcra", "leaky_bucket")), third
    for _ in range(4):
        left("/large", **{"X-Client-Id": "b"})
    answer = get(weir.address, "/large", headers={"X-Client-Id": "b"})
    assert answer.status == 200 and left("/", **{"X-Client-Id": "b"})["fixed_window"] == LARGE - 5 * (10**14 + 1) - 1


def test_grants_of_15_digits(rig):
    limits = {"budget": dict(script="fixed_window", limit=10, period="366d")}
    weir = rig.weir(limits=limits, identity={"from": ["header:X-Client-Id"]})
    granted = rig.command("grant", "-c", weir.policy_file, "a", str(LARGE), "1h")
    assert granted.returncode == 0, granted
    eventually(lambda: remaining(get(weir.address, headers={"X-Client-Id": "a"}))["budget"] > 10**14, what="the grant to be in effect")
    refused = rig.command("grant", "-c", weir.policy_file, "a", str(LARGE + 1), "1h")
    assert refused.returncode == 2 and "expected a whole number from 0 to 999999999999999" in refused.stderr, refused


def test_large_quotas_apply_to_limits_that_count_no_further_as_their_largest(rig):
    limits = {"budget": dict(script="fixed_window", limit=10, period="366d"), "log": dict(script="sliding_window_log", limit=10, period="366d")}
    weir = rig.weir(limits=limits, identity={"from": ["header:X-Client-Id"]}, clients={"a": {"quota": LARGE}})
    answer = get(weir.address, headers={"X-Client-Id": "a"})
    assert remaining(answer) == {"budget": LARGE - 1, "log": 10**9 - 1}


def test_large_numbers_while_redis_is_away(rig):
    limits = {name: dict(script=name, limit=LARGE, period="366d", cost=3 * 10**14) for name in ("fixed_window", "gcra")}
    weir = rig.weir(workers=1, limits=limits, redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "local"})
    weir.expect_errors("redis")
    statuses = [get(weir.address).status for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429], statuses
