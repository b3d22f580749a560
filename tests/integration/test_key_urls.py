"""Keys of tokens that weir fetches by URL: rotation, issuers that fail or are hostile, restarts."""

import contextlib
import functools
import json
import os
import re
import threading
import time

import tls_server
from http2_wire import Http2
from key_server import KeyServer, settings
from nameserver import Nameserver
from rig import eventually, sanitized, time_scale
from scripted import Scripted
from tokens import SECRET, Issuer
from wire import Connection, get, request_bytes

LIMIT = {"each": dict(script="fixed_window", limit=1000000, period="1d")}
CLAIMS = {"sub": "alice", "aud": "api"}


def bearer(token):
    return {"Authorization": "Bearer " + token}


def identity_of(weir, token):
    """The identity that was charged, from the field that the upstream received."""
    response = get(weir.address, "/echo", headers=bearer(token))
    assert response.status == 200, response
    return next(value for name, value in json.loads(response.body)["fields"] if name.lower() == "x-weir-client")


def start(rig, *servers, sources=("jwt:sub", "ip"), workers=2, state=None, environment=None, wait=True, **jwt):
    """`wait`: waits until the first fetch of each URL has ended."""
    keys = {"state_directory": state} if state else {}
    weir = rig.weir(limits=LIMIT, workers=workers, identity={"from": list(sources), "jwt": settings(*servers, **jwt)},
                    environment=environment, redis={"on_failure": "allow"}, **keys)
    return wait_for_first_fetches(weir, *servers) if wait else weir


def wait_for_first_fetches(weir, *servers):
    """Waits until the first fetch of each URL has succeeded or failed. weir itself waits at most 1 s
    for it before it is ready."""
    eventually(lambda: all(weir.metric("weir_jwt_key_fetches_total", url=server.url) for server in servers), what="the first fetches")
    return weir


def lines(weir, pattern):
    return [text for _, text in weir.log() if re.search(pattern, text)]


def test_keys_are_there_when_weir_is_ready(rig):
    issuer = Issuer(rig, "EdDSA", "RS256", "ES256")
    server = KeyServer(rig, issuer.jwks)

    def start_with_keys():
        """weir waits at most 1 s for them."""
        began, weir = time.monotonic(), start(rig, server, wait=False)
        have = fetched(weir, server)
        assert have or time.monotonic() - began > 1, "ready before the keys are fetched"
        return have and weir
    weir = eventually(start_with_keys, what="a start in which the keys are fetched within 1 s")
    for algorithm in ("EdDSA", "RS256", "ES256"):
        assert identity_of(weir, issuer.sign(algorithm, CLAIMS)[0]) == "jwt:alice", algorithm
    eventually(lambda: lines(weir, "^keys ") == [f"keys {server.url}: 3 keys"])
    assert weir.metric("weir_jwt_key_fetches_total", url=server.url, result="good") == 1
    assert 0 <= weir.metric("weir_jwt_keys_age_seconds", url=server.url) < 60


def ready(weir):
    response = get(weir.admin, "/readyz", host="127.0.0.1")
    return response.status, response.body.decode()


def fetched(weir, server, result="good"):
    return weir.metric("weir_jwt_key_fetches_total", url=server.url, result=result)


def fetch_again(weir, server, result="failed"):
    """A reload fetches at once. Waits until that has had this result."""
    before = fetched(weir, server, result)
    weir.reload().wait_for_redis()
    eventually(lambda: fetched(weir, server, result) > before, what=f"a fetch: {result}")


