"""Retries on another server: their causes, limits, and which requests are never sent again."""

import random
import signal
import threading
import time

from http2_wire import DATA, END_STREAM, Http2
from rig import eventually, free_port, time_scale
from scripted import OK, Scripted, respond_to_all
from wire import Connection, IncompleteResponse, get, request_bytes

NEVER_EJECT = {"failures": 0, "failure_rate": "0%"}


def unavailable(status=503, more=b""):
    return b"HTTP/1.1 %d X\r\nRetry-After: 7\r\nContent-Length: 4\r\n%s\r\nlate" % (status, more)


class Server:
    """A server that stores requests in `heads` and `contents`, and calls `script(peer)` for each of them."""

    def __init__(self, rig, script):
        self.heads, self.contents = [], []

        def serve(peer, _number):
            while (request := peer.read_request()) is not None:
                self.heads.append(request[0])
                self.contents.append(request[1])
                if script(peer) is not True:
                    return
        self.text = Scripted(rig, serve).text


def responding(answer, keep=True):
    def script(peer):
        peer.send(answer)
        return keep
    return script


def closing(peer):
    """Closes the connection without a response."""


def resetting(peer):
    peer.reset()


def silent(peer):
    peer.socket.recv(1)


def good(rig):
    return Server(rig, responding(OK))


def weir_before(rig, servers, retry=None, **more):
    upstream = {"servers": [s if isinstance(s, str) else s.text for s in servers], "eject": NEVER_EJECT,
                "retry": {"budget_min": 1000, **(retry or {})}, **more.pop("upstream", {})}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, **more)
    weir.expect_errors("upstream|server|api")
    return weir


def statuses(weir, count=6, method="GET", **more):
    with Connection(weir.address) as connection:
        return [connection.request(method=method, **more).status for _ in range(count)]


def assert_all_served_by_another(rig, script, cause, retry=None, **more):
    bad, good_server = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, good_server], retry, **more)
    assert statuses(weir) == [200] * 6
    assert bad.heads, "the bad server got no request"
    weir.counts(len(bad.heads), "weir_upstream_retries_total", cause=cause)
    weir.counts(6, "weir_responses_total", **{"class": "2xx"})
    assert len(good_server.heads) == 6
    return weir, bad, good_server


def test_after_a_close_without_a_response_a_get_is_sent_to_another_server(rig):
    assert_all_served_by_another(rig, closing, "reset")


def test_after_a_reset_a_get_is_sent_to_another_server(rig):
    assert_all_served_by_another(rig, resetting, "reset")


def test_after_a_response_timeout_a_request_is_sent_to_another_server(rig):
    assert_all_served_by_another(rig, silent, "timeout", {"on": ["timeout"]}, upstream={"response_timeout": "2s"})


def test_listed_statuses_are_retried(rig):
    for status in 502, 503, 504:
        assert_all_served_by_another(rig, responding(unavailable(status)), str(status), {"on": [status]})


def test_other_statuses_are_forwarded(rig):
    bad, good_server = Server(rig, responding(unavailable())), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": ["connect", "reset", 502, 504]})
    assert sorted(statuses(weir)) == [200] * 3 + [503] * 3
    assert weir.metric("weir_upstream_retries_total") == 0


def test_after_a_connect_failure_every_request_is_sent_to_another_server(rig):
    """Requests with any method are sent to the next server, and `tries` does not limit the number
    of servers."""
    good_server = good(rig)
    weir = weir_before(rig, [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", good_server], {"on": ["connect"], "tries": 1})
    assert statuses(weir, method="POST", body=b"x" * 1000) == [200] * 6


def test_without_connect_in_retry_on(rig):
    good_server = good(rig)
    weir = weir_before(rig, [f"127.0.0.1:{free_port()}", good_server], {"on": []})
    assert sorted(statuses(weir)) == [200] * 5 + [502], "the server is still ejected"


def test_without_reset_in_retry_on(rig):
    bad, good_server = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": ["connect"]})
    assert sorted(statuses(weir)) == [200] * 3 + [502] * 3
    assert len(good_server.heads) == 3


def test_non_idempotent_methods_are_sent_once(rig):
    bad, good_server = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, good_server])
    for method in "POST", "PATCH", "PURGE":
        bad.heads.clear(), good_server.heads.clear()
        assert sorted(statuses(weir, method=method)) == [200] * 3 + [502] * 3, method
        assert (len(bad.heads), len(good_server.heads)) == (3, 3), method
    for method in "GET", "PUT", "DELETE", "OPTIONS":
        assert statuses(weir, method=method) == [200] * 6, method


