"""weir top: one screen with --once, and the live view on a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time

from rig import TimedOut, eventually, time_scale, text_of, weir_program
from wire import flood

ALTERNATE, NORMAL, NO_CURSOR, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[?25h"
HOUR = {"script": "gcra", "limit": 3, "period": "1h"}
EVIL = "caf\u00e9\u009b31m"  # some terminals interpret the C1 control as CSI


def start(rig, **more):
    weir = rig.weir(limits={"each": HOUR}, rules=[{"name": "everything", "limits": ["each"]}],
                    identity={"from": ["header:X-Client-Id", "ip"], "headers_from": "anyone"}, **more).wait_for_redis()
    flood(weir.address, 8, connections=2, headers={"X-Client-Id": "busy"})
    flood(weir.address, 2, connections=1, headers=[("X-Client-Id", EVIL.encode().decode("latin-1"))])
    return weir


class Terminal:
    """weir top on its own pseudo-terminal."""

    def __init__(self, rig, *arguments, columns=100, lines=40):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execv(weir_program, [weir_program, "top", *arguments])
        rig.add_cleanup(self.close)
        self.output, self.status = b"", None

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))  # sends SIGWINCH

    def read_until(self, part, seconds=10):
        end = time.monotonic() + seconds * time_scale
        while part not in self.output:
            if time.monotonic() > end:
                raise TimedOut(f"{part!r} in {self.output[-2000:]!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.fd, 65536)
                except OSError:  # the program has exited
                    assert part in self.output, self.output[-2000:]

    def frame(self, lines):
        """The lines of the last frame for a terminal with this number of lines, without colours."""
        self.read_until(b"\x1b[%d;1H" % lines)
        text = self.output.rpartition(b"\x1b[%d;1H" % lines)[0].rpartition(b"\x1b[H")[2]
        return re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", text).decode("ascii").replace("\r", "").split("\n")

    def echo_is_on(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def has_exited(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def close(self):
        if not self.has_exited():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_top_once_prints_one_screen(rig):
    weir = start(rig)
    result = rig.command("top", "--once", "http://" + text_of(weir.admin) + "/")
    assert result.returncode == 0, result.stderr
    screen = result.stdout
    assert re.search(r"^id:busy +3 +id:busy +5$", screen, re.M), screen
    assert re.search(r"^id:caf\\xc3\\xa9\\xc2\\x9b31m +2$", screen, re.M), screen
    assert re.search(r"^each +0 +0 +- +10$", screen, re.M) and re.search(r"^everything +0 +0 +10$", screen, re.M), screen
    assert re.search(r"^Redis +up ", screen, re.M) and "Servers    1 of 1 up" in screen, screen
    assert screen.isascii() and "\x1b" not in screen and max(map(len, screen.split("\n"))) <= 100
    narrow = rig.command("top", "--once", text_of(weir.admin), env={**os.environ, "COLUMNS": "60"}).stdout
    assert max(map(len, narrow.split("\n"))) <= 60 and "id:busy" in narrow, narrow


def test_top_finds_the_listener_and_the_token_in_the_policy(rig):
    os.chmod(rig.write("admin.token", "0123456789abcdef"), 0o600)
    sock = os.path.join(rig.directory, "admin.sock")
    weir = rig.weir(rules=[], admin=[{"address": f"unix:{sock}.read", "read_only": True}, {"address": f"unix:{sock}", "token_file": "admin.token"}])
    for arguments in ["-c", weir.policy_file, "--once"], ["--once", "--token-file", "admin.token", f"unix:{sock}"]:
        result = rig.command("top", *arguments)
        assert result.returncode == 0 and "not needed" in result.stdout, result
    for options in [], ["--once"]:
        result = rig.command("-c", weir.policy_file, "top", *options)
        assert result.returncode == 0 and "not needed" in result.stdout, "without a terminal it is one screen"
    for arguments, why in (([f"unix:{sock}"], "401 Unauthorized: expected"), ([f"unix:{sock}.read"], "403 Forbidden: this listener is read_only"),
                           ([text_of(weir.address)], "expected the address of an admin listener"), (["unix:/nowhere"], "cannot connect"),
                           (["--token-file", "/nowhere", f"unix:{sock}"], "cannot be read"), (["no-such-name.invalid:1"], "expected http://HOST:PORT")):
        result = rig.command("top", "--once", *arguments)
        assert result.returncode == 1 and why in result.stderr and not result.stdout, (arguments, result)
    for arguments in ["--nonsense"], ["not an address"], ["127.0.0.1:x"], ["127.0.0.1:1", "surplus"]:
        result = rig.command("top", "--once", *arguments)
        assert result.returncode == 2 and result.stderr and not result.stdout, (arguments, result)
    result = rig.command("top", "-c", rig.write("none.yaml", "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"))
    assert result.returncode == 1 and "no admin listener that serves events" in result.stderr, result


def test_the_live_view_adapts_to_the_size_and_restores_the_terminal(rig):
    weir = start(rig)
    for end in "q", signal.SIGTERM, signal.SIGINT:
        terminal = Terminal(rig, text_of(weir.admin))
        terminal.read_until(b"id:busy")
        terminal.read_until(b"q quits")
        assert terminal.output.startswith(ALTERNATE + NO_CURSOR) and not terminal.echo_is_on()
        assert b"\xc2\x9b" not in terminal.output and rb"\xc2\x9b31m" in terminal.output
        assert b"the answer" not in terminal.output, "no error before the first event"
        if end == "q":
            terminal.output = b""
            terminal.resize(60, 12)
            lines = terminal.frame(12)
            assert len(lines) <= 12 and max(map(len, lines)) <= 60, lines
            os.write(terminal.fd, b"q")
        else:
            os.kill(terminal.pid, end)
        terminal.output = b""
        terminal.read_until(CURSOR + NORMAL)
        eventually(terminal.has_exited, what="weir top to exit")
        assert os.WIFEXITED(terminal.status) and os.WEXITSTATUS(terminal.status) == 0, terminal.status


def test_top_reconnects(rig):
    weir = start(rig)
    terminal = Terminal(rig, text_of(weir.admin))
    terminal.read_until(b"id:busy")
    terminal.output = b""
    weir.reload()
    terminal.read_until(b"the connection has ended")
    terminal.output = b""
    terminal.read_until(b"q quits")
    os.write(terminal.fd, b"q")
    terminal.read_until(CURSOR + NORMAL)
    eventually(terminal.has_exited, what="weir top to exit")


def test_a_process_that_hangs_is_named(rig):
    weir = start(rig)
    terminal = Terminal(rig, text_of(weir.admin))
    terminal.read_until(b"id:busy")
    terminal.output = b""
    weir.signal(signal.SIGSTOP)
    try:
        result = rig.command("top", "--once", text_of(weir.admin))
        assert (result.returncode, result.stderr) == (1, "weir: top: no event within 5 s\n"), result
        terminal.read_until(b"no event within 5 s")
    finally:
        weir.signal(signal.SIGCONT)
    terminal.output = b""
    terminal.read_until(b"q quits")


def test_top_reports_invalid_responses(rig):

    for answer, why in ((b"SSH-2.0-nonsense\r\n\r\n", "listener answers"), (b"", "no HTTP"),
                        (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"a\": \n\n", "not JSON"),
                        (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [[[[[]]]]]\n\n", "has ended"),
                        (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"interval_seconds\": 1, \"limits\": 3, \"top\": []}\n\n", None)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            top = subprocess.Popen([weir_program, "top", "--once", text_of(server.getsockname())], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            peer = server.accept()[0]
            peer.recv(4096)
            peer.sendall(answer)
            peer.close()
            out, err = top.communicate(timeout=10 * time_scale)
            assert (top.returncode == 1 and why in err) if why else top.returncode == 0, (answer, out, err)


def test_units_of_limits_with_costs_of_their_own(rig):
    limits = {"each": HOUR, "tokens": {"script": "gcra", "limit": 1000, "period": "1h", "cost": {"reserve": 7, "response_header": "X-Cost"}}}
    weir = rig.weir(limits=limits, rules=[{"limits": ["each", "tokens"]}], identity={"from": ["header:X-Client-Id"]})
    flood(weir.address, 3, connections=1, headers={"X-Client-Id": "busy"})
    weir.counts(21, "weir_limit_units_total", limit="tokens")
    screen = rig.command("top", "--once", text_of(weir.admin)).stdout
    assert re.search(r"^LIMITS .* TOTAL +UNITS/S$", screen, re.M) and re.search(r"^tokens +\S+ +0 +- +3 +\S+$", screen, re.M), screen
    assert re.search(r"^each +\S+ +0 +- +3$", screen, re.M) and max(map(len, screen.split("\n"))) <= 100, screen
