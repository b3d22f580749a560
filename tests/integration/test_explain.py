"""weir explain: what it prints, and that a running weir does what it says."""

import json
import os
import random
import re
import time

import explained as x
from certificates import FROM_CN, MANY, Authority, hours, listener
from postgres import Postgres
from rig import eventually, timeout, top

POLICY = """listen: 127.0.0.1:0
redis: { address: "%s" }
identity: { from: [ "header:X-Client-Id", ip ], trusted_proxies: [ 127.0.0.1 ] }
limits:
  per-client: { script: gcra, limit: 60, period: 1h, burst: 3 }
plans:
  gold: { limits: { per-client: { limit: 600 } } }
clients:
  alice: { plan: gold }
  eve: { quota: 0 }
upstreams:
  api: { servers: [ 127.0.0.1:1 ] }
rules:
  - { match: { path: /healthz }, limits: none }
  - { match: { path: "/v1/**", methods: [ POST ], json: { model: "gpt-4*" } }, limits: [ per-client ], cost: 2 }
  - { match: { path: "/v1/**" }, limits: [ per-client ] }
"""


def explain(rig, *arguments, status=0, address="127.0.0.1:1"):
    path = rig.write("weir.yaml", POLICY % address)
    done = rig.command("explain", "-c", path, *arguments)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def explain_json(rig, *arguments, **more):
    return json.loads(explain(rig, "--json", *arguments, **more).stdout)


def test_the_text_is_read_from_top_to_bottom(rig):
    text = explain(rig, "-H", "X-Client-Id: alice", "-H", "X-Forwarded-For: 9.9.9.9", "http://api.test/v1/items").stdout
    assert text.splitlines() == [
        "request   GET /v1/items HTTP/1.1",
        "          from 127.0.0.1, host api.test",
        "client    id:alice",
        "          weir.yaml:3  header:X-Client-Id  used",
        "          address 9.9.9.9, from X-Forwarded-For: the peer is in identity.trusted_proxies",
        "rules     weir.yaml:14  /healthz  path is not /healthz",
        "          weir.yaml:15  /v1/**    method GET is not POST",
        "          weir.yaml:16  /v1/**#2  chosen",
        "limits    weir.yaml:9  clients: alice",
        "          weir.yaml:7  plans: gold",
        "          weir.yaml:5  per-client  gcra 600 per 1h, burst 3, cost 1",
        "            key weir:{id:alice}:l:per-client",
        "upstream  weir.yaml:12  api: 127.0.0.1:1",
        "forwards  GET /v1/items HTTP/1.1",
        "          - X-Forwarded-For: 9.9.9.9",
        "          + X-Forwarded-For: 9.9.9.9, 127.0.0.1",
        "          + X-Forwarded-Proto: http",
        "          + X-Forwarded-Host: api.test",
        "          + Via: (the name of this weir)",
        "          + X-Request-Id: (a new id)",
        "          + X-Weir-Client: id:alice",
        "result    forwarded to api if its limits have room (--state reads what is left)"]


def test_a_header_without_an_address_is_named(rig):
    words = "address 127.0.0.1, that of the peer: the last element of X-Forwarded-For is no other address"
    for value in ("nonsense", "9.9.9.9, nonsense", "127.0.0.1"):
        assert words in explain(rig, "-H", f"X-Forwarded-For: {value}", "http://api.test/v1/items").stdout, value
    assert words not in explain(rig, "-H", "X-Forwarded-For: nonsense, 9.9.9.9", "http://api.test/v1/items").stdout


def test_why_a_field_is_not_forwarded(rig):
    fields = [("Keep-Alive", "one connection"), ("X-A", "one connection"), ("X_Forwarded_For", "its name"), ("Content.Length", "its name"),
              ("X_Client_Id", "its name"), ("Proxy", "never forwarded")]
    headers = [word for name, _ in fields for word in ("-H", f"{name}: 1")]
    removed = explain_json(rig, *headers, "-H", "Connection: x-a", "http://api.test/v1/items")["forwarded_request"]["removed"]
    why = {field["name"]: field["reason"] for field in removed if "reason" in field}
    assert all(words in why[name] for name, words in fields), why


