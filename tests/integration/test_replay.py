"""weir replay: logs in three formats, compared with a brute-force model in exact arithmetic."""

import collections
import gzip
import json
import os
import random
import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from rig import weir_program

START = 1_790_000_000_000   # Unix time in ms
POLICY = {
    "upstreams": {"api": {"servers": ["127.0.0.1:1"]}},
    "limits": {
        "each": {"script": "gcra", "limit": 2, "period": "1m", "burst": 2},
        "clock": {"script": "fixed_window", "limit": 12, "period": "1m", "align": "clock", "per": "all"},
        "log": {"script": "sliding_window_log", "limit": 4, "period": "10s"},
    },
    "rules": [
        {"match": {"path": "/both"}, "limits": ["each", "clock"]},
        {"match": {"path": "/log"}, "limits": ["log"]},
        {"limits": "none"},
    ],
}


class Gcra:
    def __init__(self, limit, period_ms, burst):
        self.interval, self.burst, self.due = Fraction(period_ms, limit), burst, {}

    def admits(self, client, now):
        return max(self.due.get(client, 0), now) + self.interval <= now + self.burst * self.interval

    def charge(self, client, now):
        self.due[client] = max(self.due.get(client, 0), now) + self.interval


class ClockWindow:
    def __init__(self, limit, period_ms):
        self.limit, self.period, self.used = limit, period_ms, collections.Counter()

    def admits(self, _client, now):
        return self.used[now // self.period] < self.limit

    def charge(self, _client, now):
        self.used[now // self.period] += 1


class Log:
    def __init__(self, limit, period_ms):
        self.limit, self.period, self.times = limit, period_ms, collections.defaultdict(list)

    def admits(self, client, now):
        return sum(now - self.period < t for t in self.times[client]) < self.limit

    def charge(self, client, now):
        self.times[client].append(now)


def run_model(requests):
    """`requests`: (ms, client, path), in order. Returns per limit how often it applied and which
    clients it rejected, and the first rejection."""
    limits = {"each": Gcra(2, 60000, 2), "clock": ClockWindow(12, 60000), "log": Log(4, 10000)}
    of_path = {"/both": ("each", "clock"), "/log": ("log",), "/free": ()}
    applied, rejected, minutes, refused = collections.Counter(), collections.defaultdict(collections.Counter), collections.Counter(), 0
    for now, client, path in requests:
        names = of_path[path]
        against = [name for name in names if not limits[name].admits(client, now)]
        applied.update(names)
        for name in against:
            rejected[name][client] += 1
            minutes[name, now // 60000] += 1
        refused += bool(against)
        for name in names if not against else ():
            limits[name].charge(client, now)
    return applied, rejected, minutes, refused


def common_line(ms, client, path, user="-", tail=""):
    zone = timezone(timedelta(hours=random.choice((-7, 0, 2))))
    when = datetime.fromtimestamp(ms // 1000, zone).strftime("%d/%b/%Y:%H:%M:%S %z")
    return f'{client} - {user} [{when}] "GET {path} HTTP/1.1" 200 12{tail}'


def json_line(ms, client, path):
    when = datetime.fromtimestamp(ms // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"
    return json.dumps({"time": when, "peer": "10.0.0.1", "method": "GET", "target": path, "host": "a.test", "client_ip": client,
                       "shadow": ["a"], "status": 200})


def shuffled_locally(lines, random_):
    """Servers log requests in the order in which they end."""
    return [line for _, line in sorted(enumerate(lines), key=lambda pair: pair[0] + random_.random() * 50)]


def replay(rig, *arguments, **more):
    rig.write("replay.yaml", json.dumps(POLICY))
    return rig.command("replay", "-c", "replay.yaml", *arguments, **more)


def report(rig, *arguments):
    done = replay(rig, "--json", "--no-suggest", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_replay_decides_like_the_exact_model(rig):
    random_ = random.Random(7)
    clients = [f"203.0.113.{i}" for i in range(8)] + ["2001:db8:0:1::5"]
    files, everything = [[], [], []], []
    now = START
    for _ in range(6000):
        now += random_.choice((0, 3, 250, 900, 4000))
        client, path, file = random_.choice(clients), random_.choice(("/both", "/log", "/log", "/free")), random_.randrange(3)
        ms = now if file == 2 else now // 1000 * 1000
        line = (common_line(ms, client, path) if file == 0 else
                common_line(ms, client, path, "a [b] c", ' "-" "x \\"y\\""') if file == 1 else json_line(ms, client, path))
        files[file].append((ms, client, path, line))
    for number, entries in enumerate(files):
        entries[:] = shuffled_locally(entries, random_)
        everything += [(ms, number, at, client, path) for at, (ms, client, path, _) in enumerate(entries)]
    rig.write("common.log", "\n".join(e[3] for e in files[0]))
    with gzip.open(os.path.join(rig.directory, "combined"), "wt") as out:
        out.write("\r\n".join(e[3] for e in files[1]))
    rig.write("weir.json", "\n".join(e[3] for e in files[2]) + "\n")
    model = [(ms, f"ip:{client}" if "." in client else "ip:2001:db8:0:1::/64", path) for ms, _, _, client, path in sorted(everything)]
    applied, rejected, minutes, refused = run_model(model)

    got = report(rig, "common.log", "combined", "weir.json")
    assert got["requests"] == 6000 and got["odd_lines"] == 0 and got["out_of_order"] == 0, got
    policy = got["policies"][0]
    assert policy["rejected"] == refused and policy["admitted"] == 6000 - refused
    assert all(rejected[name] for name in applied), "every limit of the model must reject some requests"
    for limit in policy["limits"]:
        name = limit["limit"]
        assert (limit["applied"], limit["rejected"]) == (applied[name], sum(rejected[name].values())), name
        assert {c["client"]: c["rejected"] for c in limit["top_clients"]} == dict(rejected[name]), name
        assert limit["worst_minute"]["rejected"] == max(n for (of, _), n in minutes.items() if of == name)


def test_invalid_lines_are_counted_and_located(rig):
    good = [common_line(START + 1000 * i, "192.0.2.1", "/log") for i in range(3)]
    with open(os.path.join(rig.directory, "odd.log"), "wb") as out:
        out.write(b"\n".join([good[0].encode(), b"\x00\xff\xfe", b"# a comment", b"", b"x" * 70000, good[2].encode(), b'{"level":"info"}',
                              good[1].encode(), b'192.0.2.1 - - [99/Xyz/2000:00:00:00 +0000] "GET / HTTP/1.1" 200 1',
                              common_line(START + 3000, "192.0.2.1", "/v1/../log").encode(),
                              common_line(START + 4000, "example.com", "/log").encode(),
                              json_line(START + 5000, "192.0.2.1", "/log HTTP/1.1\r\nX-Client-Id: victim\r\nA:").encode(),
                              json_line(START + 6000, "192.0.2.1", "/log HTTP/1.1\r\nHost: a\r\n\r\n").encode()]))
    got = report(rig, "odd.log")
    assert (got["lines"], got["requests"], got["odd_lines"], got["other_lines"]) == (13, 7, 3, 3), got
    assert got["first_odd"] == {"file": "odd.log", "line": 2}
    policy = got["policies"][0]
    assert (policy["admitted"], policy["invalid"]) == (3, 4), policy
    assert "dot segments" in policy["invalid_reason"] and policy["first_invalid"]["line"] == 10


def test_requests_that_enforce_lets_through_are_counted_apart(rig):
    limits = {"some": {"script": "gcra", "limit": 2, "period": "1h", "enforce": "30%"}, "all": {"script": "gcra", "limit": 2, "period": "1h", "shadow": True}}
    rig.write("replay-some.yaml", json.dumps({**POLICY, "limits": limits, "rules": [{"limits": ["some", "all"]}]}))
    rig.write("a.log", "\n".join(common_line(START + 1000 * i, f"192.0.2.{i % 100}", "/log") for i in range(500)))
    done = rig.command("replay", "-c", "replay-some.yaml", "--json", "--no-suggest", "a.log")
    [policy] = json.loads(done.stdout)["policies"]
    some, everything = policy["limits"]
    assert 0 < some["rejected"] == policy["rejected"] == 3 * some["clients"] and some["not_enforced"] > 0, policy
    assert some["rejected"] + some["not_enforced"] == 300 and all(c["rejected"] == 3 for c in some["top_clients"]), policy
    assert (everything["rejected"], everything["not_enforced"]) == (300, 0), policy
    text = rig.command("replay", "-c", "replay-some.yaml", "a.log").stdout
    assert f"shadow     {some['not_enforced']} " in text and text.count(" would reject 0.000 %, and limit 0 of 100 clients") == 2, text


def test_a_suggestion_names_clients_outside_of_enforce(rig):
    limits = {"some": {"script": "fixed_window", "limit": 50, "period": "1h", "enforce": "0.01%"}}
    rig.write("replay-some.yaml", json.dumps({**POLICY, "limits": limits, "rules": [{"limits": ["some"]}]}))
    clients = [f"192.0.2.{i}" for i in range(200)] + ["192.0.2.201"] * 300 + ["192.0.2.202"] * 200
    rig.write("a.log", "\n".join(common_line(START + i, client, "/log") for i, client in enumerate(clients)))
    done = rig.command("replay", "-c", "replay-some.yaml", "--json", "a.log")
    [limit] = json.loads(done.stdout)["policies"][0]["limits"]
    assert limit["rejected"] == 0 and limit["not_enforced"] > 0, limit
    assert limit["suggestion"]["limited_clients"] == 2, limit
    assert limit["suggestion"]["most_limited"] == ["ip:192.0.2.201", "ip:192.0.2.202"], limit
    text = rig.command("replay", "-c", "replay-some.yaml", "a.log").stdout
    assert "limit 2 of 202 clients\n               ip:192.0.2.201, ip:192.0.2.202\n" in text, text


def test_compare_two_policies(rig):
    rig.write("other.yaml", json.dumps({**POLICY, "limits": {**POLICY["limits"], "log": {"script": "sliding_window_log", "limit": 2, "period": "10s"}}}))
    rig.write("a.log", "\n".join(common_line(START + 1000 * i, "192.0.2.1", "/log") for i in range(6)))
    got = report(rig, "--compare", "other.yaml", "a.log")
    assert got["comparison"] == {"rejected_by_both": 2, "only_first": 0, "only_second": 2}
    text = replay(rig, "--compare", "other.yaml", "a.log").stdout
    assert "by replay.yaml only" in text and "first      2026-09-21 14:13:24  ip:192.0.2.1  GET /log  (a.log:5)" in text, text


def suggested(rig, requests_of, user="-"):
    """The suggestion for clients with these numbers of requests, one per second. A `user` is a template of their ids."""
    lines = [common_line(START + 60000 * client + 1000 * i, f"10.0.{client >> 8}.{client & 255}", "/log", user.format(client))
             for client, requests in enumerate(requests_of) for i in range(requests)]
    rig.write("a.log", "\n".join(lines))
    done = replay(rig, "--suggest", "--user", "--json", "a.log")
    found = next(limit for limit in json.loads(done.stdout)["policies"][0]["limits"] if limit["limit"] == "log")["suggestion"]
    assert "limit %d of %d clients" % (found["limited_clients"], found["clients"]) in replay(rig, "--suggest", "--user", "a.log").stdout
    return found


def test_a_suggested_limit_leaves_out_floods(rig):
    """300 clients with 4 requests each, and 2 floods: the smallest value that limits nobody else."""
    found = suggested(rig, [60, 50] + [4] * 298)
    assert found["value"] == 4 and found["limited_clients"] == 2 and found["clients"] == 300, found
    assert found["most_limited"] == ["ip:10.0.0.0", "ip:10.0.0.1"], found


def test_a_suggested_limit_leaves_out_floods_with_long_names(rig):
    """The report cuts these ids, and the search still counts each by its whole name."""
    found = suggested(rig, [60, 50] + [4] * 298, user="a" * 100 + "-{}")
    assert found["value"] == 4 and found["limited_clients"] == 2 and found["clients"] == 300, found


def test_a_suggested_limit_limits_one_client_in_a_hundred_at_most(rig):
    for requests_of, value in (([10, 9, 4, 4, 4], 10), ([9] * 3 + [4] * 200, 9), ([41, 4, 4], 10), ([40] + [4] * 299, 10)):
        found = suggested(rig, requests_of)  # the limit is per 10 s
        assert found["value"] == value and found["limited_clients"] == 0 and found["most_limited"] == [], (requests_of, found)


def test_rejections_that_weir_did_not_log_are_named(rig):
    lines = [{"time": "2026-09-21T14:13:2%d.000Z" % i, "peer": "192.0.2.1", "client": "ip:192.0.2.1", "method": "GET", "target": "/log",
              "status": 429, **({"left_out": 490} if i else {})} for i in range(3)]
    rig.write("a.log", "\n".join(map(json.dumps, lines)))
    assert report(rig, "a.log")["left_out"] == 980
    assert "Note: 980 rejected requests are not in the logs (log.sample)" in replay(rig, "--no-suggest", "a.log").stdout


def test_a_suggestion_names_the_burst_that_it_needs(rig):
    policy = {**POLICY, "limits": {**POLICY["limits"], "each": {"script": "gcra", "limit": 60, "period": "1m", "burst": 5}},
              "rules": [{"limits": ["each"]}]}
    lines = [common_line(START + 60000 * n + i, f"10.0.0.{client}", "/") for client in range(3) for n in range(3) for i in range(10)]
    rig.write("a.log", "\n".join(lines))
    rig.write("burst.yaml", json.dumps(policy))
    done = rig.command("replay", "-c", "burst.yaml", "--suggest", "--json", "a.log")
    found = next(limit for limit in json.loads(done.stdout)["policies"][0]["limits"] if limit["limit"] == "each")["suggestion"]
    assert found["burst"] == 10 and found["value"] > 60 and found["limited_clients"] == 0, found
    assert " and burst: 10 (now 5) per 1m " in rig.command("replay", "-c", "burst.yaml", "--suggest", "a.log").stdout


def test_the_numbers_of_a_plan_are_scaled_once(rig):
    """However many clients have it: they are scaled by the same factor as the limit."""
    policy = {**POLICY, "plans": {"gold": {"limits": {"log": {"limit": 40}}}}, "clients": {f"c-{i}": {"plan": "gold"} for i in range(3)}}
    lines = [common_line(START + 60000 * i + 10 * n, f"10.0.0.{i}", "/log", f"c-{i}") for i in range(3) for n in range(80)]
    rig.write("a.log", "\n".join(lines))
    rig.write("plans.yaml", json.dumps(policy))
    done = rig.command("replay", "-c", "plans.yaml", "--suggest", "--user", "--json", "a.log")
    found = next(limit for limit in json.loads(done.stdout)["policies"][0]["limits"] if limit["limit"] == "log")["suggestion"]
    assert found["value"] == 8 and found["limited_clients"] == 0, "twice the limit of 4, as 80 is twice 40"


def test_a_log_of_an_unknown_format_is_named(rig):
    rig.write("replay.yaml", json.dumps(POLICY))
    rig.write("a.log", "Nov 24 14:00:00 host sshd[1]: hello\nNov 24 14:00:01 host sshd[1]: hello\n")
    done = rig.command("replay", "-c", "replay.yaml", "a.log")
    assert done.returncode == 1 and done.stderr.startswith("a.log:1: this is no log that weir replay reads: common, "), done
    rig.write("b.log", "2026-11-24T14:03:35.803Z info  ready\n" + common_line(START, "192.0.2.1", "/log") + "\n")
    done = replay(rig, "--no-suggest", "b.log")
    assert "could not be parsed" not in done.stdout, "weir's own events are no odd lines"


def test_a_charge_by_status_uses_the_logged_status(rig):
    policy = {"upstreams": POLICY["upstreams"], "rules": [{"limits": ["failures"]}],
              "limits": {"failures": {"script": "fixed_window", "limit": 3, "period": "1h", "count": [401]}}}
    rig.write("status.yaml", json.dumps(policy))
    statuses = [200, 401, 200, 401, 401, 200, 401]
    rig.write("a.log", "\n".join(common_line(START + i * 1000, "192.0.2.1", "/").replace('" 200', f'" {status}')
                                 for i, status in enumerate(statuses)))
    done = rig.command("replay", "-c", "status.yaml", "--json", "--no-suggest", "a.log")
    got = json.loads(done.stdout)["policies"][0]["limits"][0]
    assert (got["applied"], got["rejected"], got["first_rejection"]["line"]) == (7, 2, 6), (got, done.stderr)


def test_a_bucket_refunds_short_charges_too(rig):
    """A charge counts for less than a second here; no time passes before its refund."""
    policy = {"upstreams": POLICY["upstreams"], "rules": [{"limits": ["failures"]}],
              "limits": {"failures": {"script": "gcra", "limit": 10, "period": "1s", "burst": 1, "count": [401]}}}
    rig.write("status.yaml", json.dumps(policy))
    rig.write("a.log", "\n".join(common_line(START, "192.0.2.1", "/") for _ in range(5)))
    done = rig.command("replay", "-c", "status.yaml", "--json", "--no-suggest", "a.log")
    got = json.loads(done.stdout)["policies"][0]["limits"][0]
    assert (got["applied"], got["rejected"]) == (5, 0), (got, done.stderr)


def test_ids_have_the_addresses_of_their_lines(rig):
    """A limit per address counts clients with ids, too, each by its address."""
    policy = {"upstreams": POLICY["upstreams"], "rules": [{"limits": ["address"]}],
              "limits": {"address": {"script": "fixed_window", "limit": 2, "period": "1h", "per": "ip"}}}
    rig.write("address.yaml", json.dumps(policy))
    rig.write("a.log", "\n".join(common_line(START, f"192.0.2.{i % 2}", "/").replace(" - - ", f" - user-{i} ") for i in range(6)))
    done = rig.command("replay", "-c", "address.yaml", "--json", "--user", "--no-suggest", "a.log")
    got = json.loads(done.stdout)["policies"][0]["limits"][0]
    assert (got["applied"], got["rejected"]) == (6, 2), (got, done.stderr)


def test_ids_that_the_database_knew_are_clients(rig):
    """The log names only ids that had a row."""
    policy = {"upstreams": POLICY["upstreams"], "identity": {"from": ["header:X-Client-Id", "ip"], "known_clients_only": True},
              "limits": {"each": {"script": "fixed_window", "limit": 1, "period": "1h"}}, "rules": [{"limits": ["each"]}],
              "quotas": {"postgres": {"connection": "postgresql://weir@127.0.0.1:1/weir", "query": "SELECT 1 WHERE $1 = $1"}}}
    rig.write("known.yaml", json.dumps(policy))
    lines = [{**json.loads(json_line(START + i, "192.0.2.1", "/")), "client": f"id:user-{i % 2}"} for i in range(3)]
    rig.write("a.log", "\n".join(json.dumps(line) for line in lines))
    done = rig.command("replay", "-c", "known.yaml", "--json", "--no-suggest", "a.log")
    limit = json.loads(done.stdout)["policies"][0]["limits"][0]
    assert [(c["client"], c["rejected"]) for c in limit["top_clients"]] == [("id:user-0", 1)], (limit, done.stderr)


def test_usage_errors_and_unreadable_files(rig):
    rig.write("replay.yaml", json.dumps(POLICY))
    for arguments, words, status in (((), "name at least one log file", 2), (("--nonsense", "x"), "unknown option", 2),
                                     (("missing.log",), "missing.log: cannot be read: No such file", 1), ((".",), "directory", 1),
                                     (("-c", "missing.yaml", "x"), "missing.yaml", 1)):
        done = rig.command("replay", "-c", "replay.yaml", *arguments)
        assert done.returncode == status and words in done.stderr, done
    with open(os.path.join(rig.directory, "cut.gz"), "wb") as out:
        out.write(gzip.compress(b"x\n" * 100000)[:100])
    done = replay(rig, "cut.gz")
    assert done.returncode == 1 and "cut.gz: cannot be read to its end: gzip failed" in done.stderr, done
    done = subprocess.run([weir_program, "replay", "-c", "replay.yaml", "-"], cwd=rig.directory, text=True, capture_output=True, timeout=60,
                          input=common_line(START, "192.0.2.1", "/log") + "\n", check=False)
    assert done.returncode == 0 and "1 requests" in done.stdout and "a log that is no file cannot be read again" in done.stdout, done
    line = common_line(START, "192.0.2.1", "/log")
    piped = f"exec '{weir_program}' replay -c replay.yaml --suggest <(echo '{line}')"
    done = subprocess.run(["bash", "-c", piped], cwd=rig.directory, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and "1 requests" in done.stdout and "a log that is no file cannot be read again" in done.stdout, done


def test_more_clients_than_fit_into_memory(rig):
    """The private Redis has 3 MB here, so some thousand clients fill it."""
    os.mkdir(os.path.join(rig.directory, "bin"))
    program = rig.write("bin/redis-server", f'#!/bin/sh\nexec {shutil.which("redis-server")} "$@" --maxmemory 3mb\n')
    os.chmod(program, 0o755)
    rig.write("replay.yaml", json.dumps(POLICY))
    rig.write("a.log", "\n".join(common_line(START + i, f"10.0.{i >> 8}.{i & 255}", "/log") for i in range(20000)))
    done = subprocess.run([weir_program, "replay", "-c", "replay.yaml", "-q", "--no-suggest", "a.log"], cwd=rig.directory, text=True,
                          capture_output=True, timeout=60, check=False, env={**os.environ, "PATH": f"{rig.directory}/bin:" + os.environ["PATH"]})
    assert done.returncode == 1 and "is full" in done.stderr and "replay fewer logs at a time" in done.stderr, done
    assert done.stdout == "", "no partial report"


def test_control_characters_from_a_log_are_escaped(rig):
    rig.write("a.log", "\n".join(common_line(START + i, "192.0.2.1", "/log?\\x1b[2J\\xc2\\x9b2J") for i in range(6)))
    done = replay(rig, "--no-suggest", "a.log")
    assert not set("\x1b\x9b") & set(done.stdout) and "2J" in done.stdout and done.returncode == 0, done.stdout
