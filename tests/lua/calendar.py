#!/usr/bin/env python3
"""Compares the windows of calendar periods, as computed by the composed script and by on_failure:
local, with Python's time zones.

tests/lua/calendar.py CALENDAR      CALENDAR: tests/support/calendar, built

The model steps along the local time of zoneinfo: a window starts at the first moment at which the
local time is the start of the window or later. It does not use offsets or transition tables.

Exit status 0: passed, 1: failed, 77: lua5.1 is missing. Environment: LUADIR, SEED."""
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zoneinfo

from checks import LUADIR, SEED, check, summary

# Zones that change at midnight and at other times, by half an hour and by two hours, twice a year,
# also for Ramadan; zones that no longer change; zones that never change.
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Africa/Casablanca", "Africa/Cairo", "Asia/Beirut", "Asia/Tehran",
         "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Kolkata", "America/St_Johns", "Europe/Dublin", "Pacific/Apia", "America/Sao_Paulo"]
UNITS = {"day": "1d", "week": "week", "month": "month", "year": "year"}
SHIFTS = {"day": [0, 8 * 3600, -8 * 3600, 2 * 3600 + 1800, 86399], "week": [0, -6 * 86400, 8 * 3600, 5 * 86400 + 7200], "month": [0, -8 * 3600, 8 * 3600, 14 * 86400 + 9000],
          "year": [0, -90 * 86400, 90 * 86400 + 8 * 3600]}
HOUR = datetime.timedelta(hours=1)
EPOCH = datetime.datetime(1970, 1, 1)
FIRST, LAST = 1577836800 + 400 * 86400, 2840140800 - 400 * 86400     # within 2020 to 2059

def wall(zone, t):
    """The local time, without its zone."""
    return datetime.datetime.fromtimestamp(t, zone).replace(tzinfo=None)


def first_time(zone, shown):
    """The first moment at which the local time is `shown` or later: found in steps of 15 minutes,
    then by bisection."""
    t = int((shown - EPOCH).total_seconds()) - 30 * 3600
    t -= t % 900
    while wall(zone, t) < shown and wall(zone, t - 1) < shown:      # t - 1: the last moment before the clock goes back
        t += 900
    low, high = t - 900, t if wall(zone, t - 1) < shown else t - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wall(zone, middle) < shown else (low, middle)
    return high


def start_of(unit, day):
    if unit == "week":
        return day - datetime.timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(day=1, month=1) if unit == "year" else day


def following(unit, day):
    if unit in ("day", "week"):
        return day + datetime.timedelta(days=1 if unit == "day" else 7)
    return start_of(unit, day + datetime.timedelta(days=31 if unit == "month" else 366))


def window(zone, unit, shift, t):
    """The window that contains t, searched from well before it."""
    late = datetime.timedelta(seconds=shift)
    day = start_of(unit, (wall(zone, t) - late).replace(hour=0, minute=0, second=0) - datetime.timedelta(days=2))
    start = first_time(zone, day + late)
    while True:
        day = following(unit, day)
        end = first_time(zone, day + late)
        if start <= t < end:
            return start, end
        start = end


LUA = """
local clock, data, px
redis = { call = function(name, key, value, state)
  if name == "TIME" then return { ("%.0f"):format(math.floor(clock / 1000000)), ("%.0f"):format(clock % 1000000) }
  elseif name == "MGET" then return { data[key] or false }
  elseif name == "SET" then data[key] = value
  elseif name == "SETRANGE" then data[key] = state
  elseif name == "DEL" then data[key] = nil end
end }
local chunk = assert(loadfile(arg[1]))
for line in io.lines(arg[2]) do
  local limit, now, from, to = line:match("^(%d+) (%d+) (%d+) (%d+)$")
  local function ask(at, cost)
    clock = tonumber(at)
    KEYS, ARGV = { "k" }, { "", "11", limit, "1", cost, "0", "10", "10" }
    local r = chunk()
    return ("%.0f:%.0f"):format(r[2], r[4])
  end
  data = {}
  local answers = { ask(now, "1") }
  answers[2] = ask(from, "0")
  answers[3] = ask(to, "0")
  data = {}
  ask(from, "1")
  answers[4] = ask(now, "0")
  print(table.concat(answers, " "))
end
"""


def main():
    if not shutil.which("lua5.1"):
        print("no lua5.1")
        return 77
    program = os.path.abspath(sys.argv[1])
    rng = random.Random(SEED)
    limits, facts = {}, []
    for z in ZONES:
        for unit, shifts in SHIFTS.items():
            for shift in shifts:
                name = f"l{len(facts)}"
                limits[name] = dict(script="fixed_window", limit=10, period=UNITS[unit], align="clock", offset=f"{shift}s", time_zone=z)
                facts.append((name, zoneinfo.ZoneInfo(z), unit, shift))
    names = list(limits)
    rules = [dict(match=dict(path=f"/{i}"), limits=names[i:i + 8]) for i in range(0, len(names), 8)]
    policy = dict(upstreams=dict(a=dict(servers=["127.0.0.1:1"])), limits=limits, rules=rules)
    with tempfile.TemporaryDirectory() as directory:
        path = lambda name: os.path.join(directory, name)
        with open(path("policy.yaml"), "w") as f:
            json.dump(policy, f)
        composed = [subprocess.run([program, path("policy.yaml"), LUADIR], capture_output=True, text=True, check=True).stdout for _ in range(2)]
        check(composed[0] == composed[1], "two processes compose the same script")
        with open(path("driver.lua"), "w") as f:
            f.write(composed[0])
        with open(path("run.lua"), "w") as f:
            f.write(LUA)
        cases = []
        for number, (name, zone, unit, shift) in enumerate(facts, 1):
            times = [rng.randrange(FIRST, LAST) for _ in range(4)]
            # Near clock changes: the UTC offset differs before and after.
            for _ in range(200):
                t = rng.randrange(FIRST, LAST)
                if zone.utcoffset(wall(zone, t - 86400)) != zone.utcoffset(wall(zone, t + 86400)) and len(times) < 10:
                    times += [t, t + rng.randrange(-86400, 86400)]
            for t in list(times):
                start, end = window(zone, unit, shift, t)
                for at in (t, start, end - 1):
                    cases.append((number, at * 1000000 + rng.randrange(1000000), start * 1000000, end * 1000000))
        with open(path("cases"), "w") as f:
            f.writelines("%d %d %d %d\n" % case for case in cases)
        said = subprocess.run(["lua5.1", path("run.lua"), path("driver.lua"), path("cases")], capture_output=True, text=True)
        check(said.returncode == 0, said.stderr)
        for (number, now, start, end), line in zip(cases, said.stdout.splitlines()):
            what = (limits[facts[number - 1][0]], now, "window", start, end)
            charged, at_start, at_end, kept = line.split()
            check(charged == f"9:{end - now}", *what, charged)
            check(at_start == f"9:{end - start}", *what, "its start", at_start)
            check(at_end == "10:0", *what, "the end belongs to the next window", at_end)
            check(kept == f"9:{end - now}", *what, "a charge at the start counts until the end", kept)
        for number, (name, *_) in enumerate(facts, 1):
            own = [case for case in cases if case[0] == number]
            out = subprocess.run([program, path("policy.yaml"), LUADIR, name] + [str(case[1]) for case in own], capture_output=True, text=True).stdout
            for case, line in zip(own, out.splitlines()):
                check(line == f"{case[2]} {case[3]}", "without Redis", limits[name], case, line)
            check(len(out.splitlines()) == len(own), "without Redis", name)
    return summary()


sys.exit(main())
