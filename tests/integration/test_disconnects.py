"""Clients that disconnect during a request: the request ends, unless half_close is `allow`."""

import signal
import socket
import threading

from gate import Gate, concurrency
from queues import queue
from rig import eventually
from scripted import OK, Scripted
from tls_client import ManualTls, weir_with_tls
from wire import Connection, chunked, get, request_bytes


def send_request(weir, data=None):
    return Connection(weir.address).send(data or request_bytes())


def send_fin(connection):
    connection.socket.shutdown(socket.SHUT_WR)


def reset(connection):
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def wait_for_active_requests(weir, count):
    weir.counts(count, "weir_requests_active")


class Waiting:
    """A server that reads requests and responds when the test sets `go`. `left` is set when weir
    closes a connection."""

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


def test_a_client_that_timed_out_frees_its_slot(rig):
    gate = Gate(rig)
    weir = rig.weir(upstreams=gate.upstreams, limits={"c": concurrency(1)})
    for _ in range(3):
        before, client = gate.total, send_request(weir)
        eventually(lambda n=before: gate.total > n, what="the request to reach the server")
        assert get(weir.address).status == 429
        client.close()
        weir.counts(0, "weir_requests_active")
        # The other worker may decide on the next request, so Redis must have the release.
        eventually(lambda: not rig.redis().command("KEYS", "weir:*:l:c"), what="the slot to be freed")
    client = send_request(weir)
    eventually(lambda: gate.total == 4)
    gate.open.set()
    assert client.response().status == 200
    client.close()


