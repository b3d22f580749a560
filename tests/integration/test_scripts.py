"""Custom limiter scripts: options, the contract that is checked before use, and errors during
use."""

import json
import os
import re
import signal
import subprocess
import time
import zoneinfo
from datetime import datetime, timedelta

from gate import Gate
from rig import children_of, eventually, free_port, time_scale, timeout, top, weir_program
from wire import Connection, get, request_bytes

LOCKOUT = os.path.join(top, "lua", "lockout.lua")
# Keeps the contract in all checks, but fails for two costs that the checks do not use.
FAILING = """return function(state, now, limit, period, burst, cost, mode)
  if cost == 123456 then error("broken on purpose") end
  if cost == 123457 then return 0.5, 0, 0, 0 end
  local used = math.max(0, tonumber(state) or 0)
  local left = math.max(0, limit - used)
  if cost > left and mode == 0 then return 0, left, cost > limit and -1 or period, used > 0 and period or 0 end
  if cost == 0 or cost > left and mode == 1 and left == 0 then
    return math.min(1, left), left, left > 0 and 0 or period, used > 0 and period or 0
  end
  if cost > left and mode == 1 then cost = left end
  used = math.max(0, used + cost)
  return cost, math.max(0, limit - used), 0, used > 0 and period or 0, string.format("%.0f", used)
end
"""


def check(rig, script, text=None, **limit):
    """Runs `weir check` on a policy with one limit of this script, and forgets whether a Redis runs."""
    path = rig.write("own.lua", text) if text else script
    rig.write("own.yaml", json.dumps({"upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, "rules": [{"limits": ["own"]}],
                                      "limits": {"own": {"script": path, "limit": 10, "period": "1m", **limit}}}, indent=1))
    result = rig.command("check", "-c", "own.yaml")
    result.stderr = "".join(line for line in result.stderr.splitlines(True) if "warning: redis 127.0.0.1:6379: " not in line)
    return result


def test_the_lockout_script_from_a_file(rig):
    rest = {"rest": 900_000_000}                        # in JSON, "15m" would be a string
    checked = check(rig, LOCKOUT, limit=3, options=rest)
    assert checked.returncode == 0 and not checked.stderr, checked
    assert re.search(r"options:\n +rest: 900000000\n", checked.stdout), checked.stdout
    weir = rig.weir(limits={"login": dict(script=LOCKOUT, limit=3, period="1m", options=rest)})
    assert [get(weir.address).status for _ in range(2)] == [200, 200]
    assert 0 < int(get(weir.address)["X-RateLimit-Reset"]) <= 900
    rejected = get(weir.address)
    assert rejected.status == 429 and 60 < int(rejected["Retry-After"]) <= 900, rejected


def test_a_lockout_lasts_for_its_rest_time(rig):
    weir = rig.weir(limits={"login": dict(script="lockout", limit=3, period="1m", options={"rest": "15m"})})
    assert [get(weir.address).status for _ in range(2)] == [200, 200]
    assert 0 < int(get(weir.address)["X-RateLimit-Reset"]) <= 900
    for _ in range(2):
        rejected = get(weir.address)
        assert rejected.status == 429 and 890 < int(rejected["Retry-After"]) <= 900, rejected


def test_options_of_every_type_are_passed_unchanged(rig):
    text = """return function(state, now, limit, period, burst, cost, mode, offset, n, d, yes, no, text, number, quoted)
  assert(n == 9007199254740991 and d == 1500000 and yes == true and no == false and text == "a b" and number == -5 and quoted == '7"\\n')
  local used = tonumber(state) or 0
  local left = limit > used and limit - used or 0
  if cost <= 0 then return cost == 0 and left < 1 and 0 or cost == 0 and 1 or cost, n % 1000, cost == 0 and left < 1 and period or 0, period end
  local granted = (left >= cost or mode == 2) and cost or mode == 1 and left or 0
  if granted == 0 then return 0, n % 1000, mode == 0 and cost > limit and -1 or period, period end
  return granted, n % 1000, 0, period, ("%d"):format(used + granted)
end"""
    options = "[ 9007199254740991, 1500ms, true, false, a b, -5, \"7\\\"\\n\" ]"
    rig.write("own.lua", text)
    policy = rig.policy(limits={}, rules=[{"limits": ["own"]}])
    del policy["limits"]
    lines = json.dumps(policy)[:-1] + f', "limits": {{ own: {{ script: ./own.lua, limit: 10, period: 1m, options: {options} }} }} }}'
    weir = rig.weir(lines)
    weir.wait_for_redis()
    assert get(weir.address)["X-RateLimit-Remaining"] == "991"
    # The output of `weir check` is the same policy again.
    rig.write("own.yaml", lines)
    printed = rig.command("check", "-c", "own.yaml").stdout
    rig.write("again.yaml", printed)
    again = rig.command("check", "-c", "again.yaml")
    assert again.returncode == 0 and again.stdout == printed, again


