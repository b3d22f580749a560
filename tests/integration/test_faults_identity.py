"""Requests that weir and a server could read as those of different clients."""

import http.cookies
import json
import random
import shutil

from recipe_book import blocks, recipes
from rig import Process, address_of, eventually, free_port
from wire import Connection, get

EACH = {"each": dict(script="fixed_window", limit=100000, period="1d")}


def charged(weir, headers=None, target="/echo"):
    """The status, and the identity that was charged, from the field that the upstream received."""
    response = get(weir.address, target, headers=headers)
    if response.status != 200:
        return response.status, None
    fields = json.loads(response.body)["fields"]
    return 200, next(value for name, value in fields if name.lower() == "x-weir-client")


# --- cookies
# ----------------------------------------------------------------------------------------

def test_a_cookie_behind_a_blank_is_refused(rig):
    """Python's http.cookies separates cookies by blanks too."""
    weir = rig.weir(limits=EACH, identity={"from": ["cookie:session", "ip"], "headers_from": "anyone"})
    for cookies in ("session=R1; a=b session=REAL", "session=R1; a=b\tsession = REAL", "a=b  session=REAL",
                    'a="b" session=REAL'):
        assert http.cookies.SimpleCookie(cookies)["session"].value == "REAL", cookies
        assert charged(weir, {"Cookie": cookies}) == (400, None), cookies
    assert charged(weir, {"Cookie": "session=R1; note=my session"})[1].startswith("cookie:")


def test_several_cookies_of_one_name_are_one_client(rig):
    """Browsers send the cookie of the host and that of its domain, and those of other
    applications. Any of them may be the session for the server."""
    weir = rig.weir(limits=EACH, identity={"from": ["cookie:session", "ip"], "headers_from": "anyone"})
    alone = charged(weir, {"Cookie": "session=a"})[1]
    both = charged(weir, {"Cookie": "theme=x; session=a; session=b"})[1]
    assert alone.startswith("cookie:") and both.startswith("cookie:") and alone != both
    assert charged(weir, [("Cookie", "session=a"), ("Cookie", "session=b; x=1")])[1] == both, "the same list"
    assert charged(weir, {"Cookie": "session=b; session=a"})[1] not in (alone, both)
    assert charged(weir, {"Cookie": "session=a; SESSION=c"})[1] not in (alone, both)
    assert charged(weir, {"Cookie": "session=%zz"})[1].startswith("cookie:"), "stays as it is"
    for cookies in ("session=a; session=%00", "session=a; session=%0d", "session=a; session=b%0A"):
        assert charged(weir, {"Cookie": cookies}) == (400, None), cookies


def test_with_reject_python_reads_the_counted_cookie(rig):
    """Random fields: of each that weir accepts, Python's http.cookies reads no cookie other than the
    counted one."""
    weir = rig.weir(limits=EACH, identity={"from": ["cookie:session", "ip"], "headers_from": "anyone", "cookies": "reject"})
    pieces, choose, accepted = ["session", "session=", "SESSION", "a", "b", "x=", "=", " ", "\t", ";", "; ", '"', ",", " secure"], random.Random(1), 0
    for _ in range(400):
        field = "session=R" + choose.choice(["", ";", " "]) + "".join(choose.choices(pieces, k=choose.randrange(9)))
        try:
            read = http.cookies.SimpleCookie(field).get("session")
        except http.cookies.CookieError:
            continue
        if not read or not read.value or ";" in read.value:
            continue
        status, identity = charged(weir, {"Cookie": field})
        assert status in (200, 400), field
        if status == 200:
            accepted += 1
            assert identity == charged(weir, {"Cookie": f'session="{read.value}"'})[1], (field, read.value)
    assert accepted > 20, accepted


# --- headers of limits
# ------------------------------------------------------------------------------