def test_refused_requests_end_with_3_and_their_status(rig):
    for arguments, status, reason in (
            (["http://a.test/x", "-X", "TRACE"], 405, "TRACE"),
            (["http://a.test/x", "-H", "Bad Name: 1"], 400, "space in or after a field name"),
            (["http://a.test/x", "-H", "X-Client-Id: a", "-H", "X-Client-Id: b"], 400, "occurs twice"),
            (["http://a.test/v1/../x"], 400, "dot segments"),
            (["http://a.test/v1%2f..%2fhealthz"], 400, "ambiguous"),
            (["http://a.test/v1/x", "-d", "no json"], 400, "no valid JSON object"),
            (["http://a.test/v1/x", "-H", "X-Client-Id: eve"], 429, "quota is 0"),
            (["http://a.test/" + "x" * 40000], 414, "request_header")):
        found = explain_json(rig, *arguments, status=3)
        assert found["status"] == status and reason in found["reason"] and not found["forwarded"], found


def test_a_request_that_takes_too_many_steps(rig):
    """The steps are used up before the last rule, of which no condition fails. Each rule counts once."""
    rules = [{"match": {"path": f"/*a*b{i}c"}, "limits": "none"} for i in range(300)]
    path = rig.write("steps.yaml", json.dumps(rig.policy(size_limits={"request_header": "30k"}, rules=[*rules, {"limits": "none"}])))
    done = rig.command("explain", "-c", path, "http://api.test/" + "a" * 28000)
    assert done.returncode == 3 and "4 million steps" in done.stdout, done
    done = rig.command("explain", "-c", path, "http://api.test/" + "a" * 9000)
    assert done.returncode == 0 and done.stdout.count("path is not /*a*b") == 300, done


def test_content_is_given_as_to_curl(rig):
    path = rig.write("body.json", '{"model":\n"gpt-4o"}\n')
    for data in ('{"model": "gpt-4o"}', f"@{path}"):
        found = explain_json(rig, "http://a.test/v1/x", "-d", data)
        assert found["rules"][-1]["line"] == 15 and found["limits"][0]["cost"] == 2, found
        assert found["request"]["method"] == "POST"
    found = explain_json(rig, "http://a.test/v1/x", "-d", '{"model": "other"}')
    assert found["rules"][1]["condition"] == "json" and found["rules"][-1]["line"] == 16


def test_conditions_on_content_are_shown_as_written(rig):
    match = {"json": {"stream": True}}, {"json": {"n": [5, "5", "=5"]}}
    path = rig.write("json.yaml", json.dumps(rig.policy(rules=[*({"match": m, "limits": "none"} for m in match), {"limits": "none"}])))
    lines = rig.command("explain", "-c", path, "http://api.test/", "-d", '{"n": 6}').stdout.splitlines()
    assert lines[6].endswith("  json stream is not true") and lines[7].endswith('  json n is none of 5, "5", "=5"'), lines


def test_bad_input_gets_a_reason_and_2(rig):
    for arguments, reason in (
            ([], "the URL is missing"), (["http://a.test/", "http://b.test/"], "one URL"), (["ftp://a.test/"], "http or https"),
            (["http:///x"], "no host"), (["http://a.test/a b"], "%20"), (["http://u:p@a.test/"], "Authorization"), ([""], "empty"),
            (["http://a.test/", "-H", "nonsense"], "expected 'NAME: VALUE'"), (["http://a.test/", "-H", "A: b\r\nC: d"], "one line"),
            (["http://a.test/", "--from", "nowhere"], "--from nowhere"), (["http://a.test/", "-d", "@/nowhere"], "/nowhere: No such file"),
            (["http://a.test/", "-X", "GET POST"], "method"), (["http://a.test/", "--nothing"], "unknown option"),
            (["http://a.test/", "-H", "Content-Length: 9", "-d", "x"], "Content-Length is 9")):
        assert reason in explain(rig, *arguments, status=2).stderr, arguments