def test_for_non_idempotent_methods_statuses_are_forwarded(rig):
    bad, good_server = Server(rig, responding(unavailable())), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": [503]})
    assert sorted(statuses(weir, method="POST")) == [200] * 3 + [503] * 3
    assert len(good_server.heads) == 3


KEPT = 65536  # content that weir keeps to send it again


def weir_before_a_bad_server(rig, script):
    bad, good_server = Server(rig, script), good(rig)
    return good_server, weir_before(rig, [bad, good_server], {"on": ["reset", 503]})


def test_small_content_of_idempotent_methods_is_sent_again(rig):
    for script in closing, responding(unavailable()):
        good_server, weir = weir_before_a_bad_server(rig, script)
        for method, size in ("PUT", 1), ("DELETE", 1000), ("PUT", KEPT):
            body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert statuses(weir, 4, method, body=body) == [200] * 4, (method, size)
            assert set(good_server.contents[-4:]) == {body}, (method, size)


def test_chunked_content_of_idempotent_methods_is_sent_again(rig):
    good_server, weir = weir_before_a_bad_server(rig, closing)
    for trailers, expected in (b"", [200] * 4), (b"X-Sum: 1\r\n", [200, 200, 502, 502]):
        with Connection(weir.address) as connection:
            got = []
            for _ in range(4):
                connection.send(request_bytes("/", "PUT", {"Transfer-Encoding": "chunked"}))
                connection.send(b"3\r\nabc\r\n" + b"4\r\ndefg\r\n0\r\n" + trailers + b"\r\n")
                got.append(connection.response("PUT").status)
        assert sorted(got) == expected
    assert set(good_server.contents) == {b"abcdefg"}


def test_content_that_is_sent_again_ends_once(rig):
    """weir learns of the end of the content and of the server's reset in the same loop iteration, and has
    an idle connection to the other server."""
    begun, ended, released, unexpected = threading.Event(), threading.Event(), threading.Event(), []

    def reset_at_the_end(peer, _number):
        peer.read_until(b"3\r\nabc\r\n", "content")
        begun.set()
        assert ended.wait(20)
        peer.reset()
        weir.signal(signal.SIGCONT)

    def respond(peer):
        if len(good_server.heads) == 2:
            assert released.wait(20)
            peer.socket.setblocking(False)
            try:
                peer.buffer += peer.socket.recv(1000)
            except BlockingIOError:
                pass
            peer.socket.setblocking(True)
            unexpected.append(peer.buffer)
        peer.send(OK)
        return True

    good_server = Server(rig, respond)
    weir = weir_before(rig, [Scripted(rig, reset_at_the_end), good_server])
    with Http2(weir.address) as client:
        assert client.get().status == 200
        stream = client.start("/", "PUT", end=False)
        client.send(DATA, 0, stream, b"abc")
        assert begun.wait(20)
        assert client.responds_to_ping()  # weir has handled "abc"; after it, it looks for a response
        weir.signal(signal.SIGSTOP)
        client.send(DATA, END_STREAM, stream)
        ended.set()
        assert client.responds_to_ping()
        released.set()
        assert client.response(stream).status == 200
    assert unexpected == [b""]
    assert good_server.contents == [b"", b"abc"]


def test_other_content_that_was_sent_is_not_sent_again(rig):
    """Content of other methods, and content that is larger than what weir keeps. The largest is spliced."""
    for script, status in (closing, 502), (responding(unavailable()), 503):
        good_server, weir = weir_before_a_bad_server(rig, script)
        for method, size in ("POST", 100), ("PUT", KEPT + 1), ("PUT", 300000):
            assert sorted(statuses(weir, method=method, body=b"x" * size)) == [200] * 3 + [status] * 3, (method, size)
        assert len(good_server.heads) == 9


