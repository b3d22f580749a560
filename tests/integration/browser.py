"""Headless Chromium over chromedriver's HTTP protocol (W3C WebDriver, and DevTools commands)."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import subprocess

from rig import eventually

NO_CRASH_HANDLER = ["--disable-breakpad", "--disable-crash-reporter"]  # the handler is a process that can outlive its browser
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", *NO_CRASH_HANDLER]
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c"}


def is_installed():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A page. Ends with the test."""

    def __init__(self, rig, width=1280, height=900, dark=False):
        self.log = os.path.join(rig.directory, "chromedriver.log")
        with open(self.log, "wb") as out:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=out, start_new_session=True)
        rig.close_with(self.close)
        self.port = int(eventually(lambda: re.search(r"started successfully on port (\d+)", self.output()), what="chromedriver")[1])
        self.session = ""
        self.session = self.ask("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={rig.directory}/chromium"]}}}})["sessionId"]
        self.look(width, height, dark)

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, f"/session/{self.session}{path}" if self.session else "/session",
                           json.dumps(body if body is not None else {}) if method == "POST" else None, {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        assert not (isinstance(value, dict) and "error" in value), value.get("message")
        return value

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, width, height, dark):
        self.width = width
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """`script` is the body of a function; a promise that it returns is awaited."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait_for(self, script, *arguments, what=None, seconds=10):
        return eventually(lambda: self.run("return " + script, *arguments), seconds, what or script)

    def press(self, *keys):
        """Keys go to the focused element: names of KEYS, or text."""
        actions = [{"type": kind, "value": c} for key in keys for c in (KEYS.get(key) or key) for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def picture(self, path, whole=True):
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as out:
            out.write(base64.b64decode(shot["data"]))

    def complaints(self):
        """Warnings and errors of the console, which includes refusals by the Content-Security-Policy."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"}) if entry["level"] in ("WARNING", "SEVERE")]

    def overflow(self):
        """Elements that stick out of the page."""
        return self.run("""return [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length &&
            !e.closest('.skip') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
            .map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 5)""")

    def close(self):
        try:
            if self.session:
                self.ask("DELETE", "")
        except (OSError, AssertionError):
            pass
        if self.driver.poll() is None:
            os.killpg(self.driver.pid, signal.SIGTERM)
            self.driver.wait()
