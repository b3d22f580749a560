"""Which failures count against a server: not those that clients cause, and never those of one client
address alone."""

import threading

from http2_server import Http2Server
from http2_wire import ENHANCE_YOUR_CALM, INTERNAL_ERROR, PROTOCOL_ERROR
from rig import eventually, free_port
from scripted import OK, Scripted, respond_to_all
from wire import Connection, IncompleteResponse, get, run_in_threads

FRAME_SIZE_ERROR = 6
ADDRESSES = "127.0.0.1", "127.0.0.2"


def weir_before(rig, *servers, **upstream):
    texts = [s if isinstance(s, str) else s.text for s in servers]
    policy = {"servers": texts, "retry": {"on": ["connect", "reset", "timeout"]}, **upstream}
    weir = rig.weir(workers=1, upstreams={"api": policy}, rules=[])
    weir.expect_errors("upstream|server")
    return weir


def from_two_addresses(client, count=16):
    """Runs `client(address)` in `count` threads, for two client addresses in turn."""
    run_in_threads(lambda number: client(ADDRESSES[number % 2]), count)


def assert_not_blamed(weir):
    assert weir.metric("weir_upstream_ejections_total") == 0, weir.output()
    assert weir.metric("weir_upstream_server_up") == 2


def status_of(weir, source=None, method="GET", **more):
    with Connection(weir.address, source=source) as connection:
        return connection.request(method=method, **more).status


# --- stream errors about the request ---