def test_content_that_is_too_large_to_keep_holds_no_memory(rig):
    """weir keeps the first piece, until it reads more than KEPT bytes."""
    got = []

    def read(peer, _number):
        while content := peer.socket.recv(65536):
            got.append(len(content))
    weir = weir_before(rig, [Scripted(rig, read)])
    connections = [Connection(weir.address) for _ in range(30)]
    for connection in connections:
        connection.send(request_bytes("/", "PUT", {"Content-Length": "10000000"}) + b"x" * 50000)
    eventually(lambda: sum(got) > 30 * 50000)
    for connection in connections:
        connection.send(b"x" * 150000)
    eventually(lambda: sum(got) > 30 * 200000)
    eventually(lambda: weir.metric("weir_buffer_memory_bytes") < 30 * 50000)
    for connection in connections:
        connection.close()


def test_content_that_was_not_sent_yet_is_sent_to_another_server(rig):
    """The server closes instead of sending 100."""
    got = []

    def send_100_and_read(peer, _number):
        while True:
            head = peer.read_until(b"\r\n\r\n", "a head")
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            got.append((head.split(b" ")[0], peer.read_exactly(1000, "content")))
            peer.send(OK)
    bad = Scripted(rig, lambda peer, _number: peer.read_until(b"\r\n\r\n", "a head"))
    good_server = Scripted(rig, send_100_and_read)
    weir = weir_before(rig, [bad, good_server])
    for _ in range(4):
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", "PUT", {"Expect": "100-continue", "Content-Length": "1000"}))
            assert connection.read_head().status == 100
            connection.send(b"y" * 1000)
            assert connection.response().status == 200
    assert got == [(b"PUT", b"y" * 1000)] * 4 and bad.accepted


def assert_never_sent_again(rig, script, what):
    bad, good_server = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": ["connect", "reset", "timeout", 502, 503, 504], "tries": 10},
                       upstream={"response_timeout": "2s"})
    for _ in range(4):
        with Connection(weir.address) as connection:
            connection.send(request_bytes())
            try:
                response = connection.read_head()
                while response.status < 200:
                    response = connection.read_head()
            except IncompleteResponse:
                pass
        weir.counts(0, "weir_requests_active")  # otherwise the server counts as busy
    assert (len(bad.heads), len(good_server.heads)) == (2, 2), what
    assert weir.metric("weir_upstream_retries_total") == 0, what


