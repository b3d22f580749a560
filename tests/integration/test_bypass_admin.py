"""The admin listener and pages of other sites: DNS rebinding, which only Host reveals, and
cross-site requests."""

import json
import os

from rig import free_port
from wire import Connection, get

HOUR = dict(script="gcra", limit=2, period="1h")
RESOURCES = ["/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/policy", "/api/v1/clients/a", "/nothing-here"]


def weir_with(rig, **admin):
    """The test harness itself uses the host name api.test."""
    return rig.weir(limits={"each": HOUR}, admin={"address": "127.0.0.1:0", **admin})


def status(weir, data, admin=None):
    """The status of the response to these bytes on a new connection."""
    with Connection(admin or weir.admin) as connection:
        connection.send(data)
        return connection.response(data.split(b" ")[0].decode()).status


def head(host, target="/metrics", method="GET", version="HTTP/1.1", more=b""):
    lines = [f"{method} {target} {version}".encode(), *(b"Host: " + h for h in ([host] if isinstance(host, bytes) else host))]
    return b"\r\n".join(lines) + b"\r\n" + more + b"\r\n"


def test_a_rebound_host_name_can_neither_read_nor_change(rig):
    """The page's own name resolves to 127.0.0.1 (DNS rebinding): Host and Origin match, so
    Sec-Fetch-Site is same-origin."""
    weir = weir_with(rig, hosts=["api.test"])
    port = weir.admin[1]
    assert [get(weir.address, headers={"X-Client-Id": "a"}).status for _ in range(3)] == [200, 200, 429]
    same_site = b"Origin: http://evil.example:%d\r\nSec-Fetch-Site: same-origin\r\n" % port
    evil = b"evil.example:%d" % port
    for target in RESOURCES:
        for method in "GET", "HEAD":
            assert status(weir, head(evil, target, method, more=same_site)) == 403, target
    body = b'{"quota": "unlimited", "for": "30d"}'
    grant = head(evil, "/api/v1/clients/a", "PUT", more=same_site + b"Content-Length: %d\r\n" % len(body)) + body
    assert status(weir, grant) == 403
    assert status(weir, head(evil, "/api/v1/clients/a", "DELETE", more=same_site)) == 403
    assert get(weir.address, headers={"X-Client-Id": "a"}).status == 429
    client = json.loads(get(weir.admin, "/api/v1/clients/a").body)
    assert client["grant"] is None and client["limits"][0]["remaining"] == 0


def test_which_host_names_are_accepted(rig):
    weir = weir_with(rig, hosts=["api.test", "Weir.Internal"])
    good = [b"127.0.0.1", b"127.0.0.1:9180", b"127.0.0.1:", b"10.1.2.3:80", b"[::1]", b"[::1]:9180", b"[2001:db8::1]", b"[::ffff:10.0.0.1]:1",
            b"localhost", b"LOCALHOST:9180", b"localhost.", b"localhost.:80", b"weir.internal", b"WEIR.internal:9180", b"weir.internal."]
    for host in good:
        assert status(weir, head(host)) == 200, host
    bad = [b"evil.example", b"evil.example:9180", b"127.0.0.1.evil.example", b"localhost.evil.example", b"evil.localhost", b"weir.internal.evil.example",
           b"xweir.internal", b"127.0.0.1@evil.example", b"evil.example@127.0.0.1", b"127.0.0.1:80:80", b"127.0.0.1:port", b"127.0.0.1:123456",
           b"127.1", b"2130706433", b"0x7f.0.0.1", b"127.0.0.1.", b"127.0.0.1 evil.example", b"127.0.0.1,evil.example", b"::1", b"[::1",
           b"[::1]evil.example", b"[evil.example]", b"[127.0.0.1]", b"[fe80::1%25eth0]", b"[]", b".", b"..", b"localhost..", b"", b":80",
           b"localhost\xff", b"l\xc3\xb6calhost", b"http://localhost", b"a" * 300]
    for host in bad:
        assert status(weir, head(host)) == 403, host


