"""weir test: requests in virtual time, what is expected of them, its output, and its end."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess

import yaml

from recipe_book import TESTED, tested_files
from rig import eventually, timeout, top, weir_program

POLICY = """
upstreams: { api: { servers: [ 127.0.0.1:1 ] }, reports: { servers: [ 127.0.0.1:2 ] } }
identity: { from: [ "header:X-Client-Id", "query:key", ip ], trusted_proxies: [ 127.0.0.1, 10.0.0.1 ] }
limits:
  gcra: { script: gcra, limit: 100, period: 1m, burst: 20 }
  bucket: { script: token_bucket, limit: 60, period: 1m, burst: 5 }
  meter: { script: leaky_bucket, limit: 10, period: 1s, burst: 5 }
  queue: { script: leaky_bucket, limit: 10, period: 1s, burst: 5, max_delay: 300ms }
  thirds: { script: leaky_bucket, limit: 3, period: 1s, burst: 5, max_delay: 2s }
  fixed: { script: fixed_window, limit: 3, period: 1m, align: clock }
  month: { script: fixed_window, limit: 3, period: month, align: clock, time_zone: Europe/Berlin }
  rolling: { script: rolling_window, limit: 6, period: 1h, buckets: 60 }
  log: { script: sliding_window_log, limit: 2, period: 4s }
  counter: { script: sliding_window_counter, limit: 10, period: 1m }
  lockout: { script: lockout, limit: 2, period: 1m, per: ip, count: [ 401 ], options: { rest: 1h } }
  flight: { script: concurrency, limit: 2 }
  tokens: { script: token_bucket, limit: 1000, period: 1h, cost: { reserve: 100, request_json: max_tokens, max: 400, usage: openai } }
  cents: { script: fixed_window, limit: 50, period: 1d, cost: { reserve: 1, response_header: X-Cents } }
  paid: { script: token_bucket, limit: 1000, period: 1h }
  shadow: { script: gcra, limit: 1, period: 1h, shadow: true }
  refund: { script: gcra, limit: 10, period: 1s, burst: 1, count: [ 500 ] }
  seen: { script: fixed_window, limit: 2, period: 1h, dedup: Idempotency-Key }
  model: { script: fixed_window, limit: 1, period: 1h, per: [ client, "json:model" ] }
  segment: { script: fixed_window, limit: 1, period: 1h, per: [ client, "path:2" ] }
plans: { gold: { limits: { bucket: { limit: 600, burst: 50 } } } }
clients:
  shop: { plan: gold }
  vip: { quota: unlimited }
  none: { quota: 0 }
  bad: { blocked: true }
  own: { limits: { bucket: { limit: 60, burst: 7 } } }
rules:
"""
PATHS = ["gcra", "bucket", "meter", "queue", "thirds", "fixed", "month", "rolling", "log", "counter", "lockout", "flight", "shadow",
         "refund", "seen"]
POLICY += "".join(f"  - {{ match: {{ path: /{name} }}, limits: [ {name} ] }}\n" for name in PATHS) + """
  - { match: { path: /chat, json: { model: "gpt*" } }, limits: [ tokens, cents ] }
  - { match: { path: /paid }, limits: [ paid ], cost: { reserve: 1, response_header: X-Cost } }
  - { match: { path: /model }, limits: [ model ] }
  - { match: { path: "/in/**" }, limits: [ segment ] }
  - { match: { path: /both }, limits: [ gcra, fixed ], name: both }
  - { match: { host: "reports.example" }, limits: none, upstream: reports, name: reports }
  - { match: { header: { X-Job: "*" } }, limits: [ log ], name: jobs }
  - { match: { query: { format: csv } }, limits: none, name: csv }
  - { match: { scheme: https }, limits: none, name: secure }
  - { match: { path: /free }, limits: [ gcra ], cost: 0, name: free }
  - { limits: [ bucket ], name: rest }
"""

PASSING = """
policy: policy.yaml
tests:
  - name: gcra
    requests:
      - { path: /gcra, repeat: 20, expect: admitted }
      - { path: /gcra, expect: { rejected_by: gcra, retry_after: 1, remaining: 0, reset: 12, status: 429, cost: 0, upstream: api } }
