"""Priorities: requests of a lower priority leave a reserve of every shared limit to higher ones."""

import json
import re
import threading
import time

from gate import Gate, concurrency, send_request
from leasing import no_units_are_held, send_pipelined, units
from rig import eventually, text_of, timeout
from topology import Cluster
from wire import Connection, count, flood, get, request_bytes

SCRIPTS = ("token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log", "sliding_window_counter",
           "gcra", "lockout")
SHARES = {"critical": "100%", "normal": "80%", "batch": "50%"}
RULES = [{"match": {"path": "/critical"}, "limits": ["shared"], "priority": "critical"},
         {"match": {"path": "/batch"}, "limits": ["shared"], "priority": "batch"},
         {"limits": ["shared"], "priority": "normal"}]


def shared(script="fixed_window", limit=100, **more):
    return {"shared": dict(script=script, limit=limit, period="20d", per="all", **more)}


def admitted(weirs, path, total, connections=16):
    return count(flood([weir.address for weir in weirs], total, connections=connections, target=path)).get(200, 0)


def each_priority_gets_exactly_its_share(script):
    @timeout(60)
    def test(rig):
        weirs = [rig.weir(workers=2, priorities=SHARES, limits=shared(script), rules=RULES) for _ in range(2)]
        first = get(weirs[0].address, "/batch")
        assert (first.status, first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]) == (200, "50", "49"), first
        assert admitted(weirs, "/batch", 200) == 49
        denied = get(weirs[0].address, "/batch")
        assert (denied.status, denied["X-RateLimit-Limit"], denied["X-RateLimit-Remaining"]) == (429, "50", "0"), denied
        assert denied.number("Retry-After") > 0
        assert admitted(weirs, "/", 200) == 30
        assert admitted(weirs, "/batch", 20) == 0
        last = get(weirs[0].address, "/critical")
        assert (last.status, last["X-RateLimit-Limit"], last["X-RateLimit-Remaining"]) == (200, "100", "19"), last
        assert admitted(weirs, "/critical", 200) == 19
    return test


for name in SCRIPTS:
    globals()[f"test_each_priority_gets_exactly_its_share_{name}"] = each_priority_gets_exactly_its_share(name)