def test_the_header_of_a_limit_is_accepted_from_trusted_proxies_only(rig):
    limits = {"tenant": dict(script="fixed_window", limit=2, period="1d", per=["client", "header:X-Tenant"])}

    def statuses(**identity):
        weir = rig.weir(limits=limits, identity={"from": ["ip"], "client_ip_header": "X-Forwarded-For", **identity})
        return [get(weir.address, headers={"X-Tenant": f"tenant-{n}"}).status for n in range(4)]

    assert statuses(trusted_proxies=["192.0.2.1"]) == [200, 200, 429, 429], "from a stranger"
    assert statuses(trusted_proxies=["127.0.0.1"]) == [200] * 4, "from the proxy"
    assert statuses(trusted_proxies=["192.0.2.1"], headers_from="anyone") == [200] * 4, "from anyone"


def test_check_warns_of_a_limit_by_a_header_that_anyone_can_invent(rig):
    warning = "anyone can invent values of X-Tenant"
    for identity, warns in (({}, True), ({"trusted_proxies": ["192.0.2.1"]}, False),
                            ({"trusted_proxies": ["192.0.2.1"], "headers_from": "anyone"}, True)):
        policy = rig.write("policy.yaml", json.dumps({
            "upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, "identity": identity,
            "limits": {"tenant": {"script": "gcra", "limit": 1, "period": "1d", "per": ["client", "header:X-Tenant"]}},
            "rules": [{"limits": ["tenant"]}]}))
        assert (warning in rig.command("check", "-c", policy).stderr) == warns, identity


def test_spellings_of_an_authorization_scheme_are_one_client(rig):
    limits = {"client": dict(script="fixed_window", limit=2, period="1d"),
              "header": dict(script="fixed_window", limit=2, period="1d", per="header:Authorization")}
    for name in limits:
        weir = rig.weir(limits=limits, identity={"from": ["header:Authorization", "ip"], "headers_from": "anyone"},
                        rules=[{"limits": [name]}])
        statuses = [get(weir.address, headers={"Authorization": spelling}).status for spelling in ("Basic eDp5", "basic eDp5", "BASIC  eDp5")]
        assert statuses == [200, 200, 429], (name, statuses)
        assert get(weir.address, headers={"Authorization": "Basic eDp6"}).status == 200, "another client"
        for same in ("Basic eD.p5", "Bearer KEY x1", "x1 Bearer KEY", "Bearer KEY\xa0"):
            assert get(weir.address, headers={"Authorization": same}).status == 400, (same, "lenient servers read another spelling")


# --- paths and Upgrade
# ------------------------------------------------------------------------------

def test_three_dots_are_an_ordinary_segment(rig):
    """No server reads "..." as ".."."""
    weir = rig.weir(limits=EACH, rules=[{"name": "v1", "match": {"path": "/v1/**"}, "limits": ["each"]}, {"name": "rest"}])
    for target in "/v1/...", "/v1/.../a", "/v1/..../", "/v1/%2e%2e%2e":
        response = get(weir.address, target)
        assert response.status == 200, (target, response)
    for target in "/v1/..", "/v1/..%20", "/v1/.. ./x".replace(" ", "%20"), "/.../v1/a":
        assert get(weir.address, target).status == 400, target


def test_a_malformed_upgrade_is_not_forwarded(rig):
    weir = rig.weir()
    for protocols in '"h2c"', 'websocket, "h2c"', "x h2c":
        response = get(weir.address, "/echo", headers={"Connection": "upgrade", "Upgrade": protocols})
        names = {name.lower() for name, _ in json.loads(response.body)["fields"]}
        assert response.status == 200 and "upgrade" not in names, (protocols, names)


# --- decisions for other proxies
# ------------------------------------------------------------------------------

