"""The faults of a night shift, each at a weir of its own, before a real Prometheus with the shipped rules. Within 15 s `weir
top --once`, /readyz, an alert and a log line name the cause. 30 s after its end they are silent again."""

import datetime
import http.server
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from few_descriptors import exhaust
from ports import accepts
from rig import Process, Redis, Upstream, eventually, free_port, text_of, timeout, top
from shifted_clock import ShiftedClock
from wire import Connection, IncompleteResponse, connect, get, run_in_threads


class Api(http.server.ThreadingHTTPServer):
    """A server that can be slow, or fail."""

    daemon_threads = True

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if self.server.delay:
                    self.server.go_on.wait(self.server.delay)
                self.send_response(self.server.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.delay, self.go_on = 200, 0, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Fault:
    """One fault. `words`: in /readyz, in weir top and, unless `logged` differs, in the log."""

    alert = words = logged = None
    client = None
    timeout = "5s"  # a busy machine is not a slow Redis
    threads, pause = 2, 0.1  # of the load: requests one after the other, with a pause in seconds
    limits = {"each": {"script": "gcra", "limit": 1000000, "period": "1m", "lease": "off"}}

    def __init__(self, rig):
        self.rig = rig
        self.redis = Redis(rig, f"redis-of-{type(self).__name__}")
        self.weir = self.start({"limits": self.limits, "redis": {"address": self.redis.text, "timeout": self.timeout, "on_failure": "local"},
                                **self.policy()})
        self.loading = True
        self.clients = [threading.Thread(target=self.load, daemon=True) for _ in range(self.threads)]
        for thread in self.clients:
            thread.start()

    def policy(self):
        return {}

    def start(self, policy):
        return self.rig.weir(**policy).wait_for_redis()

    def load(self):
        while self.loading:
            try:
                with Connection(self.weir.address, timeout=5) as connection:
                    connection.request("/", headers={"X-Client-Id": self.client or "alice"})
            except (OSError, IncompleteResponse):
                pass
            time.sleep(self.pause)

    def stop(self):
        self.loading = False
        for thread in self.clients:
            thread.join()

    def ready(self):
        return get(self.weir.admin, "/readyz", host="127.0.0.1").body.decode().strip()

    def screen(self):
        return self.rig.command("top", "--once", text_of(self.weir.admin)).stdout

    def log_text(self):
        return self.weir.output()


class RedisStopped(Fault):
    alert, words, logged = "WeirRedisAway", "Redis is unavailable", "the connection was lost"

    def begin(self):
        self.weir.expect_errors("redis ", "Redis")
        self.redis.kill()

    def end(self):
        self.redis.start()


class RedisSlow(Fault):
    alert, words, timeout = "WeirRedisSlow", "Redis is slow", "100ms"
    pause = 0.037  # so that a request waits for 73 ms of the 90 of a stop

    def begin(self):
        self.weir.expect_errors("redis ", "Redis")
        self.slow = True
        self.brake = threading.Thread(target=self.stop_and_go, daemon=True)
        self.brake.start()

    def stop_and_go(self):
        while self.slow:
            os.kill(self.redis.process.pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(self.redis.process.pid, signal.SIGCONT)
            time.sleep(0.02)

    def end(self):
        self.slow = False
        self.brake.join()


class RedisFull(Fault):
    alert, words, logged = "WeirRedisErrors", "Redis answers calls with errors", "OOM"

    def begin(self):
        self.weir.expect_errors("redis ", "Redis")
        self.redis.command("CONFIG", "SET", "maxmemory", "1")

    def end(self):
        self.redis.command("CONFIG", "SET", "maxmemory", "0")


class RedisPassword(Fault):
    alert, words, logged = "WeirRedisAway", "Redis is unavailable", "the login was refused"

    def begin(self):
        self.weir.expect_errors("redis ", "Redis")
        self.redis.command("CONFIG", "SET", "requirepass", "other")
        with self.connection() as redis:
            redis.sendall(b"AUTH other\r\nCLIENT KILL TYPE normal SKIPME yes\r\nCLIENT KILL TYPE pubsub\r\n")
            redis.recv(4096)

    def connection(self):
        return connect(self.redis.address)

    def end(self):
        with self.connection() as redis:
            redis.sendall(b"AUTH other\r\nCONFIG SET requirepass \"\"\r\n")
            redis.recv(4096)


class ApiDown(Fault):
    alert, words, logged = "WeirUpstreamErrors", "no server of an upstream can be reached: api", "Connection refused"

    def policy(self):
        self.api = Upstream(self.rig, "api-that-stops")
        return {"upstreams": {"api": {"servers": [self.api.text]}}}

    def begin(self):
        self.weir.expect_errors("api")
        self.api.kill()

    def end(self):
        self.api = Upstream(self.rig, "api-again", listen=self.api.text)


class ApiFails(Fault):
    alert, words = "WeirUpstreamErrors", "of upstream api fails"

    def policy(self):
        self.api = Api()
        return {"upstreams": {"api": {"servers": ["127.0.0.1:%d" % self.api.server_address[1]]}}}

    def begin(self):
        self.api.status = 500

    def end(self):
        self.api.status = 200


class ApiSlow(ApiFails):
    alert, words = "WeirUpstreamSlow", "to begin half of its responses"
    threads, pause = 8, 1

    def start(self, policy):
        weir = super().start(policy)
        with Connection(weir.address) as connection:
            for _ in range(120):  # so weir knows what is usual
                assert connection.request("/").status == 200
        return weir

    def begin(self):
        self.api.delay = 1.5

    def end(self):
        self.api.delay = 0
        self.api.go_on.set()


class Descriptors(Fault):
    alert, words, logged = "WeirDescriptors", "no file descriptor is free", "descriptors are in use"

    def begin(self):
        self.stop()
        self.before = resource.prlimit(self.weir.pid, resource.RLIMIT_NOFILE)
        self.held = exhaust(self.rig, self.weir)

    def end(self):
        resource.prlimit(self.weir.pid, resource.RLIMIT_NOFILE, self.before)
        for connection in self.held:
            connection.close()


class Disk(Fault):
    alert, words, logged = "WeirLogLinesDropped", "log lines are lost", "No space left on device"

    def policy(self):
        self.path = os.path.join(self.rig.directory, "night.log")
        return {"log": {"file": self.path, "access": "json"}}

    def start(self, policy):
        address, admin = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())  # as the log is not in the output
        weir = self.rig.weir(**policy, listen=[text_of(address)], admin=text_of(admin), wait=False)
        weir.address, weir.admin = address, admin
        eventually(lambda: accepts(admin) and get(admin, "/readyz", host="127.0.0.1").status == 200, what="weir ready")
        return weir

    def turn_to(self, path):
        os.remove(self.path)
        os.symlink(path, self.path)
        self.weir.signal(signal.SIGUSR1)

    def begin(self):
        self.weir.expect_errors("cannot be written: No space left on device")
        self.turn_to("/dev/full")

    def end(self):
        self.turn_to(self.path + ".2")


class Certificate(Fault):
    alert, words = "WeirCertificateExpired", "has expired"

    def certificate(self, seconds):
        key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
        now = datetime.datetime.now(datetime.timezone.utc)
        certificate = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - datetime.timedelta(days=1),
                                              now + datetime.timedelta(seconds=seconds)).sign(key, hashes.SHA256())
        self.files = {"certificate": os.path.join(self.rig.directory, "night.pem"), "key": os.path.join(self.rig.directory, "night.key")}
        with open(self.files["certificate"], "wb") as file:
            file.write(certificate.public_bytes(serialization.Encoding.PEM))
        with open(self.files["key"], "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def policy(self):
        self.certificate(seconds=20 * 86400)
        return {"listen": ["127.0.0.1:0", {"address": "127.0.0.1:0", "tls": self.files}]}

    def begin(self):
        self.weir.expect_errors("has expired")
        self.certificate(seconds=4)
        self.weir.reload()

    def end(self):
        self.certificate(seconds=20 * 86400)
        self.weir.reload()


class CutOffCustomer(Fault):
    alert, words, logged = "WeirManyRejections", "of the requests are rejected; see the most limited clients", "most of them of id:bob"

    def policy(self):
        return {"clients": {"id:bob": {"quota": 0}}}

    def begin(self):
        self.client = "bob"

    def end(self):
        self.client = None

    def screen(self):
        screen = super().screen()
        return screen if "id:bob" in screen or not self.client else screen.replace(self.words, "")


class Flood(CutOffCustomer):
    limits = {"each": {"script": "gcra", "limit": 100000, "period": "1m", "lease": "off"}}

    def policy(self):
        return {"clients": {"id:bob": {"limits": {"each": {"limit": 1}}}}}


class Clock(Fault):
    alert, words = "WeirClock", "the clock of this machine is 3600.0 s ahead of that of Redis"

    def start(self, policy):
        self.clock = ShiftedClock(self.rig)
        return self.rig.weir(**policy, environment=self.clock.environment).wait_for_redis()

    def begin(self):
        self.clock.shift(3600)

    def end(self):
        self.clock.shift(0)

    def log_text(self):  # written once; a reply that Redis sends late adds to the difference
        return re.sub(r"\b360\d\.\d s ahead", "3600.0 s ahead", super().log_text())


FAULTS = (RedisStopped, RedisSlow, RedisFull, RedisPassword, ApiDown, ApiFails, ApiSlow, Descriptors, Disk, Certificate, CutOffCustomer, Flood, Clock)


class Prometheus:
    """Prometheus with the shipped rules, for these listeners. It scrapes once a second."""

    def __init__(self, rig, listeners):
        shutil.copy(os.path.join(top, "contrib/prometheus/weir.rules.yml"), rig.directory)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["weir.rules.yml"],
                  "scrape_configs": [{"job_name": "weir", "static_configs": [{"targets": [text_of(listener) for listener in listeners]}]}]}
        self.url = f"http://127.0.0.1:{free_port()}"
        Process(rig, "prometheus", ["prometheus", "--config.file", rig.write("prometheus.yml", json.dumps(config)), "--web.listen-address",
                                    self.url[7:], "--storage.tsdb.path", os.path.join(rig.directory, "tsdb"), "--log.level", "warn"])
        eventually(self.is_ready, 30, "Prometheus")

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def data(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self, listener):
        alerts = self.data("/api/v1/alerts")["alerts"]
        return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing" and a["labels"]["instance"] == text_of(listener)}

    def has_missed(self, listener, seconds):
        """Whether a scrape of this weir and one of another took longer than 1 s in the last seconds: the machine is busy, and
        the alerts begin again."""
        query = urllib.parse.urlencode({"query": f"min_over_time(up[{seconds}s]) == 0"})
        missed = [one["metric"]["instance"] for one in self.data("/api/v1/query?" + query)["result"]]
        return len(missed) > 1 and text_of(listener) in missed


