"""Requests that are sent to another server, and those that never are: each cause, the bounds, and what must not happen."""

import random
import threading
import time

from rig import eventually, free_port, time_scale
from scripted import OK, Scripted, respond_to_all
from wire import Connection, IncompleteResponse, get, request_bytes

NEVER_EJECT = {"failures": 0, "failure_rate": "0%"}


def unavailable(status=503, more=b""):
    return b"HTTP/1.1 %d X\r\nRetry-After: 7\r\nContent-Length: 4\r\n%s\r\nlate" % (status, more)


class Server:
    """Keeps what it was asked in `heads`, and answers as `script(peer)` does, which gets each connection once it has a request."""

    def __init__(self, rig, script):
        self.heads = []

        def serve(peer, _number):
            while (request := peer.read_request()) is not None:
                self.heads.append(request[0])
                if script(peer) is not True:
                    return
        self.text = Scripted(rig, serve).text


def saying(answer, keep=True):
    def script(peer):
        peer.send(answer)
        return keep
    return script


def closing(peer):
    """Closes without an answer."""


def resetting(peer):
    peer.reset()


def silent(peer):
    peer.socket.recv(1)


def good(rig):
    return Server(rig, saying(OK))


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
    bad, fine = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, fine], retry, **more)
    assert statuses(weir) == [200] * 6
    assert bad.heads, "the bad server was never asked"
    weir.counts(len(bad.heads), "weir_upstream_retries_total", cause=cause)
    weir.counts(6, "weir_responses_total", **{"class": "2xx"})
    assert len(fine.heads) == 6
    return weir, bad, fine


def test_a_get_whose_connection_closes_without_an_answer_goes_to_another_server(rig):
    assert_all_served_by_another(rig, closing, "reset")


def test_a_get_whose_connection_is_reset_goes_to_another_server(rig):
    assert_all_served_by_another(rig, resetting, "reset")


def test_a_server_that_does_not_answer_in_time(rig):
    assert_all_served_by_another(rig, silent, "timeout", {"on": ["timeout"]}, upstream={"response_timeout": "200ms"})


def test_statuses_that_are_named(rig):
    for status in 502, 503, 504:
        assert_all_served_by_another(rig, saying(unavailable(status)), str(status), {"on": [status]})


def test_statuses_are_passed_on_unless_named(rig):
    bad, fine = Server(rig, saying(unavailable())), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": ["connect", "reset", 502, 504]})
    assert sorted(statuses(weir)) == [200] * 3 + [503] * 3
    assert weir.metric("weir_upstream_retries_total") == 0


def test_a_server_that_cannot_be_connected_to(rig):
    """Any request may go to the next one, and how many servers are tried does not depend on `tries`."""
    fine = good(rig)
    weir = weir_before(rig, [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", fine], {"on": ["connect"], "tries": 1})
    assert statuses(weir, method="POST", body=b"x" * 1000) == [200] * 6


def test_connect_left_out(rig):
    fine = good(rig)
    weir = weir_before(rig, [f"127.0.0.1:{free_port()}", fine], {"on": []})
    assert sorted(statuses(weir)) == [200] * 5 + [502], "the server is ejected all the same"


def test_reset_left_out(rig):
    bad, fine = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": ["connect"]})
    assert sorted(statuses(weir)) == [200] * 3 + [502] * 3
    assert len(fine.heads) == 3


def test_methods_that_are_not_idempotent_are_sent_once(rig):
    bad, fine = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, fine])
    for method in "POST", "PATCH", "PURGE":
        bad.heads.clear(), fine.heads.clear()
        assert sorted(statuses(weir, method=method)) == [200] * 3 + [502] * 3, method
        assert (len(bad.heads), len(fine.heads)) == (3, 3), method
    for method in "GET", "PUT", "DELETE", "OPTIONS":
        assert statuses(weir, method=method) == [200] * 6, method


