"""The dashboard in headless Chromium: contents and actions, at two widths, light and dark. Console
errors fail a test.

WEIR_PICTURES=docs/pictures tests/integration/run dashboard.live also writes the pictures for the
documentation, after a minute of load. |"""

import itertools
import json
import os
import random
import threading
import time

import browser
from envoy_calls import Caller, weir_with_service
from rig import eventually, timeout, top
from wire import Connection, flood, get, request_bytes

PICTURES = os.environ.get("WEIR_PICTURES")
SCRIPT = '<img src=x onerror="document.title=1">'  # a client can use this as its id
LIMITS = {"per-client": {"script": "gcra", "limit": 120, "period": "10s", "burst": 120}, "searches": {"script": "fixed_window", "limit": 40, "period": "1m", "cost": {"reserve": 2, "response_header": "X-Cost"}}}


def start(rig, **more):
    if not browser.is_installed():
        raise AssertionError("chromium is missing: install the Debian packages chromium and chromium-driver")
    return rig.weir(limits=LIMITS, rules=[{"name": "search", "match": {"path": "/search"}, "limits": ["per-client", "searches"]},
                                          {"name": "everything else", "limits": ["per-client"]}],
                    identity={"from": ["header:X-Client-Id", "ip"], "headers_from": "anyone"}, **more).wait_for_redis()


def url(weir):
    return "http://%s:%d/" % weir.admin


def text_of(page, selector, part, **more):
    page.wait_for("document.querySelector(arguments[0])?.textContent.includes(arguments[1])", selector, part, what=f"{part} in {selector}", **more)


def check_layout(page, name):
    """Nothing overflows the page, at any width and in both colour schemes."""
    for width in 1280, 390:
        for dark in False, True:
            page.look(width, 900, dark)
            eventually(lambda: page.overflow() == [], what="nothing to overflow the page: " + str(page.overflow()))
            if PICTURES and name:
                time.sleep(1.5)
                page.picture(os.path.join(top, PICTURES, f"{name}-{width}-{'dark' if dark else 'light'}.png"), whole=width > 600)
    page.look(1280, 900, False)


def load_for_a_minute(weir, end):
    """Load from clients with different request rates, for the pictures."""
    def client(seed):
        choose = random.Random(seed)
        names = ["partner-shop", "mobile-app", "crawler", "acme-billing", *(f"client-{i}" for i in range(40))]
        with Connection(weir.address) as connection:
            while time.monotonic() < end:
                name = names[min(int(choose.paretovariate(0.8)) - 1, len(names) - 1)]
                connection.request(choose.choice(["/search", "/orders", "/orders", "/items"]), headers={"X-Client-Id": name})
                time.sleep(choose.random() * (0.02 if (time.monotonic() / 15) % 2 < 1 else 0.05))
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    return threads


@timeout(150)
def test_live(rig):
    weir = start(rig, priorities={"all": "100%", "batch": "29%"})
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#connection", "live")
    text_of(page, "#busiest", "No request was admitted")
    text_of(page, "#rules", "may use 29% of shared limits")
    text_of(page, "#limited-window", "last minute")
    check_layout(page, None)
    if PICTURES:
        load = load_for_a_minute(weir, time.monotonic() + 65)
        time.sleep(44)
        page.run("""const p = document.getElementById('process'), name = '/etc/weir/weir.yaml';
            new MutationObserver(() => p.textContent.endsWith(name) || (p.textContent = p.textContent.replace(/[^ ]*$/, name)))
                .observe(p, {childList: true, characterData: true, subtree: true})""")
        page.run("document.getElementById('client').value = 'partner-shop'; document.getElementById('search').requestSubmit()")
        text_of(page, "#found", "searches")
        check_layout(page, "dashboard")
        for thread in load:
            thread.join()
        return
    flood(weir.address, 400, connections=8, headers={"X-Client-Id": "busy"})
    flood(weir.address, 30, connections=2, headers={"X-Client-Id": SCRIPT}, target="/search")
    text_of(page, "#limited", "id:busy")
    text_of(page, "#limited", SCRIPT)
    text_of(page, "#busiest", SCRIPT)
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0, "names are inserted as text"
    text_of(page, "#limits", "120 per 10 s, gcra")
    text_of(page, "#limits", "units/s, 40 in total")
    text_of(page, "#rules", "everything else")
    text_of(page, "#servers", "up")
    text_of(page, "#workers", "connected")
    assert page.run("return document.querySelector('#calls').hidden"), "no rate limit service"
    page.wait_for("[...document.querySelectorAll('.chart path.line-1')].every(p => p.getAttribute('d').length > 10)", what="a line in every chart")
    assert page.run("return document.querySelector('#chart-requests svg').getAttribute('aria-label')").startswith("all now ")
    page.look(390, 900, False)
    assert page.run("return document.querySelector('#workers tbody tr').clientHeight < 50"), "no word is broken on a narrow screen"
    wide = page.run("""return [...document.querySelectorAll('table')].filter((t) => t.getBoundingClientRect().right >
                       t.parentElement.getBoundingClientRect().right - 8).map((t) => t.id)""")
    assert wide == [], wide
    check_layout(page, None)
    assert page.console_errors() == []


