"""The decision listener: called directly, and by nginx, Caddy and HAProxy as configured in
docs/recipes.md."""

import json
import shutil
import socket

from recipe_book import blocks, weir_with_recipe, recipes
from rig import Process, address_of, eventually, free_port
from scripted import Scripted
from wire import Connection, get, request_bytes

LIMITS = {"per-client": {"script": "gcra", "limit": 3, "period": "1h", "burst": 3}}
RULES = [{"match": {"path": "/v1/**", "methods": ["POST"]}, "limits": ["per-client"]}, {"limits": "none"}]


def weir_with_decisions(rig, **more):
    """Starts weir with a decision listener; returns weir and the listener's address."""
    decisions = {"listen": "127.0.0.1:0", "hosts": ["api.test"], **more.pop("decisions", {})}  # the Host of wire.get()
    weir = rig.weir(limits=LIMITS, rules=more.pop("rules", RULES), decisions=decisions, **more)
    return weir, address_of(weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0])


def forwarded(method="POST", uri="/v1/x", host="a.test", client="203.0.113.7", **more):
    return {"X-Forwarded-Method": method, "X-Forwarded-Uri": uri, "X-Forwarded-Host": host, "X-Forwarded-Proto": "https",
            "X-Forwarded-For": client, **more}


def test_decisions_use_the_forwarded_fields(rig):
    weir, listener = weir_with_decisions(rig)
    answers = [get(listener, "/anything", headers=forwarded()) for _ in range(4)]
    assert [a.status for a in answers] == [200, 200, 200, 429]
    assert answers[0]["X-Weir-Client"] == "ip:203.0.113.7" and answers[0].body == b"" and answers[0]["RateLimit"]
    assert answers[3]["Retry-After"] and answers[3]["Content-Type"] == "application/problem+json"
    assert get(listener, headers=forwarded(client="203.0.113.8")).status == 200, "another client"
    assert get(listener, headers=forwarded(method="GET")).status == 200, "another rule"
    assert get(listener, "/v1/x", method="POST").status == 400, "the method and path of the request itself are not used"
    assert get(listener, headers={**forwarded(), "X-Original-URI": "/free", "X-Original-Method": "GET"}).status == 429
    assert weir.metric("weir_limit_decisions_total", limit="per-client", decision="allowed") == 4


def test_a_reload_without_the_section_keeps_the_listener_until_a_restart(rig):
    weir, listener = weir_with_decisions(rig, decisions={"request_from": "original", "deny_status": 403})
    original = {"X-Original-Method": "POST", "X-Original-URI": "/v1/x"}
    answers = [get(listener, headers=original, host="api.test").status for _ in range(2)]
    weir.reload(decisions=None).wait_for_redis()
    weir.wait_for_output("changed decisions.listen takes effect after a restart")
    answers += [get(listener, headers=original, host="api.test").status for _ in range(2)]
    assert answers == [200, 200, 200, 403]


def test_missing_and_malformed_fields_are_refused(rig):
    _, listener = weir_with_decisions(rig)
    good = forwarded()
    for name in good:
        assert get(listener, headers={k: v for k, v in good.items() if k != name}).status == 400, name
    for change in ({"X-Forwarded-Uri": "http://a.test/v1/x"}, {"X-Forwarded-Uri": "/v1/../x"}, {"X-Forwarded-Uri": "/a b"},
                   {"X-Forwarded-Uri": ""}, {"X-Forwarded-Method": "post"}, {"X-Forwarded-Method": "PO ST"}, {"X-Forwarded-Host": "a b"},
                   {"X-Forwarded-Proto": "ftp"}, {"X-Forwarded-Method": "CONNECT"},
                   {"X-Forwarded-For": "nonsense"}, {"X-Forwarded-For": "203.0.113.7, unknown"}, {"X-Forwarded-For": " , "},
                   {"X-Forwarded-Uri": "/v1/a/..%2f..%2fx"}):
        assert get(listener, headers={**good, **change}).status == 400, change
    with Connection(listener) as connection:   # twice
        lines = "".join(f"{k}: {v}\r\n" for k, v in good.items())
        connection.send(f"GET / HTTP/1.1\r\nHost: api.test\r\n{lines}X-Forwarded-Uri: /free\r\n\r\n".encode())
        assert connection.response().status == 400
    assert get(listener, headers=forwarded(client="unknown, [2001:db8::1]:80")).status == 200, "an element that the client sent before the proxy's"
    assert get(listener, headers=forwarded(method="TRACE")).status == 405
    assert get(listener, headers=forwarded(method="OPTIONS", **{"Max-Forwards": "0"}, uri="/v1/x")).status == 200


