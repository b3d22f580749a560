"""Failures and delays of Redis, and the decision times meanwhile. Used by test_redis_deadline.py
and bench/survival."""

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

from envoy_calls import Caller, Refused
from rig import LOG_LINE, address_of, eventually
from scripted import Scripted
from loop_iterations import RunDelays, longest_cpu_us
from wire import Connection, connect

TIMEOUT_MS = 100
THREADS_MAX = 500

# For a request of cost 7, this script runs for longer than redis.timeout.
SLOW_SCRIPT = """return function(state, now, limit, period, burst, cost, mode)
  if cost == 7 then
    for i = 1, 8000000 do end
  end
  local used = tonumber(state) or 0
  local left = limit > used and limit - used or 0
  if cost <= 0 then return cost == 0 and left < 1 and 0 or cost == 0 and 1 or cost, left, cost == 0 and left < 1 and period or 0, period end
  local granted = (left >= cost or mode == 2) and cost or mode == 1 and left or 0
  if granted == 0 then return 0, left, mode == 0 and cost > limit and -1 or period, period end
  return granted, left > granted and left - granted or 0, 0, period, ("%d"):format(used + granted)
end
"""


class LossyLink(Scripted):
    """Forwards bytes between weir and Redis. While `bad`, delays some of them, as retransmissions
    do."""

    def __init__(self, rig, redis):
        self.redis, self.bad, self.random = redis, False, random.Random(1)
        super().__init__(rig, self.relay)

    def relay(self, peer, _number):
        with connect(self.redis.address) as server:
            pair = {peer.socket: server, server: peer.socket}
            while True:
                for source in select.select(list(pair), [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if self.bad and self.random.random() < 0.3:  # lost once or several times
                        time.sleep(self.random.choice([0.01, 0.04, 0.2, 0.2, 0.4, 0.8]))
                    pair[source].sendall(data)


def intermittent(healthy_s, failing_s, begin, end):
    """A failure that starts and stops repeatedly."""
    def run(server, over):
        while not over.is_set():
            begin(server)
            over.wait(failing_s)
            end(server)
            over.wait(healthy_s)
    return run


def debug_sleep(server, over):
    while not over.is_set():
        server.redis.command("DEBUG", "SLEEP", "0.3")
        over.wait(0.1)


def busy_with_scripts(loops):
    """Scripts of another client, one after the other."""
    def run(server, over):
        with connect(server.redis.address) as busy:
            busy.settimeout(30)
            command = b'EVAL "for i = 1, %d do end return 1" 0\r\n' % loops
            while not over.is_set():
                busy.sendall(command)
                assert busy.recv(100).startswith(b":1")
                over.wait(0.005)
    return run


def packet_loss(server, over):
    server.link.bad = True
    over.wait()
    server.link.bad = False


def slow_script(server, over):
    with Connection(server.weir.address) as connection:
        while not over.is_set():
            connection.request("/slow")
            over.wait(0.05)


def restarting(server, over):
    while not over.is_set():
        server.redis.kill()
        over.wait(0.2)
        server.redis.start()
        over.wait(0.4)


FAILURES = {
    "none": lambda server, over: over.wait(),
    "stopped (SIGSTOP, 0.4 s of 0.7)": intermittent(0.3, 0.4, lambda server: server.redis.freeze(), lambda server: server.redis.thaw()),
    "asleep (DEBUG SLEEP, 0.3 s of 0.4)": debug_sleep,
    "busy with others (scripts of some 50 ms)": busy_with_scripts(3000000),
    "busy with others (scripts of some 300 ms)": busy_with_scripts(18000000),
    "an operator's slow script": slow_script,
    "a network that loses a third of its packets": packet_loss,
    "killed and started again (every 0.6 s)": restarting,
}

SLEEPER = """
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


class WakeupDelay:
    """How late the kernel wakes a process that sleeps 1 ms at a time on this core (None: any core):
    p999_us and max_us."""

    def __init__(self, core=None):
        self.words = [sys.executable, "-c", SLEEPER] + ([] if core is None else [str(core)])

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        words = self.process.communicate()[0].split()
        self.p999_us, self.max_us = map(int, words) if words else (0, 0)


class DecisionTimes:
    """Decision times in µs, sorted. `every`: all; `by_redis`: decisions by Redis; `own`: all, minus
    the time in which weir's thread was runnable without a core (None without
    loop_iterations.py)."""

    def __init__(self, entries, delay, iterations=None):
        self.every = sorted(took for _, took, _ in entries)
        self.by_redis = sorted(took for _, took, by_redis in entries if by_redis)
        self.delay, self.own, self.iteration_us = delay, None, 0
        if iterations and entries:
            delays = RunDelays(iterations)
            self.own = sorted(max(0, took - delays.within(begun, begun + took + 1000)) for begun, took, _ in entries)
            self.iteration_us = longest_cpu_us(iterations, entries[0][0] - 1000, max(begun + took for begun, took, _ in entries))

    def line(self, name):
        """One table row, in ms."""
        numbers = [at(self.every, p) for p in (0.5, 0.99, 0.999, 1)]
        numbers += [at(self.own, 0.999), at(self.own, 1), self.iteration_us] if self.own else []
        return (f"{name:44} {len(self.every):7} {100 * len(self.by_redis) / max(1, len(self.every)):6.1f}% " +
                " ".join(f"{n / 1000:7.1f}" for n in numbers + [self.delay.p999_us, self.delay.max_us]))


def heading(own=False):
    words = ["p50 ms", "p99", "p99.9", "max"] + (["own 99.9", "max", "loop"] if own else []) + ["wake 99.9", "max"]
    return f"{'Redis is':44} {'decided':>7} {'by it':>7} " + " ".join(f"{w:>7}" for w in words)


class FailingRedis:
    """A Redis that fails on demand, and weir with decision times in its access log. `calls`: the
    requests are calls of the rate limit service."""

    def __init__(self, rig, on_failure="deny", iterations=None, core=None, timeout_ms=TIMEOUT_MS, calls=False):
        self.iterations, self.core, self.calls = iterations, core, calls
        try:
            self.redis = rig.redis(arguments=["--enable-debug-command", "local"])
        except AssertionError:  # Redis before version 7 does not know the option
            self.redis = rig.redis()
        self.link = LossyLink(rig, self.redis)
        self.log = os.path.join(rig.directory, "access.log")
        script = rig.write("slow.lua", SLOW_SCRIPT)
        self.weir = rig.weir(
            wait=False, environment=iterations and iterations.environment, log={"access": "json", "file": self.log}, workers=1,
            redis={"address": self.link.text, "timeout": f"{timeout_ms}ms", "on_failure": on_failure},
            rate_limit_service={"listen": ["127.0.0.1:0"], "domains": {"edge": {"descriptors": [{"key": "all", "limits": ["all"]}]}}},
            size_limits={"connections_per_ip": 0, "requests_per_client": 0},
            limits={"all": dict(script="gcra", limit=100_000_000, period="1h", lease="off"),  # Redis decides each request
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
        self.service = address_of(re.search(r"listening on (\S+) \(rate limit service\)$", self.text(), re.M)[1])
        self.weir.admin = address_of(re.search(r"admin on (\S+)$", self.text(), re.M)[1])

    def decisions(self, start=0):
        """The decisions in the log after this offset: request start and decision time, both in µs,
        and whether Redis decided."""
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

    def measure(self, failure, seconds, connections=16, pause=0.002):
        """Sends requests while Redis fails; above THREADS_MAX connections with wrk, without pauses.
        Returns DecisionTimes."""
        over, start = threading.Event(), os.path.getsize(self.log)

        def send_requests():
            with Connection(self.weir.address) as connection:
                while not over.wait(pause):
                    assert connection.request("/").status in (200, 503)

        def send_calls():
            with Caller(self.service) as caller:
                while not over.wait(pause):
                    try:
                        caller.call("edge", {"all": "all"})
                    except Refused as refused:
                        assert refused.code == 14, refused

        def send_requests_by_wrk():
            subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "http://%s:%d/" % self.weir.address], check=True,
                           stdout=subprocess.DEVNULL)
        many = connections > THREADS_MAX
        threads = [threading.Thread(target=send_requests_by_wrk)] if many else [
            threading.Thread(target=send_calls if self.calls else send_requests) for _ in range(connections)]
        threads.append(threading.Thread(target=FAILURES[failure], args=(self, over)))
        with WakeupDelay(self.core) as delay:
            for thread in threads:
                thread.start()
            time.sleep(seconds)
            over.set()
            for thread in threads:
                thread.join()
        eventually(lambda: self.weir.metric("weir_requests_active") == 0)
        eventually(lambda: self.weir.metric("weir_redis_breaker_workers", state="open") == 0, 15, "closed breakers")
        time.sleep(0.1)  # until the log thread has written
        return DecisionTimes(self.decisions(start), delay, self.iterations and self.iterations.worker())


def at(values, part):
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0
