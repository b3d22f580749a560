"""Headers that a server reads differently from weir: two names of one variable, fields that
override the path or the method, and fields in which a proxy describes the client. Where the
server's reading matters, it is wsgiref, the reference WSGI server."""

import json
import random
import socketserver
import threading
import wsgiref.simple_server

from echoes import echo, fields_of
from wire import Connection, get, request_bytes

EACH = {"each": dict(script="gcra", limit=1000, period="1d")}


class QuietHandler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


class ThreadingServer(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


def environment(environ, start):
    """Responds with the variables of the application."""
    body = json.dumps({name: value for name, value in environ.items() if isinstance(value, str)}).encode()
    start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def wsgi(rig):
    """Starts a real WSGI server on a free port and returns "host:port"."""
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, environment, ThreadingServer, QuietHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    def close():
        server.shutdown()
        server.server_close()
    rig.add_cleanup(close)
    return "127.0.0.1:%d" % server.server_address[1]


def weir_before_wsgi(rig, **more):
    return rig.weir(upstreams={"api": {"servers": [wsgi(rig)]}}, **more)


def variables(address, headers, target="/"):
    """The variables of the application for a request with these headers."""
    response = get(address, target, headers=headers)
    assert response.status == 200, response
    return json.loads(response.body)


# --- names that differ only in punctuation ("twins")
# ----------------------------------------------------------------

def test_a_twin_does_not_replace_the_identity_header(rig):
    """`X_Api_Key: victim` without X-Api-Key was charged to the address, but served as the
    victim."""
    weir = weir_before_wsgi(rig, limits=EACH, identity={"from": ["header:X-Api-Key", "ip"]})
    for name in "X_Api_Key", "x_api-key", "X-Api_Key", "X_API_KEY":
        assert "HTTP_X_API_KEY" not in variables(weir.address, {name: "victim"}), name
    seen_by_server = variables(weir.address, [("X_Api_Key", "victim"), ("X-Api-Key", "mine"), ("x-api_key", "victim")])
    assert seen_by_server["HTTP_X_API_KEY"] == "mine" and seen_by_server["HTTP_X_WEIR_CLIENT"] == "id:mine"


def test_a_twin_does_not_replace_a_header_that_a_limit_reads(rig):
    limits = {"each": dict(script="gcra", limit=2, period="1d", per="header:X-Tenant"),
              "few": dict(script="fixed_window", limit=100, period="1h", dedup="Idempotency-Key"),
              "tokens": dict(script="gcra", limit=100, period="1h", cost={"request_header": "X-Tokens", "max": 5})}
    rules = [{"match": {"path": "/costs"}, "limits": ["few"], "cost": {"request_header": "X-Cost", "max": 5}},
             {"match": {"path": "/tokens"}, "limits": ["tokens"]},
             {"limits": ["each", "few"]}]
    weir = weir_before_wsgi(rig, limits=limits, rules=rules)
    twins = {"X_Tenant": "t", "Idempotency_Key": "k", "X_Cost": "1", "X_Tokens": "1", "My_Field": "kept"}
    seen_by_server = variables(weir.address, twins)
    assert not {"HTTP_X_TENANT", "HTTP_IDEMPOTENCY_KEY", "HTTP_X_COST", "HTTP_X_TOKENS"} & set(seen_by_server)
    assert seen_by_server["HTTP_MY_FIELD"] == "kept", "no limit or rule uses it"


def test_twins_of_framing_fields_and_of_fields_set_by_weir_are_dropped(rig):
    weir = rig.weir(limits=EACH)
    forged = ["X_Weir_Client", "X_Forwarded_For", "X.Forwarded.Proto", "X_Forwarded~Host", "X_Request_Id", "Via_", "H_o_s_t",
              "Ho_st", "Content_Length", "Transfer_Encoding", "Transfer.Encoding", "X_Client_Id", "X'Client`Id", "X_Real_IP",
              "X_HTTP_Method_Override", "X_Original_URL", "X_Forwarded_Port", "Proxy_Connection", "Keep_Alive", "Max*Forwards"]
    kept = {"Via_", "H_o_s_t", "Ho_st"}  # not names that weir sets
    names = {name for name, _ in echo(weir.address, headers=[(name, "1") for name in forged])["fields"]}
    assert set(forged) & names == kept


def test_if_the_policy_names_an_unusual_spelling_its_plain_twin_is_dropped(rig):
    weir = rig.weir(limits=EACH, identity={"from": ["header:X_Api_Key", "ip"]})
    seen_by_server = echo(weir.address, headers=[("x_api_key", "mine"), ("X-Api-Key", "victim"), ("X.Api.Key", "victim")])
    assert fields_of(seen_by_server, "x_api_key") == ["mine"] and fields_of(seen_by_server, "X-Weir-Client") == ["id:mine"]
    assert not fields_of(seen_by_server, "X-Api-Key") and not fields_of(seen_by_server, "X.Api.Key")


def test_twins_in_trailers_in_http_1_0_and_in_connection_are_dropped(rig):
    weir = weir_before_wsgi(rig, limits=EACH, identity={"from": ["header:X-Api-Key", "ip"]})
    with Connection(weir.address) as connection:
        connection.send(b"GET / HTTP/1.0\r\nX_Api_Key: victim\r\n\r\n")
        assert "HTTP_X_API_KEY" not in json.loads(connection.response().body)
    seen_by_server = variables(weir.address, [("X_Api_Key", "victim"), ("X-Api-Key", "mine"), ("Connection", "X_Api_Key")])
    assert seen_by_server["HTTP_X_API_KEY"] == "mine"
    with Connection(weir.address) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                        b"1\r\nx\r\n0\r\nX_Api_Key: victim\r\nX-Api-Key: victim\r\n\r\n")
        assert "HTTP_X_API_KEY" not in json.loads(connection.response().body)