"""


def write(rig, tests, policy=POLICY):
    rig.write("policy.yaml", policy)
    text = tests if isinstance(tests, str) else json.dumps({"policy": "policy.yaml", "tests": tests})
    return rig.write("test.yaml", text)


def run(rig, tests, *arguments, policy=POLICY):
    write(rig, tests, policy)
    return rig.command("test", *arguments, "test.yaml")


def results(rig, tests, policy=POLICY):
    """Runs tests and returns the list of their results."""
    done = run(rig, tests, "--json", policy=policy)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["complete"] is True and done.stderr == "", done.stderr
    assert done.returncode == (1 if report["failed"] else 0)
    return report["tests"]


def passes(rig, *steps, policy=POLICY, **more):
    result, = results(rig, [{"name": "one", "requests": list(steps), **more}], policy)
    assert result["passed"], json.dumps(result["failures"], indent=1)


def request(path, expect=None, **more):
    return {"path": path, **({"expect": expect} if expect is not None else {}), **more}


def test_limiters_by_rate(rig):
    passes(rig, request("/gcra", "admitted", repeat=20),
           request("/gcra", {"rejected_by": "gcra", "retry_after": 1, "remaining": 0, "reset": 12, "status": 429, "cost": 0}),
           {"wait": "599ms"}, request("/gcra", "rejected"), {"wait": "1ms"}, request("/gcra", {"admitted": 1, "remaining": 0, "cost": 1}))
    passes(rig, request("/bucket", {"admitted": 5, "rejected": 4}, repeat=9), {"wait": "2s"}, request("/bucket", {"admitted": 2}, repeat=3))
    passes(rig, request("/meter", {"admitted": 5}, repeat=6), request("/meter", {"admitted": 10}, wait="100ms", every="100ms", repeat=10))


def test_a_queue_delays(rig):
    passes(rig, request("/queue", {"delay": "0s"}), request("/queue", {"delay": "300ms", "admitted": 3}, repeat=3),
           request("/queue", {"rejected_by": "queue"}), request("/queue", {"delay": "300ms"}, wait="100ms"))
    passes(rig, request("/thirds"), request("/thirds", {"delay": "334ms"}), request("/thirds", {"delay": "666667us"}))


def test_limiters_with_windows(rig):
    passes(rig, request("/fixed", {"admitted": 3, "retry_after": 10, "reset": 10}, repeat=4), request("/fixed", {"remaining": 2}, wait="10s"),
           start="2026-03-01T00:00:50Z")
    passes(rig, request("/month", {"rejected": 1, "reset": 1}, repeat=4), request("/month", {"remaining": 2, "reset": 2419200}, wait="1s"),
           start="2026-01-31T22:59:59Z")
    passes(rig, request("/rolling", {"admitted": 6}, repeat=7), request("/rolling", "rejected", wait="59m"),
           request("/rolling", {"admitted": 6}, wait="2m", repeat=7))
    passes(rig, request("/log", {"admitted": 6, "rejected": 7223}, repeat=7229, every="1383us"))
    passes(rig, request("/counter", {"admitted": 10}, repeat=11), request("/counter", {"admitted": 5}, wait="90s", repeat=6))
    passes(rig, request("/lockout", {"cost": 0}, repeat=10), request("/lockout", {"cost": 1}, status=401, repeat=2),
           request("/lockout", {"rejected_by": "lockout", "retry_after": 3600}), request("/lockout", "admitted", wait="1h"))


def test_requests_overlap_for_their_duration(rig):
    passes(rig, request("/flight", {"admitted": 2, "remaining": 0, "reset": "none"}, repeat=3, duration="1s"),
           request("/flight", {"rejected_by": "flight", "retry_after": 1}, wait="999ms"),
           request("/flight", {"admitted": 2}, wait="1ms", repeat=2, duration="20h"),
           request("/flight", "rejected", wait="19h"), request("/flight", "admitted", client="other"),
           request("/flight", {"admitted": 9}, wait="1h", repeat=9))
    passes(rig, request("/flight", {"admitted": 334}, repeat=500, every="50ms", duration="125ms"))
    year = dict(duration="366d")  # virtual time ends after 34 of them
    passes(rig, *[request("/flight", "admitted", **year)] * 2, *[request("/flight", "rejected", **year)] * 40)


def test_a_request_that_ends_takes_no_later_time_to_earlier_requests(rig):
    """Its release and the requests after it are one call of Redis. The answer to a repeat expires
    between two of them."""
    seen = {"client": "a", "headers": {"Idempotency-Key": "k"}}
    passes(rig, request("/seen", {"remaining": 1}, **seen), request("/flight", "admitted", duration="1ms"),
           request("/seen", {"remaining": 1}, wait="3599999999us", **seen), request("/seen", {"remaining": 1}, wait="1us", client="b"))


def test_costs_of_responses(rig):
    chat = {"json": {"model": "gpt-4", "stream": True, "n": 1.5, "stop": None, "messages": [{"role": "user"}]}}
    passes(rig, request("/chat", {"cost": {"tokens": 700, "cents": 3}, "remaining": {"tokens": 900, "cents": 49}},
                        cost={"tokens": 700, "cents": 3}, **chat),
           request("/chat", {"cost": 700, "remaining": {"tokens": 200, "cents": 46}}, cost={"tokens": 700}, **chat),
           request("/chat", {"rejected_by": "tokens"}, **chat),
           request("/chat", {"rule": "rest"}, json={"model": "llama"}), request("/chat", {"status": 400}, json='{"model":'))
    passes(rig, request("/chat", {"cost": 0}, status=500, **chat), request("/chat", {"cost": 400, "remaining": {"tokens": 600}},
                                                                          json={"model": "gpt", "max_tokens": 4000}))
    passes(rig, request("/paid", {"cost": 1500}, cost=1500), request("/paid", {"rejected_by": "paid", "retry_after": 1804}),
           request("/paid", "admitted", wait="1804s"))
    passes(rig, request("/refund", {"admitted": 5, "cost": 0}, repeat=5), request("/refund", {"cost": 1}, status=500),
           request("/refund", "rejected"))
    # the charge is settled at the end of the response
    passes(rig, request("/paid", {"remaining": 999}, cost=1500, duration="10s"), request("/paid", "admitted", wait="9s"),
           request("/paid", "rejected", wait="1s"))
    passes(rig, request("/free", {"admitted": 30, "cost": 0}, repeat=30), request("/shadow", {"admitted": 5}, repeat=5),
           request("/seen", {"cost": 1}, headers={"Idempotency-Key": "a"}), request("/seen", {"cost": 0, "admitted": 3}, repeat=3,
                                                                                  headers={"Idempotency-Key": "a"}))


def test_clients_and_plans(rig):
    passes(rig, request("/", {"admitted": 50}, client="shop", repeat=51), request("/", {"admitted": 7}, client="own", repeat=8),
           request("/", {"admitted": 99, "remaining": 0}, client="vip", repeat=99) | {"expect": {"admitted": 99}},
           request("/", {"status": 429, "rejected": 1, "retry_after": "none"}, client="none"), request("/", {"status": 403}, client="bad"),
           request("/", {"client": "alice"}, client="alice"), request("/", {"client": "ip:203.0.113.9"}, client="ip:203.0.113.9"))
    passes(rig, request("/", {"client": "alice"}, headers={"X-Client-Id": "alice"}),
           request("/", {"client": "ip:203.0.113.7"}, headers={"X-Client-Id": "alice"}, **{"from": "203.0.113.7"}),
           request("/", {"client": "ip:198.51.100.1"}, headers={"X-Forwarded-For": ["203.0.113.7", "198.51.100.1"]}),
           request("/", {"client": "query:k 1"}, query={"key": "k 1"}), request("/", {"status": 400}, query="key=a&key=b"),
           request("/", {"client": "ip:unix"}, **{"from": "unix:"}))
    passes(rig, request("/", {"client": "alice"}, headers={"X-Client-Id": "alice"}), **{"from": "10.0.0.1"})
    # the rest of a limit is for ids by their addresses, too
    passes(rig, request("/lockout", {"rejected": 1}, repeat=3, client="a", status=401), request("/lockout", "rejected", client="b"),
           request("/lockout", "admitted", client="b", **{"from": "203.0.113.7"}))


def test_rules_and_keys(rig):
    passes(rig, request("/x", {"rule": "reports", "upstream": "reports"}, host="reports.example"),
           request("/x", {"rule": "jobs"}, headers={"X-Job": "1"}), request("/x?format=csv", {"rule": "csv"}),
           request("/x", {"rule": "csv"}, query={"format": "csv", "q": ["a b", "c&d"]}), request("/x", {"rule": "secure"}, scheme="https"),
           request("/x", {"rule": "rest", "upstream": "api"}), request("/both", {"rule": "both", "rejected_by": "fixed"}, repeat=4),
           request("/both", {"remaining": {"gcra": 17, "fixed": 0}}))
    passes(rig, request("/model", {"admitted": 1}, json={"model": "a"}, repeat=2), request("/model", "admitted", json={"model": "b"}),
           request("/in/a", {"admitted": 1}, repeat=2), request("/in/b", "admitted"), request("/a/%zz", {"status": 400}),
           request("/x", {"status": 405}, method="TRACE"), request("/x", {"status": 501}, method="CONNECT"), request("/x", {"status": 204, "rejected": 1}, method="OPTIONS", headers={"Max-Forwards": "0"}),
           request("/x", {"status": 508}, headers={"Via": ["1.1 weir, 1.1 weir", "1.1 weir"]}), request("/x", "admitted", headers={"Via": "1.1 weir, 1.1 weir"}))


def test_streams_that_hide_their_usage(rig):
    policy = POLICY.replace("usage: openai", "usage: openai, include_usage: add")
    passes(rig, request("/chat", {"cost": {"tokens": 400}}, json={"model": "gpt", "stream": True, "stream_options": {}}),
           request("/chat", {"cost": {"tokens": 100}}, json={"model": "gpt", "stream": True}), policy=policy)


def test_content_that_rules_match_on(rig):
    """As the proxy decides on it."""
    passes(rig, request("/chat", {"rule": "/chat"}, json={"model": "gpt; &"}), request("/chat", {"status": 400}, json={"model": "gpt"}, headers={"Content-Encoding": "gzip"}),
           request("/chat", {"status": 400}, json={"model": "gpt"}, headers={"content-type": "application/json; charset=utf-7"}),
           request("/chat", {"status": 413}, json={"model": "x" * 1100}), request("/chat", {"rule": "rest"}, json={"model": "x" * 900}),
           request("/chat", {"status": 400}, json='{"model": "a", "Model": "b"}'), request("/free", {"rule": "free"}, json="[]"),
           policy=POLICY + "size_limits: { inspected_content: 1k }\n")


def test_claims_of_tokens(rig):
    shutil.copy(os.path.join(top, "tests", "tls", "jwks.json"), rig.directory)
    policy = """