def rejecting(code):
    """Resets the streams of requests to /bad."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            if request[":path"] == "/bad":
                request.rst(code)
            else:
                request.respond()
    return script


def test_a_stream_error_about_the_request_is_not_a_failure_of_the_server(rig):
    """Node, for instance, resets streams with more than 128 fields."""
    for code in ENHANCE_YOUR_CALM, PROTOCOL_ERROR, FRAME_SIZE_ERROR:
        servers = [Http2Server(rig, rejecting(code)) for _ in range(2)]
        weir = weir_before(rig, *servers, protocol="http2")

        def client(address):
            assert status_of(weir, address, target="/bad") == 502
        from_two_addresses(client)
        weir.counts(16, "weir_errors_total", cause="upstream_refused_request")
        assert weir.metric("weir_upstream_retries_total") == 0
        assert_not_blamed(weir)
        assert get(weir.address).status == 200


def test_a_stream_error_after_the_response_header_is_not_one_either(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.head(200, [("content-length", "100")])
            request.data(b"x")
            request.rst(ENHANCE_YOUR_CALM)
    weir = weir_before(rig, Http2Server(rig, script), Http2Server(rig, script), protocol="http2")

    def client(address):
        try:
            assert status_of(weir, address) == 502
        except IncompleteResponse:
            pass
    from_two_addresses(client)
    weir.counts(16, "weir_errors_total", cause="upstream_refused_request")
    assert_not_blamed(weir)


def test_other_stream_errors_are_failures(rig):
    bad, good = Http2Server(rig, rejecting(INTERNAL_ERROR)), Http2Server(rig, rejecting(INTERNAL_ERROR))
    weir = weir_before(rig, bad, good, protocol="http2", eject={"at_most": "50%"})
    for number in range(20):
        assert status_of(weir, ADDRESSES[number // 2 % 2], "POST", target="/bad") == 502
    weir.counts(1, "weir_upstream_ejections_total", reason="failures")


def test_a_431_is_never_a_failure(rig):
    answer = b"HTTP/1.1 431 X\r\nContent-Length: 0\r\n\r\n"
    servers = [Scripted(rig, respond_to_all(answer)) for _ in range(2)]
    weir = weir_before(rig, *servers, eject={"status": ["4xx", "5xx"]})

    def client(address):
        assert status_of(weir, address) == 431
    from_two_addresses(client)
    assert_not_blamed(weir)


# --- clients that owe content ---

class Waiting:
    """A server that reads the head of a request, and then the content until the test ends or, with
    `closes`, until it has waited for a moment. The moment comes when the test has called
    `timeout.set()`."""

    def __init__(self, rig, answer=None):
        self.timeout, self.heads = threading.Event(), 0
        rig.add_cleanup(self.timeout.set)

        def script(peer, _number):
            peer.read_until(b"\r\n\r\n", "a head")
            self.heads += 1
            self.timeout.wait()
            if answer:
                peer.send(answer)
        self.text = Scripted(rig, script).text


def expect(weir, address, _waiting):
    """Announces content and never sends it."""
    with Connection(weir.address, source=address) as connection:
        connection.send(b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n")
        return connection.response().status


def send_one_byte(weir, address, _waiting):
    with Connection(weir.address, source=address) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nx")
        return connection.response().status


def test_a_server_that_ignores_expect_has_not_failed(rig):
    """The client never sends the content. The request is not sent to another server."""
    servers = [Waiting(rig), Waiting(rig)]
    weir = weir_before(rig, *servers, response_timeout="100ms")

    def client(address):
        assert expect(weir, address, servers) == 504
    from_two_addresses(client)
    weir.counts(16, "weir_errors_total", cause="upstream_timeout")
    eventually(lambda: servers[0].heads + servers[1].heads == 16, what="the requests")
    assert weir.metric("weir_upstream_retries_total") == 0
    assert_not_blamed(weir)


def test_a_server_that_closes_while_it_waits_for_content_has_not_failed(rig):
    for answer, status, more in ((None, 502, {}), (b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", 503, {"eject": {"status": [503]}})):
        servers = [Waiting(rig, answer), Waiting(rig, answer)]
        weir = weir_before(rig, *servers, **more)
        statuses = []
        clients = threading.Thread(target=from_two_addresses, args=(lambda address: statuses.append(send_one_byte(weir, address, servers)),))
        clients.start()
        eventually(lambda: servers[0].heads + servers[1].heads == 16, what="the requests")
        for server in servers:
            server.timeout.set()
        clients.join()
        assert statuses == [status] * 16
        assert_not_blamed(weir)


def test_a_server_that_closes_after_the_whole_request_has_failed(rig):
    def script(peer, _number):
        peer.read_request()
    bad, good = Scripted(rig, script), Scripted(rig, respond_to_all())
    weir = weir_before(rig, bad, good)
    for number in range(20):
        status_of(weir, ADDRESSES[number // 2 % 2], "POST", body=b"x" * 50)
    weir.counts(1, "weir_upstream_ejections_total", reason="failures")


# --- failures of one client ---

def closes_on_bad(peer, _number):
    while (request := peer.read_request()) is not None:
        if b" /bad " in request[0]:
            return
        peer.send(OK)


def test_failures_of_one_client_address_eject_no_server(rig):
    servers = [Scripted(rig, closes_on_bad) for _ in range(2)]
    weir = weir_before(rig, *servers)
    assert [status_of(weir, "127.0.0.3", "POST", target="/bad") for _ in range(60)] == [502] * 60
    assert_not_blamed(weir)
    assert [status_of(weir, "127.0.0.4", "POST", target="/bad") for _ in range(2)] == [502] * 2
    weir.counts(1, "weir_upstream_ejections_total")


def test_the_addresses_are_those_behind_trusted_proxies(rig):
    servers = [Scripted(rig, closes_on_bad) for _ in range(2)]
    upstream = {"servers": [s.text for s in servers], "retry": {"on": ["connect"]}}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, rules=[], identity={"from": ["ip"], "trusted_proxies": ["127.0.0.0/8"]})
    weir.expect_errors("upstream|server")

    def fail(address):
        return get(weir.address, "/bad", method="POST", headers=[("X-Forwarded-For", address)]).status
    assert [fail(f"2001:db8::{number:x}") for number in range(1, 61)] == [502] * 60, "one client: a /64"
    assert_not_blamed(weir)
    assert [fail("2001:db8:0:1::1") for _ in range(2)] == [502] * 2
    weir.counts(1, "weir_upstream_ejections_total")


def test_a_failed_health_check_confirms_the_failures_of_one_client(rig):
    """The check alone does not suffice yet: its server is unhealthy after a thousand."""
    checks = []

    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            if b" /health " in request[0]:
                checks.append(peer.send(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"))
            else:
                return
    bad, good = Scripted(rig, script), Scripted(rig, respond_to_all())
    weir = weir_before(rig, bad, good, health={"path": "/health", "interval": "50ms", "unhealthy": 100})
    eventually(lambda: len(checks) > 1, what="a check that was judged")
    for _ in range(20):
        status_of(weir, "127.0.0.3", "POST")
    weir.counts(1, "weir_upstream_ejections_total", reason="failures")


def test_one_refused_connection_ejects_a_server(rig):
    weir = weir_before(rig, f"127.0.0.1:{free_port()}", Scripted(rig, respond_to_all()))
    assert [status_of(weir, "127.0.0.3") for _ in range(4)] == [200] * 4
    weir.counts(1, "weir_upstream_ejections_total", reason="connect")