def test_statuses_to_methods_that_are_not_idempotent_are_passed_on(rig):
    bad, fine = Server(rig, saying(unavailable())), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": [503]})
    assert sorted(statuses(weir, method="POST")) == [200] * 3 + [503] * 3
    assert len(fine.heads) == 3


def test_content_that_was_sent_is_not_sent_again(rig):
    for script, status in (closing, 502), (saying(unavailable()), 503):
        bad, fine = Server(rig, script), good(rig)
        weir = weir_before(rig, [bad, fine], {"on": ["reset", 503]})
        assert sorted(statuses(weir, method="PUT", body=b"x" * 100)) == [200] * 3 + [status] * 3
        assert len(fine.heads) == 3


def test_content_that_was_not_sent_yet_goes_to_the_other_server(rig):
    """The server closes in place of a 100."""
    got = []

    def expecting(peer, _number):
        while True:
            head = peer.read_until(b"\r\n\r\n", "a head")
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            got.append((head.split(b" ")[0], peer.read_exactly(1000, "content")))
            peer.send(OK)
    bad = Scripted(rig, lambda peer, _number: peer.read_until(b"\r\n\r\n", "a head"))
    fine = Scripted(rig, expecting)
    weir = weir_before(rig, [bad, fine])
    for _ in range(4):
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", "PUT", {"Expect": "100-continue", "Content-Length": "1000"}))
            assert connection.read_head().status == 100
            connection.send(b"y" * 1000)
            assert connection.response().status == 200
    assert got == [(b"PUT", b"y" * 1000)] * 4 and bad.accepted


def assert_never_sent_again(rig, script, what):
    bad, fine = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": ["connect", "reset", "timeout", 502, 503, 504], "tries": 10},
                       upstream={"response_timeout": "200ms"})
    for _ in range(4):
        with Connection(weir.address) as connection:
            connection.send(request_bytes())
            try:
                response = connection.read_head()
                while response.status < 200:
                    response = connection.read_head()
            except IncompleteResponse:
                pass
    assert (len(bad.heads), len(fine.heads)) == (2, 2), what
    assert weir.metric("weir_upstream_retries_total") == 0, what


