"""What a call of Envoy's rate limit service is answered: statuses, header fields, bodies, metadata."""

import json

import envoy_messages as envoy
from envoy_calls import Caller, Refused, listener_of, post_json, weir_with_service
from wire import get

OK, OVER = envoy.OK, envoy.OVER_LIMIT
YEAR = {"unit": "year", "requests_per_unit": 1}
DOMAINS = {"edge": {"descriptors": [{"key": "user", "rate_limit": YEAR}]}}
USER = {"user": "alice"}


def names_of(response):
    return [field.key.lower() for field in response.response_headers_to_add]


def field_of(response, name):
    return next(field.value for field in response.response_headers_to_add if field.key.lower() == name)


def test_shadow_answers_ok_with_the_statuses_of_the_limits(rig):
    body = rig.write("body.txt", "slow down")
    weir, listener = weir_with_service(rig, DOMAINS, {"shadow": True}, headers=["x-ratelimit"], rejection={"body_file": body})
    with Caller(listener) as caller:
        codes = [caller.call("edge", USER) for _ in range(3)]
    assert [(response.overall_code, response.statuses[0].code) for response in codes] == [(OK, OK), (OK, OVER), (OK, OVER)]
    over = codes[1]
    assert over.raw_body == b"" and "retry-after" not in names_of(over), over
    assert field_of(over, "x-ratelimit-remaining") == "0" and over.statuses[0].duration_until_reset.seconds > 0
    status, response = post_json(listener, {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]})
    assert (status, response["overallCode"], response["statuses"][0]["code"]) == (200, "OK", "OVER_LIMIT")
    weir.counts(4, "weir_rate_limit_service_requests_total", domain="edge", code="OK")
    weir.reload(rate_limit_service={**weir.policy["rate_limit_service"], "shadow": False}).wait_for_redis()
    with Caller(listener) as caller:
        over = caller.call("edge", USER)
    assert over.overall_code == OVER and over.raw_body == b"slow down" and int(field_of(over, "retry-after")) > 0