DESCRIPTORS = """redis: { address: "127.0.0.1:1" }
limits: { each: { script: token_bucket, limit: 10, period: 1m, burst: 20 } }
rate_limit_service:
  listen: [ 127.0.0.1:0 ]
  domains:
    edge:
      descriptors:
        - { key: user, limits: [ each ] }
        - key: kind
          value: "a*"
          share_threshold: true
          descriptors:
            - { key: to, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 5 } }
            - { key: free, rate_limit: { unlimited: true } }
    cards: { file: cards.yaml, charge: every }
"""
CARDS = """domain: cards
descriptors:
  - { key: card, value: x, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: card, shadow_mode: true, rate_limit: { unit: week, requests_per_unit: 0 } }
"""


def test_a_descriptor_of_the_rate_limit_service(rig):
    rig.write("cards.yaml", CARDS)
    path = rig.write("descriptors.yaml", DESCRIPTORS)

    def lines_of(name, status=0):
        done = rig.command("explain", "-c", path, "descriptor:" + name)
        assert done.returncode == status, (name, done.returncode, done.stdout, done.stderr)
        return [line.split() for line in done.stdout.splitlines()]
    lines = lines_of("edge/kind=abc/to=7")
    assert lines[:4] == [["client", "descriptor:edge/kind=a*/to=7"], ["domain", "descriptors.yaml:7", "edge", "charge:", "all"],
                         "entries descriptors.yaml:9 kind=abc value a* (its values share one count)".split(),
                         "descriptors.yaml:13 to=7 every value, quota_mode".split()], lines
    assert lines[4:6] == ["limits descriptors.yaml:13 edge.kind_a*.to fixed_window 5 per 1d".split(),
                          ["key", "weir:{descriptor:edge/kind=a*/to=7}:l:unit:day"]], lines
    assert "limits descriptors.yaml:2 each token_bucket 10 per 1m, burst 20".split() in lines_of("edge/user=1")
    assert "limits none: the entry is unlimited".split() in lines_of("edge/kind=a/free=")
    assert "entries kind=b no entry of this level has this value".split() in lines_of("edge/kind=b/to=7")
    assert "other=1 no entry of this level has this key".split() in lines_of("edge/kind=a/other=1")
    assert "limits none: the policy has no such domain".split() in lines_of("none/a=b")
    assert "entries cards.yaml:3 card=x value x".split() in lines_of("cards/card=x", status=3)
    assert "entries cards.yaml:4 card=y every value, shadow_mode".split() in lines_of("cards/card=y")
    assert rig.command("explain", "-c", path, "--state", "descriptor:edge/user=1").returncode == 2
    assert rig.command("explain", "-c", path, "descriptor:edge").returncode == 2


def test_a_policy_without_upstreams_has_descriptors_only(rig):
    """weir replay and weir test say the same."""
    rig.write("cards.yaml", CARDS)
    path = rig.write("descriptors.yaml", DESCRIPTORS)
    log = rig.write("a.log", '127.0.0.1 - - [10/Oct/2026:13:55:36 +0200] "GET /x HTTP/1.1" 200 2\n')
    tests = rig.write("a.test.yaml", "tests: [ { name: x, requests: [ { path: / } ] } ]\n")
    other = rig.write("weir.yaml", POLICY % "127.0.0.1:1")
    for arguments in (["explain", "-c", path, "/"], ["replay", "-c", path, log], ["test", "-c", path, tests],
                      ["replay", "-c", other, "--compare", path, log]):
        done = rig.command(*arguments)
        assert done.returncode == 1 and not done.stdout, (arguments, done.returncode, done.stdout)
        assert f"{path}: there are no upstreams, so weir accepts no requests of clients" in done.stderr, done.stderr