upstreams: { api: { servers: [ 127.0.0.1:1 ] } }
identity: { from: [ "jwt:sub", ip ], jwt: { keys: jwks.json } }
limits:
  user: { script: fixed_window, limit: 2, period: 1h }
  team: { script: fixed_window, limit: 3, period: 1h, per: "jwt:team" }
rules: [ { limits: [ user, team ] } ]
"""
    passes(rig, request("/", {"client": "jwt:alice", "admitted": 2, "rejected_by": "user"}, claims={"sub": "alice", "team": "red"}, repeat=3),
           request("/", {"client": "jwt:bob", "admitted": 1, "rejected_by": "team"}, claims={"sub": "bob", "team": "red"}, repeat=2),
           request("/", {"client": "jwt:7", "remaining": {"team": 2}}, claims={"sub": 7, "team": "blue"}),
           request("/", {"client": "ip:127.0.0.1", "remaining": {"team": 2}}, headers={"Authorization": "Bearer x.y.z"}), policy=policy)
    refusing = policy.replace("keys: jwks.json", "keys: jwks.json, invalid: 401").replace('"jwt:sub", ', "")
    passes(rig, request("/", {"status": 401}, headers={"Authorization": "Bearer x.y.z"}), policy=refusing)
    text = """
policy: policy.yaml
tests:
  - name: what is no number of JSON is a text
    requests:
      - { claims: { sub: 1.50 }, expect: { client: "ip:127.0.0.1" } }
      - { claims: { sub: -5 }, expect: { client: "jwt:-5" } }
      - { claims: { sub: 5e2 }, expect: { client: "jwt:500" } }
      - { claims: { sub: 1.50x }, expect: { client: "jwt:1.50x" } }
      - { claims: { sub: 1. }, expect: { client: "jwt:1." } }
      - { claims: { sub: 1e }, expect: { client: "jwt:1e" } }
      - { claims: { sub: 007 }, expect: { client: "jwt:007" } }
      - { claims: { sub: "0x10" }, expect: { client: "jwt:0x10" } }
      - { claims: { sub: true }, expect: { client: "ip:127.0.0.1" } }
      - { claims: { sub: null }, expect: { client: "ip:127.0.0.1" } }
      - { claims: { sub: "true" }, expect: { client: "jwt:true" } }