def test_headers_that_the_server_may_take_for_others_are_refused(rig):
    """On the proxy weir removes them. Here only the other proxy could."""
    _, listener = weir_with_decisions(rig, rules=[{"match": {"methods": ["POST"]}, "limits": ["per-client"]},
                                                  {"match": {"header": {"X-Plan": "gold"}}, "limits": "none"}, {"limits": ["per-client"]}])
    for name in "X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-HTTP_METHOD", "x.method.override", "X_Plan":
        assert get(listener, headers=forwarded(method="GET", **{name: "POST", "X-Plan": "gold"})).status == 400, name
    for name in "X_Other", "X-HTTP-Methods", "Accept_":
        assert get(listener, headers=forwarded(method="GET", **{name: "POST", "X-Plan": "gold"})).status == 200, name


def test_request_from_selects_the_other_fields(rig):
    _, listener = weir_with_decisions(rig, decisions={"request_from": "original", "deny_status": 403})
    original = {"X-Original-Method": "POST", "X-Original-URI": "/v1/x", "X-Forwarded-For": "203.0.113.7"}
    statuses = [get(listener, headers={**original, **forwarded(method="GET", uri="/free")}).status for _ in range(4)]
    assert statuses == [200, 200, 200, 403]
    assert get(listener, headers=forwarded()).status == 400
    _, listener = weir_with_decisions(rig, decisions={"request_from": "request"}, redis={"key_prefix": "other"})
    statuses = [get(listener, "/v1/x", method="POST", headers=forwarded(method="GET", uri="/free")).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    # 204 would tell the other proxy that the request is admitted.
    options = get(listener, "/v1/x", method="OPTIONS", headers={"Max-Forwards": "0", "X-Forwarded-For": "203.0.113.9"})
    assert options.status == 200


def test_the_granted_units_are_in_the_response(rig):
    """For each limit with granted_header: fewer than the cost at the end of the window, the whole
    cost for unlimited clients and where the limit does not decide."""
    granting = dict(script="fixed_window", limit=10, period="1d", best_effort=True)
    limits = {"units": dict(**granting, granted_header="X-Granted"), "bytes": dict(**granting, cost=7, granted_header="X-Granted-Bytes"),
              "shadow": dict(**granting, shadow=True, granted_header="X-Granted-Shadow"), "other": dict(script="gcra", limit=1000, period="1h")}
    rules = [{"match": {"path": "/units"}, "limits": ["units"], "cost": {"request_header": "X-Cost", "max": 6}},
             {"match": {"path": "/several"}, "limits": ["bytes", "shadow"]}, {"match": {"path": "/other"}, "limits": ["other"]}]
    weir = rig.weir(limits=limits, rules=rules, decisions={"listen": "127.0.0.1:0", "request_from": "request"},
                    clients={"ip:203.0.113.9": {"quota": "unlimited"}})
    listener = address_of(weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0])

    def ask(path, client="203.0.113.7", **headers):
        answer = get(listener, path, headers={"X-Forwarded-For": client, "X-Granted": "99", **headers})
        return answer.status, *(answer["X-Granted" + name] for name in ("", "-Bytes", "-Shadow"))
    assert [ask("/units", **{"X-Cost": "6"}) for _ in range(3)] == [(200, "6", None, None), (200, "4", None, None), (429, None, None, None)]
    assert ask("/units", "203.0.113.9", **{"X-Cost": "50"}) == (200, "6", None, None)
    assert ask("/units", "203.0.113.9") == (200, "1", None, None)
    assert [ask("/several") for _ in range(2)] == [(200, None, "7", "1"), (200, None, "3", "1")]
    assert ask("/other") == (200, None, None, None)


def test_only_trusted_peers_may_use_the_decision_listener(rig):
    weir, listener = weir_with_decisions(rig, decisions={"trusted": ["192.0.2.0/24"]})
    answer = get(listener, headers=forwarded())
    assert answer.status == 403 and b"decisions.trusted" in answer.body
    weir.counts(1, "weir_errors_total", cause="decisions_untrusted")
    weir.reload(decisions={"listen": "127.0.0.1:0", "hosts": ["api.test"], "trusted": ["127.0.0.0/8"]})
    eventually(lambda: get(listener, headers=forwarded()).status == 200)


