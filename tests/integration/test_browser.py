"""A page on another origin, in a real browser (headless Chromium)."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from browser import close, open_page
from rig import eventually
from scripted import Scripted
from wire import get

PAGE = b"""<!doctype html><script>
async function run() {
  const seen = [];
  for (let i = 0; i < 10; i++) {
    try {
      const answer = await fetch("http://WEIR/items", { headers: { "X-Client-Id": "page" } });
      seen.push([answer.status, answer.headers.get("Retry-After"), answer.headers.get("RateLimit")]);
      if (answer.status == 429) break;
    } catch (error) { seen.push([String(error)]); break; }
  }
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
}
run();
</script>"""
CORS = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "RateLimit, Retry-After"}
LIMITS = {"each": dict(script="fixed_window", limit=3, period="1h")}


class Origin:
    """Serves the page and stores its report."""

    def __init__(self, rig, weir):
        origin = self
        self.seen = None

        class Handler(BaseHTTPRequestHandler):
            def respond(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.respond(PAGE.replace(b"WEIR", weir.encode()) if self.path == "/" else b"")

            def do_POST(self):
                origin.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.respond(b"")

            def log_message(self, *_):
                pass
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        rig.add_cleanup(self.server.shutdown)


def api(rig):
    """An API that allows the page to read responses. `methods`: those of the requests that it
    received."""
    methods = []

    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            methods.append(request[0].split(b" ")[0].decode())
            peer.send(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Headers: X-Client-Id\r\n"
                      b"Access-Control-Expose-Headers: RateLimit\r\nAccess-Control-Max-Age: 0\r\nContent-Length: 2\r\n\r\nok")
    server = Scripted(rig, script)
    server.methods = methods
    return server


def report_of_page(rig, weir):
    origin = Origin(rig, "%s:%d" % weir.address)
    browser = open_page(rig, origin.url)
    eventually(lambda: origin.seen is not None, 30, "the page's report")
    close(browser)
    return origin.seen


def test_a_page_on_another_origin_sees_the_429(rig):
    upstream = api(rig)
    weir = rig.weir(upstreams={"api": {"servers": [upstream.text]}}, limits=LIMITS, rejection={"headers": CORS})
    seen = report_of_page(rig, weir)
    assert [status for status, *_ in seen] == [200, 200, 200, 429], seen
    assert 3500 <= int(seen[-1][1]) <= 3600 and "each" in seen[-1][2], seen
    assert upstream.methods.count("OPTIONS") >= 1 and upstream.methods.count("GET") == 3, upstream.methods


def test_without_cors_headers_the_page_sees_a_network_error(rig):
    """Shows why the headers are needed: the browser hides a 429 from another origin."""
    weir = rig.weir(upstreams={"api": {"servers": [api(rig).text]}}, limits=LIMITS)
    seen = report_of_page(rig, weir)
    assert [entry[0] for entry in seen] == [200, 200, 200, "TypeError: Failed to fetch"], seen


PREFLIGHT = {"Origin": "https://app.test", "Access-Control-Request-Method": "PUT"}


def test_preflights_are_not_charged(rig):
    weir = rig.weir(limits={"one": dict(script="gcra", limit=1, period="1d", per="ip"), "named": dict(script="gcra", limit=1, period="1d")},
                    rules=[{"match": {"path": "/named", "methods": ["GET", "HEAD", "OPTIONS"]}, "limits": ["named"]}, {"limits": ["one"]}])

    def statuses(target="/", method="OPTIONS", **more):
        return [get(weir.address, target, method=method, **more).status for _ in range(3)]
    assert statuses(headers=PREFLIGHT) == [200, 200, 200]
    assert statuses("/named", headers=PREFLIGHT) == [200, 429, 429], "the rule names OPTIONS"
    assert get(weir.address).status == 200
    assert statuses(headers=PREFLIGHT) == [200, 200, 200], "preflights are not rejected either"
    for near in ({"Origin": "https://app.test"}, {"Access-Control-Request-Method": "PUT"}, {**PREFLIGHT, "Origin": ""},
                 {**PREFLIGHT, "X-HTTP-Method-Override": "GET"},
                 {**PREFLIGHT, "Connection": "Origin"}, {**PREFLIGHT, "Connection": "access-control-request-method"}):
        assert set(statuses(headers=near)) <= {400, 429}, near
    assert statuses(headers=PREFLIGHT, body=b"x") == [429, 429, 429], "a preflight has no content"
    assert statuses(method="GET", headers=PREFLIGHT) == [429, 429, 429]


def test_rejections_contain_the_headers_of_their_rule(rig):
    weir = rig.weir(limits={"one": dict(script="gcra", limit=1, period="1d")}, rejection={"headers": CORS},
                    rules=[{"match": {"path": "/own"}, "limits": ["one"], "rejection": {"headers": {"X-Reason": "slow down"}}},
                           {"match": {"path": "/none"}, "limits": ["one"], "rejection": {"headers": {}}}, {"limits": ["one"]}])
    first = get(weir.address)
    assert first.status == 200 and first["Access-Control-Allow-Origin"] is None, "only rejections get these headers"
    for _ in range(3):  # the first is formatted, later ones are patched
        answer = get(weir.address)
        assert answer.status == 429 and all(answer[name] == value for name, value in CORS.items()), answer
        own = get(weir.address, "/own")
        assert own.status == 429 and own["X-Reason"] == "slow down" and own["Access-Control-Allow-Origin"] is None, own
        assert get(weir.address, "/none")["Access-Control-Allow-Origin"] is None