"""
    done = run(rig, text, policy=policy)
    assert done.returncode == 0, done
    done = run(rig, [{"name": "x", "requests": [request("/", claims={"sub": "a"})]}])
    assert done.returncode == 1 and "the policy reads no claims of tokens" in done.stderr, done


def test_rows_of_the_quota_database(rig):
    policy = POLICY.replace("rules:\n", 'quotas: { postgres: { connection: "postgresql://weir@127.0.0.1:1/weir", '
                            'query: "SELECT 1 WHERE $1 = $1" }, unknown_client: deny }\nrules:\n')
    rows = {"client-0": 0, "client-1": -1, "client-2": 3, "client-3": "gold"}
    passes(rig, request("/fixed", {"rejected": 1, "status": 429, "retry_after": "none"}, client="client-0"),
           request("/fixed", {"admitted": 9}, client="client-1", repeat=9), request("/fixed", {"admitted": 3}, client="client-2", repeat=4),
           request("/", {"admitted": 50}, client="client-3", repeat=51), request("/", {"status": 403}, client="client-4"),
           request("/", "admitted", client="ip:203.0.113.7"), policy=policy, quotas=rows)
    text = json.dumps({"policy": "policy.yaml", "quotas": {"client-2": 3}, "tests": [
        {"name": "as for all", "requests": [request("/fixed", {"admitted": 3}, client="client-2", repeat=4)]},
        {"name": "of its own", "quotas": {"client-3": 2}, "requests": [request("/fixed", {"status": 403}, client="client-2"),
                                                                       request("/fixed", {"admitted": 2}, client="client-3", repeat=3)]}]})
    assert [(result["name"], result["failures"]) for result in results(rig, text, policy)] == [("as for all", []), ("of its own", [])]
    done = run(rig, "policy: policy.yaml\nquotas:\n  client-2: 3\n  id:client-2: 4\ntests: []", policy=policy)
    assert done.returncode == 1 and 'test.yaml:4:3: quotas: "id:client-2" is the same client as that of line 3' in done.stderr, done
    known = policy.replace("identity: {", "identity: { known_clients_only: true,").replace(", unknown_client: deny", "")
    by_content = known.replace('"query:key"', '"json:user"')
    assert by_content != known
    passes(rig, request("/chat", {"client": "json:user-1"}, headers={"X-Client-Id": "client-4"}, json={"user": "user-1"}),
           policy=by_content, quotas={**rows, "json:user-1": -1})
    passes(rig, request("/", {"client": "client-2"}, client="client-2"), request("/", {"client": "ip:127.0.0.1"}, client="client-4"),
           request("/", {"client": "ip:127.0.0.1"}, headers={"X-Client-Id": "client-4"}), policy=known, quotas=rows)
    rig.write("allowed.txt", "10.0.0.1\n")
    passes(rig, request("/fixed", {"client": "id:client-4", "admitted": 9}, headers={"X-Client-Id": "client-4"}, repeat=9, **{"from": "10.0.0.1"}),
           policy=policy + "addresses: { allow: [ allowed.txt ] }\n", quotas=rows)
    blocked = known.replace("clients:\n", 'clients:\n  "ip:127.0.0.1": { blocked: true }\n')
    passes(rig, request("/?format=csv", {"status": 403}, headers={"X-Client-Id": "client-4"}),
           request("/?format=csv", "admitted", headers={"X-Client-Id": "client-2"}), policy=blocked, quotas=rows)


def test_an_operator_s_own_limiter(rig):
    rig.write("even.lua", "return function(state, now, limit, period, burst, cost)\n"
              "  if state == 'broken' then error('this one fails') end\n"
              "  return 1, 0, 0, period, 'broken'\nend\n")
    policy = """
upstreams: { api: { servers: [ 127.0.0.1:1 ] } }
limits: { even: { script: ./even.lua, limit: 1, period: 1m } }
rules: [ { limits: [ even ] } ]
"""
    done = run(rig, [{"name": "own", "requests": [request("/", "admitted"), request("/", "admitted")]}], policy=policy)
    assert done.returncode == 1 and "this one fails" in done.stderr and "even.lua:2" in done.stderr, done
    assert "rejected with 503: the script of a limit has failed" in done.stdout, done


def test_states_of_own_limiters_expire_in_virtual_time(rig):
    rig.write("once.lua", "return function(state, now, limit, period)\n"
              "  if state then return 0, 0, 1000000, period end\n"
              "  return 1, 0, 0, period, 'used'\nend\n")
    policy = """
