"""Host names of upstream servers: resolved at start, again when the TTL has expired, and kept while
name servers do not respond."""

import json
import socket
import threading
import time

from nameserver import Nameserver
from rig import eventually
from scripted import Scripted, respond_to_all
from wire import Connection, get

SOON = {"min_ttl": "30ms", "timeout": "3s"}


def respond_with_body(word):
    return respond_to_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(word), word))


def two_servers(rig, first=respond_with_body(b"one"), second=respond_with_body(b"two")):
    """Servers at 127.0.0.1 and 127.0.0.2, on the same port."""
    while True:
        one = Scripted(rig, first)
        try:
            return one, Scripted(rig, second, address=("127.0.0.2", one.address[1])), one.address[1]
        except OSError:  # the port is in use at that address
            one.close()


def weir_with_dns(rig, server, port, name="api.test", resolver=None, resolved=True, **more):
    """`resolved`: waits until the name has an address. weir itself waits at most 1 s."""
    policy = {"upstreams": {"api": {"servers": [f"{name}:{port}"]}}, "rules": [], "workers": 1,
              "resolver": {**SOON, "nameservers": [server.text], **(resolver or {})}, **more}
    weir = rig.weir(**policy)
    if resolved:
        eventually(lambda: all(s["address"] for s in servers_of(weir)), what="the name to be resolved")
    return weir


def count_log_lines(weir, words):
    return sum(words in line for _, line in weir.log())


def servers_of(weir):
    return json.loads(get(weir.admin, "/api/v1/status").body)["upstreams"][0]["servers"]


def test_the_first_request_uses_the_resolved_address(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, ttl=60, **{"api.test": ["127.0.0.1"]})

    def start():
        """Returns whether the first request got its response. It may fail only if the start took
        more than 1 s."""
        began = time.monotonic()
        answer = get(weir_with_dns(rig, dns, port, resolved=False, workers=2).address)
        assert answer.body == b"one" or time.monotonic() - began > 1, answer
        return answer.body == b"one"
    for _ in range(3):
        eventually(start, 15, what="a start in which the name is resolved within 1 s")


def test_a_changed_address_takes_effect(rig):
    request_received, answer = threading.Event(), threading.Event()

    def first(peer, number):
        while (request := peer.read_request()) is not None:
            if b"/slow" in request[0]:
                request_received.set()
                answer.wait(20)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none")
    one, two, port = two_servers(rig, first)
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port)
    with Connection(weir.address) as under_way, Connection(weir.address) as others:
        assert others.request().body == b"one"
        under_way.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        assert request_received.wait(20)
        dns.records["api.test"] = ["127.0.0.2"]
        eventually(lambda: others.request().body == b"two", what="requests to use the new address")
        eventually(lambda: count_log_lines(weir, "api.test:%d is now 127.0.0.2" % port) == 1)
        eventually(lambda: weir.metric("weir_upstream_connections") == 2, what="the idle connection to the old address to be closed")
        answer.set()
        assert under_way.response().body == b"one", "a request in progress finishes on its connection"
        eventually(lambda: weir.metric("weir_upstream_connections") == 1, what="its connection to be closed")
        assert {others.request().body for _ in range(5)} == {b"two"}
    assert [s["address"] for s in servers_of(weir)] == ["127.0.0.2:%d" % port]
    weir.counts(1, "weir_upstream_server_up", address="127.0.0.2:%d" % port)
    assert weir.metric("weir_upstream_server_up", address="127.0.0.1:%d" % port) is None


def test_a_request_that_the_old_address_loses_is_sent_to_the_new_one(rig):
    received, lose = threading.Event(), threading.Event()
    rig.add_cleanup(lose.set)

    def first(peer, _number):
        peer.read_request()
        received.set()
        lose.wait()
    _, _, port = two_servers(rig, first)
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port)
    weir.expect_errors("upstream|server")
    with Connection(weir.address) as lost:
        lost.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert received.wait(20)
        dns.records["api.test"] = ["127.0.0.2"]
        eventually(lambda: [s["address"] for s in servers_of(weir)] == ["127.0.0.2:%d" % port], what="the new address")
        assert get(weir.address).body == b"two"
        lose.set()
        assert lost.response().body == b"two"