def nginx_before(rig, listener):
    """nginx as in the recipe, with the decision listener at `listener`; returns its address."""
    (config,) = blocks(recipes()[1]["Behind nginx, without forwarding"], "nginx")
    port = free_port()
    rig.write("nginx.conf", f"""daemon off; master_process off; pid {rig.directory}/nginx.pid; error_log stderr;
        events {{ }} http {{ access_log off; client_body_temp_path {rig.directory}/body; proxy_temp_path {rig.directory}/proxy;
        fastcgi_temp_path {rig.directory}/f; uwsgi_temp_path {rig.directory}/u; scgi_temp_path {rig.directory}/s;
        upstream api {{ server {rig.upstream().text}; }} upstream weir {{ server {listener}; keepalive 64; }}
        server {{ listen 127.0.0.1:{port}; {config} }} }}""")
    Process(rig, "nginx", [shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-c", f"{rig.directory}/nginx.conf"])
    eventually(lambda: can_connect(("127.0.0.1", port)), 10, "nginx")
    return "127.0.0.1", port


def can_connect(address):
    try:
        with Connection(address):
            return True
    except OSError:
        return False


def test_behind_nginx_the_host_that_it_serves_is_decided(rig):
    """The host of an absolute target replaces Host."""
    weir = rig.weir(decisions={"listen": "127.0.0.1:0", "request_from": "original", "deny_status": 403},
                    limits={"few": dict(script="fixed_window", limit=2, period="1d")},
                    rules=[{"match": {"host": "free.example"}, "limits": "none"}, {"limits": ["few"]}])
    nginx = nginx_before(rig, weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0])
    statuses = []
    for _ in range(4):
        with Connection(nginx) as connection:
            connection.send(b"GET http://api.example/x HTTP/1.1\r\nHost: free.example\r\nConnection: close\r\n\r\n")
            statuses.append(connection.response().status)
    assert statuses == [200, 200, 429, 429], statuses
    assert get(nginx, "/x", host="free.example").status == 200


def test_pages_of_other_sites_cannot_use_the_decision_listener(rig):
    """A page whose host name resolves to 127.0.0.1 (DNS rebinding), and pages that send requests
    to the address itself."""
    def listener_of(**decisions):
        weir = rig.weir(decisions={"listen": "127.0.0.1:0", **decisions}, limits=EACH, rules=[{"limits": ["each"]}])
        return address_of(weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0])

    def status(listener, host, **fields):
        forwarded = {"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/x", "X-Forwarded-Host": "api.test", "X-Forwarded-Proto": "https",
                     "X-Forwarded-For": "203.0.113.7", "X-Original-Method": "POST", "X-Original-URI": "/x"}
        return get(listener, "/x", host=host, headers={**forwarded, **{name.replace("_", "-"): value for name, value in fields.items()}}).status

    client = {"Origin": "https://app.test", "Sec_Fetch_Site": "cross-site"}  # of an honest request, passed on by the proxy
    listener = listener_of()
    own = "127.0.0.1:%d" % listener[1]
    for host in own, "localhost", "[::1]:80":
        assert status(listener, host, **client) == 200, host
    for host in "evil.example:%d" % listener[1], "evil.example", "localhost.evil.example":
        assert status(listener, host, Origin="http://" + host, Sec_Fetch_Site="same-origin") == 403, host
    assert status(listener_of(hosts=["Weir.internal"]), "weir.internal:80") == 200
    for mode in "original", "request":
        listener = listener_of(request_from=mode)
        own, evil = ("%s:%d" % (name, listener[1]) for name in ("127.0.0.1", "evil.example"))
        assert status(listener, "api.test", **client) == status(listener, "api.test:8443", **client) == status(listener, own) == 200
        assert status(listener, evil, Origin="http://" + evil, Sec_Fetch_Site="same-origin") == 403
        assert status(listener, own, Origin="http://evil.example") == status(listener, own, Sec_Fetch_Site="cross-site") == 403


def test_a_refused_host_of_the_decision_listener_is_logged(rig):
    """After an upgrade, a proxy that reaches the listener by a name needs decisions.hosts."""
    weir = rig.weir(decisions={"listen": "127.0.0.1:0"}, rules=[{"limits": "none"}])
    listener = address_of(weir.wait_for_output(r"listening on (\S+) \(decisions\)$")[0])
    assert get(listener, "/x", host="weir:9190").status == 403
    weir.wait_for_output('Host "weir:9190" is rejected with 403; .* add the name to decisions.hosts')