upstreams: { api: { servers: [ 127.0.0.1:1 ] } }
limits: { once: { script: ./once.lua, limit: 1, period: 1m }, fixed: { script: fixed_window, limit: 9, period: 1h } }
rules:
  - { match: { path: /both }, limits: [ fixed, once ] }
  - { limits: [ once ] }
"""
    for path in "/", "/both":
        passes(rig, request(path, "admitted"), request(path, "rejected"), request(path, "rejected", wait="59999999us"),
               request(path, "admitted", wait="1us"), request(path, {"admitted": 4}, wait="1m", repeat=200, every="1s"), policy=policy)


def test_tests_share_no_state(rig):
    tests = [{"name": f"test {i}", "start": f"2026-0{i + 1}-01T00:00:00Z",
              "requests": [request("/fixed", {"admitted": 3, "rejected": 1}, repeat=4), request("/flight", {"admitted": 2}, repeat=3, duration="1h"),
                           request("/paid", {"admitted": 1}, cost=5000, duration="1h")]} for i in range(5)]
    assert [r["passed"] for r in results(rig, tests)] == [True] * 5


def test_every_expectation_fails_with_its_message(rig):
    once = {"path": "/gcra"}
    for expect, expected, came, more in (
            ("rejected", "rejected", "admitted", {}),
            ("admitted", "admitted", "rejected with 429 by log", {"path": "/log", "before": 2}),
            ("admitted", "admitted", "admitted: 2 of 5; request 3 is the first that was rejected with 429 by log", {"path": "/log", "repeat": 5}),
            ("rejected", "rejected", "rejected: 3 of 5; request 1 is the first that was admitted", {"path": "/log", "repeat": 5}),
            ({"admitted": 3}, "admitted: 3", "admitted: 2 of 5; request 3 is the first that was rejected with 429 by log", {"path": "/log", "repeat": 5}),
            ({"rejected": 0}, "rejected: 0", "rejected: 3 of 5; request 1 is the first that was admitted", {"path": "/log", "repeat": 5}),
            ({"rejected_by": "gcra"}, "rejected_by: gcra", "admitted", {}),
            ({"rejected_by": "gcra"}, "rejected_by: gcra", "rejected_by: log", {"path": "/log", "before": 2}),
            ({"rejected_by": "gcra"}, "rejected_by: gcra", "blocked with 403: this client is blocked", {"client": "bad"}),
            ({"rejected_by": "gcra"}, "rejected_by: gcra", "rejected with 429: the quota of the client is 0", {"client": "none"}),
            ({"status": 201}, "status: 201", "status: 200", {}),
            ({"status": 200}, "status: 200", "status: 405", {"method": "TRACE"}),
            ({"rule": "jobs"}, "rule: jobs", "rule: /gcra", {}),
            ({"upstream": "reports"}, "upstream: reports", "upstream: api", {}),
            ({"upstream": "api"}, "upstream: api", "rejected with 429 by log", {"path": "/log", "before": 2}),
            ({"client": "bob"}, "client: id:bob", "client: ip:127.0.0.1", {}),
            ({"remaining": 3}, "remaining: 3", "remaining: 19 (limit gcra)", {}),
            ({"remaining": 3}, "remaining: 3", "remaining: none, no limit applied", {"client": "vip"}),
            ({"remaining": {"fixed": 3}}, "remaining: { fixed: 3 }", "remaining: { fixed: none }, the limit did not apply", {}),
            ({"retry_after": 3}, "retry_after: 3", "retry_after: none", {}),
            ({"retry_after": "none"}, "retry_after: none", "retry_after: 4", {"path": "/log", "before": 2}),
            ({"reset": "2m"}, "reset: 120", "reset: 1 (limit gcra)", {}),
            ({"reset": 1}, "reset: 1", "reset: none (limit flight)", {"path": "/flight"}),
            ({"cost": 2}, "cost: 2", "cost: 1", {}),
            ({"cost": {"gcra": 2}}, "cost: { gcra: 2 }", "cost: { gcra: 1 }", {}),
            ({"delay": "1s"}, "delay: 1s", "delay: 0s", {}),
            ({"cost": 3}, "cost: a rule or a limit that takes its cost from the response",
             "a rule whose cost does not depend on the response", {"cost": 3, "expect": {}})):
        more = dict(more)
        before = more.pop("before", 0)
        step = {**once, "expect": expect, **more}
        steps = ([{**step, "repeat": before, "expect": {}}] if before else []) + [step]
        result, = results(rig, [{"name": "one", "requests": steps}])
        failures = [(f["expected"], f["came"]) for f in result["failures"]]
        assert (expected, came) in failures and len(failures) == 1, (expect, failures)


def test_the_text_of_a_failure(rig):
    done = run(rig, PASSING.replace("retry_after: 1", "retry_after: 2").replace("reset: 12", "reset: 13"))
    assert done.returncode == 1 and done.stderr == "", done
    assert re.sub(r"in [\d.]+ s", "in T s", done.stdout) == """\
FAIL  test.yaml:4  gcra
    request 21: GET /gcra of ip:127.0.0.1 at 2026-01-01T00:00:00Z
    rejected with 429 by gcra; rule /gcra; gcra: 0 of 20 left, retry after 600ms
      test.yaml:7:53: expected retry_after: 2
      came retry_after: 1
      test.yaml:7:83: expected reset: 13
      came reset: 12 (limit gcra)
      test.yaml:7:116: expected upstream: api
      came rejected with 429 by gcra
