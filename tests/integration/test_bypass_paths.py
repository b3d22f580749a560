"""Paths that servers read differently from weir: no spelling of a path bypasses the rule for the
path as the server reads it. In front of a real Flask application and of a server that returns the
request line."""

import json
import os
from random import Random

from flask_api import FlaskApi, fetch, weir_before_flask
from rig import eventually
from rule_choice import echo_server, weir_with
from wire import Connection, get, request_bytes

LOGIN = {"match": {"path": "/login"}, "limits": ["logins"]}
V1 = {"match": {"path": "/v1/**"}, "limits": ["v1"]}
FREE = {"name": "free", "match": {"path": "/healthz"}}
REST = {"name": "rest"}


def test_flask_decodes_and_resolves_paths(rig):
    """Shows why normalization matters: Flask calls another handler than the path suggests."""
    api = FlaskApi(rig)

    def handler(target):
        return (fetch(api.address, target)[1] or {}).get("handler")
    assert handler("/v1/a/..%2f..%2fhealthz") == "v1"
    assert handler("/v1/a/../../healthz") == "v1"
    assert handler("/%76%31/a") == "v1"
    assert handler("/v1%2Fa") == "v1"
    assert handler("/login/") == "login"


def test_every_request_is_charged_by_the_rule_of_its_handler(rig):
    """A request that Flask passes to a handler with a limit was charged by the rule of that
    handler, or refused."""
    weir = weir_before_flask(rig, FREE, LOGIN, V1, REST)
    assert fetch(weir.address, "/login")[0] == 401
    assert fetch(weir.address, "/v1/a")[0] == 200
    for target in ("/login", "/login/", "/%6cogin", "/login?x=/healthz", "/v1/a", "/%761/a", "/v1/group%2Fproject"):
        assert fetch(weir.address, target) == (429, None), target
    attacks = (
        "/v1/a/..%2f..%2fhealthz", "/v1/a/../../healthz", "/v1/a/%2e%2e/%2E%2e/healthz", "/v1%2fa", "/v1%2Fa",
        "/healthz/..%2fv1%2fa", "/healthz/../v1/a", "/healthz/..;/v1/a", "/x/..\\v1\\a", "/x/..%5cv1/a", "/%2576%2531/a",
        "//v1/a", "///v1/a", "/./v1/a", "/.;/v1/a", "/%2e/v1/a", "/%252e/v1/a", "//evil.test/login", "/\\evil.test/login",
        "/login;a", "/login;a=b", "/login%3ba", "/;/login", "/login//", "/login%2f", "/login%3f", "/login%23", "/login%0a", "/login%09",
        "/login.", "/login%20", "/login%2500", "/login%00", "/login%00.png", "/%u006cogin", "/%6", "/login%", "/log%in",
        "/v1%c0%afa", "/v1%e0%80%afa", "/v1%ef%bc%8fa", "/%ef%bd%8cogin",
    )
    for target in attacks:
        status, seen = fetch(weir.address, target)
        assert (status, seen) == (400, None), (target, status, seen)
    for target in "/Login", "/LOGIN", "/logi", "/login2", "/login/x", "/x/login", "/v2/%2e%2e%2e/x", "/x%2Fy", "/a+b", "/a;b//c":
        status, seen = fetch(weir.address, target)
        assert status == 200 and seen["handler"] == "other" and seen["target"] == target, (target, status, seen)


def test_accepted_paths_are_forwarded_unchanged(rig):
    weir = weir_before_flask(rig, LOGIN, {**V1, "limits": []}, REST)
    for target, path in (("/v1/group%2Fproject", "/v1/group/project"), ("/v1/group%2fproject?a=%2e%2E/..#".rstrip("#"), "/v1/group/project"),
                         ("/v1/%61;b=c//d", "/v1/a;b=c//d"), ("/v1/[a]|b^{c}\"<d>`\\e", "/v1/[a]|b^{c}\"<d>`\\e"),
                         ("/v1/%253a", "/v1/%3a"), ("/v1/a+b%20c", "/v1/a+b c")):
        status, seen = fetch(weir.address, target)
        assert (status, seen and seen["target"], seen and seen["path"]) == (200, target, path), (target, status, seen)