def test_without_redis_an_overrun_is_charged_into_debt(rig):
    """With charge: every, as in Redis. Other domains charge no rejected call."""
    descriptors = [{"key": "user", "rate_limit": {"unit": "year", "requests_per_unit": 10}}]
    domains = {"every": {"charge": "every", "descriptors": descriptors}, "all": {"descriptors": descriptors}}
    weir, listener = weir_with_service(rig, domains, redis={"on_failure": "local"})
    weir.expect_errors("[Rr]edis")
    rig.the_redis.kill()

    def code(domain, hits):
        call = {"domain": domain, "hitsAddend": hits, "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}
        return post_json(listener, call)[1]["overallCode"]
    assert [code("every", hits) for hits in (20, 1)] == ["OVER_LIMIT", "OVER_LIMIT"]
    assert [code("all", hits) for hits in (20, 1)] == ["OVER_LIMIT", "OK"]


def test_shadow_descriptors_of_rejected_calls_have_a_status_and_are_not_charged(rig):
    """With Redis and without. A call of more than 8 limits takes another path."""
    def entry(key, limit, **more):
        return {"key": key, "rate_limit": {"unit": "year", "requests_per_unit": limit}, **more}
    entries = [entry("real", 1), entry("trial", 5, shadow_mode=True), entry("other", 100)]
    domains = {"all": {"descriptors": entries}, "every": {"charge": "every", "descriptors": entries}}
    weir, listener = weir_with_service(rig, domains, redis={"on_failure": "local"})
    weir.expect_errors("[Rr]edis")

    def trial(domain, user, others):
        keys = ["real", "trial"] + ["other"] * others
        call = {"domain": domain, "descriptors": [{"entries": [{"key": key, "value": user}]} for key in keys]}
        status, answer = post_json(listener, call)
        return status, answer["statuses"][1]

    for user in "redis", "local":
        for domain, left in ("all", [4, 4, 4]), ("every", [4, 3, 2]):
            for others in 1, 8:
                name = f"{user}-{others}"
                answers = [trial(domain, name, others) for _ in range(3)]
                assert [status for status, _ in answers] == [200, 429, 429], (name, domain)
                assert [answer["limitRemaining"] for _, answer in answers] == left, (name, domain, answers)
                assert {answer["code"] for _, answer in answers} == {"OK"}
                assert all(answer["currentLimit"]["requestsPerUnit"] == 5 for _, answer in answers), answers
        rig.the_redis.kill()


def test_fields_bodies_and_metadata_of_a_call(rig):
    rig.write("body.txt", "{limit}: slow down")
    entry = {"key": "user", "limits": ["each"], "metadata": {"tier": "gold", "n": 3}}
    domains = {"edge": {"descriptors": [entry, {"key": "free", "metadata": {"tier": "free"}}]}}
    limits = {"each": dict(script="fixed_window", limit=1, period="300d", headers=True)}
    weir, listener = weir_with_service(rig, domains, limits=limits, headers=["ietf"], rules=[{"limits": ["each"]}],
                                       rejection={"body_file": "body.txt"})
    section = weir.policy["rate_limit_service"]
    with Caller(listener) as caller:
        first = caller.call("edge", USER, {"free": "1"})
        assert names_of(first) == ["ratelimit-policy", "ratelimit"] and first.raw_body == b""
        assert field_of(first, "ratelimit-policy").startswith('"each";q=1;w=')
        assert field_of(first, "ratelimit").startswith('"each";r=0;')
        assert dict(first.dynamic_metadata) == {"tier": "free", "n": 3}, "of equal keys the last one counts"
        over = caller.call("edge", USER, {"free": "1"})
        assert over.overall_code == OVER and names_of(over) == ["ratelimit-policy", "ratelimit", "retry-after"]
        assert int(field_of(over, "retry-after")) in (over.statuses[0].duration_until_reset.seconds + n for n in (0, 1))
        assert over.raw_body == b"each: slow down"
        assert dict(over.dynamic_metadata) == {"tier": "free"}, "entries over their limits have none"
        weir.reload(rate_limit_service={**section, "headers": ["x-ratelimit"]}, rejection={"dialect": "openai"}).wait_for_redis()
        over = caller.call("edge", USER)
        assert names_of(over) == ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"]
        assert json.loads(over.raw_body)["error"]["code"] == "insufficient_quota"
        weir.reload(rate_limit_service={**section, "headers": []}, rejection={}).wait_for_redis()
        over = caller.call("edge", USER)
        assert names_of(over) == ["retry-after"] and over.raw_body == b""
        assert names_of(caller.call("edge", {"user": "bob"})) == []


def test_a_body_that_does_not_fit_is_left_out(rig):
    """A response has at most 80 KiB."""
    rig.write("body.txt", "b" * 60000)
    rates = {"unit": "year", "requests_per_unit": 0, "name": "n" * 600}
    _, listener = weir_with_service(rig, {"edge": {"descriptors": [{"key": "user", "rate_limit": rates}]}}, rejection={"body_file": "body.txt"})
    users = [{"user": str(number)} for number in range(64)]
    with Caller(listener) as caller:
        short, long = caller.call("edge", *users[:32]), caller.call("edge", *users)
    assert short.overall_code == long.overall_code == OVER
    assert len(short.raw_body) == 60000 and long.raw_body == b""
    assert [status.current_limit.name for status in long.statuses] == ["n" * 512] * 64, "512 bytes of a name are sent"


def test_a_response_that_does_not_fit_is_an_error_of_weir(rig):
    domains = {"edge": {"descriptors": [
        {"key": "user", "value": str(number), "metadata": {str(number): "m" * 1000},
         "rate_limit": {"unit": "year", "requests_per_unit": 9, "name": "n" * 400 + str(number)}} for number in range(64)]}}
    weir, listener = weir_with_service(rig, domains)
    users = [{"user": str(number)} for number in range(64)]
    with Caller(listener) as caller:
        assert len(caller.call("edge", *users[:32]).dynamic_metadata) == 32
        try:
            raise AssertionError(caller.call("edge", *users))
        except Refused as refused:
            assert refused.code == 14 and "80 KiB" in refused.message, refused.args
    entries = [{"entries": [{"key": key, "value": value}]} for user in users for key, value in user.items()]
    assert post_json(listener, {"domain": "edge", "descriptors": entries})[0] == 503
    weir.counts(2, "weir_rate_limit_service_requests_total", domain="edge", code="UNAVAILABLE")
    weir.counts(2, "weir_errors_total", cause="reply_too_large")


def test_large_and_unlimited_remainders(rig):
    descriptors = [{"key": "large", "limits": ["large"]}, {"key": "free", "rate_limit": {"unlimited": True}}]
    limits = {"large": dict(script="token_bucket", limit=10 ** 12, period="300d")}
    _, listener = weir_with_service(rig, {"edge": {"descriptors": descriptors}}, limits=limits, rules=[{"limits": ["large"]}])
    with Caller(listener) as caller:
        response = caller.call("edge", {"large": "1"}, {"free": "1"}, {"other": "1"})
    assert response.overall_code == OK
    assert [status.limit_remaining for status in response.statuses] == [4294967295, 4294967295, 0]
    assert response.statuses[0].current_limit.requests_per_unit == 4294967295
    assert not response.statuses[1].HasField("current_limit") and not response.statuses[2].HasField("current_limit")


def test_a_policy_with_the_service_alone_decides_calls(rig):
    """With domains that come from `files`."""
    rig.write("rates-1.yaml", "domain: one\ndescriptors:\n  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }\n")
    rig.write("rates-2.yaml", "domain: two\ndescriptors:\n  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }\n")
    policy = {"workers": 1, "admin": "127.0.0.1:0", "redis": {"address": rig.redis().text, "timeout": "5s"},
              "rate_limit_service": {"listen": ["127.0.0.1:0"], "files": "rates-*.yaml"}}
    weir = rig.weir(text=json.dumps(policy)).wait_for_redis()
    listener = listener_of(weir)
    assert weir.addresses == [], "there is no other listener"
    with Caller(listener) as caller:
        assert [[caller.code(domain, USER) for _ in range(3)] for domain in ("one", "two")] == [[OK, OVER, OVER], [OK, OK, OVER]]
        assert caller.health() == envoy.SERVING["SERVING"]
    assert get(weir.admin, "/readyz", host="127.0.0.1").status == 200
    weir.counts(6, "weir_rate_limit_service_duration_seconds_count")
    assert 0 < weir.metric("weir_rate_limit_service_duration_seconds_sum") < 30
    assert weir.metric("weir_rate_limit_service_duration_seconds_bucket", le="+Inf") == 6
