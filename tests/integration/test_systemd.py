"""systemd: notifications, the watchdog, socket activation, draining, credentials."""

import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from ports import accepts
from rig import TimedOut, address_of, eventually, free_port, text_of, weir_program
from tls_client import TlsConnection, pair
from wire import Connection, IncompleteResponse, connect, get, request_bytes

HOUR = {"script": "gcra", "limit": 1_000_000, "period": "1h"}


class Notifications:
    """The socket in NOTIFY_SOCKET, and the states received so far."""

    def __init__(self, rig):
        self.path = os.path.join(rig.directory, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)
        rig.add_cleanup(self.socket.close)

    def next(self):
        """The next state, as a dictionary."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def pending(self):
        states = []
        while select.select([self.socket], [], [], 0)[0]:
            states.append(self.next())
        return states

    def until(self, name, value="1"):
        while True:
            state = self.next()
            if state.get(name) == value:
                return state


def listening(address=("127.0.0.1", 0), family=socket.AF_INET):
    s = socket.socket(family)
    if family != socket.AF_UNIX:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(address)
    s.listen(1024)
    return s


def test_ready_reload_and_stop_are_notified(rig):
    notifications = Notifications(rig)
    weir = rig.weir(environment={"NOTIFY_SOCKET": notifications.path}, limits={"each": HOUR})
    weir.expect_errors("reload", "rules", "upstreams is missing")
    assert weir.policy_file in notifications.until("READY")["STATUS"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    weir.reload()
    reloading = notifications.until("RELOADING")
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert "failed" not in notifications.until("READY")["STATUS"]
    with open(weir.policy_file, "w", encoding="utf-8") as out:
        out.write("rules: nonsense\n")
    weir.signal(signal.SIGHUP)
    notifications.until("RELOADING")
    assert "reload failed" in notifications.until("READY")["STATUS"]
    weir.signal(signal.SIGTERM)
    assert int(notifications.until("STOPPING")["EXTEND_TIMEOUT_USEC"]) > 30_000_000
    assert weir.wait() == 0


def write_and_reload(weir, policy):
    with open(weir.policy_file, "w", encoding="utf-8") as out:
        json.dump(policy, out)
    weir.signal(signal.SIGHUP)


def test_a_reload_before_weir_is_ready_does_not_notify_readiness(rig):
    notifications, redis = Notifications(rig), rig.redis()
    redis.freeze()  # workers wait for Redis
    admin = f"127.0.0.1:{free_port()}"
    weir = rig.weir(environment={"NOTIFY_SOCKET": notifications.path}, redis={"address": redis.text}, limits={"each": HOUR},
                    admin=admin, wait=False)
    weir.expect_errors("reload", "has errors", "nonsense")
    weir.wait_for_output("weir ")
    write_and_reload(weir, {**weir.policy, "nonsense": 1})
    weir.wait_for_output("the current policy stays in effect")

    def starts():  # the main thread responds when the reload has ended
        return b"starting" in get(address_of(admin), "/readyz", host="127.0.0.1").body
    early = starts()
    states = notifications.pending() if early else []
    assert not (starts() and any("READY" in state for state in states)), states
    redis.thaw()
    # a busy machine may let weir be ready before its reload
    assert "reload failed" in notifications.until("READY")["STATUS"] or not early and "reload failed" in notifications.until("READY")["STATUS"]


def test_a_failed_reload_stays_the_status_when_the_one_before_takes_effect(rig):
    notifications, redis = Notifications(rig), rig.redis()
    weir = rig.weir(environment={"NOTIFY_SOCKET": notifications.path}, redis={"address": redis.text}, limits={"each": HOUR})
    weir.expect_errors("reload", "has errors", "nonsense")
    notifications.until("READY")
    redis.freeze()  # workers wait for the connection of the new policy
    write_and_reload(weir, {**weir.policy, "limits": {"each": {**HOUR, "limit": 5}}})
    weir.wait_for_output("reload: limits: changed each")
    write_and_reload(weir, {**weir.policy, "nonsense": 1})
    weir.wait_for_output("the current policy stays in effect")
    redis.thaw()
    weir.wait_for_output("is in effect")
    assert ["reload failed" in notifications.until("READY")["STATUS"] for _ in range(2)][-1]


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


class Stopped:
    """One thread of a process, stopped with ptrace."""

    def __init__(self, thread):
        self.thread, self.libc = thread, ctypes.CDLL(None, use_errno=True)
        assert self.ptrace(PTRACE_SEIZE) == 0, os.strerror(ctypes.get_errno())

    def ptrace(self, request):
        return self.libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.thread), ctypes.c_void_p(), ctypes.c_void_p())

    def __enter__(self):
        assert self.ptrace(PTRACE_INTERRUPT) == 0
        os.waitpid(self.thread, WALL)
        return self

    def __exit__(self, *_):
        assert self.ptrace(PTRACE_DETACH) == 0


def stopped_and_reported(weir, thread, word, count):
    """The thread, stopped until weir's output contains the word `count` times. A log writer that is
    stopped within a write counts as alive, since a disk may be slow: it is stopped again."""
    while True:
        if "log writer" not in word:  # a thread that a busy machine delays may be reported already
            eventually(lambda: weir.metric("weir_problem", problem="worker_stuck") == 0)
        stopped = Stopped(thread).__enter__()
        try:
            weir.wait_for_output(word, count, seconds=5)
            return stopped
        except TimedOut:
            stopped.__exit__()
            if "log writer" not in word:
                raise


def is_silent(notifications, seconds):
    """Whether no state arrives within `seconds`, after reading pending ones."""
    def pending():
        try:
            return notifications.next()
        except BlockingIOError:
            return None
    while pending():
        pass
    time.sleep(seconds)
    return pending() is None


def threads_of(weir):
    """The thread ids by thread name."""
    numbers = map(int, os.listdir(f"/proc/{weir.pid}/task"))
    return {open(f"/proc/{weir.pid}/task/{number}/comm", encoding="ascii").read().strip(): number for number in numbers}


def test_watchdog_pings_stop_if_a_thread_hangs(rig):
    notifications = Notifications(rig)
    weir = rig.weir(environment={"NOTIFY_SOCKET": notifications.path, "WATCHDOG_USEC": "400000"})
    weir.expect_errors("has not completed a loop iteration", "log writer has not responded")
    for _ in range(3):
        notifications.until("WATCHDOG")
    threads = threads_of(weir)
    for name, word in ("weir worker 0", "worker 0 has not"), ("weir worker 1", "worker 1 has not"), ("weir log", "log writer has not"):
        before = weir.output().count(word)  # on a busy machine, any thread can stall that long
        stopped = stopped_and_reported(weir, threads[name], word, before + 1)
        notifications.socket.setblocking(False)
        eventually(lambda: is_silent(notifications, 0.5), what=f"no ping within the watchdog's interval: {word}")
        if "worker" in name:
            eventually(lambda: get(weir.admin, "/readyz").status == 503 and weir.metric("weir_problem", problem="worker_stuck") == 1)
        notifications.socket.settimeout(20)
        stopped.__exit__()
        notifications.until("WATCHDOG")
    weir.reload()  # can take longer than the interval
    notifications.until("RELOADING")
    assert int(notifications.until("WATCHDOG")["WATCHDOG_USEC"]) > 100_000_000
    notifications.until("WATCHDOG_USEC", "400000")


def test_a_worker_that_hangs_is_visible_without_systemd(rig):
    weir = rig.weir()
    weir.expect_errors("worker 1 has not completed a loop iteration for 5.0 s; if this continues, restart weir")
    with Stopped(threads_of(weir)["weir worker 1"]):
        eventually(lambda: b"a worker does not complete its loop iterations" in get(weir.admin, "/readyz").body, 20)


def test_sockets_are_matched_by_address_and_by_name(rig):
    one, secure, admin, local = listening(), listening(), listening(), os.path.join(rig.directory, "weir.sock")
    sockets = [("weir.socket", listening(local, socket.AF_UNIX)), ("admin-1", admin), ("listen-2", secure), ("weir.socket", one)]
    weir = rig.weir(workers=7, sockets=sockets, limits={"each": HOUR}, admin="127.0.0.1:1", listen=[
        text_of(one.getsockname()), {"address": "127.0.0.1:2", "tls": pair("one")}, text_of(local), "127.0.0.1:0"])
    weir.wait_for_output("4 of these sockets are from systemd")
    assert weir.addresses[:3] == [one.getsockname(), secure.getsockname(), local] and weir.admin == admin.getsockname()
    connections = [Connection(address) for address in weir.addresses[:1] + weir.addresses[2:] for _ in range(20)]
    connections += [TlsConnection(weir.addresses[1]) for _ in range(3)]
    for connection in connections:
        assert connection.request().status == 200
    used = [weir.metric("weir_worker_connections", worker=str(number)) for number in range(7)]
    assert sum(used) == len(connections) and max(used) <= 24, used
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0
    connect(local).close()  # systemd owns the socket file
    connect(one.getsockname()).close()


def test_a_dual_stack_socket_serves_ipv4(rig):
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    weir = rig.weir(sockets=[("weir.socket", both)], listen=[f"0.0.0.0:{both.getsockname()[1]}"], log={"access": "json"})
    assert get(("127.0.0.1", weir.address[1])).status == 200
    weir.wait_for_output('"peer":"127.0.0.1"')


def test_a_socket_that_the_policy_does_not_list_is_an_error(rig):
    one = listening()
    weir = rig.weir(wait=False, sockets=[("weir.socket", one)])
    weir.expected_exit = 1
    weir.expect_errors("which no listener of the policy has")
    assert weir.wait() == 1 and text_of(one.getsockname()) in weir.output()


def test_systemd_socket_activate(rig):
    """systemd's own tool, which starts weir at the first connection."""
    port = free_port()
    weir = rig.weir(listen=[f"127.0.0.1:{port}"])  # to write the policy file
    weir.finish()
    tool = subprocess.Popen(["systemd-socket-activate", "-l", f"127.0.0.1:{port}", "--setenv=WEIR_LUA_DIR", weir_program, "-c",
                             weir.policy_file], stderr=subprocess.PIPE)
    try:
        eventually(lambda: b"Listening on" in tool.stderr.readline())
        assert get(("127.0.0.1", port)).status == 200
        eventually(lambda: b"1 of these sockets is from systemd" in tool.stderr.readline())
    finally:
        tool.terminate()
        output = tool.stderr.read()
        tool.stderr.close()
    assert tool.wait(20) == 0, output