def test_errors_in_the_policy_end_with_1(rig):
    done = rig.command("explain", "-c", rig.write("bad.yaml", "nothing: 1\n"), "http://a.test/")
    assert done.returncode == 1 and "bad.yaml:1:1" in done.stderr
    assert explain(rig, "--state", "http://a.test/v1/x", status=1).stderr.startswith("weir: redis 127.0.0.1:1: ")


def test_state_is_read_without_charging(rig):
    redis = rig.redis()
    url = ["--state", "-H", "X-Client-Id: zoe", "http://a.test/v1/x"]
    for _ in range(3):
        found = explain_json(rig, *url, address=redis.text)
        assert found["limits"][0]["remaining"] == 3 and found["state_read"]
    assert redis.command("KEYS", "*") == []
    policy = (POLICY % redis.text).replace("127.0.0.1:1 ", rig.upstream().text + " ")
    policy = policy.replace(redis.text + '"', redis.text + '", timeout: 5s, on_failure: deny')
    weir = rig.weir(policy + "admin: 127.0.0.1:0\n").wait_for_redis()
    for _ in range(3):
        assert x.Connection(weir.address).request("/v1/x", headers={"X-Client-Id": "zoe"}).status == 200
    found = explain_json(rig, *url, address=redis.text, status=3)
    assert found["status"] == 429 and found["limits"][0]["remaining"] == 0 and "0 left" in found["reason"]
    assert x.Connection(weir.address).request("/v1/x", headers={"X-Client-Id": "zoe"}).status == 429
    # a grant takes precedence
    assert rig.command("grant", "-c", "weir.yaml", "zoe", "unlimited", "1h").returncode == 0
    found = explain_json(rig, *url, address=redis.text)
    assert found["client_limits"]["from"] == "grant" and 3590 < found["client_limits"]["grant_seconds"] <= 3600
    assert rig.command("grant", "-c", "weir.yaml", "zoe", "0", "1h").returncode == 0
    assert explain_json(rig, *url, address=redis.text, status=3)["client_limits"]["quota"] == "prohibited"


def test_the_cost_of_a_rule_does_not_apply_to_requests_in_flight(rig):
    path = rig.write("weir.yaml", """listen: 127.0.0.1:0
redis: { address: "127.0.0.1:1" }
limits:
  in-flight: { script: concurrency, limit: 3, cost: 2 }
upstreams: { api: { servers: [ 127.0.0.1:1 ] } }
rules: [ { limits: [ in-flight ], cost: 5, upstream: api } ]
""")
    done = rig.command("explain", "-c", path, "http://api.test/")
    assert done.returncode == 0 and "in-flight  concurrency 3 in flight, cost 2" in done.stdout, (done.stdout, done.stderr)


def test_priorities_leave_room_to_higher_ones(rig):
    """The queue is 70 s long: a share of 50% may wait for 50 s."""
    policy = rig.policy(limits={"queue": {"script": "leaky_bucket", "limit": 60, "period": "10m", "max_delay": "100s", "per": "all"},
                                "window": {"script": "sliding_window_log", "limit": 10, "period": "1h", "per": "all"}},
                        priorities={"high": "100%", "low": "50%"},
                        rules=[{"match": {"path": "/window"}, "limits": ["window"], "cost": 4, "priority": "low"},
                               {"match": {"path": "/low"}, "limits": ["queue"], "priority": "low"}, {"limits": ["queue"], "priority": "high"}])
    weir = rig.weir(**policy)

    def found(target):
        return json.loads(rig.command("explain", "-c", weir.policy_file, "--state", "--json", "http://a.test" + target).stdout)
    key = found("/")["limits"][0]["key"]
    rig.redis().command("SET", key, str(int(time.time() + 70) * 1000000))
    high, low = found("/"), found("/low")
    assert high["forwarded"] and high["limits"][0]["remaining"] == 53, high
    assert low["status"] == 429 and low["reason"] == "limit queue has no room for 1: 0 left", low
    connection = x.Connection(weir.address)
    assert [connection.request(target).status for target in ("/low", "/window")] == [429, 200]
    assert found("/window")["reason"] == "limit window has no room for 4: 1 left"


