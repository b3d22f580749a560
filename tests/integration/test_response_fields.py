"""Responses as clients see them: the three families of rate limit fields, Retry-After, problem
documents."""

import json
import time

from rate_limit_fields import items
from rig import eventually
from wire import Connection, get


LIMITS = {"per-client": dict(script="token_bucket", limit=60, period="1h", burst=3),
          "window": dict(script="fixed_window", limit=10, period="1m", label="Window")}


def test_all_three_families_on_an_admitted_request(rig):
    weir = rig.weir(limits=LIMITS)
    began = time.monotonic()
    response = get(weir.address)
    assert response.status == 200
    assert response.number("X-RateLimit-Limit") == 3, "the limit with the smallest remaining share of its capacity"
    assert response.number("X-RateLimit-Remaining") == 2
    least = 60 - (time.monotonic() - began) - 1
    assert least <= response.number("X-RateLimit-Reset") <= 60
    assert response["X-Rate-Limit-Policy"] == "per-client"
    assert response["X-Rate-Limit-Used"] == "1"
    assert items(response["RateLimit-Policy"]) == {"per-client": {"q": 3, "w": 180}, "window": {"q": 10, "w": 60}}
    limits_shown = items(response["RateLimit"])
    assert limits_shown["per-client"]["r"] == 2 and limits_shown["window"]["r"] == 9
    assert least <= limits_shown["window"]["t"] <= 60
    assert response["Retry-After"] is None


def test_a_rejection_shows_the_limit_that_rejected(rig):
    weir = rig.weir(limits=LIMITS)
    began = time.monotonic()
    for _ in range(3):
        assert get(weir.address).status == 200
    response = get(weir.address)
    least = 60 - (time.monotonic() - began) - 1
    assert (response.status, response.reason) == (429, "Too Many Requests")
    assert response.number("X-RateLimit-Limit") == 3
    assert response.number("X-RateLimit-Remaining") == 0
    assert response["X-Rate-Limit-Policy"] == "per-client"
    assert least <= response.number("Retry-After") <= 60, "one token is refilled per minute"
    assert items(response["RateLimit"])["window"]["r"] == 7, "the rejected request was not charged to the window"
    assert response["Content-Type"] == "application/problem+json"
    problem = json.loads(response.body)
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert problem["violated-policies"] == ["per-client"]
    assert problem.get("status", 429) == 429 and problem["detail"].startswith("Try again in ")


def test_a_client_that_waits_for_retry_after_is_admitted(rig):
    weir = rig.weir(limits={"fast": dict(script="gcra", limit=2, period="2s")})
    with Connection(weir.address) as connection:
        answer = eventually(lambda: (a := connection.request()).status == 429 and a, what="429")
        wait = answer.number("Retry-After")
        assert wait == 1
        time.sleep(wait)
        assert connection.request().status == 200


def test_rate_limit_fields_of_the_upstream_are_replaced(rig):
    from scripted import Scripted, respond_to_all
    api = Scripted(rig, respond_to_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-RateLimit-Limit: 77\r\n"
                                b"RateLimit: \"own\";r=1\r\nX-Rate-Limit-Used: 5\r\nRetry-After: 9\r\n\r\nok"))
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}}, limits=LIMITS,
                    rules=[{"match": {"path": "/free"}, "limits": []}, {"limits": ["per-client"]}])
    limited, free = get(weir.address, "/x"), get(weir.address, "/free")
    assert limited["X-RateLimit-Limit"] == "3" and "own" not in limited["RateLimit"]
    assert limited["Retry-After"] == "9", "without a rejection by weir, the upstream's Retry-After is kept"
    assert free["X-RateLimit-Limit"] == "77" and free["X-Rate-Limit-Used"] == "5"