def signals(fault, prometheus):
    """What is missing of the signals for the fault."""
    missing = []
    if fault.words not in fault.ready():
        missing.append(f"/readyz: {fault.ready()}")
    if fault.alert not in prometheus.firing(fault.weir.admin):
        missing.append(f"alerts: {prometheus.firing(fault.weir.admin)}")
    if (fault.logged or fault.words) not in fault.log_text():
        missing.append("log")
    if fault.words not in fault.screen():
        missing.append("top")
    return missing


def remains(fault, prometheus):
    """What is left of the signals."""
    left = [f"/readyz: {fault.ready()}"] if fault.ready() != "ready" else []
    left += [f"alerts: {prometheus.firing(fault.weir.admin)}"] if prometheus.firing(fault.weir.admin) else []
    return left + (["top"] if "Problem" in fault.screen() else [])


def within(seconds, look, what, complaints, missed):
    """Adds to complaints what look() still returns after this time. The times are those of the issue, so they are not scaled.
    While missed(seconds), it waits for up to five times as long."""
    end = time.monotonic() + seconds
    latest = end + 4 * seconds
    while time.monotonic() < end or (time.monotonic() < latest and missed(seconds)):
        last = look()
        if not last:
            return
        time.sleep(0.5)
    complaints.append(f"{what}: {last}")


@timeout(300)
def test_every_fault_is_named_within_15_s_and_silent_30_s_after_its_end(rig):
    faults = [kind(rig) for kind in FAULTS]
    prometheus = Prometheus(rig, [fault.weir.admin for fault in faults])
    eventually(lambda: all(not prometheus.firing(fault.weir.admin) and fault.ready() == "ready" for fault in faults), 30, "peace")
    complaints = []

    def night(fault):
        name = type(fault).__name__

        def missed(seconds):
            return prometheus.has_missed(fault.weir.admin, seconds)
        fault.begin()
        within(15, lambda: signals(fault, prometheus), f"{name}, not named", complaints, missed)
        fault.end()
        within(30, lambda: remains(fault, prometheus), f"{name}, not silent", complaints, missed)
        fault.stop()

    run_in_threads(lambda number: night(faults[number]), len(faults))
    assert not complaints, "\n".join(complaints)