def test_all_addresses_of_a_name_are_servers(rig):
    one, two, port = two_servers(rig)
    dns = Nameserver(rig, ttl=60, **{"api.test": ["=lb.test"], "lb.test": ["127.0.0.2", "127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port)
    assert sorted(get(weir.address).body for _ in range(6)) == [b"one"] * 3 + [b"two"] * 3
    assert [(s["name"], s["state"]) for s in servers_of(weir)] == [("api.test:%d" % port, "up")] * 2


def test_both_families(rig):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return  # this machine has no IPv6
    while True:
        one = Scripted(rig, respond_with_body(b"one"))
        try:
            listener = socket.create_server(("::1", one.address[1]), family=socket.AF_INET6)
            break
        except OSError:  # the port is in use at that address
            one.close()
    rig.add_cleanup(listener.close)
    dns = Nameserver(rig, ttl=60, **{"api.test": ["127.0.0.1", "::1"]})
    assert len(servers_of(weir_with_dns(rig, dns, one.address[1]))) == 2
    assert len(servers_of(weir_with_dns(rig, dns, one.address[1], resolver={"ipv6": False}))) == 1


def test_the_ttl_determines_when_a_name_is_resolved_again(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, ttl=3600, **{"api.test": ["127.0.0.1"], "brief.test": ["127.0.0.1"]})
    weir = rig.weir(upstreams={"api": {"servers": [f"api.test:{port}"]}}, workers=2, resolver={"nameservers": [dns.text], "min_ttl": "10ms"})
    for _ in range(20):
        get(weir.address)
    assert sorted(dns.queries) == [("api.test", 1), ("api.test", 28)], "one query for all workers"
    weir.reload(resolver={"nameservers": [dns.text], "min_ttl": "10ms", "max_ttl": "50ms"})
    eventually(lambda: len(dns.queries) >= 10, what="max_ttl")


def test_the_shorter_ttl_of_both_families_applies(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, ttl={1: 0, 28: 3600}, **{"api.test": ["127.0.0.1", "::1"]})
    weir_with_dns(rig, dns, port)
    eventually(lambda: len(dns.queries) >= 6, what="further queries")
    other = Nameserver(rig, ttl={1: 3600, 28: 0}, **{"api.test": ["127.0.0.1", "::1"]})
    weir_with_dns(rig, other, port)
    eventually(lambda: len(other.queries) >= 6, what="further queries")


def test_addresses_are_kept_while_the_name_servers_fail(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port, resolver={"timeout": "2s", "max_ttl": "50ms"})
    eventually(lambda: get(weir.address).body == b"one")
    for trouble, words in (("silent", "no response from the name servers"), ("code", "no response from the name servers"),
                           ("truncated", "the response does not fit a datagram"), ("gone", "the name does not exist")):
        before = count_log_lines(weir, words + "; its last addresses stay in use")
        if trouble == "gone":
            dns.records.clear()
        elif trouble == "code":
            dns.code = 2
        else:
            setattr(dns, trouble, True)
        eventually(lambda: count_log_lines(weir, words + "; its last addresses stay in use") == before + 1, what=trouble)
        seen = len(dns.queries)
        eventually(lambda: len(dns.queries) >= seen + 4, what="further queries")
        assert get(weir.address).body == b"one"
        assert count_log_lines(weir, words + "; its last addresses stay in use") == before + 1, "logged once"
        again = count_log_lines(weir, "is resolved again")
        dns.silent, dns.code, dns.truncated = False, 0, False
        dns.records["api.test"] = ["127.0.0.1"]
        eventually(lambda: count_log_lines(weir, "is resolved again") == again + 1, what="the name to be resolved again")
    assert count_log_lines(weir, "is now") == 0


def test_weir_starts_without_dns(rig):
    """weir starts, logs the problem, and serves requests when the name is resolved."""
    one, _, port = two_servers(rig)
    dns = Nameserver(rig)
    dns.silent = True
    weir = weir_with_dns(rig, dns, port, resolver={"timeout": "90ms", "max_ttl": "50ms"}, resolved=False)
    answer = get(weir.address)
    assert answer.status == 503 and b"its name is not resolved" in answer.body
    weir.counts(1, "weir_errors_total", cause="upstream_no_server")
    eventually(lambda: count_log_lines(weir, "it receives no requests until it is resolved") == 1)
    assert servers_of(weir) == [{"address": None, "name": "api.test:%d" % port, "state": "unresolved", "ejected_by_workers": 0}]
    eventually(lambda: get(weir.admin, "/readyz").status == 503)
    dns.records["api.test"] = ["127.0.0.1"]
    dns.silent = False
    eventually(lambda: get(weir.address).status == 200, what="the name to be resolved")
    eventually(lambda: get(weir.admin, "/readyz").status == 200)


def test_the_hosts_file_has_precedence(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, **{"localhost": ["127.0.0.2"]})
    weir = weir_with_dns(rig, dns, port, "localhost")
    assert get(weir.address).body == b"one" and dns.queries == []


def test_a_reload_keeps_resolved_addresses(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, ttl=60, **{"api.test": ["127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port)
    dns.silent = True
    weir.reload(upstreams={"other": {"servers": [f"api.test:{port}"]}})
    assert {get(weir.address).status for _ in range(10)} == {200}


def test_changing_addresses_fail_no_request(rig):
    one, two, port = two_servers(rig)
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1", "127.0.0.2"]})
    weir = weir_with_dns(rig, dns, port, workers=2, resolver={"min_ttl": "10ms"})
    seen = set()
    with Connection(weir.address) as client, Connection(weir.address) as other:
        for number in range(300):
            dns.records["api.test"] = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"]][number // 20 % 3]
            for connection in client, other:
                answer = connection.request(method="POST" if number % 3 else "GET", body=b"x" if number % 3 else None)
                assert answer.status == 200
                seen.add(answer.body)
    assert seen == {b"one", b"two"}


def test_check_warns_about_unresolvable_names(rig):
    dns = Nameserver(rig, **{"good.test": ["127.0.0.1"]})
    file = rig.write("names.yaml", json.dumps({"upstreams": {"api": {"servers": ["good.test:80", "bad.test:80"]}},
                                               "resolver": {"nameservers": [dns.text]}}))
    done = rig.command("check", "-c", file)
    assert done.returncode == 0, done.stderr
    assert "names.yaml:1:52: warning: upstreams.api: bad.test:80: the name does not exist; requests get 503 until" in done.stderr, done.stderr
    assert "good.test" not in done.stderr


def test_readyz_stays_200_while_a_new_name_is_looked_up(rig):
    one, _, port = two_servers(rig)
    dns = Nameserver(rig, ttl=60, **{"api.test": ["127.0.0.1"], "new.test": ["127.0.0.1"]})
    weir = weir_with_dns(rig, dns, port)
    assert get(weir.admin, "/readyz").status == 200
    dns.hold = True
    weir.policy["upstreams"]["more"] = {"servers": [f"new.test:{port}"]}
    reload = threading.Thread(target=weir.reload)
    reload.start()
    eventually(lambda: {("new.test", 1), ("new.test", 28)} <= set(dns.queries))
    seen = [get(weir.admin, "/readyz").status for _ in range(3)]
    dns.release()
    while reload.is_alive():
        seen.append(get(weir.admin, "/readyz").status)
    assert set(seen) == {200}, set(seen)