THEIRS = {"X-RateLimit-Limit": "77", "X-RateLimit-Remaining": "76", "X-RateLimit-Reset": "75", "X-Rate-Limit-Policy": "own",
          "X-Rate-Limit-Quota": "74", "X-Rate-Limit-Used": "73", "X-Rate-Limit-Reset": "72", "RateLimit": '"own";r=71',
          "RateLimit-Policy": '"own";q=70'}


def weir_before_limits(rig, limit=None, **more):
    """A weir with one limit, whose upstream sends fields of all families."""
    from scripted import Scripted, respond_to_all
    head = "".join(f"{name}: {value}\r\n" for name, value in THEIRS.items())
    api = Scripted(rig, respond_to_all(f"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{head}\r\nok".encode()))
    return rig.weir(upstreams={"api": {"servers": [api.text]}},
                    limits={"one": {"script": "gcra", "limit": 10, "period": "1h", **(limit or {})}}, **more)


def kept(weir, **how):
    """The upstream's fields in the response. No field may come twice."""
    response = get(weir.address, **how)
    assert response.status == 200
    assert all(len(response.all(name)) <= 1 for name in THEIRS), response
    return {name for name, value in THEIRS.items() if response[name] == value}


def family(*starts):
    return {name for name in THEIRS if name.startswith(starts)}


def test_a_family_of_the_upstream_is_replaced_only_where_weir_writes_it(rig):
    assert kept(weir_before_limits(rig)) == set()
    for nothing_shown in ({"shadow": True}, {"enforce": "0%"}, {"headers": False}):
        assert kept(weir_before_limits(rig, nothing_shown)) == set(THEIRS), nothing_shown
    for selected, others in (([], set(THEIRS)), (["ietf"], family("X-")), (["x-ratelimit"], family("X-Rate-Limit", "RateLimit")),
                             (["x-ratelimit-epoch"], family("X-Rate-Limit", "RateLimit")),
                             (["x-rate-limit"], family("X-RateLimit", "RateLimit"))):
        assert kept(weir_before_limits(rig, headers=selected)) == others, selected


def test_families_of_the_upstream_with_unlimited_clients_and_without_redis(rig):
    weir = weir_before_limits(rig, clients={"free": {"quota": "unlimited"}}, redis={"on_failure": "allow", "timeout": "200ms"},
                              identity={"from": ["header:X-Client-Id", "ip"]})
    assert kept(weir, headers={"X-Client-Id": "free"}) == family("X-RateLimit", "RateLimit"), "X-Rate-Limit-Quota is -1"
    weir.expect_errors("redis")
    rig.redis().kill()
    assert kept(weir) == set(THEIRS), "on_failure: allow"