def test_connections_are_queued_while_weir_restarts(rig):
    one = listening()
    sockets, listen = [("weir.socket", one)], [text_of(one.getsockname())]
    weir = rig.weir(sockets=sockets, listen=listen)
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0
    waiting = [Connection(one.getsockname()).send(request_bytes()) for _ in range(20)]
    rig.weir(sockets=sockets, listen=listen)
    assert [connection.response().status for connection in waiting] == [200] * 20


def test_a_drain_period_precedes_the_shutdown(rig):
    weir = rig.weir(workers=1, timeouts={"drain": "1h"})
    assert get(weir.admin, "/readyz", host="127.0.0.1").status == 200
    idle = Connection(weir.address)
    assert idle.request()["Connection"] != "close"
    weir.signal(signal.SIGTERM)
    weir.wait_for_output("draining for 3600 s")
    assert get(weir.admin, "/readyz", host="127.0.0.1").status == 503
    for connection in idle, Connection(weir.address):
        response = connection.request()
        assert response.status == 200 and response["Connection"] == "close"
        assert connection.is_closed()
        connection.close()
    late = Connection(weir.address)
    eventually(lambda: weir.metric("weir_connections") == 1)
    ended = time.monotonic()
    weir.signal(signal.SIGTERM)  # a second signal ends the drain
    weir.wait_for_output("finishing requests in progress")
    weir.signal(signal.SIGTERM)  # a third one changes nothing
    try:
        assert late.request().status == 200
    except (IncompleteResponse, ConnectionError):
        assert time.monotonic() - ended > 0.9, "closed although its request was in time"
    late.close()
    eventually(lambda: not accepts(weir.address), what="the listener to be closed")
    assert weir.wait() == 0
    assert weir.output().count("finishing requests in progress") == 1


