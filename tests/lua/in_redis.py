#!/usr/bin/env python3
"""Compares the limiters in a real Redis, run by the standalone script and by the driver, with the
same files in plain Lua.

tests/lua/in_redis.py [WEIR]

Starts its own redis-server. WEIR, a weir binary: checks its `script NAME` as well.

Exit status 0: passed, 1: failed, 77: redis-server or lua5.1 is missing.
Environment: LUADIR (default: lua/ of this tree); WEIR, if the argument is missing; SEED."""
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from math import floor

from checks import HERE, LUADIR, SEED, check, summary

NAMES = ["token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log", "sliding_window_counter", "gcra", "lockout", "concurrency"]
START = 1_790_000_000_000_000
SLOT_MS = 4_195  # a state may expire up to two slots later than necessary
MARGIN_MS = 3_600_000  # added to an expiry if the caller passes the time

EARLIER = os.path.join(HERE, "format-1")  # the earlier driver, whose states have no version


def text(name, directory=LUADIR):
    with open(os.path.join(directory, name + ".lua")) as file:
        return file.read()


MULDIV = f"local muldiv = (function(...) {text('muldiv')}\nend)()\n"


class Redis:
    """A redis-server on a Unix socket in its own directory, and one connection to it."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="weir-lua-")
        path = os.path.join(self.directory, "redis.sock")
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", self.directory],
            stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(path)
                self.file = self.socket.makefile("rb")
                if self.call("PING") == "PONG":
                    return
            except (OSError, RuntimeError):
                self.socket.close()
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("redis-server did not start")
            time.sleep(0.02)

    def stop(self):
        self.file.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def call(self, *args):
        parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line:
            raise OSError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        size = int(rest)
        return None if size < 0 else self.file.read(size + 2)[:-2]


# Computes the results in plain Lua: one output line for each call, all calls on one state.
PLAIN = """
local muldiv = io.open(arg[2]) and dofile(arg[2])            -- in format-1 each limiter file contains it
local limiter, state = assert(loadfile(arg[1]))(muldiv), nil
for line in io.lines() do
  local n = {}
  for word in line:gmatch("%S+") do n[#n + 1] = tonumber(word) or false end
  local granted, remaining, retry_after, reset, new_state, delay =
    limiter(state, n[1], n[2], n[3], n[4], n[5], n[6], n[7] or nil, n[8] or nil)
  if type(new_state) == "number" then new_state = ("%.17g"):format(new_state) end
  if new_state then state = reset > 0 and new_state or nil end
  print(("%.0f %.0f %.0f %.0f %s %d"):format(granted, remaining, retry_after, reset, delay and ("%.0f"):format(delay) or "-", new_state and 1 or 0))
end
"""


def plain(name, calls, plain_file):
    lines = "\n".join(" ".join("-" if n is None else str(n) for n in call) for call in calls) + "\n"
    run = subprocess.run(["lua5.1", plain_file, os.path.join(LUADIR, name + ".lua"), os.path.join(LUADIR, "muldiv.lua")], input=lines, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    return [[None if word == "-" else int(word) for word in line.split()] for line in run.stdout.splitlines()]


def schedule(name, length):
    """Calls (now, limit, period, burst, cost, mode, offset, option) with numbers of every size."""
    limit = random.choice([1, 3, 7, 100, 999_983, 5_000_000])
    if name in ("rolling_window", "sliding_window_log"):
        limit = min(limit, 100)
    period = random.choice([1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 2_592_000_000_000])
    burst = limit if "window" in name else random.choice([limit, max(1, limit // 2), limit * 3])
    offset = random.randrange(period) if name in ("fixed_window", "sliding_window_counter") and random.random() < 0.5 else None
    option = {"rolling_window": 10, "leaky_bucket": random.choice([None, period]), "lockout": 3 * period}.get(name)
    now, calls, holders = START + random.randrange(10**9), [], [random.randrange(1, 2**48) for _ in range(3)]
    for _ in range(length):
        now += random.choice([0, 0, 1, period // limit // 2, period // limit, period // 3, random.randrange(2 * period)])
        cost = random.choice([1, 1, 1, max(1, limit // 3), limit, burst, burst + 1, 0, -1])
        mode = random.choice([0, 0, 0, 1, 2])
        if cost < 0:  # refund of an earlier charge, of no charge, or of the newest
            mode = random.choice([calls[-1][0] if calls else now, now - period // 3, now + period // limit, 0])
        if name == "concurrency":
            burst, mode = random.choice(holders), 0 if cost < 0 else random.choice([0, 0, 1, 3])
        calls.append((now, limit, period, burst, cost, mode, offset, option))
    return calls


def ttl(redis, key, reset, margin, *what):
    left = redis.call("PTTL", key)
    check(-5000 <= left - (-(-reset // 1000) + margin) <= 2 * SLOT_MS, *what, f"expires in {left} ms, reset {reset} µs")


def standalone_script(name):
    return f"local exact = false\n{MULDIV}local limiter = (function(...) {text(name)}\nend)(muldiv)\n" + text("standalone")


def driver_script(limits, directory=LUADIR):
    """The script that weir composes for a list of (limiter, period, offset, option), with all
    features; of the current version or of format-1."""
    first_form = directory == EARLIER
    lines = ["local limiter, numbers = {}, {}", "" if first_form else MULDIV]
    lines += [f'limiter["{name}"] = (function(...) {text(name, directory)}\nend)({"numbers" if first_form else "muldiv, numbers"})'
              for name in sorted({limit[0] for limit in limits})]
    lines.append("local limits = {")
    for i, (name, period, offset, option) in enumerate(limits):
        options = "" if option is None else f", options = {{ {option} }}"
        lines.append(f'  ["{i + 1}"] = {{ run = limiter["{name}"], period = {period}, '
                     f'offset = {"nil" if offset is None else offset}{options} }},')
    return "\n".join(lines) + "\n}\n" + text("driver", directory)


def same_everywhere(redis, name, plain_file, scripts):
    calls = schedule(name, 60)
    _, _, period, _, _, _, offset, option = calls[0]
    expected = plain(name, calls, plain_file)
    scripts = [redis.call("SCRIPT", "LOAD", script) for script in scripts]
    driver = redis.call("SCRIPT", "LOAD", driver_script([(name, period, offset, option)]))
    redis.call("FLUSHALL")
    for call, answer in zip(calls, expected):
        now, limit, period, burst, cost, mode, offset, option = call
        *numbers, delay, wrote = answer
        for i, sha in enumerate(scripts):
            args = [limit, period, burst, cost, mode, "", "" if offset is None else offset, now] + ([] if option is None else [option])
            got = redis.call("EVALSHA", sha, 1, f"s{i}", *args)
            check(got == numbers + ([] if delay is None else [delay]), name, "standalone", call, got, answer)
            if wrote and answer[3] > 0:
                ttl(redis, f"s{i}", answer[3], MARGIN_MS, name, "standalone", call)
        got = redis.call("EVALSHA", driver, 1, "d", now, 11, 1, 1, cost, mode, limit, burst)
        check(got == numbers + [delay or 0, now], name, "driver", call, got, answer)
        if wrote and answer[3] > 0:
            ttl(redis, "d", answer[3], MARGIN_MS, name, "driver", call)
        elif wrote:
            check(redis.call("EXISTS", "d") == 0, name, "equal to the initial state, but not deleted", call)
    # The same requests in one call.
    redis.call("FLUSHALL")
    args = [calls[0][0]]
    at_once = [(calls[0][0],) + call[1:] for call in calls[:8]]
    for call in at_once:
        args += [11, 1, 1, call[4], call[5], call[1], call[3]]
    got = redis.call("EVALSHA", driver, 1, "d", *args)
    expected = [n for answer in plain(name, at_once, plain_file) for n in answer[:4] + [answer[4] or 0]] + [calls[0][0]]
    check(got == expected, name, "eight requests in one call", got, expected)


def exact_with_large_numbers(plain_file):
    """Compares with Python's fractions where the product of limit and period exceeds the precision
    of a double."""
    for name in ("token_bucket", "gcra", "leaky_bucket", "sliding_window_counter"):
        for limit, period in ((999_983, 86_400_000_000), (123_456_789, 2_592_000_000_000), (10**12, 31_622_400_000_000), (7, 31_622_400_000_000)):
            now, calls = START, []
            for _ in range(200):
                now += random.choice([0, 1, random.randrange(1, 1000), period // 7, random.randrange(period)])
                calls.append((now, limit, period, limit, random.randrange(1, limit + 1), 0, START if "window" in name else None, None))
            owed, at, counts = Fraction(0), START, {}
            for call, answer in zip(calls, plain(name, calls, plain_file)):
                now, cost = call[0], call[4]
                if name == "sliding_window_counter":
                    slot, elapsed = divmod(now - START, period)
                    weight = Fraction(counts.get(slot - 1, 0) * (period - elapsed), period)
                    fits = counts.get(slot, 0) + weight + cost <= limit
                    counts[slot] = counts.get(slot, 0) + (cost if fits else 0)
                    left = floor(limit - counts[slot] - weight)
                else:
                    owed, at = max(Fraction(0), owed - Fraction((now - at) * limit, period)), now
                    fits = owed + cost <= limit
                    owed += cost if fits else 0
                    left = floor(limit - owed)
                check(answer[0] == (cost if fits else 0) and answer[1] == left, name, call, answer, fits, left)


def redis_clock_and_faults(redis):
    script = standalone_script("fixed_window")
    redis.call("FLUSHALL")
    # 60 a minute, by Redis' clock, with an id that is sent three times and charged once.
    first = redis.call("EVAL", script, 1, "q", 60, 60_000_000, "", 1, 0, "once", "", "")
    for _ in range(2):
        again = redis.call("EVAL", script, 1, "q", 60, 60_000_000, "", 1, 0, "once", "", "")
        check(again[:3] == first[:3] and 0 < again[3] < first[3], "deduplication; the reset is counted from now", again, first)
    check(redis.call("EVAL", script, 1, "q", 60, 60_000_000, "", 1, 0, "twice", "", "")[1] == 58, "deduplication charged once")
    check(0 < redis.call("PTTL", "q:d:once") <= 60_000, "the stored result of the id expires")
    ttl(redis, "q", redis.call("EVAL", script, 1, "q", 60, 60_000_000)[3], 0, "Redis' clock")

    driver = redis.call("SCRIPT", "LOAD", driver_script([("token_bucket", 60_000_000, None, None), ("fixed_window", 60_000_000, None, None)]))
    redis.call("FLUSHALL")
    admitted = sum(redis.call("EVALSHA", driver, 1, "s1", "", 11, 1, 1, 1, 0, 1000, 1000)[0] for _ in range(1000))
    check(admitted == 1000, "1000 of a full bucket")
    redis.call("FLUSHALL")
    args = [START]
    for _ in range(1200):
        args += [11, 1, 1, 1, 0, 1000, 1000]
    got = redis.call("EVALSHA", driver, 1, "s1", *args)
    check(sum(got[:-1:5]) == 1000, "1,200 at once at a limit of 1,000:", sum(got[::5]))
    # A foreign value under the key does not stop the limit.
    for put in (("HSET", "k", "f", "v"), ("SET", "k", "nonsense"), ("SET", "k", b"\xff" * 40)):
        redis.call("DEL", "k")
        redis.call(*put)
        check(redis.call("EVALSHA", driver, 1, "k", "", 11, 1, 1, 1, 0, 5, 5)[:2] == [1, 4], "over", put)
        check(redis.call("EVALSHA", driver, 1, "k", "", 11, 1, 1, 1, 0, 5, 5)[:2] == [1, 3], "still working after a foreign value", put)
    # Two keys: all limits are charged or none.
    redis.call("FLUSHALL")
    both = ["", 12, 1, 1, 1, 0, 5, 5, 2, 2, 1, 0, 1, 1]
    check(redis.call("EVALSHA", driver, 2, "a", "b", *both)[:-1:5] == [1, 1], "both")
    a = redis.call("GET", "a")
    got = redis.call("EVALSHA", driver, 2, "a", "b", *both)
    check(got[:-1:5] == [1, 0] and got[1] == 4 and redis.call("GET", "a") == a, "none", got)


def two_versions(redis):
    """Sends requests alternately through the current driver and an earlier one, with Redis' clock.
    Exactly the limit is admitted."""
    for name in NAMES[:-2]:  # lockout and concurrency: format-1 has no lockout
        limits = [(name, 3_600_000_000, None, {"rolling_window": 10}.get(name)), ("fixed_window", 3_600_000_000, None, None)]
        shas = [redis.call("SCRIPT", "LOAD", driver_script(limits, directory)) for directory in (LUADIR, EARLIER)]
        redis.call("FLUSHALL")
        one = sum(redis.call("EVALSHA", random.choice(shas), 1, "k", "", 11, 1, 1, 1, 0, 300, 300)[0] for _ in range(400))
        check(one == 300, name, "one limit, alternating:", one)
        redis.call("DEL", "k")
        several = 0
        for _ in range(300):
            args = []
            for _ in range(random.randrange(1, 4)):
                args += [12, 1, 1, 1, 0, 200, 200, 2, 2, 1, 0, 250, 250]
            several += sum(redis.call("EVALSHA", random.choice(shas), 2, "k", "w", "", *args)[:-1:10])
        check(several == 200, name, "two limits, several requests in a call, alternating:", several)
        check(redis.call("PTTL", "k") >= 3_590_000 if "bucket" not in name and name != "gcra" else True, name, "expires too soon")


def longer_period_extends_expiry(redis):
    """A rejected request with a longer period extends the expiry of its key accordingly."""
    for name in ("fixed_window", "rolling_window", "sliding_window_log", "sliding_window_counter", "gcra", "token_bucket"):
        option = {"rolling_window": 10}.get(name)
        short, long = (redis.call("SCRIPT", "LOAD", driver_script([(name, period, None, option)])) for period in (60_000_000, 3_600_000_000))
        redis.call("FLUSHALL")
        redis.call("EVALSHA", short, 1, "k", "", 11, 1, 1, 10, 0, 10, 10)
        check(redis.call("PTTL", "k") < 135_000, name, "lives for", redis.call("PTTL", "k"))
        check(redis.call("EVALSHA", long, 1, "k", "", 11, 1, 1, 1, 0, 10, 10)[0] == 0, name, "the limit is used up")
        check(redis.call("PTTL", "k") > 3_000_000, name, "expires after", redis.call("PTTL", "k"), "after the period was made longer")
        check(redis.call("EVALSHA", long, 1, "k", "", 11, 1, 1, 1, 0, 10, 10)[0] == 0, name, "the limit is used up")
        # The same together with another limit that rejects.
        redis.call("FLUSHALL")
        two = redis.call("SCRIPT", "LOAD", driver_script([(name, 3_600_000_000, None, option), ("fixed_window", 1_000_000, None, None)]))
        redis.call("EVALSHA", short, 1, "k", "", 11, 1, 1, 9, 0, 10, 10)
        got = redis.call("EVALSHA", two, 2, "k", "w", "", 12, 1, 1, 1, 0, 10, 10, 2, 2, 9, 0, 3, 3)
        check(got[5] == 0 and redis.call("EXISTS", "w") == 0, "the other limit rejects", got)
        check(redis.call("PTTL", "k") > 3_000_000, name, "expires after", redis.call("PTTL", "k"), "together with a limit that rejects")


def main():
    if not shutil.which("redis-server") or not shutil.which("lua5.1"):
        print("skipped: redis-server or lua5.1 is not installed")
        sys.exit(77)
    random.seed(SEED)
    weir = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("WEIR")
    redis = Redis()
    try:
        plain_file = os.path.join(redis.directory, "plain.lua")
        with open(plain_file, "w") as file:
            file.write(PLAIN)
        for name in NAMES:
            scripts = [standalone_script(name)]
            if weir:
                scripts.append(subprocess.run([weir, "script", name], check=True, stdout=subprocess.PIPE, text=True,
                                              env=dict(os.environ, WEIR_LUA_DIR=LUADIR)).stdout)
            for _ in range(8):
                same_everywhere(redis, name, plain_file, scripts)
        exact_with_large_numbers(plain_file)
        redis_clock_and_faults(redis)
        two_versions(redis)
        longer_period_extends_expiry(redis)
    finally:
        redis.stop()
    sys.exit(summary())


if __name__ == "__main__":
    main()
