"""Active health checks: failed servers get no requests until they pass again. Only the main thread
sends checks."""

import json
import os
import subprocess
import time

from nameserver import Nameserver
from rig import eventually, free_port, sanitized, top
from scripted import Scripted
from tls_server import CA, TlsServer, context
from wire import get

OFTEN = {"path": "/healthz", "interval": "30ms", "timeout": "20s"}
OKAY, UNAVAILABLE = b"200 OK", b"503 Service Unavailable"


class Checked(Scripted):
    """A server that responds to checks with `health` and to other requests with `word`. `checks`:
    the request heads of checks; `served`: the number of other requests."""

    def __init__(self, rig, word=b"ok", kind=Scripted, **more):
        self.health, self.word, self.checks, self.served = OKAY, word, [], 0
        super().__init__(rig, self.handle, **more)

    def handle(self, peer, _number):
        while (request := peer.read_request()) is not None:
            if request[0].startswith(b"GET /healthz"):
                self.checks.append(request[0])
                if callable(self.health):
                    self.health(peer)
                    return
                peer.send(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % self.health)
            else:
                self.served += 1
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(self.word), self.word))


def weir_with_checks(rig, *servers, health=None, workers=1, **more):
    upstream = {"servers": [s if isinstance(s, str) else s.text for s in servers], "health": {**OFTEN, **(health or {})}, **more}
    return rig.weir(upstreams={"api": upstream}, workers=workers, rules=[])


def up(weir, server):
    return weir.metric("weir_upstream_server_up", server=server.text)


def count_log_lines(weir, words):
    return sum(words in line for _, line in weir.log())


def test_a_failed_server_gets_no_requests_until_it_passes_again(rig):
    one, two = Checked(rig, b"one"), Checked(rig, b"two")
    weir = weir_with_checks(rig, one, two, workers=2)
    assert {get(weir.address).body for _ in range(20)} == {b"one", b"two"} and up(weir, one) == up(weir, two) == 1
    two.health = UNAVAILABLE
    eventually(lambda: up(weir, two) == 0, what="server two to be down")
    assert {get(weir.address).body for _ in range(20)} == {b"one"}
    seen = len(two.checks)
    eventually(lambda: len(two.checks) > seen + 5, what="further checks")
    eventually(lambda: count_log_lines(weir, f"upstream api: server {two.text}: health check: status 503; it receives no requests until it passes 2") == 1)
    states = [(s["state"], s["healthy"]) for s in json.loads(get(weir.admin, "/api/v1/status").body)["upstreams"][0]["servers"]]
    assert states == [("up", True), ("down", False)]
    two.health = OKAY
    eventually(lambda: up(weir, two) == 1, what="server two to be up")
    eventually(lambda: count_log_lines(weir, f"upstream api: server {two.text} passes its health checks again") == 1)
    assert {get(weir.address).body for _ in range(20)} == {b"one", b"two"}


def test_if_all_servers_fail_requests_get_503(rig):
    only = Checked(rig)
    only.health = UNAVAILABLE
    weir = weir_with_checks(rig, only)
    eventually(lambda: up(weir, only) == 0)
    eventually(lambda: get(weir.admin, "/readyz").status == 503, what="/readyz")
    served = only.served
    answer = get(weir.address)
    assert answer.status == 503 and b"passes its health checks" in answer.body and only.served == served
    weir.counts(1, "weir_errors_total", cause="upstream_no_server")
    only.health = OKAY
    eventually(lambda: get(weir.admin, "/readyz").status == 200, what="/readyz")
    eventually(lambda: get(weir.address).status == 200, what="requests to the server")


def test_the_check_request_and_its_interval(rig):
    server = Checked(rig)
    weir_with_checks(rig, server, workers=4, health={"interval": "400ms", "path": "/healthz?deep=1", "host": "api.test"})
    eventually(lambda: server.checks, what="the first check")
    begun, seen = time.monotonic(), len(server.checks)
    head = server.checks[0].decode()
    assert head.startswith("GET /healthz?deep=1 HTTP/1.1\r\nHost: api.test\r\nUser-Agent: weir/") and "\r\nConnection: close" in head
    eventually(lambda: len(server.checks) >= seen + 4, what="four checks")
    assert time.monotonic() - begun > 0.7, "three intervals with one check each, independent of the number of workers"
    accepted, checks = server.accepted, len(server.checks)
    assert accepted <= checks + 1, "one connection per check"


def assert_check_fails(rig, health, words, **more):
    server = Checked(rig)
    server.health = health
    weir = weir_with_checks(rig, server, health={"unhealthy": 2, **more})
    eventually(lambda: count_log_lines(weir, "health check: " + words) == 1, what=words)
    assert up(weir, server) == 0