def test_twins_are_dropped_from_requests_in_pieces(rig):
    weir = rig.weir(limits=EACH, identity={"from": ["header:X-Api-Key", "ip"]})
    head = request_bytes("/echo", headers={"X_Api_Key": "victim", "X-Other": "1"})
    for cut in range(1, len(head)):
        with Connection(weir.address) as connection:
            connection.send(head[:cut]).send(head[cut:])
            assert not fields_of(json.loads(connection.response().body), "X_Api_Key")


ODD = "!#$%&'*+-.^_`|~"


def test_random_twins_never_reach_the_server(rig):
    read = ["X-Api-Key", "X-Tenant", "Idempotency-Key", "X-Cost", "X.Odd_Name"]
    known = ["Host", "Connection", "Content-Length", "Transfer-Encoding", "X-Forwarded-For", "X-Request-Id", "X-Weir-Client",
             "Forwarded-For", "X-Real-IP", "X-Http-Method-Override", "X-Original-Url", "X-Forwarded-Port", "Max-Forwards", "Keep-Alive"]
    limits = {"a": dict(script="gcra", limit=100000, period="1s", per="header:X-Tenant"),
              "b": dict(script="fixed_window", limit=1000000, period="1s", dedup="Idempotency-Key"),
              "c": dict(script="gcra", limit=100000, period="1s", per="header:X.Odd_Name")}
    rules = [{"limits": list(limits), "cost": {"request_header": "X-Cost", "max": 9}}]
    weir = rig.weir(limits=limits, rules=rules, identity={"from": ["header:X-Api-Key", "ip"], "trusted_proxies": ["127.0.0.1"]})
    chosen = random.Random(1)

    def respelled(name):
        return "".join(chosen.choice(ODD) if c in "-._" else chosen.choice((c.lower(), c.upper())) for c in name)
    exact = {name.lower() for name in read + known}
    names = [name for name in map(respelled, (read + known) * 20) if name.lower() not in exact]
    with Connection(weir.address) as connection:
        for name in names:
            seen = json.loads(connection.request("/echo", headers={name: "1"}).body)["fields"]
            assert name not in [n for n, _ in seen], name


# --- the path and the method
# -----------------------------------------------------------------------------------------