def test_the_server_connection_is_closed_when_the_client_disconnects(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    for data in request_bytes(), request_bytes(method="POST", body=b"content"), \
            request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + chunked(b"content"):
        server.left.clear()
        before, client = len(server.seen), send_request(weir, data)
        eventually(lambda n=before: len(server.seen) > n, what="the request to reach the server")
        send_fin(client)
        assert server.left.wait(10)
        assert client.is_closed()
        client.close()
        wait_for_active_requests(weir, 0)
    weir.counts(3, "weir_errors_total", cause="client_gone")


def test_a_fin_with_the_last_bytes_of_the_content_ends_the_request(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    client = send_request(weir, request_bytes(method="POST", headers={"Content-Length": "100000"}) + bytes(50000))
    wait_for_active_requests(weir, 1)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    client.send(bytes(50000))
    send_fin(client)
    wait_for_active_requests(weir, 0)
    assert client.is_closed()
    client.close()


def test_a_fin_ends_a_held_request(rig):
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    client = send_request(weir)
    weir.counts(1, "weir_requests_held")
    send_fin(client)
    weir.counts(0, "weir_requests_held")
    assert client.is_closed()
    client.close()


def test_a_fin_ends_a_request_that_waits_for_its_decision(rig):
    redis = rig.redis()
    weir = rig.weir(workers=1, limits={"few": dict(script="gcra", limit=100, period="1h")}, redis={"timeout": "10s"})
    assert get(weir.address).status == 200
    redis.freeze()
    client = send_request(weir, request_bytes(headers={"X-Client-Id": "other"}))
    wait_for_active_requests(weir, 1)
    send_fin(client)
    wait_for_active_requests(weir, 0)
    assert client.is_closed()
    client.close()
    redis.thaw()


def test_a_fin_ends_a_request_that_waits_for_a_server_connection(rig):
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []
    # the queue of a listener with a backlog of 0 is full after one or two connections
    for _ in range(3):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(full.getsockname())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": ["%s:%d" % full.getsockname()], "connect_timeout": "60s"}})
    client = send_request(weir)
    wait_for_active_requests(weir, 1)
    send_fin(client)
    wait_for_active_requests(weir, 0)
    assert client.is_closed()
    for s in [*waiting, full, client]:
        s.close()


def test_a_fin_during_a_response_ends_the_request(rig):
    ended = threading.Event()

    def script(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        peer.socket.recv(1)
        ended.set()

    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    client = send_request(weir)
    client.read_until(b"some", "an answer")
    send_fin(client)
    assert ended.wait(10)
    wait_for_active_requests(weir, 0)
    client.close()


def test_a_fin_after_pipelined_requests_ends_all_of_them(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    client = send_request(weir, request_bytes("/1") + request_bytes("/2") + request_bytes("/3"))
    eventually(lambda: server.seen, what="the request to reach the server")
    send_fin(client)
    assert server.left.wait(10)
    assert client.is_closed()
    wait_for_active_requests(weir, 0)
    server.go.set()
    assert get(weir.address, "/4").status == 200
    assert server.seen == [b"/1", b"/4"]
    client.close()


def test_a_fin_after_unread_content_ends_the_request(rig):
    """The request is held, and more content has arrived than weir reads ahead."""
    weir = rig.weir(workers=1, limits={"q": queue(limit=1, period="1h", max_delay="90m")})
    assert get(weir.address).status == 200
    for leaves in send_fin, reset:
        client = send_request(weir, request_bytes(method="POST", headers={"Content-Length": "100000"}) + bytes(100000))
        weir.counts(1, "weir_requests_held")
        leaves(client)
        weir.counts(0, "weir_requests_held")
        client.close()


def test_a_reset_during_stalled_content_ends_the_request(rig):
    over = threading.Event()
    rig.add_cleanup(over.set)
    api = Scripted(rig, lambda peer, _number: over.wait(60))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    client = send_request(weir, request_bytes(method="POST", headers={"Content-Length": "100000000"}))
    client.socket.settimeout(0.5)
    try:
        while client.socket.send(bytes(1_000_000)):
            pass
    except TimeoutError:
        pass
    wait_for_active_requests(weir, 1)
    reset(client)
    wait_for_active_requests(weir, 0)
    weir.counts(0, "weir_upstream_connections")


def test_a_response_to_a_client_that_has_left_is_an_error(rig):
    """weir finds both at once: the whole response, and that the client does not take it."""
    def serve(peer, _number):
        peer.read_request()
        weir.signal(signal.SIGSTOP)
        peer.send(OK)
        reset(client)
        weir.signal(signal.SIGCONT)
        peer.read_request()
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [Scripted(rig, serve).text]}}, log={"access": "json"})
    client = Connection(weir.address)
    client.send(request_bytes())
    weir.counts(1, "weir_errors_total", cause="client_gone")
    weir.wait_for_output(r'"error":"client_gone"')


def test_a_close_notify_ends_the_request(rig):
    server = Waiting(rig)
    weir = weir_with_tls(rig, workers=1, upstreams=server.upstreams)
    hand = ManualTls(weir.address).handshake()
    hand.tls.write(request_bytes())
    hand.socket.sendall(hand.take())
    eventually(lambda: server.seen, what="the request to reach the server")
    hand.try_to(hand.tls.unwrap)
    hand.socket.sendall(hand.take())
    assert server.left.wait(10)
    wait_for_active_requests(weir, 0)
    hand.socket.close()


def test_half_close_allow_serves_half_closed_clients(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams, half_close="allow")
    clients = [send_request(weir, data) for data in (request_bytes(), request_bytes("/1") + request_bytes("/2"),
                                              request_bytes(method="POST", body=b"content"))]
    wait_for_active_requests(weir, 3)
    for client in clients:
        send_fin(client)
    server.go.set()
    assert [client.response().status for client in clients] == [200] * 3
    assert clients[1].response().status == 200
    assert all(client.is_closed() for client in clients)
    wait_for_active_requests(weir, 0)


def test_half_close_allow_ends_connections_with_their_last_complete_request(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams, half_close="allow", timeouts={"request_header": "50s", "keepalive": "50s"})
    clients = [send_request(weir, request_bytes() + more) for more in (b"GET / HTTP/1.1\r\nHost: ap", b"\r\n")]
    wait_for_active_requests(weir, 2)
    for client in clients:
        send_fin(client)
    server.go.set()
    assert [client.response().status for client in clients] == [200] * 2
    assert all(client.is_closed() for client in clients)


def test_a_reset_ends_the_request_with_half_close_allow(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams, half_close="allow")
    client = send_request(weir)
    eventually(lambda: server.seen, what="the request to reach the server")
    reset(client)
    assert server.left.wait(10)
    wait_for_active_requests(weir, 0)


def test_a_reload_changes_half_close(rig):
    server = Waiting(rig)
    weir = rig.weir(workers=1, upstreams=server.upstreams)
    weir.reload(half_close="allow")
    client = send_request(weir)
    wait_for_active_requests(weir, 1)
    send_fin(client)
    server.go.set()
    assert client.response().status == 200
    client.close()