def test_nothing_is_sent_again_once_some_of_an_answer_has_come(rig):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    for what, answer in (("an interim answer", early), ("an interim answer and 503", early + unavailable()),
                         ("a part of a head", b"HTTP/1.1 200 OK\r\nContent-"),
                         ("a head", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
                         ("a part of the content", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")):
        assert_never_sent_again(rig, saying(answer, keep=False), what)


def test_nothing_is_sent_again_when_an_answer_stalls(rig):
    def stalling(peer):
        peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        peer.socket.recv(1)
    assert_never_sent_again(rig, stalling, "an interim answer, then nothing")


def test_an_answer_that_makes_no_sense_is_not_asked_for_again(rig):
    assert_never_sent_again(rig, saying(b"nonsense\r\n\r\n", keep=False), "a malformed answer")


def test_how_many_servers_a_request_is_sent_to(rig):
    for tries, served in (1, 2), (2, 4), (3, 6):
        bad = [Server(rig, closing) for _ in range(2)]
        fine = good(rig)
        weir = weir_before(rig, [*bad, fine], {"tries": tries})
        result = statuses(weir)
        assert result.count(502) == 6 - len(fine.heads) and set(result) <= {200, 502}
        assert served <= len(fine.heads), (tries, result)
        assert sum(len(b.heads) for b in bad) + len(fine.heads) <= 6 * tries
        assert tries > 1 or weir.metric("weir_upstream_retries_total") == 0


def test_the_last_server_s_answer_is_passed_on(rig):
    """Each server is asked once; a single one is not asked again."""
    first, second = (Server(rig, saying(unavailable())) for _ in range(2))
    weir = weir_before(rig, [first, second], {"on": [503], "tries": 10})
    with Connection(weir.address) as connection:
        answers = [connection.request() for _ in range(5)]
    assert [(a.status, a["Retry-After"], a.body) for a in answers] == [(503, "7", b"late")] * 5
    assert (len(first.heads), len(second.heads)) == (5, 5)
    alone = Server(rig, saying(unavailable()))
    weir = weir_before(rig, [alone], {"on": [503], "tries": 10})
    assert statuses(weir, 3) == [503] * 3 and len(alone.heads) == 3


def test_retries_have_a_budget(rig):
    """Two servers that fail: the load is not doubled."""
    servers = [Server(rig, saying(unavailable())) for _ in range(2)]
    weir = weir_before(rig, servers, {"on": [503], "budget": "10%", "budget_min": 3})
    assert statuses(weir, 100) == [503] * 100
    asked = sum(len(s.heads) for s in servers)
    assert 103 < asked <= 113, asked
    weir.counts(asked - 100, "weir_upstream_retries_total", cause="503")
    weir.counts(200 - asked, "weir_upstream_retries_over_budget_total")


def test_without_a_budget_nothing_is_sent_again(rig):
    bad, fine = Server(rig, closing), good(rig)
    weir = weir_before(rig, [bad, fine], {"budget": "0%", "budget_min": 0})
    assert sorted(statuses(weir)) == [200] * 3 + [502] * 3


def test_a_request_is_charged_once_however_often_it_is_sent(rig):
    bad, fine = Server(rig, saying(unavailable())), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": [503]}, limits={"each": dict(script="gcra", limit=10, period="1d")})
    with Connection(weir.address) as connection:
        answers = [connection.request() for _ in range(11)]
    assert [a.status for a in answers] == [200] * 10 + [429]
    assert [a["X-RateLimit-Remaining"] for a in answers[:10]] == [str(n) for n in range(9, -1, -1)]
    assert (len(bad.heads), len(fine.heads)) == (5, 10)


def test_a_status_counts_for_a_limit_only_in_the_answer_that_is_passed_on(rig):
    bad, fine = Server(rig, saying(unavailable())), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": [503]},
                       limits={"failed": dict(script="gcra", limit=1, period="1d", count=["5xx"])})
    assert statuses(weir, 10) == [200] * 10


def test_bytes_of_an_answer_that_is_held_back_reach_nobody(rig):
    """Nor does its connection serve another request: what it says next would be the next request's answer."""
    poison = unavailable() + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    bad, fine = Server(rig, saying(poison)), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": [503]})
    with Connection(weir.address) as connection:
        for _ in range(5):
            connection.send(request_bytes() * 4)
            assert [(a.status, a.body) for a in (connection.response() for _ in range(4))] == [(200, b"ok")] * 4
    assert len(bad.heads) > 3


def test_a_long_answer_that_is_held_back_is_not_read_to_its_end(rig):
    endless = b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n%s\r\n" % (b"x" * 65536) * 1000
    def script(peer):
        try:
            peer.send(endless)
        except OSError:
            pass
    bad, fine = Server(rig, script), good(rig)
    weir = weir_before(rig, [bad, fine], {"on": [503]})
    assert statuses(weir) == [200] * 6


def test_all_tries_together_have_the_exchange_s_time(rig):
    servers = [Server(rig, silent) for _ in range(3)]
    weir = weir_before(rig, servers, {"on": ["timeout"], "tries": 3}, upstream={"response_timeout": "300ms"},
                       timeouts={"exchange": "450ms"})
    start = time.monotonic()
    assert statuses(weir, 1) == [504]
    assert 0.4 < time.monotonic() - start < 0.8 * time_scale + 2
    weir.counts(1, "weir_errors_total", cause="exchange_timeout")
    assert 1 <= sum(len(s.heads) for s in servers) <= 2


def test_each_try_has_its_own_response_timeout(rig):
    servers = [Server(rig, silent) for _ in range(2)]
    weir = weir_before(rig, servers, {"on": ["timeout"]}, upstream={"response_timeout": "200ms"})
    start = time.monotonic()
    assert statuses(weir, 1) == [504]
    assert 0.35 < time.monotonic() - start
    weir.counts(1, "weir_errors_total", cause="upstream_timeout")


def test_a_client_that_leaves_between_two_tries(rig):
    gate, asked = threading.Event(), threading.Event()

    def holding(peer):
        asked.set()
        gate.wait()
    bad, fine = Server(rig, holding), good(rig)
    weir = weir_before(rig, [bad, fine])
    for _ in range(2):
        with Connection(weir.address) as connection:
            connection.send(request_bytes())
            if not asked.is_set() and not fine.heads:
                eventually(lambda: asked.is_set() or fine.heads, what="a request at a server")
    gate.set()
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="both have ended")
    assert get(weir.address).status == 200


def test_a_reload_between_two_tries(rig):
    """The request ends with the policy it began with."""
    gate = threading.Event()
    bad, fine, other = Server(rig, lambda peer: gate.wait() and None), good(rig), Server(rig, saying(b"HTTP/1.1 204 X\r\n\r\n"))
    weir = weir_before(rig, [bad, fine])
    results = []
    clients = [threading.Thread(target=lambda: results.append(get(weir.address).status)) for _ in range(2)]
    for client in clients:
        client.start()
    eventually(lambda: bad.heads, what="a request at the first server")
    weir.reload(upstreams={"api": {"servers": [other.text]}})
    gate.set()
    for client in clients:
        client.join()
    assert results == [200, 200]
    assert get(weir.address).status == 204


def test_a_kept_connection_that_closes_is_replaced_whatever_the_options_say(rig):
    """On a fresh connection, once, at no cost to the budget: no server has failed."""
    def script(peer, number):
        if peer.read_request() is not None:
            peer.send(OK)
        if number == 0:  # the next request meets the close
            peer.read_until(b"\r\n\r\n", "a head")
            return
        respond_to_all()(peer, number)
    api = Scripted(rig, script)
    weir = weir_before(rig, [api], {"on": [], "tries": 1, "budget": "0%", "budget_min": 0})
    assert statuses(weir, 3) == [200] * 3
    weir.counts(1, "weir_upstream_retries_total", cause="idle_closed")
    assert weir.metric("weir_upstream_retries_total", cause="reset") == 0


def test_whatever_servers_do_each_request_gets_its_own_answer(rig):
    """Servers do as they like, and clients too: answers belong to their requests, and nothing but idempotent requests is sent twice."""
    dice, seen, lock = random.Random(7), [], threading.Lock()

    def behave(peer, target, what):
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
        return what < 9 or what == 12  # 10: closes; 11: closes in an answer; 12: never answers

    def serve(peer, _number):
        while (request := peer.read_request()) is not None:
            method, target = request[0].split(b" ")[:2]
            with lock:
                seen.append((method, target))
                what = dice.randrange(13)
            if what == 11:
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            if not behave(peer, target, what):
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
    assert 2 <= max(map(seen.count, seen)) <= 6, "3 servers, each once more if a kept connection was closed"
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="all have ended")
    weir.reload(upstreams={"api": {"servers": [good(rig).text]}})
    assert statuses(weir, 3) == [200] * 3


def test_servers_that_are_killed_one_after_the_other_go_unnoticed(rig):
    """As in a rolling restart without any care. By default."""
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    running = [rig.upstream(listen=place) for place in places]
    weir = rig.weir(workers=2, upstreams={"api": {"servers": places}})
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
        for i, place in enumerate(places):
            before = sum(served)
            running[i].kill()
            eventually(lambda: sum(served) > before + 50, 20, "requests while it is away")
            running[i] = rig.upstream(listen=place)
            eventually(lambda: weir.metric("weir_upstream_server_up", address=place) == 1, 20, "it is used again")
    stop.set()
    for thread in clients:
        thread.join()
    assert not wrong, wrong[:2]