class Load:
    """Sends requests with a token, one after the other, in threads. Collects the identities."""

    def __init__(self, rig, weir, threads=3, pause=0):
        self.weir, self.token, self.seen, self.over, self.failures, self.pause = weir, None, [], False, [], pause
        self.using = {}  # the token of each thread's request
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]
        rig.add_cleanup(self.end)

    def start(self, token):
        self.token = token
        for thread in self.threads:
            thread.start()
        return self

    def run(self):
        while not self.over:
            token = self.using[threading.get_ident()] = self.token
            try:
                self.seen.append((token, identity_of(self.weir, token)))
            except Exception as failure:
                self.failures.append(failure)
                return
            time.sleep(self.pause)

    def switch(self, token):
        """Returns when no thread uses another token."""
        self.token = token
        eventually(lambda: self.failures or set(self.using.values()) == {token}, what="the token in all threads")

    def identities(self, token):
        return {identity for used, identity in list(self.seen) if used == token}

    def more(self, count=20):
        """Waits for so many more requests."""
        before = len(self.seen)
        eventually(lambda: self.failures or len(self.seen) > before + count, what="requests")
        assert not self.failures, self.failures

    def end(self):
        self.over = True
        for thread in self.threads:
            if thread.ident:
                thread.join()


def test_rotation_under_load_loses_and_admits_nothing(rig):
    old, new = Issuer(rig, "EdDSA", kid="2025"), Issuer(rig, "EdDSA", kid="2026")
    both = json.dumps({"keys": old.set + new.set})
    server = KeyServer(rig, old.jwks)
    weir = start(rig, server, refresh="1s")
    first, second = old.sign("EdDSA", CLAIMS)[0], new.sign("EdDSA", CLAIMS)[0]
    load = Load(rig, weir).start(first)
    load.more()
    server.content = both  # the issuer publishes the next key before it signs with it
    eventually(lambda: lines(weir, "now 2 keys"), what="both keys")
    load.switch(second)
    load.more()
    server.content = new.jwks
    eventually(lambda: lines(weir, "now 1 key$") and fetched(weir, server), what="the new key, logged and then published")
    load.more()
    assert load.identities(first) == load.identities(second) == {"jwt:alice"}
    for _ in range(4):
        assert identity_of(weir, first) == "ip:127.0.0.1", "the key was withdrawn: also cached tokens are invalid"
    load.end()
    assert not load.failures and identity_of(weir, second) == "jwt:alice"
    assert fetched(weir, server, "failed") == 0 and not lines(weir, "warn|cannot")


def test_a_key_that_is_not_announced_is_fetched_at_once(rig):
    old, new, foreign = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2"), Issuer(rig, "EdDSA", kid="1")
    server = KeyServer(rig, old.jwks)
    weir = start(rig, server)
    assert identity_of(weir, old.sign("EdDSA", CLAIMS)[0]) == "jwt:alice"
    server.content = new.jwks
    token = new.sign("EdDSA", CLAIMS)[0]
    load = Load(rig, weir).start(token)
    load.more()
    load.end()
    assert load.identities(token) == {"jwt:alice"} and not load.failures, "the first requests have waited for it"
    assert len(server.fetches) == 2 and weir.metric("weir_invalid_tokens_total") == 0
    unknown = Issuer(rig, "EdDSA", kid="3").sign("EdDSA", *({**CLAIMS, "n": n} for n in range(50)))
    for bad in unknown * 4 + foreign.sign("EdDSA", CLAIMS):
        assert identity_of(weir, bad) == "ip:127.0.0.1"
    assert identity_of(weir, token) == "jwt:alice"
    assert len(server.fetches) == 2, "once within 30 s, whatever clients send"


class TooLate(Exception):
    pass


@contextlib.contextmanager
def while_requests_wait():
    """Requests wait 3 s for a key. A failure in a block that took longer shows nothing."""
    began = time.monotonic()
    try:
        yield
    except AssertionError as failure:
        if time.monotonic() - began > 3:
            raise TooLate from failure
        raise


def again_if_too_late(test):
    @functools.wraps(test)
    def run(rig):
        for _ in range(2):
            with contextlib.suppress(TooLate):
                return test(rig)
        return test(rig)
    return run