def test_after_a_partial_response_nothing_is_sent_again(rig):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    for what, answer in (("an interim response", early), ("an interim response and 503", early + unavailable()),
                         ("a part of a head", b"HTTP/1.1 200 OK\r\nContent-"),
                         ("a head", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
                         ("a part of the content", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")):
        assert_never_sent_again(rig, responding(answer, keep=False), what)


def test_after_a_stalled_interim_response_nothing_is_sent_again(rig):
    def stalling(peer):
        peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        peer.socket.recv(1)
    assert_never_sent_again(rig, stalling, "an interim response, then nothing")


def test_after_a_malformed_response_nothing_is_sent_again(rig):
    assert_never_sent_again(rig, responding(b"nonsense\r\n\r\n", keep=False), "a malformed response")


def test_the_number_of_servers_per_request(rig):
    for tries, served in (1, 2), (2, 4), (3, 6):
        bad = [Server(rig, closing) for _ in range(2)]
        good_server = good(rig)
        weir = weir_before(rig, [*bad, good_server], {"tries": tries})
        result = statuses(weir)
        assert result.count(502) == 6 - len(good_server.heads) and set(result) <= {200, 502}
        assert served <= len(good_server.heads), (tries, result)
        assert sum(len(b.heads) for b in bad) + len(good_server.heads) <= 6 * tries
        assert tries > 1 or weir.metric("weir_upstream_retries_total") == 0


def test_the_response_of_the_last_server_is_forwarded(rig):
    """Each server gets the request once; a single server does not get it again."""
    first, second = (Server(rig, responding(unavailable())) for _ in range(2))
    weir = weir_before(rig, [first, second], {"on": [503], "tries": 10})
    with Connection(weir.address) as connection:
        answers = [connection.request() for _ in range(5)]
    assert [(a.status, a["Retry-After"], a.body) for a in answers] == [(503, "7", b"late")] * 5
    assert (len(first.heads), len(second.heads)) == (5, 5)
    alone = Server(rig, responding(unavailable()))
    weir = weir_before(rig, [alone], {"on": [503], "tries": 10})
    assert statuses(weir, 3) == [503] * 3 and len(alone.heads) == 3


def test_the_retry_budget_limits_retries(rig):
    """If both servers fail, the load is not doubled."""
    servers = [Server(rig, responding(unavailable())) for _ in range(2)]
    weir = weir_before(rig, servers, {"on": [503], "budget": "10%", "budget_min": 3})
    assert statuses(weir, 100) == [503] * 100
    requests_sent = sum(len(s.heads) for s in servers)
    assert 103 < requests_sent <= 113, requests_sent
    weir.counts(requests_sent - 100, "weir_upstream_retries_total", cause="503")
    weir.counts(200 - requests_sent, "weir_upstream_retries_over_budget_total")


def test_without_a_budget_nothing_is_sent_again(rig):
    bad, good_server = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, good_server], {"budget": "0%", "budget_min": 0})
    assert sorted(statuses(weir)) == [200] * 3 + [502] * 3


def test_a_retried_request_is_charged_once(rig):
    bad, good_server = Server(rig, responding(unavailable())), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": [503]}, limits={"each": dict(script="gcra", limit=10, period="1d")})
    with Connection(weir.address) as connection:
        answers = [connection.request() for _ in range(11)]
    assert [a.status for a in answers] == [200] * 10 + [429]
    assert [a["X-RateLimit-Remaining"] for a in answers[:10]] == [str(n) for n in range(9, -1, -1)]
    assert (len(bad.heads), len(good_server.heads)) == (5, 10)


def test_limits_by_status_count_only_the_forwarded_response(rig):
    bad, good_server = Server(rig, responding(unavailable())), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": [503]},
                       limits={"failed": dict(script="gcra", limit=1, period="1d", count=["5xx"])})
    assert statuses(weir, 10) == [200] * 10


def test_bytes_after_a_discarded_response_reach_no_client(rig):
    """The connection is not reused either: its next bytes would be read as the next response."""
    poison = unavailable() + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    bad, good_server = Server(rig, responding(poison)), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": [503]})
    with Connection(weir.address) as connection:
        for _ in range(5):
            connection.send(request_bytes() * 4)
            assert [(a.status, a.body) for a in (connection.response() for _ in range(4))] == [(200, b"ok")] * 4
    assert len(bad.heads) > 3


def test_a_long_discarded_response_is_not_read_to_its_end(rig):
    endless = b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n%s\r\n" % (b"x" * 65536) * 1000
    def script(peer):
        try:
            peer.send(endless)
        except OSError:
            pass
    bad, good_server = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, good_server], {"on": [503]})
    assert statuses(weir) == [200] * 6


def test_timeouts_exchange_applies_to_all_tries_together(rig):
    servers = [Server(rig, silent) for _ in range(3)]
    weir = weir_before(rig, servers, {"on": ["timeout"], "tries": 3}, upstream={"response_timeout": "300ms"},
                       timeouts={"exchange": "450ms"})
    start = time.monotonic()
    assert statuses(weir, 1) == [504]
    assert 0.4 < time.monotonic() - start < 0.8 * time_scale + 2
    weir.counts(1, "weir_errors_total", cause="exchange_timeout")
    eventually(lambda: sum(len(s.heads) for s in servers) >= 1, what="the request at a server")
    assert sum(len(s.heads) for s in servers) <= 2