BROKEN = {
    # name: (body of the function, expected message)
    "raises": ('error("oh")', "raises an error: {file}:2: oh"),
    "redis": ('return redis.call("GET", "x")', "it uses redis.call"),
    "caught": ('pcall(function() redis.call("GET", "x") end) return cost, 0, 0, 0', "it uses redis.call"),
    "keys": ("return KEYS[1] and cost, 0, 0, 0", "it uses KEYS"),
    "random": ("return cost, math.random(5), 0, 0", "it uses math.random"),
    "global": ("count = 1 return cost, 0, 0, 0", "readonly table|create global"),
    "impure": ("calls = calls + 1 return cost == 0 and 1 or cost, calls, 0, 0", "it must be pure"),
    "granted": ("return cost + 1, 0, 0, 0", "granted must be"),
    "nothing": ("return", "granted must be"),
    "fraction": ("return cost == 0 and 1 or cost, 0.5, 0, 0", "remaining must be a whole number"),
    "negative": ("return cost == 0 and 1 or cost, -1, 0, 0", "remaining must be"),
    "text": ('return cost == 0 and 1 or cost, "5", 0, 0', "remaining must be"),
    "retry": ("return 0, 0, -2, 0", "granted must be the cost in mode 2|granted must equal|retry_after must be"),
    "reset": ("return cost == 0 and 1 or cost, 0, 0, -1", "reset must be"),
    "look": ('return cost == 0 and 1 or cost, 0, 0, 5, "x"', "a check changes nothing"),
    "table": ("return cost == 0 and 1 or cost, 0, 0, 5, cost ~= 0 and {} or nil", "new_state must be a string"),
    "infinite": ("return cost == 0 and 1 or cost, 0, 0, 5, cost ~= 0 and 1/0 or nil", "finite"),
    "grows": ('return cost == 0 and 1 or cost, 0, 0, 100 * period, cost ~= 0 and (state or "") .. "x" or nil', "grow without end"),
    "large": ('return cost == 0 and 1 or cost, 0, 0, 5, cost ~= 0 and ("x"):rep(70000) or nil', "below 65536 bytes"),
    "soon": ('if cost < 1 or mode > 0 then return cost == 0 and 1 or cost, 0, 0, 0 end if not state then return cost, 0, 0, period, "1" end '
             "return 0, 0, 1, period", "a check|mode 1 must|long enough"),
    "foreign": ('if state and state ~= "ours" then error("whose?") end return cost == 0 and 1 or cost, 0, 0, 5, cost ~= 0 and "ours" or nil',
                "raises an error: {file}:2: whose"),
    "mute": ("error(setmetatable({}, { __tostring = error }))", "raises an error: a table that has no text"),
    "mute value": ("return setmetatable({}, { __tostring = error })", "granted must be"),
    # The time in the state is written as 1.79e+15, and never found again.
    "never": ("""local since, used = (state or ""):match("^(%d+):(%d+)$")
  local now = now + 0.0
  if not since or now - since >= period then since, used = now, 0 end
  local left = limit - used
  if cost <= 0 then return cost == 0 and (left >= 1 and 1 or 0) or cost, left, cost == 0 and left < 1 and period or 0, period end
  local granted = (left >= cost or mode == 2) and cost or mode == 1 and left > 0 and left or 0
  if granted == 0 then return 0, left > 0 and left or 0, mode == 0 and cost > limit and -1 or period, period end
  return granted, left > granted and left - granted or 0, 0, period, since .. ":" .. (used + granted)""", "never rejects"),
    "delay": ("return cost == 0 and 1 or cost, 0, 0, 0, nil, now", "delay must be a whole number of us, up to 366 days"),
}