def test_the_host_must_be_unique_and_match_the_target(rig):
    weir = weir_with(rig, hosts=["api.test"])
    local, evil = b"localhost", b"evil.example"
    for hosts in [local, evil], [evil, local], [local, local]:
        assert status(weir, head(hosts)) == 400, hosts
    assert status(weir, head([])) == 400, "HTTP/1.1 without Host (RFC 9112 section 3.2)"
    assert status(weir, head([], version="HTTP/1.0")) == 200, "load balancers send this for health checks; browsers do not"
    assert status(weir, head(evil, version="HTTP/1.0")) == 403
    assert status(weir, head(b"127.0.0.1\r\n .evil.example")) in (400, 403), "a folded line"
    assert status(weir, head(local, "http://evil.example/metrics")) == 403
    assert status(weir, head(evil, "http://127.0.0.1/metrics")) == 403
    assert status(weir, head([], "http://evil.example/metrics", version="HTTP/1.0")) == 403
    assert status(weir, head(local, "http://127.0.0.1@evil.example/metrics")) == 403
    assert status(weir, head(local, "http://127.0.0.1:9180/metrics")) == 200


def test_cross_site_reads_are_refused(rig):
    """The attacker's page uses the server's address: Host is valid, Origin and Sec-Fetch-Site are
    not."""
    weir = weir_with(rig, hosts=["api.test"])
    host = b"127.0.0.1:%d" % weir.admin[1]
    for target in RESOURCES:
        for more in (b"Origin: http://evil.example\r\n", b"Origin: null\r\n", b"Origin: http://localhost:3000\r\n", b"Sec-Fetch-Site: cross-site\r\n",
                     b"Sec-Fetch-Site: same-site\r\n", b"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n",
                     b"Origin: http://" + host + b"\r\nOrigin: http://evil.example\r\n"):
            assert status(weir, head(host, target, more=more)) == 403, (target, more)
    for more in b"Sec-Fetch-Site: none\r\n", b"Origin: http://" + host + b"\r\nSec-Fetch-Site: same-origin\r\n":
        assert status(weir, head(host, "/healthz", more=more)) == 200, more


def test_the_refusal_names_admin_hosts_and_a_reload_adds_the_host(rig):
    weir = weir_with(rig, hosts=["api.test"])
    answer = get(weir.admin, "/metrics", host="weir.internal")
    assert answer.status == 403 and b"weir.internal" in answer.body and b"admin.hosts" in answer.body, answer.body
    weir.reload(admin={"address": "127.0.0.1:0", "hosts": "weir.internal"})
    assert get(weir.admin, "/metrics", host="weir.internal").status == 200
    assert get(weir.admin, "/metrics").status == 403
    assert "a changed admin" not in weir.output()


def test_hosts_of_an_address_without_options_and_of_a_unix_socket(rig):
    path = os.path.join(rig.directory, "admin.sock")
    for admin, address in (f"127.0.0.1:{free_port()}", None), (f"unix:{path}", path):
        weir = rig.weir(admin=admin, rules=[])
        assert get(address or weir.admin, "/healthz", host="localhost").status == 200
        assert get(address or weir.admin, "/healthz", host="evil.example").status == 403


def test_invalid_host_names_are_rejected(rig):
    for hosts in ["weir.internal:9180"], ["*.internal"], [""], ["http://weir"], [".internal"]:
        policy = rig.policy(admin={"address": "127.0.0.1:0", "hosts": hosts}, rules=[], redis={"address": "127.0.0.1:6379"})
        result = rig.command("check", "-c", rig.write("policy.yaml", json.dumps(policy)))
        assert result.returncode == 1 and "is not a host name" in result.stderr and "admin.hosts[0]" in result.stderr, result.stderr
    policy = rig.policy(admin={"hosts": []}, rules=[], redis={"address": "127.0.0.1:6379"})
    result = rig.command("check", "-c", rig.write("policy.yaml", json.dumps(policy)))
    assert result.returncode == 1 and "address is missing" in result.stderr, result.stderr