def test_each_try_has_its_own_response_timeout(rig):
    servers = [Server(rig, silent) for _ in range(2)]
    weir = weir_before(rig, servers, {"on": ["timeout"]}, upstream={"response_timeout": "200ms"})
    start = time.monotonic()
    assert statuses(weir, 1) == [504]
    assert 0.35 < time.monotonic() - start
    weir.counts(1, "weir_errors_total", cause="upstream_timeout")


def test_a_client_disconnects_between_two_tries(rig):
    gate, requests_sent = threading.Event(), threading.Event()

    def holding(peer):
        requests_sent.set()
        gate.wait()
    bad, good_server = Server(rig, holding), good(rig)
    weir = weir_before(rig, [bad, good_server])
    for _ in range(2):
        with Connection(weir.address) as connection:
            connection.send(request_bytes())
            if not requests_sent.is_set() and not good_server.heads:
                eventually(lambda: requests_sent.is_set() or good_server.heads, what="a request to reach a server")
    gate.set()
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="both requests to end")
    assert get(weir.address).status == 200


def test_a_reload_between_two_tries(rig):
    """The request finishes with the policy it started with."""
    gate = threading.Event()
    bad, good_server, other = Server(rig, lambda peer: gate.wait() and None), good(rig), Server(rig, responding(b"HTTP/1.1 204 X\r\n\r\n"))
    weir = weir_before(rig, [bad, good_server])
    results = []
    clients = [threading.Thread(target=lambda: results.append(get(weir.address).status)) for _ in range(2)]
    for client in clients:
        client.start()
    eventually(lambda: bad.heads and good_server.heads, what="a request to reach each server")
    weir.reload(upstreams={"api": {"servers": [other.text]}})
    gate.set()
    for client in clients:
        client.join()
    assert results == [200, 200]
    assert get(weir.address).status == 204


def test_a_closed_idle_connection_is_replaced_regardless_of_the_options(rig):
    """Once, on a new connection, without using the budget: no server has failed."""
    def script(peer, number):
        if peer.read_request() is not None:
            peer.send(OK)
        if number == 0:  # the next request finds the connection closed
            peer.read_until(b"\r\n\r\n", "a head")
            return
        respond_to_all()(peer, number)
    api = Scripted(rig, script)
    weir = weir_before(rig, [api], {"on": [], "tries": 1, "budget": "0%", "budget_min": 0})
    assert statuses(weir, 3) == [200] * 3
    weir.counts(1, "weir_upstream_retries_total", cause="idle_closed")
    assert weir.metric("weir_upstream_retries_total", cause="reset") == 0


def test_a_408_that_closes_an_idle_connection_is_no_response_to_the_next_request(rig):
    """The server has timed out while weir sent the request. Any other 408 is the server's response."""
    def late(more, at):
        return b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n%b\r\n" % more, at
    close, keep, first = late(b"Connection: close\r\n", 1), late(b"", 1), late(b"Connection: close\r\n", 0)
    for (answer, at), method, body, expected, repeated in (
            (close, "GET", None, [200] * 3, 1), (close, "PUT", b"content", [200] * 3, 1), (close, "POST", b"content", [200, 408, 200], 0),
            (keep, "GET", None, [200, 408, 200], 0), (first, "GET", None, [408, 200, 200], 0)):
        def script(peer, number, answer=answer, at=at):
            count = 0
            while peer.read_request() is not None:
                peer.send(answer if (number, count) == (0, at) else OK)
                count += 1
        weir = weir_before(rig, [Scripted(rig, script)], {"on": []})
        assert statuses(weir, 3, method, body=body) == expected, (answer, method)
        assert weir.metric("weir_upstream_retries_total", cause="idle_closed") == repeated, (answer, method)
        assert weir.metric("weir_upstream_retries_total") == repeated


def test_a_408_that_closes_an_idle_connection_may_arrive_in_pieces(rig):
    def script(peer, number):
        while peer.read_request() is not None:
            peer.send(OK)
            if number == 0 and peer.read_request() is not None:
                peer.send_in_pieces(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 30)
                return
    weir = weir_before(rig, [Scripted(rig, script)], {"on": []})
    assert statuses(weir, 3) == [200] * 3
    assert weir.metric("weir_upstream_retries_total", cause="idle_closed") == 1


