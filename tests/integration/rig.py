"""The programs of a test: weir, Redis and upstreams. They listen on free ports. Each is ready when
its constructor returns. At the end of the test they are stopped and their logs are checked.

    def test_something(rig):
        api = rig.upstream()
        weir = rig.weir(limits={"per-client": dict(script="gcra", limit=3, period="1h")})
        assert get(weir.address).status == 200

rig.weir() takes the top-level keys of a policy as keyword arguments. They override a base policy:
two workers, the test's upstream, the test's Redis, and one rule that applies every limit to every
request. The policy is written as JSON, which is valid YAML.
"""

import binascii
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

top = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
weir_program = os.path.abspath(os.environ.get("WEIR", os.path.join(top, "build/release/weir")))
upstream_program = os.path.abspath(
    os.environ.get("UPSTREAM", os.path.join(os.path.dirname(weir_program), "tests/support/upstream")))
redis_program = os.environ.get("REDIS_SERVER", "redis-server")

# Builds with sanitizers run several times slower, so all deadlines of the tests are multiplied by
# this factor.
sanitized = os.path.exists(weir_program) and any(
    mark in open(weir_program, "rb").read() for mark in (b"__sanitizer_", b"__asan_init", b"__tsan_init"))
time_scale = 3 if sanitized else 1

os.environ["WEIR_LUA_DIR"] = os.path.join(top, "lua")
os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1")
os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")

# A test that reads a metric of another name would read None for ever.
documented_metrics = set()
for document in "monitoring.md", "backends.md":
    with open(os.path.join(top, "docs", document), encoding="utf-8") as lines:
        documented_metrics.update(re.findall(r"\b(?:weir|process)_[a-z0-9_]+", lines.read()))

# Patterns that must not appear in weir's stderr.
FATAL = re.compile(r"Sanitizer|runtime error:|[Aa]ssert|magic|core dumped|double free|corrupt")
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z (error|warn|info|debug) +(.*)$", re.M)


def check_programs():
    for program in weir_program, upstream_program:
        if not os.access(program, os.X_OK):
            sys.exit(f"{program} is missing: build it, or name it with WEIR= and UPSTREAM=")
    if not shutil.which(redis_program):
        sys.exit("redis-server is missing: install the Debian package redis-server")


def timeout(seconds):
    """Sets the timeout of a test (default: 60 s)."""
    def mark(function):
        function.seconds = seconds
        return function
    return mark


class TimedOut(AssertionError):
    pass