@again_if_too_late
def test_requests_wait_for_an_unknown_key(rig):
    old, new = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    server = KeyServer(rig, old.jwks)
    weir = start(rig, server, workers=1)
    token = new.sign("EdDSA", CLAIMS)[0]
    server.gate, server.content = threading.Event(), new.jwks
    rig.add_cleanup(server.gate.set)
    gone = Connection(weir.address)
    gone.send(request_bytes("/echo", headers=bearer(token)))
    eventually(lambda: len(server.fetches) == 2, what="a fetch")
    began = time.monotonic()
    assert identity_of(weir, token) == "ip:127.0.0.1" and time.monotonic() - began > 2.5, "3 s are over"
    gone.close()
    results = []

    def post():
        response = get(weir.address, "/echo", method="POST", headers=bearer(token), body=b"x" * 50000)
        results.append((response.status, dict(json.loads(response.body)["fields"])["X-Weir-Client"]))

    def of_http2():
        with Http2(weir.address) as client:
            response = client.get("/echo", fields=[("authorization", "Bearer " + token)])
            results.append((response.status, {k.lower(): v for k, v in json.loads(response.body)["fields"]}["x-weir-client"]))
    other = old.sign("EdDSA", CLAIMS)[0]
    threads = [threading.Thread(target=target) for target in (post, of_http2, post)]
    rig.add_cleanup(lambda: [thread.join() for thread in threads if thread.ident])
    flood = [Connection(weir.address) for _ in range(80)]
    leaving = Connection(weir.address)
    with while_requests_wait():
        leaving.send(request_bytes("/echo", headers=bearer(token)))
        for thread in threads:
            thread.start()
        weir.counts(4, "weir_requests_active")
        leaving.close()
        weir.counts(3, "weir_requests_active")
        assert identity_of(weir, other) == "jwt:alice", "others do not wait"
        for connection in flood:
            connection.send(request_bytes("/echo", headers=bearer(token)))
        eventually(lambda: (weir.metric("weir_invalid_tokens_total") or 0) >= 80 + 1 + 2 - 64, what="those that do not wait")
        assert not results, "no response while the key is fetched"
        server.gate.set()
        for thread in threads:
            thread.join()
        assert results == [(200, "jwt:alice")] * 3
    for connection in flood:
        assert connection.response("GET").status == 200
        connection.close()
    weir.counts(0, "weir_requests_active")


def test_requests_whose_empty_content_ends_while_they_wait_are_decided_by_redis(rig):
    """Their decisions come when weir reads the end of the content, after it has sent other decisions to Redis."""
    old, new, statuses = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2"), []
    token = new.sign("EdDSA", CLAIMS)[0]
    limits = {"each": {**LIMIT["each"], "cost": {"reserve": 1, "request_json": ["n"], "max": 9}}}
    while [200] * 8 not in statuses and len(statuses) < 10:
        server = KeyServer(rig, old.jwks)
        weir = rig.weir(limits=limits, workers=1, identity={"from": ["jwt:sub", "ip"], "jwt": settings(server)},
                        redis={"timeout": "100ms", "on_failure": "deny"})
        weir.expect_errors("^redis ")
        wait_for_first_fetches(weir, server)
        server.gate, server.content = threading.Event(), new.jwks
        rig.add_cleanup(server.gate.set)
        with Http2(weir.address) as client:
            streams = [client.start("/", "POST", [("authorization", "Bearer " + token)], end=False) for _ in range(8)]
            eventually(lambda: len(server.fetches) == 2, what="a fetch")
            for stream in streams:
                client.send_body(stream, b"")
            assert client.responds_to_ping()
            server.gate.set()
            statuses.append([client.response(stream).status for stream in streams])
    assert [200] * 8 in statuses, statuses