def test_a_repeated_request_gets_the_408_of_its_new_connection(rig):
    def script(peer, number):
        if number == 0 and peer.read_request() is not None:
            peer.send(OK)
        peer.read_request()
        peer.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    api = Scripted(rig, script)
    weir = weir_before(rig, [api])
    assert statuses(weir, 2) == [200, 408] and api.accepted == 2


def test_with_random_failures_each_request_gets_its_own_response(rig):
    """With random behaviour of servers and clients, each response belongs to its request, and only
    idempotent requests are sent twice."""
    dice, seen, lock = random.Random(7), [], threading.Lock()

    def misbehave(peer, target, what):
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), target)
        if what < 6:
            peer.send(answer)
        elif what == 6:
            peer.send(unavailable() + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        elif what == 7:
            peer.send(unavailable(502))
        elif what == 8:
            peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer)
        elif what == 9:
            peer.reset()
        # 10: closes; 11: closes within a response; 12: never responds
        return what < 9 or what == 12

    def serve(peer, _number):
        while (request := peer.read_request()) is not None:
            method, target = request[0].split(b" ")[:2]
            with lock:
                seen.append((method, target))
                what = dice.randrange(13)
            if what == 11:
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            if not misbehave(peer, target, what):
                return
    servers = [Scripted(rig, serve) for _ in range(3)]
    weir = weir_before(rig, servers, {"on": ["connect", "reset", "timeout", 502, 503, 504], "tries": 3},
                       upstream={"response_timeout": "150ms", "eject": {"time": "50ms", "failures": 3, "requests": 10}})
    wrong = []

    def client(number):
        mine = random.Random(number)
        connection = None
        for i in range(60):
            target, method = f"/{number}/{i}", mine.choice(["GET", "GET", "POST", "PUT", "DELETE"])
            body = b"x" * 10 if method in ("POST", "PUT") and mine.randrange(2) else None
            connection = connection or Connection(weir.address)
            try:
                response = connection.request(target, method=method, body=body)
                if response.status == 200 and response.body != target.encode() or response.status not in (200, 502, 503, 504):
                    wrong.append((target, response))
                again = response["Connection"] != "close"
            except (IncompleteResponse, OSError):
                again = False
            if not again:
                connection.close()
                connection = None
    clients = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not wrong, wrong[:3]
    posts = [target for method, target in seen if method == b"POST"]
    assert posts and len(posts) == len(set(posts)), "a POST was sent twice"
    assert 2 <= max(map(seen.count, seen)) <= 6, "3 servers, each one more time if an idle connection was closed"
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="all requests to end")
    weir.reload(upstreams={"api": {"servers": [good(rig).text]}})
    assert statuses(weir, 3) == [200] * 3


def test_servers_killed_one_after_the_other_fail_no_request(rig):
    """As in a rolling restart without draining, with default settings."""
    server_addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    running = [rig.upstream(listen=server_address) for server_address in server_addresses]
    weir = rig.weir(workers=2, upstreams={"api": {"servers": server_addresses}})
    weir.expect_errors("upstream|server|api")
    stop, wrong, served = threading.Event(), [], [0] * 4

    def client(number):
        while not stop.is_set():
            with Connection(weir.address) as connection:
                for _ in range(20):
                    response = connection.request("/slow?ms=3")
                    if response.status != 200:
                        wrong.append(response)
                    served[number] += 1
    clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for thread in clients:
        thread.start()
    for _ in range(2):
        for i, server_address in enumerate(server_addresses):
            before = sum(served)
            running[i].kill()
            eventually(lambda: sum(served) > before + 50, 20, "requests while the server is down")
            running[i] = rig.upstream(listen=server_address)
            eventually(lambda: weir.metric("weir_upstream_server_up", address=server_address) == 1, 20, "requests to the server again")
    stop.set()
    for thread in clients:
        thread.join()
    assert not wrong, wrong[:2]