def eventually(condition, seconds=20, what="the condition"):
    """Calls `condition()` until it returns a true value, and returns that value."""
    deadline, pause = time.monotonic() + seconds * time_scale, 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimedOut(f"timed out waiting for {what}: {seconds * time_scale} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.03)


held_ports = []


def free_port():
    """Returns a port on which nothing listens. The bound socket reserves it: the kernel does not
    assign the port to other sockets, but a server can still listen on it with SO_REUSEADDR."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    held_ports.append(s)
    return s.getsockname()[1]


def text_of(address):
    if isinstance(address, str):
        return "unix:" + address
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(text):
    if text.startswith("unix:"):
        return text[5:]
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Process:
    """A program that writes its output to a file. It is stopped at the end of the test."""

    def __init__(self, rig, name, arguments, **more):
        self.name, self.directory = name, rig.directory
        self.file = os.path.join(rig.directory, f"{name}.log")
        with open(self.file, "wb") as out:
            self.popen = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=more.pop("stdout", out),
                                          stderr=out, cwd=rig.directory, **more)
        self.pid = self.popen.pid
        rig.processes.append(self)

    def output(self):
        with open(self.file, encoding="utf-8", errors="replace") as out:
            return out.read()

    def wait_for_output(self, pattern, count=1, seconds=30):
        """Waits until the output contains `count` matches of the pattern, and returns them as
        re.findall()."""
        def look():
            ended = self.popen.poll() is not None  # before its last output is read
            found = re.findall(pattern, self.output(), re.M)
            if len(found) < count and ended:
                raise AssertionError(f"{self.name} ended with {self.popen.returncode}:\n{self.output()}")
            return len(found) >= count and found
        return eventually(look, seconds, f"'{pattern}' from {self.name}")

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        """Sends a signal. After SIGSTOP, waits until every thread has stopped."""
        self.popen.send_signal(number)
        if number == signal.SIGSTOP:
            eventually(lambda: set(self.thread_states()) <= {"T"}, what=f"{self.name} stops")

    def thread_states(self):
        for task in os.listdir(f"/proc/{self.popen.pid}/task"):
            with open(f"/proc/{self.popen.pid}/task/{task}/stat", encoding="ascii", errors="replace") as stat:
                yield stat.read().rpartition(")")[2].split()[0]

    def wait(self, seconds=15):
        return self.popen.wait(seconds * time_scale)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()

    finish = kill


class Upstream(Process):
    """The demo API (tests/support/upstream.c). `address`: its listener."""

    def __init__(self, rig, name, listen="127.0.0.1:0"):
        super().__init__(rig, name, [upstream_program, "--listen", listen])
        self.address = address_of(self.wait_for_output(r"listening on (\S+)$")[0])
        self.text = text_of(self.address)

    def stats(self):
        from wire import get
        return json.loads(get(self.address, "/stats").body)


class RedisProcess(Process):
    """redis-server, with the processes that it forks to send its data to replicas."""

    def kill(self):
        forked = []
        if self.alive():
            self.popen.send_signal(signal.SIGSTOP)  # from here on it forks no more
            with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as listing:
                forked = list(map(int, listing.read().split()))
        super().kill()
        for pid in forked:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # an orphan is a child of this process, see run()

    finish = kill


class Redis:
    """A real redis-server without persistence. It can be killed, stopped, and started again at the
    same address. With `file`, it keeps a configuration file, so that a restarted server keeps the
    role that Sentinel assigned."""

    def __init__(self, rig, name, tcp=False, arguments=(), start=True, file=False, tls=None):
        """`tls`: options of redis-server from redis_tls(); the server then has no plain-text
        port."""
        self.rig, self.name, self.arguments, self.process = rig, name, list(arguments), None
        self.tls, tcp = tls, tcp or tls
        self.file = file and os.path.join(rig.directory, name + ".conf")
        self.address = ("127.0.0.1", free_port()) if tcp else os.path.join(rig.directory, name + ".sock")
        self.text = text_of(self.address)
        if start:
            self.start()

    def start(self):
        where = (["--port", "0", "--tls-port", str(self.address[1]), "--bind", "127.0.0.1", *self.tls] if self.tls else
                 ["--port", str(self.address[1]), "--bind", "127.0.0.1"] if isinstance(self.address, tuple) else
                 ["--port", "0", "--unixsocket", self.address])
        options = [*where, "--save", "", "--appendonly", "no", "--dir", self.rig.directory, *self.arguments]
        if self.file and not os.path.exists(self.file):
            self.rig.write(self.name + ".conf", "".join(f'\n{o[2:]}' if o.startswith("--") else f' "{o}"' for o in options) + "\n")
        self.process = RedisProcess(self.rig, self.name, [redis_program, self.file] if self.file else [redis_program, *options])
        eventually(self.is_up, 10, "PONG from Redis")
        return self

    def is_up(self):
        assert self.process.alive(), self.process.output()
        try:
            return self.command("PING") == "PONG"
        except RuntimeError:  # NOAUTH: the server is up
            return True
        except OSError:
            return False

    def command(self, *words):
        """Sends one command over a new connection. Raises RuntimeError for an error reply."""
        from wire import connect
        with connect(self.address) as plain, secured(plain, self) as s, s.makefile("rb") as stream:
            data = [str(word).encode() for word in words]
            s.sendall(b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%s\r\n" % (len(d), d) for d in data))
            return read_reply(stream)

    def calls(self, command):
        """Returns how many times the server has executed the command."""
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", self.command("INFO", "commandstats"))
        return int(found[1]) if found else 0

    def freeze(self):
        self.process.signal(signal.SIGSTOP)

    def thaw(self):
        self.process.signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()


TLS_FILES = os.path.join(top, "tests/tls")


def redis_tls(certificate="server.pem", key="server.key", clients="no"):
    """TLS options of redis-server. `clients`: whether it requires client certificates."""
    files = [os.path.join(TLS_FILES, name) for name in (certificate, key, "ca.pem")]
    return ["--tls-cert-file", files[0], "--tls-key-file", files[1], "--tls-ca-cert-file", files[2], "--tls-auth-clients", clients,
            "--tls-replication", "yes"]


def secured(plain, server):
    """Starts TLS on the connection if the server uses it. Does not verify the server's
    certificate."""
    if not getattr(server, "tls", None):
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(os.path.join(TLS_FILES, "client.pem"), os.path.join(TLS_FILES, "client.key"))
    return context.wrap_socket(plain)


def read_reply(stream):
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("Redis closed the connection")
    kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RuntimeError(rest)
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
    return [read_reply(stream) for _ in range(int(rest))]


# Passes descriptors as systemd does (sd_listen_fds(3)): numbered from 3, for the process in
# LISTEN_PID.
ACTIVATE = """
import fcntl, os, sys
end = sys.argv.index("--")
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[1:end]]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)))
os.closerange(3 + len(high), 256)
os.execv(sys.argv[end + 1], sys.argv[end + 1:])
"""


class Weir(Process):
    """A running weir. `address`: its first listener; `addresses`: all listeners; `admin`: its admin
    listener."""

    def __init__(self, rig, name, policy, wait=True, environment=None, sockets=()):
        self.policy_file = os.path.join(rig.directory, f"{name}.yaml")
        with open(self.policy_file, "w", encoding="utf-8") as out:
            os.chmod(self.policy_file, 0o600)  # passwords in it
            out.write(policy if isinstance(policy, str) else json.dumps(policy, indent=1))
        self.policy, self.reloads = policy, 0
        self.expected_errors, self.expected_exit = [], 0
        environment = {**os.environ, **(environment or {})}
        if sockets:
            environment["LISTEN_FDNAMES"] = ":".join(fd_name for fd_name, _ in sockets)
        descriptors = [s.fileno() for _, s in sockets]
        activate = [sys.executable, "-S", "-c", ACTIVATE, *map(str, descriptors), "--"] if sockets else []
        super().__init__(rig, name, [*activate, weir_program, "-c", self.policy_file], env=environment, pass_fds=descriptors)
        if wait:
            self.wait_for_output(r"^\S+ info +(ready)")
            self.addresses = [address_of(t) for t in re.findall(r"listening on (\S+)$", self.output(), re.M)]
            self.address = self.addresses[0] if self.addresses else None  # None: rate_limit_service alone
            admin = re.search(r"admin on (\S+)$", self.output(), re.M)
            self.admin = admin and address_of(admin[1])

    def wait_for_redis(self):
        """Waits until every worker is connected to Redis. Otherwise `on_failure` could decide the
        first requests."""
        # None: no limit uses Redis
        eventually(lambda: self.metric("weir_redis_ready_workers") in (None, self.metric("weir_workers")),
                   what="every worker's connection to Redis")
        return self

    def reload(self, **keys):
        """Replaces these top-level keys of the policy, sends SIGHUP, and waits until the new policy
        is in effect."""
        self.policy = {**self.policy, **keys}
        with open(self.policy_file, "w", encoding="utf-8") as out:
            out.write(json.dumps(self.policy, indent=1))
        self.signal(signal.SIGHUP)
        self.reloads += 1
        self.wait_for_output("is in effect", count=self.reloads)
        return self

    def expect_errors(self, *patterns):
        """Error log lines that the test expects. All other error lines fail the test."""
        self.expected_errors += patterns

    def output(self):
        """Without the last line while weir is writing it."""
        alive, text = self.alive(), super().output()
        return text[:text.rfind("\n") + 1] if alive else text

    def log(self):
        return LOG_LINE.findall(self.output())

    def metric(self, name, **labels):
        """The sum of the samples of this metric with these labels. None if there are none."""
        from wire import get
        assert re.sub(r"_(bucket|count|sum)$", "", name) in documented_metrics, f"{name} is not in docs/monitoring.md or backends.md"
        total, text = None, get(self.admin, "/metrics", host="127.0.0.1").body.decode()
        for have, value in re.findall(rf"^{name}(?:\{{(.*)\}})? ([-+0-9.eEinfNa]+)$", text, re.M):
            if labels.items() <= dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', have)).items():
                total = (total or 0) + float(value)
        return total

    def counts(self, value, name, **labels):
        """Waits until metric(name, **labels) is `value`. Most counters are updated after the last
        byte of the response is written, so a client can read them too early. Fails at once if a
        counter (_total) is above the value."""
        seen = []

        def look():
            seen[:] = [self.metric(name, **labels)]
            assert not (name.endswith("_total") and seen[0] and seen[0] > value), f"{name} {labels} is {seen[0]:g} and not {value}"
            return seen[0] == value
        try:
            eventually(look)
        except TimedOut:
            raise AssertionError(f"{name} {labels} stays at {seen[0]} and is not {value}") from None

    def resident_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def finish(self):
        """Stops weir with SIGTERM. Fails unless the exit status is 0 and the log has no unexpected
        errors."""
        if self.alive():
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.wait(40)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("weir did not end within 40 s of SIGTERM") from None
        output = self.output()
        fatal = FATAL.search(output.replace(self.directory, ""))  # its random name may match
        assert not fatal, f"in weir's output: {fatal[0]}"
        code = self.popen.returncode
        assert self.expected_exit is None or code == self.expected_exit, f"weir ended with {code}"
        for level, message in LOG_LINE.findall(output):
            assert level != "error" or any(re.search(p, message) for p in self.expected_errors), \
                f"weir logged an error: {message}"


BASE_POLICY = {
    "workers": 2,
    "listen": ["127.0.0.1:0"],
    "admin": {"address": "127.0.0.1:0", "hosts": ["api.test"]},  # the default Host of requests
    "identity": {"from": ["header:X-Client-Id", "ip"]},
    "log": {"access": "off"},
}


class Rig:
    def __init__(self, name):
        # For one test of four, glibc fills allocated memory with a byte pattern, to reveal reads of
        # uninitialized memory without a sanitizer. This doubles the CPU time of weir's start.
        # AddressSanitizer always does it.
        if binascii.crc32(name.encode()) % 4 == 0:
            os.environ.setdefault("MALLOC_PERTURB_", "165")
        self.directory = tempfile.mkdtemp(prefix=f"weir-test-{os.getpid()}-")
        self.name, self.processes, self.cleanups = name, [], []
        self.the_redis = self.the_upstream = None

    def redis(self, **more):
        """The test's Redis. Keyword arguments, as for Redis(), start a new server; without them,
        the existing server is returned."""
        if more or not self.the_redis:
            self.the_redis = Redis(self, f"redis-{len(self.processes)}", **more)
        return self.the_redis

    def upstream(self, **more):
        """The test's upstream. Keyword arguments start a new upstream; without them, the existing
        upstream is returned."""
        if more or not self.the_upstream:
            self.the_upstream = Upstream(self, f"upstream-{len(self.processes)}", **more)
        return self.the_upstream

    def checked(self, policy):
        """The result of weir check for this file, once Redis has replied to it within 0.5 s."""
        def replied():
            result = self.command("check", "-c", policy)
            return "no reply in time" not in result.stderr and result
        return eventually(replied, what="replies to weir check")

    def policy(self, **keys):
        """The base policy with these top-level keys. Adds `redis` and `upstreams`, and a rule with
        all `limits`."""
        policy = {**BASE_POLICY, **keys}
        # Long timeouts and on_failure: deny, so that a slow machine does not look like a wrong
        # decision.
        policy["redis"] = {"timeout": "5s", "on_failure": "deny", **keys.get("redis", {})}
        if not {"address", "sentinel", "cluster"} & policy["redis"].keys():
            policy["redis"]["address"] = self.redis().text
        upstreams = keys["upstreams"] if "upstreams" in keys else {"api": {"servers": [self.upstream().text]}}
        policy["upstreams"] = {name: {"connect_timeout": "20s", **upstream} for name, upstream in upstreams.items()}
        if "rules" not in keys and "limits" in keys:
            policy["rules"] = [{"limits": list(keys["limits"])}]
        return policy

    def weir(self, text=None, wait=True, environment=None, sockets=(), **keys):
        """Starts weir with a policy of these keys, or with this policy text. Waits until weir is
        ready and, if it uses the test's Redis and that is running, connected. wait="listening":
        does not wait for Redis. wait=False: does not wait. `sockets`: pairs (name, listening
        socket) to pass as systemd does."""
        policy = text or self.policy(**keys)
        weir = Weir(self, f"weir-{len(self.processes)}", policy, wait, environment, sockets)
        if wait is True and not text and self.the_redis and self.the_redis.process and \
                policy["redis"].get("address") == self.the_redis.text:
            weir.wait_for_redis()
        return weir

    def command(self, *arguments, **more):
        """Runs weir with these arguments until it exits. Returns a CompletedProcess with text
        output."""
        return subprocess.run([weir_program, *arguments], cwd=self.directory, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=30 * time_scale, **more)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def add_cleanup(self, closer):
        """Calls `closer()` at the end of the test, before the programs are stopped."""
        self.cleanups.append(closer)

    def finish(self):
        """Stops weir first, while its servers still run. Returns all failures."""
        problems = []
        for closer in self.cleanups:
            closer()
        for process in sorted(self.processes, key=lambda p: not isinstance(p, Weir)):
            try:
                process.finish()
            except AssertionError as error:
                problems.append(f"{process.name}: {error}")
        left = children()
        if left:
            problems.append(f"processes left running: {left}")
        return problems

    def show_logs(self):
        for process in self.processes:
            if isinstance(process, Weir):
                with open(process.policy_file, encoding="utf-8") as policy:
                    print(f"--- {process.name}.yaml\n{policy.read()}")
                print(f"--- {process.name}, exit {process.popen.poll()}\n{process.output()[-20000:]}")


def children_of(pid, command=""):
    """The pids of the child processes of `pid`, optionally only those with this command name."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                name, _, fields = stat.read().partition("(")[2].rpartition(")")
        except OSError:  # the process has exited
            continue
        if int(fields.split()[1]) == pid and command in ("", name):
            found.append(int(entry))
    return found


def children():
    """Kills the processes that the test left running. Returns them as [(pid, command)]. This
    process is a subreaper, so orphaned grandchildren become its children."""
    found = []
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listing:
        for pid in map(int, listing.read().split()):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as command:
                    words = command.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                if words:
                    found.append((pid, words))
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (OSError, ChildProcessError):
                pass
    return found


PR_SET_CHILD_SUBREAPER = 36


def run(name, function):
    """Runs one test in this process. Raises an exception if it fails or leaves processes behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rig = Rig(name)
    failure = None
    try:
        function(rig)
    except BaseException as error:
        failure = error
    problems = rig.finish()
    if failure or problems:
        rig.show_logs()
    shutil.rmtree(rig.directory, ignore_errors=True)
    for problem in problems:
        print(problem)
    if failure:
        raise failure
    assert not problems, problems[0]