@again_if_too_late
def test_no_address_takes_all_places_to_wait_for_a_key(rig):
    old, new = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    server = KeyServer(rig, old.jwks)
    weir = rig.weir(limits=LIMIT, workers=1, addresses={"block": [rig.write("blocked.txt", "203.0.113.9\n")]},
                    identity={"from": ["jwt:sub", "ip"], "jwt": settings(server), "trusted_proxies": ["127.0.0.1"], "ipv6_prefix": 64})
    wait_for_first_fetches(weir, server)
    server.gate, server.content = threading.Event(), new.jwks
    rig.add_cleanup(server.gate.set)
    token = new.sign("EdDSA", CLAIMS)[0]
    clients = []

    def ask(*addresses):
        """A request of each; None: of the proxy itself."""
        for address in addresses:
            clients.append(Connection(weir.address))
            clients[-1].send(request_bytes("/echo", headers={**bearer(token), **({"X-Forwarded-For": address} if address else {})}))
        return clients[-len(addresses):]
    with while_requests_wait():
        ask(*["203.0.113.1"] * 30, *(f"2001:db8::{number:x}" for number in range(1, 11)))
        blocked = ask(*["203.0.113.9"] * 5)
        others = ask("203.0.113.2", *[None] * 10)
        assert [connection.response().status for connection in blocked] == [403] * 5
        weir.counts(22 + 2 + 5, "weir_invalid_tokens_total")
        weir.counts(8 + 8 + 11, "weir_requests_active")
        server.gate.set()
        for connection in others:
            assert dict(json.loads(connection.response().body)["fields"])["X-Weir-Client"] == "jwt:alice"
    assert len(server.fetches) == 2


@again_if_too_late
def test_a_fetch_that_began_before_the_key_was_published(rig):
    old, new = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    server = KeyServer(rig, old.jwks)
    weir = rig.weir(limits=LIMIT, workers=1, identity={"from": ["jwt:sub", "ip"], "jwt": settings(server)}, log={"access": "json"})
    wait_for_first_fetches(weir, server)
    refresh, again = threading.Event(), threading.Event()
    server.gate = refresh
    for gate in refresh, again:
        rig.add_cleanup(gate.set)
    weir.reload().wait_for_redis()
    eventually(lambda: len(server.fetches) == 2, what="a refresh")
    with while_requests_wait(), Connection(weir.address) as connection:
        connection.send(request_bytes("/echo", headers=bearer(new.sign("EdDSA", CLAIMS)[0])))
        eventually(lambda: weir.metric("weir_requests_active") == 1, what="the request to wait")
        server.gate = again
        refresh.set()  # with the old keys
        eventually(lambda: len(server.fetches) == 3, what="a fetch for the unknown key")
        server.content = new.jwks
        again.set()
        assert dict(json.loads(connection.response().body)["fields"])["X-Weir-Client"] == "jwt:alice"


def test_requests_that_end_while_they_wait_for_a_key_are_in_the_access_log(rig):
    old, new = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    server = KeyServer(rig, old.jwks)
    weir, late = (rig.weir(limits=LIMIT, workers=1, identity={"from": ["jwt:sub"], "jwt": settings(server)}, log={"access": "json"},
                           timeouts={"exchange": exchange}) for exchange in ("20s", "1s"))
    for one in weir, late:
        wait_for_first_fetches(one, server)
    server.gate = threading.Event()
    rig.add_cleanup(server.gate.set)
    token = bearer(new.sign("EdDSA", CLAIMS)[0])
    with Connection(weir.address) as leaving:
        leaving.send(request_bytes("/leaves", headers=token))
        eventually(lambda: len(server.fetches) == 3, what="a fetch")
    assert get(late.address, "/late", headers=token).status == 504
    for where, target, status in (weir, "/leaves", 499), (late, "/late", 504):
        where.wait_for_output(f'"target":"{target}",.*"status":{status},')


