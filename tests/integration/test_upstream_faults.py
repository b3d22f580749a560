"""Upstreams that are down, slow or send invalid responses; clients that disconnect."""

import socket
import time

from rig import eventually, free_port, time_scale
from scripted import OK, Scripted, respond_with, respond_to_all
from wire import Connection, IncompleteResponse, get, request_bytes


def weir_before(rig, script, **upstream):
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text], **upstream}})
    weir.expect_errors("upstream|server|api")
    return weir


def test_a_refused_connection_is_a_502(rig):
    weir = rig.weir(upstreams={"api": {"servers": [f"127.0.0.1:{free_port()}"]}})
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as connection:
        assert [connection.request().status for _ in range(3)] == [502] * 3
        assert connection.request(method="POST", body=b"x" * 10000).status == 502


def test_another_server_replaces_one_that_is_down(rig):
    weir = rig.weir(upstreams={"api": {"servers": [f"127.0.0.1:{free_port()}", rig.upstream().text]}})
    weir.expect_errors("upstream|server|api")
    assert [get(weir.address).status for _ in range(10)] == [200] * 10


def assert_504_after_the_deadline(weir):
    """The timeout is 300 ms."""
    start = time.monotonic()
    assert get(weir.address).status == 504
    assert 0.25 < time.monotonic() - start < 3 * time_scale