@timeout(60)
def test_the_reserve_stays_while_batch_jobs_flood(rig):
    """Both at once, over two weirs: never more than the limit, and never more than its share for batch jobs."""
    for script in "gcra", "sliding_window_counter", "rolling_window":
        prefix = f"weir-{script}"
        weirs = [rig.weir(workers=2, redis={"key_prefix": prefix}, priorities=SHARES, limits=shared(script, 200), rules=RULES)
                 for _ in range(2)]
        of = {}

        def send(path, of=of, weirs=weirs):
            of[path] = admitted(weirs, path, 300)
        threads = [threading.Thread(target=send, args=(path,)) for path in ("/batch", "/critical", "/")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(of.values()) == 200, of
        assert of["/batch"] <= 100 and of["/batch"] + of["/"] <= 160 and of["/critical"] >= 40, of


def test_requests_in_flight(rig):
    gate = Gate(rig)
    limits = {"shared": concurrency(8, per="all")}
    weirs = [rig.weir(workers=2, priorities=SHARES, limits=limits, rules=RULES, upstreams=gate.upstreams) for _ in range(2)]

    held = []
    for path, most in ("/batch", 4), ("/", 2), ("/batch", 0), ("/critical", 2):
        for number in range(most):
            held.append(send_request(weirs[number % 2], path))
            eventually(lambda: gate.total == len(held), what=f"{path} to be admitted")
        for weir in weirs:
            answer = get(weir.address, path)
            assert (answer.status, answer["Retry-After"]) == (429, "1"), (path, answer)
    assert gate.now == 8
    gate.open.set()


def test_a_queue_delays_lower_priorities_less(rig):
    """One per 50 s. Batch jobs take at most half of the burst, or wait at most half of max_delay."""
    for burst, delay in (20, "1000s"), (100, "1000s"), (20, "10000s"):
        limits = {"shared": dict(script="leaky_bucket", limit=burst, period=f"{50 * burst}s", burst=burst, max_delay=delay, per="all")}
        weir = rig.weir(workers=1, redis={"key_prefix": f"{burst}-{delay}"}, priorities=SHARES, limits=limits, rules=RULES)
        assert get(weir.address, "/batch").status == 200, "the first one passes at once"
        least = 10 if burst == 100 else 9
        held = [Connection(weir.address).send(request_bytes("/batch")) for _ in range(least)]
        weir.counts(least, "weir_requests_held")
        answer = get(weir.address, "/batch")
        assert answer.status == 429 and 0 < answer.number("Retry-After") <= 50, answer
        assert 0 < int(re.search(r";t=(\d+)", answer["RateLimit"])[1]) <= 50, answer
        held.append(Connection(weir.address).send(request_bytes("/critical")))
        weir.counts(least + 1, "weir_requests_held")
        for c in held:
            c.close()


def test_costs_and_best_effort(rig):
    limits = {**shared("gcra"), "other": dict(script="gcra", limit=1000, period="20d")}
    rules = [{"match": {"path": "/batch"}, "limits": ["other", "shared"], "cost": 30, "priority": "batch"},
             {"match": {"path": "/rest"}, "limits": ["shared"], "cost": 30, "priority": "batch", "best_effort": True},
             {"match": {"path": "/large"}, "limits": ["shared"], "cost": 51, "priority": "batch"},
             {"limits": ["shared"], "priority": "critical"}]
    weir = rig.weir(workers=1, priorities=SHARES, limits=limits, rules=rules)
    weir.expect_errors("always rejected")
    large = get(weir.address, "/large")
    assert large.status == 429 and large["Retry-After"] is None, "more than the whole share"
    assert get(weir.address, "/batch").status == 200
    denied = get(weir.address, "/batch")
    assert denied.status == 429 and 0 < denied.number("Retry-After") <= 10 * 17280, denied
    other = [part.strip() for part in denied["RateLimit"].split(",") if '"other"' in part][0]
    assert "r=970" in other, "a rejected request charges no limit"
    rest = get(weir.address, "/rest")
    assert rest.status == 200 and rest["X-RateLimit-Remaining"] == "0", rest
    assert get(weir.address, "/rest").status == 429
    assert get(weir.address, "/")["X-RateLimit-Remaining"] == "49"


def test_an_automatic_reserve_is_at_most_the_share(rig):
    limits = shared("token_bucket", cost={"reserve": "auto", "max": 1000, "usage": "openai"})
    weir = rig.weir(workers=1, priorities=SHARES, limits=limits, rules=RULES)
    answer = get(weir.address, "/batch", method="POST", body=b"x" * 2000)
    assert (answer.status, answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == (200, "50", "0"), answer
    assert get(weir.address, "/critical", method="POST", body=b"x" * 40)["X-RateLimit-Remaining"] == "40"


def test_explained(rig):
    """weir explain names the priority, and knows its share."""
    weir = rig.weir(workers=1, priorities=SHARES, limits=shared(limit=10), rules=RULES)

    def explain(path):
        done = rig.command("explain", "-c", weir.policy_file, "--state", "--json", f"http://api.test{path}")
        told = json.loads(done.stdout)
        return done.returncode, told["client_limits"]["priority"], told["limits"][0]["reserve"]
    assert count(flood(weir.address, 8, connections=1, target="/batch")) == {200: 5, 429: 3}
    assert explain("/batch") == (3, "batch", 5)
    assert explain("/critical") == (0, "critical", 0)


def test_custom_scripts(rig):
    path = rig.write("own.lua", """
return function(state, now, limit, period, burst, cost, mode)
  local used = tonumber(state) or 0
  local granted = cost
  if cost == 0 then granted = used < limit and 1 or 0
  elseif cost > 0 and mode == 1 then granted = math.max(0, math.min(cost, limit - used))
  elseif cost > 0 and mode == 0 and used + cost > limit then granted = 0 end
  if cost ~= 0 then used = math.max(0, used + granted) end
  return granted, math.max(0, limit - used), granted ~= 0 and 0 or mode == 0 and cost > limit and -1 or period, used > 0 and period or 0,
         granted ~= 0 and cost ~= 0 and used or nil
end
""")
    weirs = [rig.weir(workers=2, priorities=SHARES, limits=shared(path), rules=RULES) for _ in range(2)]
    assert admitted(weirs, "/batch", 100) == 50
    assert admitted(weirs, "/", 100) == 30
    assert admitted(weirs, "/critical", 100) == 20


def test_denials_and_limits_per_client_know_no_other_priority(rig):
    limits = {**shared(limit=10), "own": dict(script="gcra", limit=4, period="20d")}
    weir = rig.weir(workers=1, priorities=SHARES, limits=limits,
                    rules=[{**rule, "limits": ["own"] if rule.get("priority") == "normal" else ["shared"]} for rule in RULES])
    weir.expect_errors("has no effect")
    assert [get(weir.address, "/batch").status for _ in range(5)] == [200] * 5
    began = time.monotonic()
    assert [get(weir.address, "/batch").status for _ in range(3)] == [429] * 3
    is_late = time.monotonic() - began > 1  # for as long a denial is cached
    assert weir.metric("weir_remembered_denials_total") == 2 or is_late, "a denial is cached for its priority"
    assert [get(weir.address, "/critical").status for _ in range(6)] == [200] * 5 + [429]
    assert [get(weir.address, "/").status for _ in range(5)] == [200] * 4 + [429], "the whole limit of each client"


def test_plans_and_clients_take_precedence(rig):
    weir = rig.weir(workers=1, priorities=SHARES, limits=shared(limit=10), rules=RULES, plans={"gold": {"priority": "critical"}},
                    clients={"rich": {"plan": "gold"}, "poor": {"plan": "gold", "priority": "batch"}}, log={"access": "json"})
    limit = {client: get(weir.address, path, headers={"X-Client-Id": client})["X-RateLimit-Limit"]
             for client, path in [("rich", "/batch"), ("poor", "/critical"), ("other", "/batch"), ("any", "/")]}
    assert limit == {"rich": "10", "poor": "5", "other": "5", "any": "8"}

    def lines():
        found = [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")]
        return len(found) == 4 and found
    assert [line["priority"] for line in eventually(lines)] == ["critical", "batch", "batch", "normal"]
    weir.counts(2, "weir_priority_requests_total", priority="batch", decision="allowed")
    weir.counts(1, "weir_priority_requests_total", priority="critical", decision="allowed")
    screen = rig.command("top", "--once", text_of(weir.admin)).stdout
    assert re.search(r"^PRIORITIES .*\ncritical .* 1\nnormal .* 1\nbatch .* 2$", screen, re.M), screen


def test_rules_without_a_priority_have_the_default(rig):
    for shares, limit in ({"high": "100%", "default": "60%", "low": "10%"}, "6"), ({"high": "100%", "low": "10%"}, "10"):
        weir = rig.weir(workers=1, priorities=shares, limits=shared(limit=10))
        assert get(weir.address)["X-RateLimit-Limit"] == limit, shares


def test_shares_hold_without_redis(rig):
    limits = {name: dict(script=script, limit=20, period="20d", per="all")
              for name, script in [("g", "gcra"), ("w", "fixed_window")]}
    rules = [{"match": {"path": f"/{limit}/{priority}"}, "limits": [limit], "priority": priority}
             for limit in limits for priority in SHARES]
    weir = rig.weir(workers=2, redis={"on_failure": "local"}, priorities=SHARES, limits=limits, rules=rules)
    rig.redis().kill()
    weir.expect_errors("Redis")
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0, what="the outage")
    for limit in limits:
        answer = get(weir.address, f"/{limit}/batch")
        assert (answer.status, answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == (200, "10", "9"), answer
        assert [admitted([weir], f"/{limit}/{priority}", 30) for priority in ("batch", "normal", "critical")] == [9, 6, 4]


@timeout(60)
def test_shares_in_a_cluster(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {**shared("gcra", 40), "own": dict(script="fixed_window", limit=1000, period="20d")}
    rules = [{**rule, "limits": ["own", "shared"]} for rule in RULES]
    weir = rig.weir(redis=cluster.policy(), priorities=SHARES, limits=limits, rules=rules).wait_for_redis()
    for path, most in ("/batch", 20), ("/", 12), ("/critical", 8):
        answers = flood(weir.address, 60, connections=8, target=path, headers={"X-Client-Id": "a"})
        assert count(answers).get(200) == most, path
    weir.counts(20, "weir_priority_requests_total", priority="batch", decision="allowed")
    weir.counts(40, "weir_priority_requests_total", priority="batch", decision="limited")


def assert_rest(weirs, path, rest):
    """Exactly `rest` more requests are admitted, some of them after another worker has given back what it held."""
    total = 0

    def at_rest():
        nonlocal total
        total += admitted(weirs, path, rest - total + 20)
        return total >= rest
    eventually(at_rest, what=f"{rest} admissions of {path}")
    no_units_are_held(weirs)
    assert (total, admitted(weirs, path, 20)) == (rest, 0)


@timeout(120)
def test_leases_of_two_weirs_leave_the_reserve(rig):
    """Both priorities are busy enough for leases. Held units can be missing for a moment, and are given back."""
    weirs = [rig.weir(workers=2, priorities=SHARES, limits=shared("gcra", 2000, lease=20), rules=RULES) for _ in range(2)]
    of = {}

    def send(target, total):
        of[target] = of.get(target, 0) + sum(r.status == 200 for r in send_pipelined(weirs, total, target=target, headers={}))
    threads = [threading.Thread(target=send, args=("/batch", 1500)), threading.Thread(target=send, args=("/critical", 700))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert of["/batch"] <= 1000 and of["/critical"] == 700, of
    no_units_are_held(weirs)
    rest = max(0, 1000 - sum(of.values()))
    assert_rest(weirs, "/batch", rest)
    assert_rest(weirs, "/critical", 2000 - sum(of.values()) - rest)


@timeout(120)
def test_leases_belong_to_a_priority(rig):
    """Batch jobs that are busy enough for leases end at exactly their share, and take nothing of the reserve."""
    weir = rig.weir(workers=1, priorities=SHARES, limits=shared("gcra", 2000, lease=50), rules=RULES)
    batch = 0
    while batch < 1000:
        more = sum(r.status == 200 for r in send_pipelined([weir], 200, connections=4, target="/batch", headers={}))
        batch += more
        if not more:
            break
    assert batch == 1000, batch
    assert units([weir], "used") > 0, "leases were used"
    critical = sum(r.status == 200 for r in send_pipelined([weir], 1500, connections=4, target="/critical", headers={}))
    assert critical == 1000, critical