def test_hostile_responses_keep_the_keys(rig):
    issuer, other = Issuer(rig, "EdDSA"), Issuer(rig, "EdDSA")
    server, elsewhere = KeyServer(rig, issuer.jwks), KeyServer(rig, issuer.jwks)
    weir = start(rig, server, invalid="401")
    token = issuer.sign("EdDSA", CLAIMS)[0]

    def answer(head, content=b""):
        def act(peer, _request):
            try:
                peer.send(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + content)
                if callable(content):
                    content(peer)
            except OSError:
                pass
        return act

    def endless(peer, request):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"4000\r\n" + b" " * 0x4000 + b"\r\n")

    def fields(peer, request):
        peer.send(b"HTTP/1.1 200 OK\r\n")
        with contextlib.suppress(OSError):
            for n in range(10000):
                peer.send(b"X-%d: %s\r\n" % (n, b"a" * 1000))
    port = server.address[1]
    cases = [
        (answer("HTTP/1.1 200 OK\nContent-Length: 9", b"not a set"), "not a JWK set"),
        (answer("HTTP/1.1 200 OK\nContent-Length: 11", b'{"keys":[]}'), "the set is empty"),
        (answer("HTTP/1.1 200 OK\nContent-Length: 300000000"), "256 KiB|closed|end of response|unexpected eof"),
        (answer("HTTP/1.1 200 OK\nContent-Length: 500", b"{}"), "closed|end of response|outstanding|transfer closed|unexpected eof"),
        (endless, "larger than 256 KiB"),
        (fields, "larger than 256 KiB|headers"),
        (answer("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 4", b"\x1f\x8b\x08\0"), "not a JWK set"),
        (answer("HTTP/1.1 503 Service Unavailable\nContent-Length: 0"), "responds with status 503"),
        (answer("HTTP/1.1 304 Not Modified"), "responds with status 304"),
        (answer("garbage\n"), "HTTP"),
        (answer(f"HTTP/1.1 302 Found\nLocation: http://127.0.0.1:{port}/\nContent-Length: 0"), "another scheme"),
        (answer("HTTP/1.1 302 Found\nLocation: file:///etc/passwd\nContent-Length: 0"), "another scheme"),
        (answer("HTTP/1.1 302 Found\nLocation: https://u:p@127.0.0.1/\nContent-Length: 0"), "not valid"),
        (answer("HTTP/1.1 302 Found\nContent-Length: 0"), "without a Location"),
        (answer("HTTP/1.1 302 Found\nLocation: /loop\nContent-Length: 0"), "redirects more than 3 times"),
        (lambda peer, request: peer.reset(), "reset|SSL|recv"),
    ]
    for number, (act, why) in enumerate(cases):
        server.act = act
        fetch_again(weir, server)
        # before it, weir may have fetched the answer of the case before by itself
        status, text = eventually(lambda: re.search(why, (answer := ready(weir))[1]) and answer, what=f"case {number}: {why}")
        assert status == 200 and server.url in text, (number, why, text)
        response = get(weir.address, "/echo", headers=bearer(token))
        assert response.status == 200, (number, why, response)
    assert len(lines(weir, "cannot be fetched")) == 1, "one line"
    server.act = answer(f"HTTP/1.1 307 Temporary Redirect\nLocation: {elsewhere.url}\nContent-Length: 0")
    elsewhere.content = other.jwks
    fetch_again(weir, server, "good")
    assert get(weir.address, headers=bearer(token)).status == 401
    assert get(weir.address, headers=bearer(other.sign("EdDSA", CLAIMS)[0])).status == 200, "a redirect to https is followed"
    assert ready(weir) == (200, "ready\n"), ready(weir)
    eventually(lambda: len(lines(weir, "fetched again, after")) == 1, what="the line about the end of the failures")


