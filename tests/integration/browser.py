"""Headless Chromium over chromedriver's HTTP protocol (W3C WebDriver, and DevTools commands)."""

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess

from rig import Process, children_of, eventually
from scripted import Scripted

# the handler can outlive the browser
NO_CRASH_HANDLER = ["--disable-breakpad", "--disable-crash-reporter"]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", *NO_CRASH_HANDLER]
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c"}


def is_installed():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A browser page. Closed at the end of the test."""

    def __init__(self, rig, width=1280, height=900, dark=False):
        self.session, self.log = "", os.path.join(rig.directory, "chromedriver.log")
        self.start()
        rig.add_cleanup(self.close)
        self.port = int(eventually(self.started, 30, "chromedriver")[1])
        self.session = self.command("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={rig.directory}/chromium"]}}}})["sessionId"]
        self.look(width, height, dark)

    def start(self):
        with open(self.log, "wb") as out:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=out, start_new_session=True)

    def started(self):
        """The port that chromedriver announces. It takes a free port of 127.0.0.1 and the same one of
        ::1, which another test can have: then it ends, and is started again."""
        if self.driver.poll() is not None:
            assert "port not available" in self.output(), f"chromedriver ended: {self.output()}"
            self.start()
        return re.search(r"started successfully on port (\d+)", self.output())

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def command(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, f"/session/{self.session}{path}" if self.session else "/session",
                           json.dumps(body if body is not None else {}) if method == "POST" else None, {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        assert not (isinstance(value, dict) and "error" in value), value.get("message")
        return value

    def devtools(self, command, **parameters):
        return self.command("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, width, height, dark):
        self.width = width
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs `script`, the body of a function, and returns its result. Waits for a returned
        promise."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait_for(self, script, *arguments, what=None, seconds=10):
        return eventually(lambda: self.run("return " + script, *arguments), seconds, what or script)

    def press(self, *keys):
        """Sends keys to the focused element: names of KEYS, or text."""
        actions = [{"type": kind, "value": c} for key in keys for c in (KEYS.get(key) or key) for kind in ("keyDown", "keyUp")]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def picture(self, path, whole=True):
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as out:
            out.write(base64.b64decode(shot["data"]))

    def console_errors(self):
        """Warnings and errors of the console, including violations of the
        Content-Security-Policy."""
        return [entry["message"] for entry in self.command("POST", "/se/log", {"type": "browser"}) if entry["level"] in ("WARNING", "SEVERE")]

    def overflow(self):
        """Elements that are wider than the page."""
        return self.run("""return [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length &&
            !e.closest('.skip') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
            .map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 5)""")

    def close(self):
        try:
            if self.session:
                self.command("DELETE", "")
        except (OSError, AssertionError):
            pass
        if self.driver.poll() is None:
            os.killpg(self.driver.pid, signal.SIGTERM)
            self.driver.wait()
        eventually(lambda: is_over(self.driver.pid), what="the end of the browser's processes")
        kill_crash_handlers()


def is_over(group):
    """Kills the processes of the group and returns whether there are none left. Orphans become children of this process."""
    try:
        os.killpg(group, signal.SIGKILL)
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ProcessLookupError:
        return True
    except ChildProcessError:
        pass
    return False


def open_page(rig, url, *flags):
    return Process(rig, f"chromium-{len(rig.processes)}", [
        shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", *NO_CRASH_HANDLER,
        "--remote-debugging-port=0", f"--user-data-dir={os.path.join(rig.directory, 'browser')}", *flags, url], start_new_session=True)


def close(browser):
    browser.kill()
    eventually(lambda: is_over(browser.popen.pid), what="the end of the browser's processes")
    kill_crash_handlers()


def kill_crash_handlers():
    """Chromium's crash handler can outlive the browser, in a session of its own."""
    for pid in children_of(os.getpid(), "chrome_crashpad"):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


SITE = b"""<!doctype html><script>
const seen = [performance.getEntriesByType("navigation")[0].nextHopProtocol];
const report = () => fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
const socket = new WebSocket("wss://" + location.host + "/ws");
socket.onopen = () => seen.push("open");
socket.onmessage = (message) => { seen.push(message.data); report(); };
socket.onerror = () => { seen.push("error"); report(); };
</script>"""


class Site(Scripted):
    """An HTTP/1.1 server with a page that opens a WebSocket to its own origin."""

    def __init__(self, rig):
        self.rig, self.seen, self.upgrades = rig, None, 0
        super().__init__(rig, self.one)

    def one(self, peer, _number):
        while (request := peer.read_request()) is not None:
            line, body = request[0].split(b"\r\n")[0], b""
            if b" /ws " in line:
                self.upgrade(peer, request[0])
                return
            if b" /seen " in line:
                self.seen = json.loads(request[1])
            elif b" / " in line:
                body = SITE
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def upgrade(self, peer, head):
        """RFC 6455 section 4.2.2, then a text frame."""
        key = re.search(rb"\r\nsec-websocket-key: *(\S+)", head, re.I)[1]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.upgrades += 1
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello")
        eventually(lambda: self.seen is not None, 30)

    def shown_by(self, address):
        """Opens the page over TLS at `address` and returns its report."""
        browser = open_page(self.rig, "https://%s:%d/" % address, "--ignore-certificate-errors")
        eventually(lambda: self.seen is not None, 30, "the page's report")
        close(browser)
        return self.seen
