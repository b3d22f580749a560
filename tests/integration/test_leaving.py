"""Clients that close while their request is under way: the request ends with them, unless half_close is `allow`."""

import socket
import threading

from gate import Gate, concurrency
from queues import queue
from rig import eventually
from scripted import OK, Scripted
from tls_client import ManualTls, weir_with_tls
from wire import Connection, chunked, get, request_bytes


def asked(weir, data=None):
    return Connection(weir.address).send(data or request_bytes())


def fin(connection):
    connection.socket.shutdown(socket.SHUT_WR)


def reset(connection):
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def under_way(weir, count):
    weir.counts(count, "weir_requests_active")


class Waiting:
    """A server that reads requests and answers when it is told to; `left` is set when a connection of weir's has ended."""

    def __init__(self, rig):
        self.go, self.left, self.seen = threading.Event(), threading.Event(), []
        self.api = Scripted(rig, self.serve)
        rig.add_cleanup(self.go.set)
        self.upstreams = {"api": {"servers": [self.api.text]}}

    def serve(self, peer, _number):
        while (request := peer.read_request()) is not None:
            self.seen.append(request[0].split(b" ")[1])
            peer.socket.settimeout(0.02)
            while not self.go.is_set():
                try:
                    if not peer.socket.recv(1, socket.MSG_PEEK):
                        self.left.set()
                        return
                    break
                except TimeoutError:
                    pass
            peer.socket.settimeout(20)
            self.go.wait(20)
            peer.send(OK)


def test_a_client_that_timed_out_does_not_stand_in_its_own_way(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, limits={"c": concurrency(1)})
    for _ in range(3):
        before, client = gate.total, asked(weir)
        eventually(lambda n=before: gate.total > n, what="the request at the server")
        assert get(weir.address).status == 429
        client.close()
        weir.counts(0, "weir_requests_active")
    client = asked(weir)
    eventually(lambda: gate.total == 4)
    gate.open.set()
    assert client.response().status == 200
    client.close()


def test_the_server_learns_that_the_client_has_left(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    for data in request_bytes(), request_bytes(method="POST", body=b"content"), \
            request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + chunked(b"content"):
        server.left.clear()
        before, client = len(server.seen), asked(weir, data)
        eventually(lambda n=before: len(server.seen) > n, what="the request at the server")
        fin(client)
        assert server.left.wait(10)
        assert client.is_closed()
        client.close()
        under_way(weir, 0)
    weir.counts(3, "weir_errors_total", cause="client_gone")


def test_a_fin_with_the_last_bytes_of_the_content_ends_the_request(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    client = asked(weir, request_bytes(method="POST", headers={"Content-Length": "100000"}) + bytes(50000))
    under_way(weir, 1)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    client.send(bytes(50000))
    fin(client)
    under_way(weir, 0)
    assert client.is_closed()
    client.close()


def test_a_fin_ends_a_request_that_is_held(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    client = asked(weir)
    weir.counts(1, "weir_requests_held")
    fin(client)
    weir.counts(0, "weir_requests_held")
    assert client.is_closed()
    client.close()


def test_a_fin_ends_a_request_that_awaits_its_decision(rig):
    redis = rig.redis()
    weir = rig.weir(workers=1, limits={"few": dict(script="gcra", limit=100, period="1h")}, redis={"timeout": "10s"})
    assert get(weir.address).status == 200
    redis.freeze()
    client = asked(weir, request_bytes(headers={"X-Client-Id": "other"}))
    under_way(weir, 1)
    fin(client)
    under_way(weir, 0)
    assert client.is_closed()
    client.close()
    redis.thaw()


def test_a_fin_ends_a_request_that_waits_for_a_connection(rig):
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []
    for _ in range(3):  # the queue of a listener with a backlog of 0 is full after one or two
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(full.getsockname())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": ["%s:%d" % full.getsockname()], "connect_timeout": "60s"}})
    client = asked(weir)
    under_way(weir, 1)
    fin(client)
    under_way(weir, 0)
    assert client.is_closed()
    for s in [*waiting, full, client]:
        s.close()


def test_a_fin_in_the_middle_of_an_answer_ends_it(rig):
    ended = threading.Event()

    def script(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        peer.socket.recv(1)
        ended.set()

    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    client = asked(weir)
    client.read_until(b"some", "an answer")
    fin(client)
    assert ended.wait(10)
    under_way(weir, 0)
    client.close()


def test_a_fin_behind_pipelined_requests_ends_them_all(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    client = asked(weir, request_bytes("/1") + request_bytes("/2") + request_bytes("/3"))
    eventually(lambda: server.seen, what="the request at the server")
    fin(client)
    assert server.left.wait(10)
    assert client.is_closed()
    under_way(weir, 0)
    server.go.set()
    assert get(weir.address, "/4").status == 200
    assert server.seen == [b"/1", b"/4"]
    client.close()


def test_a_fin_behind_content_that_is_not_read_yet_ends_the_request(rig):
    """The request is held, and more of its content has come than weir reads ahead."""
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    for leaves in fin, reset:
        client = asked(weir, request_bytes(method="POST", headers={"Content-Length": "100000"}) + bytes(100000))
        weir.counts(1, "weir_requests_held")
        leaves(client)
        weir.counts(0, "weir_requests_held")
        client.close()


def test_a_reset_behind_content_that_the_server_does_not_take_ends_the_request(rig):
    over = threading.Event()
    rig.add_cleanup(over.set)
    api = Scripted(rig, lambda peer, _number: over.wait(60))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    client = asked(weir, request_bytes(method="POST", headers={"Content-Length": "100000000"}))
    client.socket.settimeout(0.5)
    try:
        while client.socket.send(bytes(1_000_000)):
            pass
    except TimeoutError:
        pass
    under_way(weir, 1)
    reset(client)
    under_way(weir, 0)
    weir.counts(0, "weir_upstream_connections")


def test_close_notify_ends_a_request(rig):
    server = Waiting(rig)
    weir = weir_with_tls(rig, workers=1, upstreams=server.upstreams)
    hand = ManualTls(weir.address).handshake()
    hand.tls.write(request_bytes())
    hand.socket.sendall(hand.take())
    eventually(lambda: server.seen, what="the request at the server")
    hand.try_to(hand.tls.unwrap)
    hand.socket.sendall(hand.take())
    assert server.left.wait(10)
    under_way(weir, 0)
    hand.socket.close()


def test_where_it_is_allowed_half_closed_clients_get_their_answers(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams, half_close="allow")
    clients = [asked(weir, data) for data in (request_bytes(), request_bytes("/1") + request_bytes("/2"),
                                              request_bytes(method="POST", body=b"content"))]
    under_way(weir, 3)
    for client in clients:
        fin(client)
    server.go.set()
    assert [client.response().status for client in clients] == [200] * 3
    assert clients[1].response().status == 200
    assert all(client.is_closed() for client in clients)
    under_way(weir, 0)


def test_a_reset_ends_the_request_where_half_close_is_allowed(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams, half_close="allow")
    client = asked(weir)
    eventually(lambda: server.seen, what="the request at the server")
    reset(client)
    assert server.left.wait(10)
    under_way(weir, 0)


def test_reload_changes_half_close(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    weir.reload(half_close="allow")
    client = asked(weir)
    under_way(weir, 1)
    fin(client)
    server.go.set()
    assert client.response().status == 200
    client.close()