def test_responses_that_fail_a_check(rig):
    assert_check_fails(rig, lambda peer: None, "it closed the connection without a response")
    assert_check_fails(rig, lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), "")
    assert_check_fails(rig, lambda peer: peer.send(b"HTTP/2 what\r\n\r\n"), "")
    assert_check_fails(rig, lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 20000), "the response header is too large")
    assert_check_fails(rig, lambda peer: peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000), "the response header is too large")
    assert_check_fails(rig, lambda peer: peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n"), "status 404")
    assert_check_fails(rig, b"302 Found", "status 302", status=["2xx"])
    assert_check_fails(rig, lambda peer: peer.socket.recv(1), "no response within health.timeout", timeout="40ms")


def test_responses_that_pass_a_check(rig):
    for health, more in ((b"302 Found", {}), (b"404 Not Found", {"status": [404]}), (b"204 No Content", {"status": ["2xx"]})):
        server = Checked(rig)
        server.health = health
        weir = weir_with_checks(rig, server, health={"unhealthy": 1, **more})
        eventually(lambda: len(server.checks) > 4)
        assert up(weir, server) == 1


def test_a_refused_connection_fails_a_check(rig):
    weir = weir_with_checks(rig, f"127.0.0.1:{free_port()}", Checked(rig))
    eventually(lambda: count_log_lines(weir, "health check: Connection refused") == 1)
    assert {get(weir.address).status for _ in range(10)} == {200}
    assert weir.metric("weir_upstream_retries_total") == 0


def test_a_lack_of_local_ports_is_no_failure_of_the_server(rig):
    """Most of all, connections that are open stay in use."""
    if sanitized:  # the sanitizer's runtime must be loaded first
        return
    library, lack = os.path.join(rig.directory, "libno_local_ports.so"), os.path.join(rig.directory, "lack")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library,
                    os.path.join(top, "tests", "support", "no_local_ports.c")], check=True)
    server, environment = Checked(rig), {"LD_PRELOAD": library, "NO_LOCAL_PORTS": lack}
    upstreams = {"api": {"servers": [server.text], "health": {**OFTEN, "unhealthy": 1}}}
    weir = rig.weir(upstreams=upstreams, workers=1, rules=[], log={"level": "debug"}, environment=environment)
    assert get(weir.address).status == 200
    rig.write("lack", "")
    eventually(lambda: weir.output().count("health check: no local port") > 2)
    assert up(weir, server) == 1 and get(weir.address).status == 200
    other = rig.weir(upstreams=upstreams, workers=1, rules=[], environment=environment)
    assert get(other.address).status == 502
    other.wait_for_output(f"upstream api: server {server.text}: no local port is left for another connection; raise net.ipv4.ip_local")
    assert other.metric("weir_upstream_ejections_total") == 0 and up(other, server) == 1
    os.unlink(lack)
    assert get(other.address).status == 200


def test_a_reload_does_not_make_a_server_healthy(rig):
    one, two = Checked(rig, b"one"), Checked(rig, b"two")
    two.health = UNAVAILABLE
    weir = weir_with_checks(rig, one, two)
    eventually(lambda: up(weir, two) == 0)
    # checks now get no response, so the state does not change
    two.health = lambda peer: peer.socket.recv(1)
    weir.reload(rules=[{"match": {"path": "/other"}}])
    assert {get(weir.address).body for _ in range(20)} == {b"one"}
    assert count_log_lines(weir, "it receives no requests until") == 1


def test_health_checks_use_tls(rig):
    class SecureChecked(Checked, TlsServer):
        pass
    valid, expired, chosen = context(), context("expired.pem"), []
    server = SecureChecked(rig, chosen=lambda _: expired if chosen else valid)
    weir = weir_with_checks(rig, server, tls={"ca": CA})
    assert get(weir.address).status == 200
    eventually(lambda: len(server.checks) > 3)
    assert server.resumed > 0
    chosen.append(True)
    eventually(lambda: count_log_lines(weir, "health check: its certificate, or one in its chain, expired on 2021-01-01") == 1)
    assert up(weir, server) == 0


def test_health_checks_over_a_unix_socket(rig):
    server = Checked(rig, address=os.path.join(rig.directory, "api.sock"))
    weir_with_checks(rig, server)
    eventually(lambda: len(server.checks) > 2)
    assert b"\r\nHost: localhost\r\n" in server.checks[0]


def test_addresses_that_dns_adds_are_checked(rig):
    two = None
    while not two:
        one = Checked(rig, b"one")
        try:
            two = Checked(rig, b"two", address=("127.0.0.2", one.address[1]))
        except OSError:  # the port is in use at that address
            one.close()
    two.health = UNAVAILABLE
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1"]})
    weir = rig.weir(upstreams={"api": {"servers": ["api.test:%d" % one.address[1]], "health": OFTEN}}, workers=1, rules=[],
                    resolver={"nameservers": [dns.text], "min_ttl": "30ms"})
    eventually(lambda: one.checks)
    dns.records["api.test"] = ["127.0.0.1", "127.0.0.2"]
    eventually(lambda: count_log_lines(weir, "(127.0.0.2:%d): health check: status 503" % one.address[1]) == 1)
    assert {get(weir.address).body for _ in range(10)} == {b"one"}
    dns.records["api.test"] = ["127.0.0.1"]
    eventually(lambda: weir.metric("weir_upstream_server_up", address="127.0.0.2:%d" % one.address[1]) is None)
    seen = len(two.checks)
    more = len(one.checks)
    eventually(lambda: len(one.checks) > more + 5)
    assert len(two.checks) <= seen + 1, "removed servers are not checked"


def test_health_checks_leak_no_descriptors(rig):
    server = Checked(rig)
    weir = weir_with_checks(rig, server, health={"interval": "10ms"})
    eventually(lambda: len(server.checks) > 5)
    before = weir.descriptors()
    eventually(lambda: len(server.checks) > 100)
    assert weir.descriptors() <= before + 2