def test_non_ascii_paths_match_rules(rig):
    weir = weir_before_flask(rig, {"match": {"path": "/caf\u00e9"}, "limits": ["cafe"]}, REST)
    assert fetch(weir.address, "/caf%C3%A9")[1]["handler"] == "caf\u00e9"
    for target in "/caf%c3%a9", "/%63af%C3%A9", "/caf%c3%a9/":
        assert fetch(weir.address, target)[0] == 429, target
    assert fetch(weir.address, "/cafe")[1]["handler"] == "other"


def test_dot_segments_can_be_removed(rig):
    weir = weir_before_flask(rig, {"match": {"path": "/v1/**"}, "limits": ["v1"]}, {"name": "rest"}, paths={"dot_segments": "normalize"})
    status, seen = fetch(weir.address, "/v1/a/../../healthz?x=..")
    assert status == 200 and seen["handler"] == "healthz" and seen["target"] == "/healthz?x=.."
    status, seen = fetch(weir.address, "/x/%2e%2E/v1/./%61%2Fb|c/.")
    assert status == 200 and seen["handler"] == "v1" and seen["target"] == "/v1/%61%2Fb|c/"
    assert fetch(weir.address, "/x/../v1/a")[0] == 429, "the rule for the forwarded path applies"
    assert fetch(weir.address, "/x/../v1/a%2f..%2f..%2fhealthz")[0] == 400


def test_options_of_path_matching(rig):
    weir = weir_with(rig, {"match": {"path": "/Login"}, "limits": ["logins"]})

    def limit(target):
        return get(weir.address, target)["X-Rate-Limit-Policy"]
    assert [limit(t) for t in ("/Login", "/Login/", "/login")] == ["logins", "logins", None]
    weir.reload(paths={"ignore_case": True}).wait_for_redis()
    assert [limit(t) for t in ("/Login", "/LOGIN/", "/login", "/%6CoGiN")] == ["logins"] * 4
    assert get(weir.address, "/x%2f..%2fLOGIN").status == 400
    weir.reload(paths={"trailing_slash": "exact"}).wait_for_redis()
    assert [limit(t) for t in ("/Login", "/Login/", "/login")] == ["logins", None, None]
    weir.reload(paths={"ambiguous": "allow"}).wait_for_redis()
    assert [limit(t) for t in ("/Login;a", "//Login", "/x%2f..%2fLogin", "/Login")] == [None, None, None, "logins"]
    assert get(weir.address, "/x/../Login").status == 400, "dot segments have their own option"


def test_without_path_rules_every_path_is_forwarded(rig):
    weir = weir_with(rig, {"limits": ["all"]})
    target = "//a%252F\\;b/..%5C%3Bc%3F.%09d.%20/%c0%af//%25252e"
    response = get(weir.address, target)
    assert (response.status, response.body) == (200, f"GET {target} HTTP/1.1".encode())


def test_visible_characters_are_accepted_and_others_are_refused_with_a_reason(rig):
    weir = weir_with(rig, {"match": {"path": "/v1/**"}, "limits": ["v1"]})
    visible = "".join(chr(c) for c in range(0x21, 0x7f) if chr(c) not in "#?%")
    for target in "/v1/" + visible, "/v1/a?" + visible + "%zz":
        response = get(weir.address, target)
        assert (response.status, response.body) == (200, f"GET {target} HTTP/1.1".encode()), response
    for target, why in (("/caf\u00e9", b"above 0x7F"), ("/a?\u00e9", b"above 0x7F"), ("/a#b", b"fragment"), ("/a\x7f", b"control byte")):
        response = get(weir.address, target)
        assert response.status == 400 and why in response.body, (target, response)