def keys_within(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set(value if isinstance(value, dict) else ()).union(*map(keys_within, parts))


def test_json_has_the_keys_of_the_manual(rig):
    redis = rig.redis()
    rig.write("weir.yaml", POLICY % redis.text)
    assert rig.command("grant", "-c", "weir.yaml", "zoe", "100", "1h").returncode == 0
    report = explain_json(rig, "--state", "-H", "X-Client-Id: zoe", "-H", "X_Client_Id: bob", "http://a.test/v1/a%2fb", address=redis.text)
    with open(os.path.join(top, "man/weir.8"), encoding="utf-8") as manual:
        entries = manual.read().partition("The keys of\n.BR \\-\\-json :\n")[2].partition(".PP\nExit status")[0].split(".TP\n")[1:]
    documented = {}
    for heading, _, text in (entry.partition("\n") for entry in entries):
        bold = {word for line in re.findall(r"^\.R?BR? (.*)", text, re.M) for word in re.findall(r"(?<![\w-])[a-z_]+(?![\w-])", line)}
        documented.update({key: bold for key in re.findall("[a-z_]+", heading.partition(" ")[2])})
    assert {key: keys_within(value) for key, value in report.items()} == documented


def test_the_row_of_a_database_counts_where_redis_has_it(rig):
    database, redis = Postgres(rig), rig.redis()
    weir = rig.weir(limits={"quota": dict(script="fixed_window", limit=60, period="1h")},
                    quotas=dict(postgres=dict(connection=database.connection, query=database.query), timeout="10s"))

    def found(*options, client="client-2", status=0):
        done = rig.command("explain", "-c", weir.policy_file, "--json", *options, "-H", f"X-Client-Id: {client}", "http://a.test/")
        assert done.returncode == status, done
        return json.loads(done.stdout)
    unread = found()
    assert unread["limits"][0]["limit"] == 60 and not unread["client_limits"]["database_read"]
    assert not found("--state")["client_limits"]["database_read"]
    assert x.Connection(weir.address).request(headers={"X-Client-Id": "client-2"}).status == 200
    eventually(lambda: redis.command("KEYS", "*:q"), what="the row in Redis")
    read = found("--state")
    assert read["client_limits"]["from"] == "database" and read["client_limits"]["database_read"]
    assert (read["limits"][0]["limit"], read["limits"][0]["remaining"]) == (3, 2)
    assert x.Connection(weir.address).request(headers={"X-Client-Id": "client-0"}).status == 429
    eventually(lambda: len(redis.command("KEYS", "*:q")) == 2, what="the second row in Redis")
    assert found("--state", client="client-0", status=3)["reason"] == "the client's quota is 0"
    assert database.query_count("client-2") == 1


def test_the_certificate_of_a_client(rig):
    ca = Authority(rig.directory)
    alice, old = ca.issue("alice"), ca.issue("old", until=hours(-1), since=hours(-2))
    policy = rig.policy(listen=[listener(ca.file)], identity=FROM_CN, limits=MANY,
                        upstreams={"api": {"servers": ["127.0.0.1:1"], "client_certificate_header": "X-Subject"}})
    path = rig.write("certificates.yaml", json.dumps(policy))

    def run(*arguments, status=0):
        done = rig.command("explain", "-c", path, *arguments)
        assert done.returncode == status, done
        return done
    found = json.loads(run("--json", "--certificate", alice.file, "-H", "X-Subject: CN=bob", "https://a.test/").stdout)
    assert found["client"]["name"] == "certificate:alice" and found["request"]["certificate"]
    fields = found["forwarded_request"]
    assert [f["value"] for f in fields["removed"] if f["name"] == "X-Subject"] == ["CN=bob"]
    assert [f["value"] for f in fields["added"] if f["name"] == "X-Subject"] == ["CN=alice"]
    without = run("https://a.test/").stdout
    assert "requires a client certificate" in without and "no certificate" in without
    for arguments, reason in ((["--certificate", alice.file, "http://a.test/"], "https"), (["--certificate", old.file, "https://a.test/"], "expired"),
                              (["--certificate", path, "https://a.test/"], "PEM"), (["--certificate", "/nowhere", "https://a.test/"], "No such file")):
        assert reason in run(*arguments, status=2).stderr, arguments


def compare(rig, seed, policies, requests):
    """Compares explanations with a running weir. Returns the number of requests."""
    generator, compared = random.Random(seed), 0
    recorders = {"api": x.Recorder(rig), "web": x.Recorder(rig)}
    keys = {"upstreams": {name: {"servers": [r.server.text]} for name, r in recorders.items()}, "workers": 1, "headers": ["ietf"]}
    rig.write("blocked.txt", "127.0.0.3\n")
    rig.write("allowed.txt", "127.0.0.2\n")
    weir = None
    while policies:
        keys.update(x.random_policy(generator), log={"access": "json"})
        policy = rig.policy(**keys)
        path = rig.write("explained.yaml", json.dumps(policy))
        all_requests = [r for r in (x.Request(generator) for _ in range(requests)) if r.is_usable]
        explained = x.explain_all(path, all_requests)
        if explained is None:
            continue
        policies -= 1
        rig.redis().command("FLUSHALL")
        if weir:
            weir.finish()
        weir = rig.weir(**policy)
        compared += compare_one(rig, weir, recorders, list(zip(all_requests, explained)), seed)
    return compared


def compare_one(rig, weir, recorders, pairs, seed):
    client, responses, keys = x.Client(weir.address), [], set()
    for request, explained in pairs:
        try:
            for recorder in recorders.values():
                recorder.head = None
            response = client.send(request)
            responses.append(response)
            assert response.status == (200 if explained["forwarded"] else explained["status"])
            heads = {name: recorder.head for name, recorder in recorders.items() if recorder.head}
            assert list(heads) == ([explained["upstream"]["name"]] if explained["forwarded"] else [])
            if explained["forwarded"]:
                x.check_forwarded(request, explained, recorders, heads[explained["upstream"]["name"]])
                x.check_limits(explained, response)
                keys |= x.charged_keys(explained)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {request.record()[:700]!r}\n{json.dumps(explained, indent=1)}\n{response}\n{wrong}") from wrong
    client.close()
    for logged, (request, explained) in zip(x.log_lines(weir, len(pairs)), pairs):
        try:
            x.check_logged(explained, logged)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {request.record()[:700]!r}\n{json.dumps(explained, indent=1)}\n{logged}") from wrong
    stored = {key for key in rig.redis().command("KEYS", "*") if ":d:" not in key}
    every = {limit["key"] for _, e in pairs for limit in e["limits"]}
    assert keys <= stored <= every, (keys - stored, stored - every)
    return len(pairs)


def test_a_running_weir_does_what_was_explained(rig):
    """By hand, for 100,000 requests: SEED=7 POLICIES=1300 tests/integration/run explain.a_running"""
    seed = int(os.environ.get("SEED", time.time()))
    policies, requests = int(os.environ.get("POLICIES", 6)), int(os.environ.get("REQUESTS", 80))
    print(compare(rig, seed, policies, requests), "requests, seed", seed)


test_a_running_weir_does_what_was_explained = timeout(60 + int(os.environ.get("POLICIES", 0)))(test_a_running_weir_does_what_was_explained)