def test_a_single_request_is_visible_in_the_charts_of_latency(rig):
    """The seconds before and after it have no latency, so it is no line but a dot."""
    weir = start(rig)
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#connection", "live")
    assert get(weir.address).status == 200
    for chart in "latency", "redis":
        page.wait_for("""(([line]) => { const [, x, y] = /^M([\\d.]+) ([\\d.]+)/.exec(line?.getAttribute('d')) ?? [];
                         return x !== undefined && line.isPointInStroke(new DOMPoint(x, y)); })(document.querySelectorAll(arguments[0]))""",
                      f"#chart-{chart} path.line-1", what=f"a dot in the chart of {chart}")
    assert page.console_errors() == []


def test_calls_of_the_rate_limit_service(rig):
    """A tile and two lines of the first chart, if the policy has the service."""
    entries = [{"key": "user", "rate_limit": {"unit": "day", "requests_per_unit": 1}}]
    weir, listener = weir_with_service(rig, {"edge": {"descriptors": entries}})
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#connection", "live")

    def calls():
        with Caller(listener) as caller:
            for _ in range(20):
                caller.call("edge", {"user": "a"})
        return "% over limit, p99" in page.run("return document.querySelector('#now-over').textContent")
    eventually(calls, what="calls in the tile")
    page.wait_for("document.querySelectorAll('#chart-requests path.line-4').length === 1")
    assert "calls over limit now" in page.run("return document.querySelector('#chart-requests svg').getAttribute('aria-label')")
    check_layout(page, None)
    assert page.console_errors() == []


def open_dialog(page, button):
    """Presses Enter on the button until the dialog opens: the page replaces its buttons whenever it
    refreshes the client."""
    def is_open():
        return page.run("return document.getElementById('dialog').open")

    def opens():
        if not is_open():
            page.run("document.getElementById(arguments[0])?.focus()", button)
            page.press("Enter")
        return is_open()
    eventually(opens, what=f"the dialog of {button} to open")


def wait_for_closed_dialog(page):
    """Waits until the server has responded to the confirmed request and the dialog is closed."""
    page.wait_for("!document.getElementById('dialog').open && !document.getElementById('confirm').disabled", what="the dialog to close")


@timeout(90)
def test_inspect_grant_and_reset_a_client_by_keyboard(rig):
    weir = start(rig)
    flood(weir.address, 50, connections=2, headers={"X-Client-Id": SCRIPT}, target="/search")
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#limited", SCRIPT)
    page.run("document.querySelector('#limited button').focus()")
    page.press("Enter")
    text_of(page, "#found", "rejects for")
    text_of(page, "#found", "limits of the policy")
    assert page.run("return /at .*\\d:\\d\\d/.test(document.getElementById('found').textContent)"), "the time of the data"
    open_dialog(page, "grant")
    text_of(page, "#dialog-text", "id:" + SCRIPT)
    page.press("Escape")
    page.wait_for("!document.getElementById('dialog').open")
    open_dialog(page, "grant")
    page.wait_for("document.activeElement.id === 'quota'", what="the first field of the dialog to have the focus")
    page.press("500", "Enter")
    wait_for_closed_dialog(page)
    text_of(page, "#found", "granted 500")
    quoted = "".join("%%%02x" % b for b in SCRIPT.encode())
    client = json.loads(get(weir.admin, "/api/v1/clients/" + quoted, host="127.0.0.1").body)
    assert client["grant"]["quota"] == 500 and 3590 < client["grant"]["ends_in_seconds"] <= 3600, client
    for button, confirmed, after in (("reset", "Everything that", "500 of 500"), ("revoke", "apply to", "40 of 40")):
        open_dialog(page, button)
        text_of(page, "#dialog-text", confirmed)
        page.run("document.getElementById('confirm').focus()")
        page.press("Enter")
        wait_for_closed_dialog(page)
        text_of(page, "#found", after)
    page.wait_for("!document.getElementById('revoke')", what="the grant to be removed")
    page.run("document.getElementById('client').value = 'ip:nonsense'; document.getElementById('search').requestSubmit()")
    page.wait_for("document.querySelector('#found .bad')?.textContent.length > 10", what="the error message")
    check_layout(page, None)
    assert all("400 (Bad Request)" in message for message in page.console_errors()), "only the invalid request logs an error"


def inspect(page, client):
    page.run("document.getElementById('client').value = arguments[0]; document.getElementById('search').requestSubmit()", client)