1 test, 1 failed; 21 requests in T s
"""
    many = run(rig, [{"name": "many", "requests": [request("/shadow", "rejected")] * 25}])
    assert many.stdout.count("came admitted") == 20 and "and 5 more that were not as expected" in many.stdout, many.stdout


def test_mistakes_are_reported_and_nothing_is_run(rig):
    head = "policy: policy.yaml\ntests:\n  - name: x\n    requests:\n      - "
    for text, message in (
            ("tests: []", "1:1: policy is missing: the path of a policy file, relative to this file; or use weir test -c FILE"),
            ("policy: policy.yaml", "1:1: tests is missing: a list of tests, each with name and requests"),
            ("policy: policy.yaml\ntests: []", "2:8: tests: has no test"),
            ("policy: policy.yaml\ntets: 1\ntests: []", '2:1: unknown key "tets"; did you mean "tests"?'),
            ("policy: policy.yaml\nzzz: 1\ntests: []", '2:1: unknown key "zzz"; expected one of policy, start, from, quotas, tests'),
            ("policy: policy.yaml\nstart: soon\ntests: []", '2:8: start: "soon" is not a time; write it as 2026-01-31T23:59:50Z or '
             "2026-01-31T23:59:50+01:00"),
            ("policy: policy.yaml\nstart: 2060-01-01T00:00:00Z\ntests: []", '2:8: start: "2060-01-01T00:00:00Z" is out of range; virtual time '
             "ends with 2059"),
            ("policy: policy.yaml\nquotas: { a: 3 }\ntests: []", "2:1: the policy has no quotas from a database; quotas of single clients are in "
             "its section clients"),
            ("policy: policy.yaml\ntests: [ { requests: [ { path: / } ] } ]", "2:10: tests[0]: name is missing: what the test shows"),
            ("policy: policy.yaml\ntests: [ { name: x } ]", "2:10: tests[0]: requests is missing: a list of requests, such as { path: /, expect: "
             "admitted }"),
            (head + "{ pth: / }", '5:11: tests[0].requests[0]: unknown key "pth"; did you mean "path"?'),
            (head + "{}", "5:9: tests[0].requests[0]: is empty; expected a request such as { path: /, expect: admitted }, or { wait: 1s }"),
            (head + "path", "5:9: tests[0].requests[0]: expected a request such as { path: /, expect: admitted }"),
            (head + "{ expect: admited }", "5:19: tests[0].requests[0].expect: expected admitted, rejected, or a map such as { rejected_by: LIMIT, "
             'retry_after: 3 }; did you mean "admitted"?'),
            (head + "{ expect: { remaning: 3 } }", '5:21: tests[0].requests[0].expect: unknown key "remaning"; did you mean "remaining"?'),
            (head + "{ expect: { rejected_by: gcrx } }", '5:34: tests[0].requests[0].expect.rejected_by: the policy has no limit "gcrx"; did you '
             'mean "gcra"?'),
            (head + "{ expect: { upstream: nowhere } }", '5:31: tests[0].requests[0].expect.upstream: the policy has no upstream "nowhere"; the '
             "policy has api, reports"),
            (head + "{ expect: { rule: secur } }", '5:27: tests[0].requests[0].expect.rule: the policy has no rule "secur"; did you mean "secure"?'),
            (head + "{ expect: { client: 'ip:x' } }", '5:29: tests[0].requests[0].expect.client: "ip:x" is no client: behind "ip:" stands an IPv4 '
             'or IPv6 address, or "unix"'),
            (head + "{ expect: { remaining: { gcr: 3 } } }", '5:34: tests[0].requests[0].expect.remaining: the policy has no limit "gcr"; did you '
             'mean "gcra"?'),
            (head + "{ expect: { retry_after: soon } }", '5:34: tests[0].requests[0].expect.retry_after: "soon" is not a number of seconds; '
             "expected one such as 3, a duration such as 2m, or none"),
            (head + "{ expect: { status: [ 200 ] } }", "5:29: tests[0].requests[0].expect.status: expected one value, not a list"),
            (head + "{ expect: { admitted: -1 } }", '5:31: tests[0].requests[0].expect.admitted: "-1" is out of range; expected 0 to 10000000'),
            (head + "{ expect: { delay: 3 } }", '5:28: tests[0].requests[0].expect.delay: "3" has no unit; write 3ms, 3s or 3m'),
            (head + "{ path: v1 }", '5:17: tests[0].requests[0].path: "v1" does not begin with "/"; the host has a key of its own, host'),
            (head + "{ path: '/a b' }", "5:17: tests[0].requests[0].path: contains a character that no client sends in a path; write a space as "
             "%20, and no fragment"),
            (head + "{ method: 'GE T' }", '5:19: tests[0].requests[0].method: "GE T" is not a method'),
            (head + "{ headers: { Host: x } }", '5:22: tests[0].requests[0].headers: "Host" has a key of its own, host'),
            (head + "{ headers: { 'a b': x } }", '5:22: tests[0].requests[0].headers: "a b" is not the name of a header'),
            (head + "{ headers: { Content-Length: 3 } }", '5:22: tests[0].requests[0].headers: "Content-Length" cannot be given; the length follows '
             "from json"),
            (head + "{ from: localhost }", '5:17: tests[0].requests[0].from: "localhost" is no address; expected one such as 203.0.113.7 or '
             "2001:db8::7, or unix: for a Unix socket"),
            (head + "{ client: 'ip:300.1.1.1' }", '5:19: tests[0].requests[0].client: "ip:300.1.1.1" is no client: behind "ip:" stands an IPv4 or '
             'IPv6 address, or "unix"'),
            (head + "{ path: /, repeat: 0 }", '5:28: tests[0].requests[0].repeat: "0" is out of range; expected 1 to 10000000'),
            (head + "{ path: /, every: 1s }", "5:20: tests[0].requests[0]: every is the time between repeats; it needs repeat: N"),
            (head + "{ cost: { gcra: 3 } }", '5:19: tests[0].requests[0].cost: limit "gcra" takes no cost of its own from the response; its cost '
             "has neither response_header nor usage"),
            (head + "{ path: /, repeat: 1000, every: 366d }", "5:9: tests[0].requests[0]: is later than 2059, the end of virtual time"),
            (head + "{ path: / }\n\tx", "6:1: not valid YAML: indented with a tab; use spaces")):
        done = run(rig, text)
        assert done.returncode == 1 and done.stdout == "", (text, done)
        assert done.stderr.split("\n")[0] == "test.yaml:" + message, (text, done.stderr)
    rig.write("other.yaml", PASSING)
    write(rig, head + "{ pth: / }")
    done = rig.command("test", "other.yaml", "test.yaml", "missing.yaml")
    assert done.returncode == 1 and done.stdout == "", "the good file is not run"
    assert "missing.yaml: cannot be read: No such file or directory" in done.stderr
    done = run(rig, PASSING, policy=POLICY.replace("limit: 100,", "limit: 0,"))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("policy.yaml:5:"), done


def test_exit_statuses_and_options(rig):
    assert run(rig, PASSING.replace(", upstream: api", "")).returncode == 0
    assert run(rig, PASSING).returncode == 1
    for arguments, words in (((), "name at least one file"), (("--nonsense", "x"), "unknown option"), (("-c",), "value is missing")):
        done = rig.command("test", *arguments)
        assert done.returncode == 2 and words in done.stderr, done
    done = rig.command("test", "--help")
    assert done.returncode == 0 and "--tap" in done.stdout
    os.mkdir(os.path.join(rig.directory, "below"))
    rig.write("below/policy.yaml", POLICY.replace("burst: 20", "burst: 10"))
    rig.write("below/test.yaml", PASSING.replace(", upstream: api", ""))
    assert rig.command("test", "below/test.yaml").returncode == 1, "the policy is relative to the test"
    for arguments in ["test", "-c", "policy.yaml"], ["-c", "policy.yaml", "test"], ["--config=policy.yaml", "test", "--tap"]:
        assert rig.command(*arguments, "below/test.yaml").returncode == 0, "-c takes precedence"
    done = rig.command("test", "test.yaml", "below/test.yaml")
    assert done.returncode == 1 and re.findall(r"^(\w+) +(\S+)", done.stdout, re.M)[:1] == [("FAIL", "test.yaml:4")], done


def test_certificates_of_listeners_are_not_read(rig):
    policy = ('upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\nidentity: { from: [ "certificate:cn", ip ] }\n'
              "listen: [ { address: 127.0.0.1:0, tls: { certificate: a.pem, key: a.key, client_ca: ca.pem, client_crl: ca.crl } } ]\n"
              "limits: { each: { script: gcra, limit: 1, period: 1h } }\nrules: [ { limits: [ each ] } ]\n")
    passes(rig, request("/", "admitted", client="certificate:alice"), request("/", "rejected", client="certificate:alice"),
           request("/", "admitted", client="certificate:bob"), policy=policy)
    done = rig.command("check", "-c", "policy.yaml")
    assert done.returncode == 1 and "a.pem" in done.stderr, "weir check does read them"
    rig.write("a.log", '192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1\n')
    for arguments in ["replay", "-c", "policy.yaml"], ["-c", "policy.yaml", "replay", "--quiet"]:
        assert "1 requests" in rig.command(*arguments, "a.log").stdout, arguments


def test_without_limits_no_redis_is_needed(rig):
    policy = "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\nclients: { bad: { blocked: true } }\n"
    environment = {**os.environ, "PATH": "/nonexistent"}
    write(rig, [{"name": "x", "requests": [request("/", "admitted"), request("/", {"status": 403}, client="bad")]}], policy)
    assert rig.command("test", "test.yaml", env=environment).returncode == 0


def test_without_redis_server(rig):
    """strace hides it in all directories in which weir looks for it."""
    write(rig, PASSING)
    directories = [*os.environ["PATH"].split(":"), "/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"]
    hidden = [f"--trace-path={directory}/{name}" for directory in directories for name in ("redis-server", "valkey-server")]
    done = subprocess.run(["strace", "--quiet=all", f"--output={rig.directory}/strace", *hidden, "--inject=?access,?faccessat,?faccessat2:error=ENOENT",
                           weir_program, "test", "test.yaml"], cwd=rig.directory, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == "", done
    assert ("weir test runs limits in a private Redis, but there is neither redis-server nor valkey-server; install the Debian "
            "package redis-server") in done.stderr, done


def test_tap(rig):
    tests = [{"name": "good", "requests": [request("/gcra", "admitted")]},
             {"name": 'a \\ "#1"', "requests": [request("/gcra", {"remaining": 3, "rule": "rest"})]}]
    done = run(rig, tests, "--tap")
    version, plan, good, bad, *block = done.stdout.rstrip("\n").split("\n")
    assert (version, plan, good, bad) == ("TAP version 13", "1..2", "ok 1 - good", 'not ok 2 - a \\\\ "\\#1"'), done.stdout
    assert block[0] == "  ---" and block[-2] == "  ..." and block[-1].startswith("# 1 failed; 2 requests in "), block
    found = yaml.safe_load("\n".join(line[2:] for line in block[1:-2]))
    assert found["file"] == "test.yaml" and found["failure_count"] == 2, found
    assert [(f["expected"], f["came"]) for f in found["failures"]] == [("rule: rest", "rule: /gcra"), ("remaining: 3", "remaining: 19 (limit gcra)")] \
        or [(f["expected"], f["came"]) for f in found["failures"]] == [("remaining: 3", "remaining: 19 (limit gcra)"), ("rule: rest", "rule: /gcra")]
    if shutil.which("prove"):
        done = subprocess.run(["prove", "-e", f"{weir_program} test --tap", "test.yaml"], cwd=rig.directory, text=True, capture_output=True,
                              timeout=60, check=False)
        assert "Failed test:  2" in done.stdout and "Parse errors" not in done.stdout, done


def test_json_has_the_documented_keys(rig):
    report = json.loads(run(rig, PASSING, "--json").stdout)
    with open(os.path.join(top, "docs/policy-tests.md"), encoding="utf-8") as page:
        tables = re.findall(r"^\| key \| value \|\n\|---\|---\|\n((?:\|.*\n)+)", page.read().partition("## JSON")[2], re.M)
    documented = [{name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])} for table in tables]
    test, = report["tests"]
    assert [set(report), set(test), set(test["failures"][0])] == documented, report
    assert (test["line"], test["name"], test["requests"], report["requests"]) == (4, "gcra", 21, 21)


def at_home(rig):
    """An environment in which the directory of the private Redis is that of the test."""
    environment = {**os.environ, "TMPDIR": rig.directory}
    for name in "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR":
        environment.pop(name, None)
    return environment


def private_redises(directory):
    """The processes of private Redises, whose sockets are below the directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found += [int(pid)] if f"{directory}/weir-redis-".encode() in file.read() else []
        except OSError:
            pass  # it has ended
    return found