def test_absolute_targets(rig):
    weir = weir_with(rig, {"match": {"path": "/", "host": "a.test"}, "limits": ["root"]})
    for target, host, path in (("http://a.test?x=1", "a.test", "/?x=1"), ("http://a.test:80/", "a.test", "/"),
                               ("http://A.test", "a.test:80", "/"), ("http://a.test:/", "a.test", "/")):
        response = get(weir.address, target, host=host)
        assert (response.status, response["X-Rate-Limit-Policy"]) == (200, "root"), (target, response)
        assert response.body == f"GET {path} HTTP/1.1".encode()
    for target, host in ("http://a.test:8080/", "a.test"), ("http://a.test/", "a.test:8080"), ("http://b.test/", "a.test"):
        assert get(weir.address, target, host=host).status == 400, target


def test_a_host_with_a_separator_is_refused(rig):
    """Some servers end a host at "," or ";" (X-Forwarded-Host, Forwarded):
    https://expressjs.com/en/4x/api.html#req.hostname."""
    weir = weir_with(rig, {"match": {"host": "a.test"}, "limits": ["a"]})
    for host in "b.test,a.test", "b.test;a.test", "a..test", ".a.test", "a.test..", "a.test!", "a%2etest":
        assert get(weir.address, host=host).status == 400, host
    for host in "a.test", "A.TEST", "a.test.", "a.test:8080", "a.test.:80":
        assert get(weir.address, host=host)["X-Rate-Limit-Policy"] == "a", host


def test_a_request_without_host_matches_the_rule_of_the_upstreams_host(rig):
    api = echo_server(rig)
    weir = rig.weir(upstreams={"api": {"servers": [api.text]}}, limits={"few": {"script": "gcra", "limit": 1, "period": "1d"}},
                    rules=[{"match": {"host": "127.0.0.1"}, "limits": ["few"]}])
    assert get(weir.address, host=None, version="HTTP/1.0").status == 400
    assert not api.accepted
    weir.reload(rules=[{"match": {"host": "a.test"}, "limits": ["few"]}]).wait_for_redis()
    assert get(weir.address, host=None, version="HTTP/1.0").status == 200


def access_lines(weir, count, mark):
    def look():
        lines = [line for line in weir.output().splitlines() if mark in line]
        return len(lines) >= count and lines
    return eventually(look, what=f"{count} access log lines")


REFUSED = (b"GET /caf\xe9\"\\ HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /c\x01\x1b[2Jd HTTP/1.1\r\nHost: a\r\n\r\n",
           b"FROB /x HTTP/3.0\r\nHost: a\r\n\r\n", b"GET /no-host HTTP/1.1\r\n\r\n", b"GET /v1/../x HTTP/1.1\r\nHost: a\r\n\r\n",
           b"POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"\x16\x03\x01 /x HTTP/1.1\r\n\r\n")


def refuse_all(weir):
    for request in REFUSED:
        with Connection(weir.address) as connection:
            connection.send(request)
            assert connection.response().status in (400, 505), request


def test_refused_requests_are_logged_with_method_and_target(rig):
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [echo_server(rig).text]}}, log={"access": "json"})
    refuse_all(weir)
    entries = [json.loads(line) for line in access_lines(weir, len(REFUSED), '"status":')]
    assert [(e.get("method"), e.get("target")) for e in entries] == [
        ("GET", "/caf\ufffde9\"\\"), ("GET", "/a#b"), ("GET", "/c\x01\x1b[2Jd"), ("FROB", "/x"), ("GET", "/no-host"), ("GET", "/v1/../x"),
        ("POST", "/both"), (None, None)]
    assert all(e["status"] in (400, 505) and e["error"] == "bad_request" and e["detail"] for e in entries)


def test_refused_requests_are_logged_in_the_combined_format(rig):
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [echo_server(rig).text]}}, log={"access": "combined"})
    refuse_all(weir)
    lines = access_lines(weir, len(REFUSED), "+0000]")
    assert [line.split("] ")[1].split(" 400 ")[0].split(" 505 ")[0] for line in lines] == [
        r'"GET /caf\xE9\x22\x5C"'.lower().replace("get", "GET"), '"GET /a#b"', r'"GET /c\x01\x1b[2Jd"', '"FROB /x"', '"GET /no-host"',
        '"GET /v1/../x HTTP/1.1"', '"POST /both"', '"-"']