def test_a_contract_violation_is_reported_with_location_and_inputs(rig):
    for name, (body, expected) in BROKEN.items():
        text = f"local calls = 0 return function(state, now, limit, period, burst, cost, mode)\n  {body}\nend\n"
        result = check(rig, None, text)
        path = os.path.join(rig.directory, "own.lua")
        assert result.returncode == 1 and not result.stdout, (name, result)
        first, *rest = result.stderr.splitlines()
        assert re.match(r"own\.yaml:\d+:\d+: limits\.own\.script: \S*own\.lua breaks the contract of a limiter: ", first), (name, first)
        assert re.search(expected.replace("{file}", re.escape(path)), first), (name, first)
        assert any(line.startswith("    arguments: state ") and "limit " in line and "cost " in line for line in rest), (name, rest)


def test_a_file_that_is_not_a_limiter_is_refused(rig):
    for text, expected in ("return 5", "must return a function, but returned a number"), ("local x = 1", "returned nothing"), \
            ("retrun 1", "own.lua:1:"), ('error("at once")', "own.lua:1: at once"), ('return redis.call("PING")', "it uses redis.call"):
        result = check(rig, None, text)
        assert result.returncode == 1 and expected in result.stderr, (text, result)


@timeout(90)
def test_an_endless_script_is_refused(rig):
    """A running weir refuses it, as weir check does, and continues to serve its clients."""
    loop = "return function(state, now, limit, period, burst, cost)\n  while cost > limit do end\n  return cost == 0 and 1 or cost, 0, 0, 0\nend\n"
    weir = rig.weir(limits={"own": dict(script=LOCKOUT, limit=100_000_000, period="1h")})
    weir.expect_errors("breaks the contract", "arguments:", "see weir.yaml", "has errors")
    weir.policy["limits"]["own"]["script"] = rig.write("own.lua", loop)
    with open(weir.policy_file, "w", encoding="utf-8") as out:
        json.dump(weir.policy, out)
    weir.signal(1)
    signalled = time.monotonic()
    slowest, refused = 0, lambda: any("has errors" in message for _, message in weir.log())
    while not refused():
        began = time.monotonic()
        assert get(weir.address).status == 200
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.02)  # the trial needs CPU time
    took = time.monotonic() - signalled
    assert slowest < max(3 * time_scale, took / 3), (slowest, took)
    inputs = re.search(r"it does not end[^$]*arguments: .* limit (\d+), .* cost (\d+)", weir.output())
    assert inputs and int(inputs[2]) > int(inputs[1]), weir.output()
    assert get(weir.address).status == 200


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return sum(map(int, stat.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def check_stopped_during_trial(rig):
    """Starts `weir check` of a valid script, and stops the Redis of its trial during the trial."""
    with open(LOCKOUT, encoding="utf-8") as lockout:
        script = rig.write("slow.lua", re.sub(r"(return function\([^)]*\)\n)", r"\1  for _ = 1, 6000 do end\n", lockout.read()))
    rig.write("own.yaml", json.dumps({"upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, "rules": [{"limits": ["own"]}],
                                      "limits": {"own": {"script": script, "limit": 10, "period": "1m"}}}))
    weir = subprocess.Popen([weir_program, "check", "-c", "own.yaml"], cwd=rig.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    redis, = eventually(lambda: children_of(weir.pid, "redis-server"))
    eventually(lambda: cpu_of(redis) >= 0.05, what="the trial to run")
    os.kill(redis, signal.SIGSTOP)
    return weir, redis


@timeout(90)
def test_a_stalled_machine_does_not_fail_a_script(rig):
    """Only the CPU time of Redis counts, not its waiting time."""
    weir, redis = check_stopped_during_trial(rig)
    time.sleep(4.5)                                     # the stall
    os.kill(redis, signal.SIGCONT)
    printed, _ = weir.communicate(timeout=60)
    assert weir.returncode == 0 and "breaks the contract" not in printed, printed


@timeout(90)
def test_a_script_whose_end_was_not_observed_is_refused(rig):
    """If the machine gives the trial too little CPU time. The message contains that CPU time."""
    weir, _ = check_stopped_during_trial(rig)
    printed, _ = weir.communicate(timeout=60)
    assert weir.returncode == 1 and re.search(r"does not end, .* had not replied after 0\.\d s of CPU time in \d+\.\d s", printed), printed


def left(weir, client):
    """What the client has left, by limit."""
    return {row["limit"]: row.get("remaining") for row in json.loads(get(weir.admin, "/api/v1/clients/" + client).body)["limits"]}


def script_errors(weir):
    return [message for level, message in weir.log() if level == "error" and "its script fails" in message]


def test_a_failing_script_affects_only_its_own_requests(rig):
    """All requests are sent at once, so that they share calls."""
    limits = {"own": dict(script=rig.write("failing.lua", FAILING), limit=100_000_000, period="1h", on_failure="deny"),
              "strict": dict(script="gcra", limit=30, period="1h")}
    rules = [{"match": {"path": "/raises"}, "limits": ["own"], "cost": 123456}, {"match": {"path": "/shape"}, "limits": ["own"], "cost": 123457},
             {"match": {"path": "/good"}, "limits": ["own"]}, {"match": {"path": "/strict"}, "limits": ["strict"]}]
    weir = rig.weir(workers=1, limits=limits, rules=rules)
    weir.expect_errors("its script fails")
    for cause in "failed", "late":
        assert weir.metric("weir_script_failures_total", limit="own", cause=cause) == 0
    connections = [Connection(weir.address) for _ in range(60)]
    paths = ["/raises", "/good", "/strict"] * 20
    for connection, path in zip(connections, paths):
        connection.send(request_bytes(path))
    statuses = {path: [] for path in paths}
    for connection, path in zip(connections, paths):
        statuses[path].append(connection.response().status)
        connection.close()
    assert statuses == {"/raises": [503] * 20, "/good": [200] * 20, "/strict": [200] * 20}, statuses
    assert get(weir.address, "/shape").status == 503
    weir.counts(21, "weir_script_failures_total", limit="own", cause="failed")
    assert weir.metric("weir_script_failures_total", limit="strict") is None
    expected = eventually(lambda: script_errors(weir), what="the log line")
    assert len(expected) == 1 and re.search(r"limit own: its script fails: \S*failing\.lua:2: broken on purpose", expected[0]), expected


def test_limits_beside_a_failing_script_stay_exact(rig):
    script = rig.write("failing.lua", FAILING)
    limits = {"own": dict(script=script, limit=100_000_000, period="1h", on_failure="allow"),
              "exact": dict(script="fixed_window", limit=123456 * 3, period="1h")}
    weir = rig.weir(workers=2, limits=limits, rules=[{"limits": ["own", "exact"], "cost": 123456}])
    weir.expect_errors("its script fails")
    answers = [get(weir.address) for _ in range(5)]
    assert [a.status for a in answers] == [200, 200, 200, 429, 429], answers
    assert answers[3]["Retry-After"] and '"exact"' in answers[3]["RateLimit"] and '"own"' not in answers[3]["RateLimit"]
    weir.counts(3, "weir_limit_decisions_total", limit="exact", decision="allowed")
    eventually(lambda: weir.metric("weir_limit_decisions_total", limit="own", decision="failed_open") >= 3)


def test_a_charge_without_redis_is_not_refunded_with_the_others(rig):
    limits = {"own": dict(script=rig.write("failing.lua", FAILING), limit=100_000_000, period="1h", on_failure="local"),
              "exact": dict(script="fixed_window", limit=123456 * 3, period="1h")}
    weir = rig.weir(workers=1, limits=limits, upstreams={"away": {"servers": [f"127.0.0.1:{free_port()}"]}},
                    rules=[{"limits": ["own", "exact"], "cost": 123456}])
    weir.expect_errors("its script fails", "upstream away")
    answers = [get(weir.address) for _ in range(4)]
    assert [a.status for a in answers] == [502] * 4, "exact is refunded"
    weir.counts(4, "weir_request_duration_seconds_count")
    client, = json.loads(get(weir.admin, "/api/v1/top?by=cost", host="127.0.0.1").body)["clients"]
    assert client["at_least"] == 4 * 123456, "own stays charged in this process"


def test_concurrency_slots_are_freed_if_another_script_fails(rig):
    script = rig.write("failing.lua", FAILING)
    for on_failure, statuses in ("allow", [200] * 4), ("local", [200] * 4), ("deny", [503] * 4):
        weir = rig.weir(limits={"own": dict(script=script, limit=100_000_000, period="1h", on_failure=on_failure),
                                "flight": dict(script="concurrency", limit=1)}, rules=[{"limits": ["flight", "own"], "cost": 123456}])
        weir.expect_errors("its script fails")
        with Connection(weir.address) as connection:
            assert [connection.request(headers=[("X-Client-Id", on_failure)]).status for _ in range(4)] == statuses, on_failure


def test_limits_beside_a_failing_one_that_costs_nothing_are_charged_once(rig):
    """The rule costs nothing, but a limit has a cost of its own, and one counts requests in progress."""
    script = rig.write("failing.lua", FAILING.replace("cost == 123456", "now > 1.6e15 and limit == 777"))
    gate = Gate(rig)
    for on_failure, status in ("allow", 200), ("local", 200), ("deny", 503):
        weir = rig.weir(workers=1, limits={"own": dict(script=script, limit=100_000_000, period="1h", on_failure=on_failure),
                                           "tokens": dict(script="fixed_window", limit=100, period="10d", cost={"reserve": 10, "response_header": "X-Cost"}),
                                           "flight": dict(script="concurrency", limit=3)},
                        clients={on_failure: {"limits": {"own": {"limit": 777}}}}, upstreams=gate.upstreams,
                        rules=[{"match": {"path": "/wait"}, "limits": ["own", "flight"], "cost": 0}, {"limits": ["own", "tokens", "flight"], "cost": 0}])
        weir.expect_errors("its script fails")
        client = [("X-Client-Id", on_failure)]
        gate.open.set()
        for n in range(1, 4):
            assert get(weir.address, headers=client).status == status
            eventually(lambda: left(weir, on_failure)["tokens"] == (100 if status == 503 else 100 - 10 * n))  # noqa: B023
        gate.open.clear()
        connections = [Connection(weir.address) for _ in range(3 if status == 200 else 0)]
        for n, connection in enumerate(connections):
            connection.send(request_bytes("/wait", headers=client))
            eventually(lambda: left(weir, on_failure)["flight"] == 2 - n)  # noqa: B023
        gate.open.set()
        for connection in connections:
            assert connection.response().status == 200
            connection.close()
        eventually(lambda: left(weir, on_failure)["flight"] == 3)  # noqa: B023


def test_a_failing_limit_beside_one_that_is_used_up_but_costs_nothing(rig):
    script = rig.write("failing.lua", FAILING)
    weir = rig.weir(limits={"used": dict(script="fixed_window", limit=1, period="10d"),
                            "own": dict(script=script, limit=100_000_000, period="10d", on_failure="deny", cost={"reserve": 123456, "response_header": "X-Cost"})},
                    rules=[{"match": {"path": "/use"}, "limits": ["used"]}, {"limits": ["used", "own"], "cost": 0}])
    weir.expect_errors("its script fails")
    assert [get(weir.address, path).status for path in ("/use", "/use", "/")] == [200, 429, 503]


def test_a_shadow_limit_with_a_failing_script_changes_nothing(rig):
    script = rig.write("failing.lua", FAILING)
    limits = {"own": dict(script=script, limit=100_000_000, period="1h", shadow=True, on_failure="deny"),
              "exact": dict(script="fixed_window", limit=123456, period="1h")}
    weir = rig.weir(limits=limits, rules=[{"limits": ["own", "exact"], "cost": 123456}])
    weir.expect_errors("its script fails")
    assert [get(weir.address).status for _ in range(2)] == [200, 429]
    weir.counts(2, "weir_limit_decisions_total", limit="own", decision="failed_open")


def test_shipped_limiters_keep_the_contract(rig):
    for name, more in {"token_bucket": {"burst": 7}, "gcra": {}, "leaky_bucket": {}, "fixed_window": {"align": "clock", "offset": "5s"}, "rolling_window": {"options": [10]},
                       "sliding_window_log": {}, "sliding_window_counter": {}, "lockout": {"options": {"rest": 900_000_000}}}.items():
        result = check(rig, os.path.join(top, "lua", name + ".lua"), **more)
        assert result.returncode == 0 and not result.stderr, result


def test_inspect_shows_which_script_fails(rig):
    text = FAILING.replace("cost == 123456", "now > 1.6e15 and limit == 777 and cost == 0")
    # It passes the checks with the numbers of the policy, and fails with those of the client.
    weir = rig.weir(limits={"own": dict(script=rig.write("failing.lua", text), limit=1_000_000_000, period="1h"), "other": dict(script="gcra", limit=5, period="1h")},
                    clients={"odd": {"quota": 777}})
    looked = rig.command("inspect", "-c", weir.policy_file, "odd")
    assert looked.returncode == 0 and re.search(r"own .*\? \(its script fails\)", looked.stdout) and re.search(r"other .*777 of 777", looked.stdout), looked
    rows = json.loads(get(weir.admin, "/api/v1/clients/odd").body)["limits"]
    assert {row["limit"]: row.get("script_fails") for row in rows} == {"own": True, "other": None}, rows


def test_a_calendar_month_in_a_time_zone(rig):
    zone = zoneinfo.ZoneInfo("America/New_York")
    weir = rig.weir(limits={"monthly": dict(script="fixed_window", limit=2, period="month", offset="8h", time_zone="America/New_York")})
    answer = get(weir.address)
    now = datetime.now(zone)
    first = (now - timedelta(hours=8)).replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1, hour=8, minute=0, second=0, microsecond=0)
    left = after.timestamp() - time.time()
    assert abs(int(answer["X-RateLimit-Reset"]) - left) < 5, (answer["X-RateLimit-Reset"], left)
    assert answer["RateLimit-Policy"] == '"monthly";q=2;w=2678400'
    assert get(weir.address).status == 200
    rejected = get(weir.address)
    assert rejected.status == 429 and abs(int(rejected["Retry-After"]) - left) < 5


def test_a_calendar_month_without_redis(rig):
    weir = rig.weir(limits={"monthly": dict(script="fixed_window", limit=2, period="month", time_zone="Europe/Berlin", on_failure="local")},
                    redis={"address": "127.0.0.1:1"}, wait="listening")
    weir.expect_errors("redis")
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    after = (datetime.now(zone).replace(day=1) + timedelta(days=31)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    answers = [get(weir.address) for _ in range(3)]
    assert [a.status for a in answers] == [200, 200, 429]
    assert abs(int(answers[2]["Retry-After"]) - (after.timestamp() - time.time())) < 5


def decided_in_one_call(weir, count):
    """The responses to requests that weir, which is stopped meanwhile, reads at once."""
    connections = [Connection(weir.address) for _ in range(count)]
    weir.signal(signal.SIGSTOP)
    for connection in connections:
        connection.send(request_bytes("/"))
    weir.signal(signal.SIGCONT)
    answers = [connection.response() for connection in connections]
    for connection in connections:
        connection.close()
    return answers


def test_charges_of_a_failing_limit_are_returned_if_another_rejects(rig):
    """The process counts the limit whose script fails. All 20 requests fit into it, but Redis then rejects 18."""
    limits = {"own": dict(script=rig.write("failing.lua", FAILING), limit=123456 * 20, period="10d", per="all", on_failure="local"),
              "exact": dict(script="fixed_window", limit=123456 * 2, period="10d")}
    weir = rig.weir(workers=1, limits=limits, rules=[{"limits": ["own", "exact"], "cost": 123456}])
    weir.expect_errors("its script fails")
    answers = decided_in_one_call(weir, 20)
    assert sorted(answer.status for answer in answers) == [200] * 2 + [429] * 18
    others = [get(weir.address, headers=[("X-Client-Id", f"c{i // 2}")]) for i in range(20)]
    assert [answer.status for answer in others] == [200] * 18 + [429] * 2, others
    assert '"own";r=0' in others[17]["RateLimit"] and '"own"' in others[18]["RateLimit"], others[17:]
    weir.counts(20, "weir_limit_decisions_total", limit="own", decision="allowed")
    weir.counts(20, "weir_limit_decisions_total", limit="exact", decision="allowed")


def test_a_failing_limit_is_not_counted_as_allowed_if_another_rejects(rig):
    script = rig.write("failing.lua", FAILING)
    limits = {"own": dict(script=script, limit=100_000_000, period="1h", on_failure="local"),
              "exact": dict(script="fixed_window", limit=123456 * 2, period="1h")}
    weir = rig.weir(workers=1, limits=limits, rules=[{"limits": ["own", "exact"], "cost": 123456}])
    weir.expect_errors("its script fails")
    assert sorted(answer.status for answer in decided_in_one_call(weir, 20)) == [200] * 2 + [429] * 18
    weir.counts(2, "weir_limit_decisions_total", limit="exact", decision="allowed")
    weir.counts(18, "weir_limit_decisions_total", limit="exact", decision="limited")
    weir.counts(2, "weir_limit_decisions_total", limit="own", decision="allowed")
    assert weir.metric("weir_limit_decisions_total", limit="own", decision="not_charged"), "for requests in the same call"