def test_header_families_can_be_selected(rig):
    weir = rig.weir(limits=LIMITS, headers=["x-ratelimit"])
    assert {n for n in get(weir.address).names() if "rate" in n} == {
        "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
    weir = rig.weir(limits=LIMITS, headers=["ietf"])
    assert {n for n in get(weir.address).names() if "rate" in n} == {"ratelimit", "ratelimit-policy"}


def test_the_reset_time_can_be_an_epoch_timestamp(rig):
    weir = rig.weir(limits=LIMITS, headers=["x-ratelimit", "x-ratelimit-epoch"])
    reset = get(weir.address).number("X-RateLimit-Reset")
    now = int(rig.redis().command("TIME")[0])
    assert now < reset <= now + 62


def test_rejection_status_body_and_content_type_are_configurable(rig):
    body = rig.write("slow-down.html", "<p>slow down</p>\n")
    weir = rig.weir(limits={"one": dict(script="gcra", limit=1, period="1h")},
                    rejection={"status": 503, "body_file": body, "content_type": "text/html"})
    get(weir.address)
    response = get(weir.address)
    assert (response.status, response["Content-Type"], response.body) == (503, "text/html", b"<p>slow down</p>\n")
    assert response.number("Retry-After") > 3000


def test_a_rejected_head_request_has_no_body(rig):
    weir = rig.weir(limits={"one": dict(script="gcra", limit=1, period="1h")})
    with Connection(weir.address) as connection:
        assert connection.request(method="HEAD").status == 200
        assert connection.request(method="HEAD").status == 429
        assert connection.request(method="GET").status == 429, "the next request is parsed correctly"


def test_errors_of_weir_are_problem_documents(rig):
    from rig import free_port
    weir = rig.weir(upstreams={"api": {"servers": [f"127.0.0.1:{free_port()}"]}}, limits={}, rules=[])
    weir.expect_errors("upstream|api")
    for response, status in ((get(weir.address), 502), (get(weir.address, host=None), 400)):
        assert response.status == status
        assert response["Content-Type"] == "application/problem+json"
        problem = json.loads(response.body)
        assert problem["status"] == status and problem["title"]


def rejected(weir, target="/", client="a"):
    for _ in range(3):
        response = get(weir.address, target, headers={"X-Client-Id": client})
    assert response.status >= 400, response
    return response


ONE = {"one": dict(script="fixed_window", limit=1, period="1h")}


def test_cached_rejections_differ_per_client_cost_version_and_id(rig):
    """weir reuses the last rejection of a rule. Alternates clients, costs, versions, ids and
    connections: each rejection has its own values."""
    weir = rig.weir(limits={"units": dict(script="fixed_window", limit=100, period="1h"),
                            "pace": dict(script="gcra", limit=1000, period="10000s", burst=1000)},
                    clients={"big": {"limits": {"units": {"limit": 12000}}}},
                    identity={"from": ["header:X-Client-Id"], "trusted_proxies": ["127.0.0.0/8"]},
                    rules=[{"limits": ["units", "pace"], "cost": {"request_header": "X-Cost", "max": 20000}}])

    def fetch(client, cost, identifier=None, **how):
        headers = [("X-Client-Id", client), ("X-Cost", str(cost))] + ([("X-Request-Id", identifier)] if identifier else [])
        return get(weir.address, headers=headers, **how)
    began = time.monotonic()
    assert fetch("big", 999).status == 200 and fetch("small", 95).status == 200
    ids = set()
    for n in range(60):
        client, limit = (("big", 12000), ("small", 100))[n % 2]
        cost = (7, 12, 60, 999, 15)[n % 5] if client == "big" else (6, 80, 7)[n % 3]
        identifier = (None, "a", "0123456789abcdef0123456789abcdef")[n % 3]
        answer = fetch(client, cost, identifier, method="HEAD" if n % 7 == 6 else "GET")
        assert answer.status == 429, n
        assert answer["X-Rate-Limit-Quota"] == str(limit if client == "small" else 1000), answer.fields
        assert identifier is None or answer["X-Request-Id"] == identifier
        ids.add(answer["X-Request-Id"])
        if n % 7 == 6:
            assert answer.body == b""
            continue
        problem = json.loads(answer.body)
        seconds = answer.number("Retry-After")
        assert problem["detail"] == f"Try again in {seconds} second{'s' if seconds != 1 else ''}.", problem
        assert problem["violated-policies"] == ["pace" if client == "big" else "units"]
        assert answer.number("Content-Length") == len(answer.body)
        if client == "big":
            assert (cost - 1) * 10 - (time.monotonic() - began) - 1 <= seconds <= (cost - 1) * 10, (cost, seconds)
    assert len(ids) > 20


def test_jitter_only_increases_retry_after(rig):
    weir = rig.weir(limits=ONE, rejection={"jitter": "10%"})
    assert get(weir.address).status == 200
    answers = [get(weir.address) for _ in range(40)]
    waits = [a.number("Retry-After") for a in answers]
    assert all(3590 <= wait <= 3960 for wait in waits), waits
    assert max(waits) > 3620 and len(set(waits)) > 10, waits
    assert all(a.number("X-RateLimit-Reset") <= 3600 for a in answers), "jitter applies to Retry-After only"
    assert all(f"in {wait} seconds" in str(a.body) for a, wait in zip(answers, waits)), "the field and the body show the same value"


def test_a_rule_can_have_its_own_rejection(rig):
    rig.write("sorry.html", "<p>Sorry</p>")
    rig.write("busy.txt", "busy")
    weir = rig.weir(limits=ONE, rejection={"status": 420, "body_file": "busy.txt", "content_type": "text/plain"}, rules=[
        {"match": {"path": "/page"}, "limits": ["one"],
         "rejection": {"status": 503, "body_file": "sorry.html", "content_type": "text/html"}},
        {"match": {"path": "/problem"}, "limits": ["one"], "rejection": {"body_file": None}},
        {"match": {"path": "/dialect"}, "limits": ["one"], "rejection": {"dialect": "problem"}},
        {"match": {"path": "/typed"}, "limits": ["one"],
         "rejection": {"body_file": None, "content_type": "application/json"}},
        {"limits": ["one"]}])
    answers = [rejected(weir, path) for path in ("/page", "/problem", "/dialect", "/typed", "/other")]
    assert [a.status for a in answers] == [503, 420, 420, 420, 420]
    problem = "application/problem+json"  # text/plain is the type of busy.txt
    assert [a["Content-Type"] for a in answers] == ["text/html", problem, problem, "application/json", "text/plain"]
    assert [answers[0].body, answers[4].body] == [b"<p>Sorry</p>", b"busy"]
    assert all(json.loads(a.body)["violated-policies"] == ["one"] for a in answers[1:4])
    assert all(a["Retry-After"] for a in answers)


def test_a_rejection_body_can_contain_variables(rig):
    rig.write("body.json", '{"limit":"{limit}","wait":{retry_after},"who":"{client}","other":"{x}"}')
    rig.write("body.html", "<b>{client}</b> {limit} {{retry_after}} {")
    rig.write("body.txt", "{client}{client}")
    json_body, html = ({"body_file": "body." + name, "content_type": kind} for name, kind in
                       (("json", "application/vnd.api+json; charset=utf-8"), ("html", "text/html; charset=utf-8")))
    weir = rig.weir(limits=ONE, clients={"never": {"quota": 0}}, rejection={"body_file": "body.txt", "content_type": "text/plain"},
                    rules=[{"match": {"path": "/json"}, "limits": ["one"], "rejection": json_body},
                           {"match": {"path": "/html"}, "limits": ["one"], "rejection": html}, {"limits": ["one"]}])
    who = 'a"b\\<i>&\''
    answer = rejected(weir, "/json", who)
    assert json.loads(answer.body) == {"limit": "one", "wait": answer.number("Retry-After"), "who": "id:" + who, "other": "{x}"}
    answer = rejected(weir, "/html", who)
    assert answer.body.decode() == f"<b>id:a&quot;b\\&lt;i&gt;&amp;&#39;</b> one {{{answer['Retry-After']}}} {{"
    assert rejected(weir, "/", who).body.decode() == f"id:{who}id:{who}"
    assert json.loads(rejected(weir, "/json", "never").body)["wait"] is None
    assert rejected(weir, "/html", "never").body.endswith(b"one {never} {")


def test_a_body_of_maximum_size_reaches_a_slow_reader(rig):
    filler = "x" * (64 * 1024 - 8 * 8)
    rig.write("large.txt", filler + "{client}" * 8)
    weir = rig.weir(limits=ONE, rejection={"body_file": "large.txt", "content_type": "text/html"})
    who = '"' * 250
    assert rejected(weir, client=who).body.decode() == filler + ("id:" + "&quot;" * 250) * 8
    with Connection(weir.address) as connection:
        head = connection.request("/", method="HEAD", headers={"X-Client-Id": who})
        assert (head.status, head.body) == (429, b"")
        assert head.number("Content-Length") == len(filler) + 8 * (3 + 6 * 250)