def test_a_redis_outage_does_not_admit_requests(rig):
    weir, listener = weir_with_decisions(rig, redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "deny", "timeout": "50ms"}, wait="listening")
    weir.expect_errors("could not connect")
    assert get(listener, headers=forwarded()).status == 503
    assert get(listener, headers=forwarded(method="GET")).status == 200, "no limit"


def test_a_decision_after_timeouts_exchange_admits_no_request(rig):
    silent = Scripted(rig, lambda peer, _number: peer.read_until(b"never", "content"))
    weir, listener = weir_with_decisions(rig, workers=1, timeouts={"exchange": "3s"}, redis={"timeout": "10s"},
                                         upstreams={"api": {"servers": [silent.text]}})
    weir.expect_errors("timeouts.exchange")
    with Connection(listener) as connection:
        rig.redis().freeze()
        connection.send(request_bytes(headers=forwarded()))
        assert get(weir.address).status == 504, "this request, without limits, began later"
        rig.redis().thaw()
        assert connection.response().status == 504
    assert [get(listener, headers=forwarded()).status for _ in range(4)] == [200, 200, 200, 429], "it was refunded"


def test_errors_and_warnings_in_decision_settings(rig):
    def check(**more):
        return rig.command("check", "-c", rig.write("p.yaml", json.dumps(
            {"upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, "listen": ["127.0.0.1:7001"], "rules": [{"limits": ["a"]}],
             "limits": {"a": {"script": "fixed_window", "limit": 1, "period": "1s", "count": [401]}}, **more}, indent=1))).stderr
    assert "listen is missing" in check(decisions={"deny_status": 429})
    assert "is an address of listen as well" in check(decisions={"listen": "127.0.0.1:7001"})
    assert "does not see responses" in check(decisions={"listen": "127.0.0.1:7002"})


# --- real proxies ---

def serves(address):
    try:
        socket.create_connection(address, 1).close()
        return True
    except OSError:
        return False


def statuses_through(port, times=7, path="/v1/x", **headers):
    return [get(("127.0.0.1", port), path, headers=headers) for _ in range(times)]


def check_proxy(port):
    """5 requests of a client are admitted, whatever headers it sends. The API receives only
    those."""
    eventually(lambda: serves(("127.0.0.1", port)), 10, "the proxy")
    forged = {"X-Original-URI": "/free", "X-Original-Method": "OPTIONS", "X-Forwarded-Uri": "/free", "X-Forwarded-For": "198.51.100.1",
              "X-Client-Id": "somebody", "X-Forwarded-Method": "HEAD"}
    answers = statuses_through(port, **forged)
    assert [a.status for a in answers] == [200] * 5 + [429] * 2, [a.status for a in answers]
    assert int(answers[-1]["Retry-After"]) > 60
    assert get(("127.0.0.1", port), "/free").status == 200
    check_granted(("127.0.0.1", port))
    return answers


def check_granted(proxy):
    """The API receives X-Granted from weir only, whatever the client sends in its place."""
    forged = [{"X-Granted": "99"}, {"Connection": "x-granted, keep-alive"}, {"x-granted": "99"}, {"X_Granted": "99"}, {"X.Granted": "99"}, {}]
    limited = [get(proxy, "/echo/items", headers=headers) for headers in forged]
    admitted = [granted_of(answer) for answer in limited if answer.status == 200]
    assert admitted == [["4"], ["4"], ["2"]], [(answer.status, granted_of(answer)) for answer in limited]
    for headers in forged:
        answer = get(proxy, "/echo", headers=headers)
        assert answer.status == 400 or granted_of(answer) == [], (headers, answer)


def granted_of(answer):
    """The values of X-Granted, in any spelling, in the request that the test's server echoes."""
    if answer.status != 200:
        return []
    return [value for name, value in json.loads(answer.body)["fields"] if name.lower().replace("_", "-").replace(".", "-") == "x-granted"]


