"""The ways in which Redis can be slow, and what a decision then takes: of test_redis_deadline.py and of bench/survival."""

import datetime
import json
import os
import random
import re
import select
import subprocess
import sys
import threading
import time

from rig import LOG_LINE, address_of, eventually
from scripted import Scripted
from turns import Waits, longest_cpu_us
from wire import Connection, connect

TIMEOUT_MS = 100
THREADS_MAX = 500

# Where a request costs 7 its decision takes Redis longer than redis.timeout.
SLOW_SCRIPT = """return function(state, now, limit, period, burst, cost)
  if cost == 7 then
    for i = 1, 8000000 do end
  end
  return cost == 0 and 1 or cost, 0, 0, 0
end
"""


class Link(Scripted):
    """Stands between weir and Redis and passes bytes on: late, and at times not for a while, as a network that loses packets does."""

    def __init__(self, rig, redis):
        self.redis, self.bad, self.random = redis, False, random.Random(1)
        super().__init__(rig, self.join)

    def join(self, peer, _number):
        with connect(self.redis.address) as server:
            pair = {peer.socket: server, server: peer.socket}
            while True:
                for source in select.select(list(pair), [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if self.bad and self.random.random() < 0.3:  # lost once, or several times in a row
                        time.sleep(self.random.choice([0.01, 0.04, 0.2, 0.2, 0.4, 0.8]))
                    pair[source].sendall(data)


def pausing(well, ill, do, undo):
    """An illness of fits: `ill` seconds with it, `well` without."""
    def run(sick, over):
        while not over.is_set():
            do(sick)
            over.wait(ill)
            undo(sick)
            over.wait(well)
    return run


def asleep(sick, over):
    while not over.is_set():
        sick.redis.ask("DEBUG", "SLEEP", "0.3")
        over.wait(0.1)


def burning(loops):
    """Another client's scripts, one after the other."""
    def run(sick, over):
        with connect(sick.redis.address) as busy:
            busy.settimeout(30)
            command = b'EVAL "for i = 1, %d do end return 1" 0\r\n' % loops
            while not over.is_set():
                busy.sendall(command)
                assert busy.recv(100).startswith(b":1")
                over.wait(0.005)
    return run


def losing(sick, over):
    sick.link.bad = True
    over.wait()
    sick.link.bad = False


def slow_script(sick, over):
    with Connection(sick.weir.address) as connection:
        while not over.is_set():
            connection.request("/slow")
            over.wait(0.05)


def restarting(sick, over):
    while not over.is_set():
        sick.redis.kill()
        over.wait(0.2)
        sick.redis.start()
        over.wait(0.4)


ILLNESSES = {
    "none": lambda sick, over: over.wait(),
    "stopped (SIGSTOP, 0.4 s of 0.7)": pausing(0.3, 0.4, lambda s: s.redis.freeze(), lambda s: s.redis.thaw()),
    "asleep (DEBUG SLEEP, 0.3 s of 0.4)": asleep,
    "busy with others (scripts of some 50 ms)": burning(3000000),
    "busy with others (scripts of some 300 ms)": burning(18000000),
    "a slow limiter of one's own": slow_script,
    "a network that loses a third of its packets": losing,
    "killed and started again (every 0.6 s)": restarting,
}

LAG = """
import os, signal, sys, time
if len(sys.argv) > 1:
    os.sched_setaffinity(0, {int(sys.argv[1])})
late = []
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    at = time.monotonic()
    while True:
        at = max(at, time.monotonic()) + 0.001
        time.sleep(max(0, at - time.monotonic()))
        late.append(time.monotonic() - at)
finally:
    late = sorted(late) or [0]
    print(*(int(late[min(len(late) - 1, int(p * len(late)))] * 1e6) for p in (0.999, 1)))
"""


class Lag:
    """How late this machine wakes a process that does nothing but sleep, a millisecond at a time, on this core (None: any):
    the 99.9th percentile and the worst, µs."""

    def __init__(self, core=None):
        self.words = [sys.executable, "-c", LAG] + ([] if core is None else [str(core)])

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        words = self.process.communicate()[0].split()
        self.p999_us, self.most_us = map(int, words) if words else (0, 0)


class Suffered:
    """What decisions took in a while, µs: `every`, those `by_redis`, and `own`, less the time in which weir's thread was ready to run and
    the kernel had no core for it (None without turns.py). Each in order of length."""

    def __init__(self, entries, lag, turns=None):
        self.every = sorted(took for _, took, _ in entries)
        self.by_redis = sorted(took for _, took, by_redis in entries if by_redis)
        self.lag, self.own, self.turn_us = lag, None, 0
        if turns and entries:
            waits = Waits(turns)
            self.own = sorted(max(0, took - waits.within(begun, begun + took + 1000)) for begun, took, _ in entries)
            self.turn_us = longest_cpu_us(turns, entries[0][0] - 1000, max(begun + took for begun, took, _ in entries))

    def line(self, name):
        """One row of a table, ms."""
        numbers = [at(self.every, p) for p in (0.5, 0.99, 0.999, 1)]
        numbers += [at(self.own, 0.999), at(self.own, 1), self.turn_us] if self.own else []
        return (f"{name:44} {len(self.every):7} {100 * len(self.by_redis) / max(1, len(self.every)):6.1f}% " +
                " ".join(f"{n / 1000:7.1f}" for n in numbers + [self.lag.p999_us, self.lag.most_us]))


def heading(own=False):
    words = ["p50 ms", "p99", "p99.9", "most"] + (["own 99.9", "most", "turn"] if own else []) + ["lag 99.9", "most"]
    return f"{'Redis is':44} {'decided':>7} {'by it':>7} " + " ".join(f"{w:>7}" for w in words)


class Sick:
    """A Redis that can be ill, and weir before it, with an access log that has what each decision took."""

    def __init__(self, rig, on_failure="deny", turns=None, core=None):
        self.turns, self.core = turns, core
        try:
            self.redis = rig.redis(arguments=["--enable-debug-command", "local"])
        except AssertionError:  # before Redis 7 it needs none
            self.redis = rig.redis()
        self.link = Link(rig, self.redis)
        self.log = os.path.join(rig.directory, "access.log")
        script = rig.write("slow.lua", SLOW_SCRIPT)
        self.weir = rig.weir(
            wait=False, environment=turns and turns.environment, log={"access": "json", "file": self.log}, workers=1,
            redis={"address": self.link.text, "timeout": f"{TIMEOUT_MS}ms", "on_failure": on_failure},
            size_limits={"connections_per_ip": 0},
            limits={"all": dict(script="gcra", limit=100_000_000, period="1h", lease="off"),  # it is Redis' decisions that count
                    "own": dict(script=script, limit=100_000_000, period="1h")},
            rules=[{"match": {"path": "/slow"}, "limits": ["own"], "cost": 7}, {"limits": ["all"]}])
        self.weir.log_path = self.log
        self.weir.expect_errors("redis ", "limit own")
        self.await_weir()
        if core is not None:
            for task in os.listdir(f"/proc/{self.weir.pid}/task"):
                os.sched_setaffinity(int(task), {core})

    def text(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def weir_log(self):
        return LOG_LINE.findall(self.text())

    def await_weir(self):
        eventually(lambda: os.path.exists(self.log) and " ready\n" in self.text(), 15, "weir's readiness")
        self.weir.address = address_of(re.search(r"listening on (\S+)$", self.text(), re.M)[1])
        self.weir.admin = address_of(re.search(r"admin on (\S+)$", self.text(), re.M)[1])

    def decisions(self, start=0):
        """The decisions that the log has from this place on: when the request came, what its decision took, µs, and was it by Redis."""
        entries = []
        with open(self.log, encoding="utf-8") as log:
            log.seek(start)
            for line in log:
                if not line.startswith("{"):
                    continue
                entry = json.loads(line)
                begun = datetime.datetime.fromisoformat(entry["time"].replace("Z", "+00:00")).timestamp()
                entries.append((int(begun * 1e6), entry.get("decision_us", 0), entry["status"] == 200))
        return entries

    def suffer(self, illness, seconds, connections=16, pause=0.002):
        """Requests from so many connections while Redis is ill; from more than THREADS_MAX by wrk, which makes no pause."""
        over, start = threading.Event(), os.path.getsize(self.log)

        def ask():
            with Connection(self.weir.address) as connection:
                while not over.wait(pause):
                    assert connection.request("/").status in (200, 503)

        def ask_by_wrk():
            subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "http://%s:%d/" % self.weir.address], check=True,
                           stdout=subprocess.DEVNULL)
        many = connections > THREADS_MAX
        threads = [threading.Thread(target=ask_by_wrk)] if many else [threading.Thread(target=ask) for _ in range(connections)]
        threads.append(threading.Thread(target=ILLNESSES[illness], args=(self, over)))
        with Lag(self.core) as lag:
            for thread in threads:
                thread.start()
            time.sleep(seconds)
            over.set()
            for thread in threads:
                thread.join()
        eventually(lambda: self.weir.metric("weir_requests_active") == 0)
        eventually(lambda: self.weir.metric("weir_redis_breaker_workers", state="open") == 0, 15, "a Redis that is well again")
        time.sleep(0.1)  # the log's thread
        return Suffered(self.decisions(start), lag, self.turns and self.turns.worker())


def at(values, part):
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0