def test_slow_issuers_block_nothing(rig):
    """Seven URLs at once, each slow in its own way, and a good one. A fetch takes 10 s at most."""
    issuer, hold = Issuer(rig, "EdDSA"), threading.Event()
    rig.add_cleanup(hold.set)

    def silent(peer, request):
        hold.wait(60)

    def drip(peer, request):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not hold.wait(0.2):
                peer.send(b" ")

    def slow_fields(peer, request):
        peer.send(b"HTTP/1.1 200 OK\r\n")
        with contextlib.suppress(OSError):
            while not hold.wait(0.2):
                peer.send(b"A: b\r\n")
    good = KeyServer(rig, issuer.jwks)
    slow = [KeyServer(rig, "") for _ in range(5)]
    for server, act in zip(slow, (silent, silent, drip, drip, slow_fields)):
        server.act = act
    handshake = Scripted(rig, lambda peer, number: hold.wait(60))
    mute = Scripted(rig, lambda peer, number: hold.wait(60))
    handshake.url, mute.url = f"https://{handshake.text}/", f"http://{mute.text}/"
    began, token = time.monotonic(), issuer.sign("EdDSA", CLAIMS)[0]
    weir = start(rig, good, *slow, handshake, mute, wait=False)
    eventually(lambda: (seen := ready(weir))[0] == 200 and "there are no keys yet from " + slow[0].url in seen[1], what="the good keys")
    load = Load(rig, weir, pause=0.1).start(token)
    memory = weir.resident_kib()
    took = []
    while sum(fetched(weir, server, "failed") for server in (*slow, handshake, mute)) < 7:
        asked = time.monotonic()
        assert get(weir.admin, "/healthz", host="127.0.0.1").status == 200
        took.append(time.monotonic() - asked)
        assert asked - began < 25 * time_scale
        time.sleep(0.05)
    assert time.monotonic() - began > 8, "they have 10 s"
    load.more()
    load.end()
    assert not load.failures and load.identities(token) == {"jwt:alice"}
    # A busy machine may delay two.
    assert sorted(took)[-3] < 2 * time_scale and max(took) < 5 * time_scale, "the main thread never waits for an issuer"
    assert sanitized or weir.resident_kib() - memory < 32 << 10
    weir.wait_for_output("cannot be fetched: no complete response within 10 s", 7)
    assert len(lines(weir, "cannot be fetched: no complete response within 10 s")) == 7
    weir.expect_errors("cannot be fetched: no complete response within 10 s")


def test_one_line_each_for_an_outage_and_its_end(rig):
    issuer = Issuer(rig, "EdDSA")
    server = KeyServer(rig, issuer.jwks)
    weir = start(rig, server, refresh="1s")
    token = issuer.sign("EdDSA", CLAIMS)[0]
    assert identity_of(weir, token) == "jwt:alice"
    server.fail()
    eventually(lambda: fetched(weir, server, "failed") >= 3, 20, what="failures")
    assert identity_of(weir, token) == "jwt:alice"
    status, text = ready(weir)
    assert status == 200 and "keys of tokens are " in text and server.url in text, text
    assert weir.metric("weir_problem", problem="keys_old") == 1
    assert weir.metric("weir_jwt_keys_age_seconds") >= 1
    server.act = None
    fetch_again(weir, server, "good")
    assert weir.metric("weir_problem", problem="keys_old") == 0
    said = eventually(lambda: lines(weir, "^keys ")[2:] and lines(weir, "^keys "), what="the line about the end of the failures")
    assert len(said) == 3 and "stay in use; check the issuer" in said[1], said
    assert re.fullmatch(rf"keys {server.url}: fetched again, after \d+\.\d s of failures", said[2])


def test_before_the_first_keys(rig):
    issuer = Issuer(rig, "EdDSA")
    server = KeyServer(rig, issuer.jwks)
    server.fail()
    token = issuer.sign("EdDSA", CLAIMS)[0]
    for invalid, status, problem in (("401", 503, "tokens_denied"), ("fall_through", 200, "keys_missing")):
        weir = start(rig, server, invalid=invalid)
        weir.expect_errors("cannot be fetched: .*tokens of this issuer are invalid until then; check identity.jwt.keys")
        code, text = eventually(lambda: f"no keys yet from {server.url}: " in (seen := ready(weir))[1] and seen, what="the failure")
        assert code == status and f"tokens are invalid: there are no keys yet from {server.url}: " in text, text
        assert weir.metric("weir_problem", problem=problem) == 1
        response = get(weir.address, "/echo", headers=bearer(token))
        assert response.status == (401 if invalid == "401" else 200)
        weir.counts(1, "weir_invalid_tokens_total", reason="no_keys")
    server.act = None
    eventually(lambda: identity_of(weir, token) == "jwt:alice", 20, what="the keys")
    assert ready(weir)[0] == 200 and weir.metric("weir_problem", problem="keys_missing") == 0