def left(directory):
    return [name for name in os.listdir(directory) if name.startswith("weir-redis-")]


def orphans_have_ended():
    """Waits for the processes that a killed weir has left: they become children of the test."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def test_progress_on_a_terminal(rig):
    write(rig, [{"name": "long", "requests": [request("/gcra", repeat=10000000)]}])
    parent, child = pty.openpty()
    process = subprocess.Popen([weir_program, "test", "test.yaml"], cwd=rig.directory, env=at_home(rig), stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    try:
        shown = b""
        while not re.search(rb"\rtest 1 of 1, \d\d+ requests: long\x1b\[K", shown):
            shown += os.read(parent, 1000)
    finally:
        process.kill()
        process.wait()
        os.close(parent)
        eventually(orphans_have_ended, what="the end of Redis and of the guard of its directory")


def test_a_private_redis_that_fails(rig):
    write(rig, [{"name": "good", "requests": [request("/gcra", "admitted")]}, {"name": "long", "requests": [request("/gcra", repeat=10000000)]}])
    for option, words in (("--tap", "Bail out! the tests could not be run"), ("--json", '"complete":false')):
        process = subprocess.Popen([weir_program, "test", option, "test.yaml"], cwd=rig.directory, env=at_home(rig), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline()
        redis, = eventually(lambda: private_redises(rig.directory), what="a private Redis")
        os.kill(redis, signal.SIGKILL)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 1 and words in output, (output, errors)
        assert "the private Redis has failed or is full, in the test of test.yaml:1" in errors, errors


@timeout(90)
def test_nothing_is_left_behind(rig):
    write(rig, [{"name": "long", "requests": [request("/gcra", repeat=10000000)]}])
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for wanted in (left, private_redises):  # during the start of Redis, and while it works
            process = subprocess.Popen([weir_program, "test", "test.yaml"], cwd=rig.directory, env=at_home(rig), stdout=subprocess.DEVNULL,
                                       start_new_session=True)
            eventually(lambda: wanted(rig.directory), what="a private Redis")
            os.killpg(process.pid, number) if number != signal.SIGKILL else process.kill()
            assert process.wait(15) == -number
            eventually(lambda: not left(rig.directory) and not private_redises(rig.directory), what="no directory and no Redis")
    write(rig, PASSING)
    assert rig.command("test", "test.yaml", env=at_home(rig)).returncode == 1
    assert not left(rig.directory) and not private_redises(rig.directory)


def test_every_recipe_has_its_test_file(rig):
    """Its policy is the documented one, and all files are in the tarball."""
    present = set(os.listdir(TESTED)) - {"files.am"}
    for name, text in tested_files().items():
        assert name in present, f"{name} is missing: run tests/integration/recipe_book.py"
        with open(os.path.join(TESTED, name), encoding="utf-8") as file:
            assert file.read() == text, f"{name} differs from docs/recipes.md: run tests/integration/recipe_book.py"
        if name.endswith(".yaml"):
            assert name.replace(".yaml", ".test.yaml") in present, f"the recipe of {name} has no test in conf/tests"
    with open(os.path.join(TESTED, "files.am"), encoding="utf-8") as listed:
        assert set(re.findall(r"conf/tests/(\S+)", listed.read())) == present, "conf/tests/files.am lists others"


def test_the_tests_of_recipes_pass(rig):
    files = sorted(os.path.join(TESTED, name) for name in os.listdir(TESTED) if name.endswith(".test.yaml"))
    done = rig.command("test", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {os.path.join(TESTED, name) for name in re.findall(r"^ok +\S*/([^/:]+):", done.stdout, re.M)} == set(files), "each has a test"