def test_restarts_under_load_fail_no_request(rig):
    """Each client sends requests continuously. Every restart is a SIGTERM and a new process with
    the same socket."""
    one = listening()
    more = {"sockets": [("weir.socket", one)], "listen": [text_of(one.getsockname())], "timeouts": {"drain": "2s"},
            "limits": {"each": HOUR}}
    statuses, failures, stop = [], [], threading.Event()

    def client():
        connection = None
        while not stop.is_set():
            try:
                connection = connection or Connection(one.getsockname())
                response = connection.request()
                statuses.append(response.status)
                if response["Connection"] == "close":
                    connection.close()
                    connection = None
            except (IncompleteResponse, OSError) as failure:
                failures.append(failure)
                connection = None

    weir = rig.weir(**more)
    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        seen = len(statuses)
        eventually(lambda: len(statuses) >= seen + 100, what="further requests")
        weir.signal(signal.SIGTERM)
        assert weir.wait() == 0
        weir = rig.weir(**more)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures and set(statuses) == {200}, (failures, set(statuses))
    assert len(re.findall(r"SIGTERM: draining", "".join(p.output() for p in rig.processes if p.name.startswith("weir")))) == 3


def test_files_in_the_credentials_directory(rig):
    """LoadCredential= in the unit; the policy refers to the files by the variable that systemd
    sets."""
    directory = os.path.join(rig.directory, "credentials")
    os.mkdir(directory)
    for file in pair("one").values():
        shutil.copy(file, directory)
    names = {option: "${CREDENTIALS_DIRECTORY}/" + os.path.basename(path) for option, path in pair("one").items()}
    weir = rig.weir(listen=[{"address": "127.0.0.1:0", "tls": names}], environment={"CREDENTIALS_DIRECTORY": directory})
    assert TlsConnection(weir.address).request().status == 200