def test_certificates_are_verified(rig):
    issuer = Issuer(rig, "EdDSA")
    good = KeyServer(rig, issuer.jwks)
    expired = KeyServer(rig, issuer.jwks, chosen=lambda number: tls_server.context("expired.pem"))
    name = KeyServer(rig, issuer.jwks, chosen=lambda number: tls_server.context("two.pem", "two.key"))
    weir = start(rig, good, expired, name)
    weir.expect_errors("cannot be fetched: .*(certificate|SSL)")
    eventually(lambda: fetched(weir, expired, "failed") and fetched(weir, name, "failed"), what="failures")
    eventually(lambda: fetched(weir, good) == 1)
    assert not expired.fetches and not name.fetches
    weir.reload(identity={**weir.policy["identity"], "jwt": {"keys": good.url, "audience": "api"}})
    eventually(lambda: fetched(weir, good, "failed"), what="a failure with the authorities of the system")
    assert identity_of(weir, issuer.sign("EdDSA", CLAIMS)[0]) == "ip:127.0.0.1", "other authorities, other keys"


def test_names_are_resolved_by_weir(rig):
    """Also those of redirects. The first address refuses connections."""
    one, two = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    server, plain = KeyServer(rig, one.jwks), Scripted(rig, lambda peer, number: plain_response(peer))
    port = server.address[1]

    def plain_response(peer):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(two.jwks) + two.jwks.encode())
    elsewhere = KeyServer(rig, "")
    elsewhere.status, elsewhere.fields = "302 Found", [f"Location: https://server.test:{port}/keys"]
    dns = Nameserver(rig, **{"server.test": ["127.0.0.2", "127.0.0.1"]})
    elsewhere.url, server.url = f"https://127.0.0.1:{elsewhere.address[1]}/", f"https://none.test:{port}/"
    plain.url = f"http://localhost:{plain.address[1]}/"
    weir = rig.weir(limits=LIMIT, resolver={"nameservers": [dns.text], "timeout": "5s"},
                    identity={"from": ["jwt:sub", "ip"], "jwt": settings(elsewhere, plain, server)})
    weir.expect_errors(f"keys {re.escape(server.url)}: cannot be fetched: none.test: ")
    # A token of a key that is not fetched yet causes another fetch of all.
    eventually(lambda: fetched(weir, elsewhere) == fetched(weir, plain) == 1, what="the keys")
    for issuer in (one, two):
        assert identity_of(weir, issuer.sign("EdDSA", CLAIMS)[0]) == "jwt:alice"
    eventually(lambda: fetched(weir, server, "failed"), what="a failure")
    assert {name for name, _ in dns.queries} == {"server.test", "none.test"} and plain.accepted == 1
    weir.reload()
    eventually(lambda: fetched(weir, elsewhere) == 2, what="another fetch")