def test_fields_that_override_the_path_are_dropped(rig):
    """Frameworks that honour X-Original-URL serve a path other than the one whose rule applied."""
    for trusted in [], ["127.0.0.1"]:
        weir = rig.weir(limits=EACH, identity={"trusted_proxies": trusted})
        seen_by_server = echo(weir.address, headers={"X-Original-URL": "/login", "x-rewrite-url": "/login", "Proxy": "http://evil.test"})
        assert not {"x-original-url", "x-rewrite-url", "proxy"} & {name.lower() for name, _ in seen_by_server["fields"]}


def test_fields_that_set_a_path_prefix_are_dropped(rig):
    """Gunicorn removes the value of SCRIPT_NAME from the path: /x/login became /login, which has
    another rule."""
    for trusted in [], ["127.0.0.1"]:
        weir = rig.weir(limits=EACH, identity={"trusted_proxies": trusted})
        for name in "SCRIPT_NAME", "Script-Name", "script.name", "X-Script-Name", "X_SCRIPT_NAME":
            seen_by_server = echo(weir.address, headers={name: "/x", "X-Other": "kept"})
            names = {field.lower() for field, _ in seen_by_server["fields"]}
            assert "x-other" in names and name.lower() not in names, (name, names)


def test_a_method_override_that_selects_another_rule_is_refused(rig):
    limits = {**EACH, "writes": dict(script="fixed_window", limit=1, period="1d")}
    rules = [{"match": {"path": "/v1/**", "methods": ["DELETE", "PUT"]}, "limits": ["writes"]}, {"limits": ["each"]}]
    weir = rig.weir(limits=limits, rules=rules)
    for name in "X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override":
        for value in "DELETE", "delete", "Put", "PATCH, DELETE", "PATCH,delete":
            response = get(weir.address, "/v1/a", method="POST", headers={name: value})
            assert response.status == 400 and b"another method" in response.body, (name, value)
        assert get(weir.address, "/v1/a", method="POST", headers=[(name, "PATCH"), (name, "DELETE")]).status == 400
        assert get(weir.address, "/v1/%61", method="POST", headers={name: "DELETE"}).status == 400
        for method, value in ("POST", "PATCH"), ("POST", "post"), ("POST", ""), ("GET", "HEAD"):
            assert get(weir.address, "/v1/a", method=method, headers={name: value}).status == 200, (method, value)
        for value in "x" * 40, "DELETE\xa0", "\x85DELETE", "DEL ETE", '"DELETE"', "DELETE;":
            assert get(weir.address, "/v1/a", method="POST", headers={name: value}).status == 400, "an ambiguous method"
        assert get(weir.address, "/other", method="POST", headers={name: "DELETE"}).status == 200, "the same rule"
    assert get(weir.address, "/v1/a", method="DELETE", headers={"X-HTTP-Method-Override": "delete"}).status == 200
    assert get(weir.address, "/v1/a", method="PUT", headers={"X-HTTP-Method-Override": "DELETE"}).status == 429, "the same rule"


def test_a_method_override_in_a_limit_per_method_is_refused(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=9, period="1d", per=["client", "method"])})
    assert get(weir.address, method="POST", headers={"X-HTTP-Method-Override": "DELETE"}).status == 400
    assert get(weir.address, method="POST", headers={"X-HTTP-Method-Override": "POST"}).status == 200