def weir_for(rig, heading):
    weir = weir_with_recipe(rig, heading, replace=(("127.0.0.1:9190", "127.0.0.1:0"), ("/v1/items", "/echo/items")))
    return weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0], blocks(recipes()[1][heading], "(?:nginx|caddy|lua|haproxy)")


def test_behind_nginx(rig):
    address, (config,) = weir_for(rig, "Behind nginx, without forwarding")
    port = free_port()
    rig.write("nginx.conf", f"""daemon off; master_process off; pid {rig.directory}/nginx.pid; error_log stderr;
        events {{ }} http {{ access_log off; client_body_temp_path {rig.directory}/body; proxy_temp_path {rig.directory}/proxy;
        fastcgi_temp_path {rig.directory}/f; uwsgi_temp_path {rig.directory}/u; scgi_temp_path {rig.directory}/s;
        upstream api {{ server {rig.upstream().text}; }} upstream weir {{ server {address}; keepalive 64; }}
        server {{ listen 127.0.0.1:{port}; {config} }} }}""")
    Process(rig, "nginx", [shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-c", f"{rig.directory}/nginx.conf"])
    assert check_proxy(port)[0]["RateLimit"]
    with Connection(("127.0.0.1", port)) as connection:
        assert connection.send(b"GET /free HTTP/1.0\r\n\r\n").response().status == 200, "without Host"


def test_behind_caddy(rig):
    address, (config,) = weir_for(rig, "Behind Caddy, without forwarding")
    port = free_port()
    config = config.replace("127.0.0.1:9190", address).replace("127.0.0.1:3000", rig.upstream().text)
    rig.write("Caddyfile", f"{{\n admin off\n auto_https off\n}}\nhttp://:{port} {{\n bind 127.0.0.1\n{config}}}\n")
    Process(rig, "caddy", ["caddy", "run", "--adapter", "caddyfile", "--config", f"{rig.directory}/Caddyfile"],
            env={"HOME": rig.directory, "XDG_DATA_HOME": rig.directory, "PATH": "/usr/bin:/bin"})
    assert check_proxy(port)[-1]["Content-Type"] == "application/problem+json"


def start_haproxy(rig, address, script, config):
    """HAProxy as in the recipe, with the decision listener at `address`; returns its address."""
    port = free_port()
    assert "timeout = 1000" in script
    rig.write("weir.lua", script.replace("127.0.0.1:9190", address).replace("timeout = 1000", "timeout = 20000"))
    config = "\n".join("  " + line for line in config.splitlines())
    rig.write("haproxy.cfg", f"""global
  lua-load {rig.directory}/weir.lua
defaults
  mode http
  timeout connect 20s
  timeout client 20s
  timeout server 20s
frontend f
  bind 127.0.0.1:{port}
{config}
  default_backend api
backend api
  server api {rig.upstream().text}
""")
    Process(rig, "haproxy", ["/usr/sbin/haproxy", "-f", f"{rig.directory}/haproxy.cfg", "-db"])
    eventually(lambda: serves(("127.0.0.1", port)), 10, "the proxy")
    return "127.0.0.1", port


def test_behind_haproxy(rig):
    address, (script, config) = weir_for(rig, "Behind HAProxy, without forwarding")
    proxy = start_haproxy(rig, address, script, config)
    check_proxy(proxy[1])
    for method, target, status in ("TRACE", "/free", 400), ("GET", "/v1/../free", 400), ("OPTIONS", "/free", 200):
        assert get(proxy, target, method=method).status == status, (method, target)


def test_haproxy_passes_headers_that_override_the_method(rig):
    script, config = blocks(recipes()[1]["Behind HAProxy, without forwarding"], "(?:lua|haproxy)")
    _, listener = weir_with_decisions(rig, rules=[{"match": {"methods": ["DELETE"]}, "limits": "none"}, {"limits": ["per-client"]}])
    proxy = start_haproxy(rig, "%s:%d" % listener, script, config)
    for name in "X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override":
        assert get(proxy, "/echo", method="DELETE", headers={name: "POST"}).status == 400, name
    assert get(proxy, "/echo", method="DELETE", host="api.test,b.test").status == 400
    seen = get(proxy, "/echo", method="DELETE", headers={"X_HTTP_Method_Override": "POST", "X-Other": "1"})
    assert seen.status == 200 and [name for name, _ in json.loads(seen.body)["fields"] if name.startswith("x")] == ["x-other"]