def test_keys_are_kept_over_a_restart(rig):
    issuer = Issuer(rig, "EdDSA")
    server = KeyServer(rig, issuer.jwks)
    token = issuer.sign("EdDSA", CLAIMS)[0]
    state = os.path.join(rig.directory, "state")
    os.mkdir(state)
    first = start(rig, server, state=state)
    assert identity_of(first, token) == "jwt:alice"
    first.finish()
    [name] = os.listdir(state)
    file = os.path.join(state, name)
    assert os.stat(file).st_mode & 0o777 == 0o600
    server.fail()
    for environment in (None, {"STATE_DIRECTORY": state + ":/elsewhere"}):
        weir = start(rig, server, state=None if environment else state, environment=environment, invalid="401")
        assert identity_of(weir, token) == "jwt:alice" and lines(weir, "1 kept, of ")
        assert "keys of tokens are" in eventually(lambda: "keys of" in ready(weir)[1] and ready(weir)[1], what="a failure")
        weir.finish()
    kept = open(file, encoding="utf-8").read()
    for number, (content, mode, why) in enumerate(((kept[:-20], 0o600, "not a JWK set"), ("", 0o600, "not one that weir"),
                                                   (kept.replace("jwks.json", "jwks.jso"), 0o600, "not the one of this URL"),
                                                   (kept, 0o666, "others may write"))):
        os.chmod(file, 0o600)
        with open(file, "w", encoding="utf-8") as out:
            out.write(content)
        os.chmod(file, mode)
        weir = start(rig, server, state=state)
        weir.expect_errors("cannot be fetched")
        assert [line for line in lines(weir, "the kept ones") if why in line], (number, weir.log())
        assert identity_of(weir, token) == "ip:127.0.0.1"
        weir.finish()
    server.act, before = None, len(server.fetches)
    weir = start(rig, server, state=state)
    assert identity_of(weir, token) == "jwt:alice" and len(server.fetches) > before
    assert os.stat(file).st_mode & 0o777 == 0o600 and os.listdir(state) == [name], "replaced"
    os.chmod(state, 0o700)
    weir.reload(state_directory=state + "/missing")
    eventually(lambda: lines(weir, "cannot be kept over a restart: .*/missing/.*No such file.*check state_directory"), what="a warning")
    assert identity_of(weir, token) == "jwt:alice"


def test_a_reload_changes_urls_without_a_gap(rig):
    one, other = Issuer(rig, "EdDSA", kid="1"), Issuer(rig, "EdDSA", kid="2")
    first, second = KeyServer(rig, one.jwks), KeyServer(rig, json.dumps({"keys": one.set + other.set}))
    weir = start(rig, first)
    token = one.sign("EdDSA", CLAIMS)[0]
    load = Load(rig, weir).start(token)
    load.more()
    first.act = lambda peer, request: time.sleep(0.3) or peer.reset()
    weir.reload()
    load.more()
    for urls in ([second.url], [second.url, first.url], [second.url]):
        weir.reload(identity={**weir.policy["identity"], "jwt": {**weir.policy["identity"]["jwt"], "keys": urls}})
        load.more()
    load.end()
    assert not load.failures and load.identities(token) == {"jwt:alice"}
    assert identity_of(weir, other.sign("EdDSA", CLAIMS)[0]) == "jwt:alice"
    weir.reload(identity={"from": ["ip"]})
    eventually(lambda: fetched(weir, second) is None, what="no fetches")
    weir.expect_errors("cannot be fetched")


def test_files_secrets_and_urls_together(rig):
    """Keys of several issuers may have the same kid."""
    file, one, two = (Issuer(rig, "EdDSA", kid="1") for _ in range(3))
    rig.write("jwks.json", file.jwks)
    servers = KeyServer(rig, one.jwks), KeyServer(rig, two.jwks)
    weir = start(rig, *servers, keys=["jwks.json", *(server.url for server in servers)], secret=SECRET)
    for issuer in (file, one, two):
        assert identity_of(weir, issuer.sign("EdDSA", CLAIMS)[0]) == "jwt:alice"
    assert identity_of(weir, one.sign("HS256", CLAIMS)[0]) == "jwt:alice"
    assert identity_of(weir, Issuer(rig, "EdDSA", kid="1").sign("EdDSA", CLAIMS)[0]) == "ip:127.0.0.1"
    assert [len(server.fetches) for server in servers] == [1, 1]


def test_check_fetches_nothing(rig):
    server = KeyServer(rig, "")
    policy = rig.policy(limits=LIMIT, identity={"from": ["jwt:sub"], "jwt": settings(server)})
    done = rig.command("check", "-c", rig.write("weir.yaml", json.dumps(policy)))
    assert done.returncode == 0 and "note: identity.jwt.keys: weir check does not fetch URLs" in done.stderr, done.stderr
    assert server.url in done.stdout and server.accepted == 0