@timeout(90)
def test_limits_without_a_key_and_warnings(rig):
    """A limit of several attributes is listed before it counts the client, and again after a reset."""
    rig.redis().command("ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all", "-publish")
    routes = {"script": "fixed_window", "limit": 9, "period": "1d", "per": ["client", "route"]}
    other = {name: {**routes, "period": period} for name, period in (("odd", "90s"), ("short", "500ms"))}
    weir = rig.weir(limits={"by-route": routes, **other}, rules=[{"limits": ["by-route"]}], redis={"username": "weir", "password": "secret"}).wait_for_redis()
    page = browser.Browser(rig)
    page.open(url(weir))
    for period in "9 per 1 d,", "9 per 1 min 30 s,", "9 per 500\u00a0ms,":
        text_of(page, "#limits", period)
    inspect(page, "a:l:b")
    text_of(page, "#found", "9 of 9")
    get(weir.address, headers={"X-Client-Id": "a:l:b"})
    inspect(page, "a:l:b")
    text_of(page, "#found", "8 of 9")
    assert page.run("return document.querySelector('#found td').innerText.split(/\\s+/)") == ["by-route", "{route:*}"]
    open_dialog(page, "reset")
    page.run("document.getElementById('confirm').focus()")
    page.press("Enter")
    wait_for_closed_dialog(page)
    text_of(page, "#found", "9 of 9")
    text_of(page, "#found", "allowed to PUBLISH")
    check_layout(page, None)
    assert page.console_errors() == []


def test_a_problem_without_another_line_is_shown(rig):
    weir = start(rig)
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#connection", "live")

    def alert(problems, **redis):
        return page.run("""const s = structuredClone(latest);
            s.problems = arguments[0].map((name) => ({ name, text: `of ${name}` }));
            Object.assign(s.redis, arguments[1]);
            alerts(s);
            return document.getElementById('alert').textContent""", problems, redis)
    page.wait_for("latest && latest.redis.ready_workers === latest.workers.length")
    problems = ["redis_denies", "redis_unavailable", "redis_errors", "no_server"]
    assert alert(problems) == "Of redis_denies. Of redis_unavailable. Of redis_errors. Of no_server."
    down = alert(problems, ready_workers=0)
    assert down.startswith("Redis is down at") and down.endswith("policy. Of redis_errors. Of no_server."), down


@timeout(90)
def test_the_dashboard_with_ten_thousand_clients_and_then_without_redis(rig):
    weir = start(rig, redis={"timeout": "5s", "on_failure": "local"})
    page = browser.Browser(rig)
    page.open(url(weir))
    text_of(page, "#connection", "live")
    with Connection(weir.address) as connection:
        for begin in range(0, 10000, 100):
            connection.send(b"".join(request_bytes(headers={"X-Client-Id": f"{'a-long-name-' * 10}{i}"}) for i in range(begin, begin + 100)))
            for _ in range(100):
                connection.response("GET")
    page.wait_for("document.querySelectorAll('#busiest tbody button').length === 10")
    check_layout(page, None)
    weir.expect_errors("connection was lost", "out of memory")
    rig.redis().command("CONFIG", "SET", "maxmemory", "1")
    ids = itertools.count()  # new clients: a rejection writes nothing, so Redis does not refuse it
    eventually(lambda: get(weir.address, headers={"X-Client-Id": f"late-{next(ids)}"}) and not page.run("return document.getElementById('alert').hidden"), what="an alert")
    text_of(page, "#alert", "answers calls with errors")
    rig.redis().kill()
    get(weir.address)
    text_of(page, "#now-redis", "down")
    text_of(page, "#alert", "Redis is down")
    page.run("document.getElementById('client').value = 'busy'; document.getElementById('search').requestSubmit()")
    text_of(page, "#found", "Redis")
    check_layout(page, None)
    assert all("503 (Service Unavailable)" in message for message in page.console_errors())


@timeout(90)
def test_the_dashboard_requests_the_token(rig):
    os.chmod(rig.write("admin.token", "0123456789abcdef"), 0o600)
    weir = rig.weir(rules=[], admin={"address": "127.0.0.1:0", "token_file": "admin.token"})
    page = browser.Browser(rig)
    page.open(url(weir))
    page.wait_for("document.activeElement.id === 'token'", what="the token field")
    check_layout(page, None)
    page.press("wrong-token-of-16-bytes", "Enter")
    text_of(page, "#login-error", "does not accept")
    page.press("0123456789abcdef", "Enter")
    text_of(page, "#connection", "live")
    page.wait_for("document.getElementById('login').hidden")
    text_of(page, "#now-redis", "not needed")
    page.run("location.reload()")
    text_of(page, "#connection", "live")
    assert all("401 (Unauthorized)" in message for message in page.console_errors())