def test_a_method_override_with_another_reading_of_path_or_host_is_refused(rig):
    """Each reading alone selects the same rule. A server that honours the header and also decodes
    the path serves the limited path."""
    limits = {**EACH, "writes": dict(script="fixed_window", limit=1, period="1d")}
    rules = [{"match": {"path": "/login", "methods": ["DELETE"]}, "limits": ["writes"]},
             {"match": {"host": "127.0.0.1", "methods": ["PUT"]}, "limits": ["writes"]},
             {"match": {"host": "127.0.0.1", "path": "/admin"}, "limits": ["writes"]}, {"limits": ["each"]}]
    weir = rig.weir(limits=limits, rules=rules)
    for path in "/x%2f..%2flogin", "/login;a", "//login", "/x/%2e%2e%2flogin":
        assert get(weir.address, path, method="POST").status == 200, path
        assert get(weir.address, path, method="POST", headers={"X-HTTP-Method-Override": "DELETE"}).status == 400, path
        assert get(weir.address, path, method="POST", headers={"X-HTTP-Method-Override": "PATCH"}).status == 200, path

    def without_host(target, *lines):
        with Connection(weir.address) as connection:
            return connection.send("\r\n".join([f"POST {target} HTTP/1.0", *lines, "", ""]).encode()).response().status
    assert without_host("/a") == 200
    assert without_host("/a", "X-HTTP-Method-Override: PUT") == 400, "the server receives the Host of the upstream"
    assert without_host("/a", "X-HTTP-Method-Override: PATCH") == 200
    assert without_host("/admin") == 400 and without_host("/x%2f..%2fadmin") == 400


# --- fields in which proxies describe the client
# ---------------------------------------------------------------------

CLAIMS = ["X-Real-IP", "X-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP",
          "X-Cluster-Client-IP", "Fly-Client-IP", "X-Azure-ClientIP", "X-Forwarded", "Forwarded-For", "X-Forwarded-Port",
          "X-Forwarded-Prefix", "X-Forwarded-User", "X-Forwarded-Ssl", "X-Forwarded-Scheme", "Front-End-Https", "X-Url-Scheme",
          "X-Host", "X-Original-Host", "X-HTTP-Host-Override", "X-Original-URI", "X-Original-Method", "Forwarded",
          "Proxy-Client-IP", "WL-Proxy-Client-IP", "X-Appengine-User-IP", "X-ProxyUser-IP", "X-Envoy-External-Address",
          "X-Original-Forwarded-For", "Client-Cert", "Client-Cert-Chain", "X-Client-Cert", "X-ARR-ClientCert", "X-SSL-Client-S-DN",
          "SSL-Client-Verify", "X-Amzn-Mtls-Clientcert"]


def test_claims_about_the_client_are_forwarded_only_from_trusted_proxies(rig):
    claims = [(name, "198.51.100.9") for name in CLAIMS]
    for trusted, passed in ([], False), (["10.0.0.0/8"], False), (["127.0.0.1"], True):
        weir = rig.weir(limits=EACH, identity={"trusted_proxies": trusted})
        names = {name for name, _ in echo(weir.address, headers=claims)["fields"]}
        assert set(CLAIMS) & names == (set(CLAIMS) if passed else set()), trusted


def test_connection_cannot_remove_the_claims_of_a_trusted_proxy(rig):
    """If a proxy forwards Connection, its clients must not be able to remove fields that the proxy
    adds."""
    weir = rig.weir(limits=EACH, identity={"trusted_proxies": ["127.0.0.1"]})
    seen_by_server = echo(weir.address, headers={"Connection": "close, X-Real-IP, X-Forwarded-Port", "X-Real-IP": "203.0.113.7",
                                       "X-Forwarded-Port": "443"})
    assert fields_of(seen_by_server, "X-Real-IP") == ["203.0.113.7"] and fields_of(seen_by_server, "X-Forwarded-Port") == ["443"]


def test_a_claim_that_the_policy_uses_is_forwarded(rig):
    """A policy that counts by a field trusts it, and the server must see the value that weir
    counted."""
    weir = rig.weir(limits={"each": dict(script="gcra", limit=1000, period="1d", per="header:CF-Connecting-IP")},
                    identity={"from": ["header:X-Forwarded-User", "ip"]})
    seen_by_server = echo(weir.address, headers={"CF-Connecting-IP": "203.0.113.7", "X-Forwarded-User": "alice", "X-Real-IP": "203.0.113.9"})
    assert fields_of(seen_by_server, "CF-Connecting-IP") == ["203.0.113.7"] and fields_of(seen_by_server, "X-Forwarded-User") == ["alice"]
    assert fields_of(seen_by_server, "X-Weir-Client") == ["id:alice"] and not fields_of(seen_by_server, "X-Real-IP")