def test_a_connection_that_is_not_accepted_is_a_504(rig):
    """A listener with a full queue: the kernel drops further SYNs."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    weir = rig.weir(upstreams={"api": {"servers": ["127.0.0.1:%d" % full.getsockname()[1]], "connect_timeout": "300ms"}})
    weir.expect_errors("upstream|server|api")
    assert_504_after_the_deadline(weir)


def test_a_missing_response_is_a_504(rig):
    def silent(peer, _number):
        peer.read_request()
        peer.read_request()
    weir = weir_before(rig, silent, response_timeout="300ms")
    assert_504_after_the_deadline(weir)


def test_a_stalled_response_head_is_a_504(rig):
    """A partial head does not extend the timeout."""
    def halting(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        peer.read_request()
    weir = weir_before(rig, halting, response_timeout="300ms")
    assert_504_after_the_deadline(weir)


def test_a_stalled_body_is_truncated_for_the_client(rig):
    def stalling(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n12345")
        peer.read_request()
    weir = weir_before(rig, stalling, response_timeout="2s")
    assert_cut(weir)


def assert_cut(weir):
    """The client receives the partial response and can detect that it is incomplete."""
    with Connection(weir.address) as connection:
        connection.send(request_bytes())
        while connection.fill():
            pass
        assert b"12345" in connection.buffer
        try:
            response = connection.response()
        except IncompleteResponse:
            return
        raise AssertionError(f"a truncated message looks complete: {response}")


def test_a_response_that_breaks_off_is_truncated_for_the_client(rig):
    for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n12345",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n12345"):
        assert_cut(weir_before(rig, respond_with(answer)))


def test_a_response_with_invalid_chunks_is_truncated_or_a_502(rig):
    for chunks in (b"5\r\n12345\r\nzz\r\n", b"5\r\n1234567890\r\n", b"5\n12345\r\n0\r\n\r\n", b"-5\r\n12345\r\n0\r\n\r\n",
                   b"ffffffffffffffff5\r\n12345\r\n0\r\n\r\n"):
        weir = weir_before(rig, respond_with(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks))
        assert_cut_or_502(weir)


def assert_cut_or_502(weir):
    with Connection(weir.address) as connection:
        try:
            assert connection.request().status == 502
        except IncompleteResponse:
            pass


def test_a_reset_without_a_response_is_a_502(rig):
    def dying(peer, _number):
        peer.read_request()
        peer.reset()
    weir = weir_before(rig, dying)
    assert [get(weir.address).status for _ in range(3)] == [502] * 3


BROKEN_HEADS = {
    "both lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "a signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "an unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "no status line": b"garbage\r\n\r\n",
    "HTTP/0.9": b"<html>hello</html>\r\n\r\n",
    "a wrong version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "a short status": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status out of range": b"HTTP/1.1 999999 OK\r\nContent-Length: 2\r\n\r\nok",
    "a control byte": b"HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 2\r\n\r\nok",
    "a NUL": b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 2\r\n\r\nok",
    "a bare CR": b"HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok",
    "a bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a folded line": b"HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "an endless head": b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 200000 + b"\r\n\r\n",
    "101 unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}


def test_an_invalid_response_head_is_a_502(rig):
    current = []
    api = Scripted(rig, lambda peer, _number: peer.read_request() and peer.send(current[0]))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    weir.expect_errors("upstream|server|api")
    for name, answer in BROKEN_HEADS.items():
        current[:] = [answer]
        assert get(weir.address).status == 502, name
    current[:] = [OK]
    assert get(weir.address).status == 200


def test_a_flood_of_interim_responses_is_cut(rig):
    def script(peer, _number):
        peer.read_request()
        for _ in range(100000):
            peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10)
    weir = weir_before(rig, script, response_timeout="1s")
    with Connection(weir.address) as connection:
        connection.send(request_bytes())
        interim = 0
        try:
            while connection.read_head().status == 103 and interim < 20000:
                interim += 1
        except IncompleteResponse:
            pass
        assert interim < 20000, "an unlimited number of interim responses is forwarded"


def test_clients_that_disconnect_in_each_phase_leave_no_connections(rig):
    weir = rig.weir(workers=1, limits={"each": dict(script="gcra", limit=100000, period="1d")})
    for data in (b"", b"GET", request_bytes("/slow?ms=300"), request_bytes("/bytes/50000000"),
                 request_bytes("/chunked/50000000"), request_bytes("/", "POST", {"Content-Length": "100000"}) + b"x" * 10,
                 request_bytes("/", "POST", {"Transfer-Encoding": "chunked"}) + b"5\r\nab"):
        for abrupt in False, True:
            with Connection(weir.address) as connection:
                connection.send(data)
                if data.startswith(b"GET /bytes") or data.startswith(b"GET /chunked"):
                    connection.fill()
                if abrupt:
                    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert [get(weir.address).status for _ in range(5)] == [200] * 5
    eventually(lambda: (weir.metric("weir_connections") or 0) <= 1, what="all connections to be closed")


def test_descriptors_do_not_leak(rig):
    weir = rig.weir(workers=1)
    for _ in range(20):
        get(weir.address)
    base = weir.descriptors()
    for _ in range(50):
        get(weir.address, "/close")
        with Connection(weir.address) as connection:
            connection.send(b"BAD\r\n\r\n")
            connection.is_closed()
    eventually(lambda: weir.descriptors() <= base + 2, what="the number of descriptors from before")


def test_a_restarted_server_is_used_again(rig):
    port = free_port()
    weir = rig.weir(upstreams={"api": {"servers": [f"127.0.0.1:{port}"]}})
    weir.expect_errors("upstream|server|api")
    assert get(weir.address).status == 502
    Scripted(rig, respond_to_all(), ("127.0.0.1", port))
    eventually(lambda: get(weir.address).status == 200, 10, "a 200 from the restarted server")


def test_a_server_with_invalid_responses_is_ejected_if_there_are_others(rig):
    """After five in a row it gets no requests, although it has the fewest requests in progress."""
    def bad(peer, number):
        if peer.read_request():
            peer.socket.sendall(b"nonsense\r\n\r\n")
    broken = Scripted(rig, bad)
    upstream = {"servers": [broken.text, rig.upstream().text]}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, identity={"from": ["ip"], "trusted_proxies": ["127.0.0.1"]})
    weir.expect_errors("upstream|server|api")
    statuses = [get(weir.address, headers=[("X-Forwarded-For", f"192.0.2.{client}")]).status for client in range(40)]
    assert statuses.count(502) == 5
    assert statuses[-20:] == [200] * 20
    eventually(lambda: weir.output().count("5 failed requests in a row") == 1, what="the log line")


def test_an_ejected_server_is_probed_without_using_requests(rig):
    port = free_port()
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [f"127.0.0.1:{port}", rig.upstream().text]}})
    weir.expect_errors("upstream|server|api")
    assert [get(weir.address).status for _ in range(4)] == [200] * 4
    served = []

    def back(peer, number):
        while request := peer.read_request():
            served.append(request)
            peer.socket.sendall(OK)
    Scripted(rig, back, address=("127.0.0.1", port))
    eventually(lambda: f"{port} accepts connections again" in weir.output(), what="the successful probe")
    assert served == [], "a probe is only a connection"
    assert [get(weir.address).status for _ in range(10)] == [200] * 10
    assert served, "the server gets requests again"


def test_an_invalid_chunk_in_the_same_read_as_the_head_is_a_502(rig):
    """Nothing has been sent to the client yet, so it gets an error response, and the log does not
    show 200."""
    def script(peer, number):
        peer.read_request()
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n-1\r\n")
        peer.socket.recv(1)
    weir = weir_before(rig, script)
    assert get(weir.address).status == 502
    weir.counts(1, "weir_responses_total", **{"class": "5xx"})
    assert weir.metric("weir_responses_total", **{"class": "2xx"}) == 0


def test_a_request_without_a_decision_has_none_in_the_log(rig):
    api = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, log={"access": "json"},
                    size_limits={"request_body": "1k"})
    with Connection(weir.address) as connection:
        assert connection.request(method="POST", body=b"x" * 2000).status == 413
    line = eventually(lambda: [l for l in weir.output().splitlines() if '"status":413' in l], what="the access log line")[0]
    assert '"decision"' not in line