def test_refused_request_lines_of_any_length_are_logged(rig):
    """For a line longer than size_limits.request_header, the method and the start of the target are
    logged."""
    api = {"servers": [echo_server(rig).text]}
    weir, brief = (rig.weir(workers=1, upstreams={"api": api}, log={"access": "json"}, size_limits={"request_header": "4k"},
                            timeouts={"request_header": within}) for within in ("20s", "3s"))
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/long/" + "a" * 8000))
        assert connection.response().status == 414
    with Connection(brief.address) as connection:
        connection.send(b"GET /unfinished?")
        assert connection.response().status == 408
    entries = [json.loads(line) for one in (weir, brief) for line in access_lines(one, 1, '"status":')]
    assert [(e["status"], e["method"], e["target"]) for e in entries] == [
        (414, "GET", "/long/" + "a" * 1018), (408, "GET", "/unfinished?")]


def test_check_warns_about_rules_that_can_be_bypassed(rig):
    def warnings(**keys):
        file = rig.write("warn.yaml", json.dumps({"upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, **keys}))
        return rig.command("check", "-c", file).stderr
    assert "may read it as \"/a\"" in warnings(rules=[{"match": {"path": "/a;b"}}])
    assert "may read it as \"/v1/a/b\"" in warnings(rules=[{"match": {"path": "/v1/a%2Fb"}}])
    assert "read" not in warnings(rules=[{"match": {"path": "/a;b"}}], paths={"ambiguous": "allow"})
    assert "read" not in warnings(rules=[{"match": {"path": "/a+b/*.json/caf\u00e9/x y/**"}}])
    assert "ASCII" in warnings(rules=[{"match": {"path": "/caf\u00e9"}}], paths={"ignore_case": True})
    assert "HEAD" in warnings(rules=[{"match": {"methods": ["GET"]}}])
    assert "405" in warnings(rules=[{"match": {"methods": ["POST", "TRACE"]}}])
    assert "HEAD" not in warnings(rules=[{"match": {"methods": ["GET", "HEAD"]}}, {"match": {"methods": ["POST"]}}])


PIECES = ("/", "/", "/", "//", "login", "v1", "a", "healthz", "Login", ".", "..", "..", ";", ";x", "\\", "%2f", "%2F", "%5c", "%2e", "%2E%2e",
          "%252e", "%252f", "%255C", "%25", "%3b", "%3f", "%23", "%20", "%0a", "%6c", "%c0%af", "%ef%bc%8f", "%ef%bd%8c", "%C3%A9", "%ff", "|", "+", "*")
STARTS = ("/login", "/v1/a", "/healthz", "/", "/v1/", "/x/login", "/v1")


def random_path(random):
    path = random.choice(STARTS)
    for _ in range(random.randrange(5)):
        at = random.randrange(1, len(path) + 1)
        path = path[:at] + random.choice(PIECES) + path[at:]
    return path


def test_random_paths_are_charged_by_the_rule_of_their_handler(rig):
    """No handler with a limit is called under another rule. WEIR_PATHS: number of paths; WEIR_SEED:
    the seed. Some of Flask's own rules are narrower: /v1//a does not match /v1/<path>."""
    weir = rig.weir(upstreams={"api": {"servers": [FlaskApi(rig).text]}}, rules=[FREE, LOGIN, V1, REST],
                    limits={name: {"script": "gcra", "limit": 1000000, "period": "1s"} for name in ("logins", "v1")})
    random = Random(int(os.environ.get("WEIR_SEED", "1")))
    rule_of = {"healthz": None, "login": "logins", "v1": "v1"}
    served = 0
    with Connection(weir.address) as connection:
        for _ in range(int(os.environ.get("WEIR_PATHS", "400"))):
            path = random_path(random)
            response = connection.request(path)
            if response["Connection"] == "close":
                connection.__exit__()
                connection.__init__(weir.address)
            if response["Content-Type"] != "application/json":
                continue
            handler = json.loads(response.body)["handler"]
            if handler in rule_of:
                assert response["X-Rate-Limit-Policy"] == rule_of[handler], (path, response)
                served += 1
    assert served > 50
