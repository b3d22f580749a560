"""timeouts.exchange, Max-Forwards, Forwarded, and invalid request lines."""

import socket
import threading

from echoes import echo, fields_of
from rig import eventually
from scripted import OK, Scripted
from wire import Connection, IncompleteResponse, get, request_bytes


def weir_before(rig, script, **more):
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, **more)
    weir.expect_errors("timeouts.exchange|upstream|server")
    return weir


# --- timeouts.exchange ---------------------------------------------------------------------------------------------------

def test_a_slow_response_is_cut_at_timeouts_exchange(rig):
    """Each pause is short, but the total duration is too long."""
    over = threading.Event()
    rig.add_cleanup(over.set)

    def drip(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not over.wait(0.05):
            peer.send(b"x")

    weir = weir_before(rig, drip, timeouts={"exchange": "2s"})
    with Connection(weir.address) as connection:
        try:
            connection.request()
            raise AssertionError("the response was complete")
        except IncompleteResponse as cut:
            assert b"x" in cut.received
    eventually(lambda: weir.metric("weir_errors_total", cause="exchange_timeout") == 1)


def test_a_silent_server_is_a_504_and_a_silent_client_a_408(rig):
    weir = weir_before(rig, lambda peer, _number: peer.read_until(b"never", "content"), timeouts={"exchange": "300ms"})
    assert get(weir.address).status == 504
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": "10"}) + b"12345")
        response = connection.response()
        assert response.status == 408 and b"timeouts.exchange" in response.body
        assert connection.is_closed()


def test_a_request_that_was_not_sent_in_time_is_refunded(rig):
    """No server accepts the connection: the charge is returned with the 504."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []
    # the queue of a listener with a backlog of 0 is full after one or two connections
    for _ in range(3):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(full.getsockname())
        waiting.append(s)
    weir = rig.weir(workers=1, timeouts={"exchange": "200ms"}, limits={"few": dict(script="fixed_window", limit=1, period="1h")},
                    upstreams={"api": {"servers": ["%s:%d" % full.getsockname()], "connect_timeout": "60s"}})
    weir.expect_errors("timeouts.exchange")
    # With one worker, the refund comes before the next request.
    seen = [get(weir.address).status for _ in range(3)]
    assert seen == [504] * 3, seen
    for s in waiting + [full]:
        s.close()


def test_the_timeout_applies_per_request_and_not_to_tunnels(rig):
    def script(peer, _number):
        while request := peer.read_request():
            if b"upgrade: echo" in request[0].lower():
                peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
                while data := peer.socket.recv(100):
                    peer.send(data)
                return
            peer.send(OK)

    weir = weir_before(rig, script, timeouts={"exchange": "2s"})
    pause = threading.Event()
    with Connection(weir.address) as connection:
        for _ in range(3):
            assert connection.request().status == 200
            pause.wait(0.7)
        connection.send(request_bytes(headers={"Connection": "upgrade", "Upgrade": "echo"}))
        assert connection.read_head().status == 101
        for _ in range(3):
            pause.wait(0.7)
            connection.send(b"ping")
            assert connection.read_exactly(4, "an echo") == b"ping"


# --- Max-Forwards --------------------------------------------------------------------------------------------------------

def test_max_forwards(rig):
    """RFC 9110 section 7.6.2: applies to OPTIONS and TRACE, not to other methods. TRACE is not
    forwarded."""
    forwarded_heads = []

    def script(peer, _number):
        while request := peer.read_request():
            forwarded_heads.append(request[0])
            peer.send(OK)

    weir = weir_before(rig, script)
    with Connection(weir.address) as connection:
        for target in "/", "*":
            response = connection.request(target, "OPTIONS", {"Max-Forwards": "0"})
            assert response.status == 204 and "GET" in response["Allow"], response
            assert response.names().isdisjoint({"content-length", "content-type", "transfer-encoding", "x-rate-limit-policy"})
        for method in "GET", "POST", "PUT":
            assert connection.request("/", method, {"Max-Forwards": "0"}).status == 200
    assert [head.split(b" ")[0] for head in forwarded_heads] == [b"GET", b"POST", b"PUT"]
    assert all(b"\r\nMax-Forwards: 0\r\n" in head for head in forwarded_heads)
    assert get(weir.address, method="OPTIONS", headers={"Max-Forwards": "7"}).status == 200
    assert b"\r\nMax-Forwards: 6\r\n" in forwarded_heads[-1]


# --- Forwarded -----------------------------------------------------------------------------------------------------------

def forwarded(weir, address=None, **headers):
    return fields_of(echo(address or weir.address, headers=headers, host="shop.example:8080"), "Forwarded")


def test_forwarded(rig):
    upstreams = {"api": {"servers": [rig.upstream().text], "forwarded": True}}
    ours = 'for=127.0.0.1;host="shop.example:8080";proto=http'
    weir = rig.weir(upstreams=upstreams, listen=["127.0.0.1:0", "[::1]:0", f"unix:{rig.directory}/weir.sock"])
    for _ in range(2):
        assert forwarded(weir) == [ours]
        assert forwarded(weir, Forwarded="for=203.0.113.9") == [ours], "the field of an untrusted peer is replaced"
    assert forwarded(weir, weir.addresses[1]) == ['for="[::1]";host="shop.example:8080";proto=http']
    assert forwarded(weir, weir.addresses[2]) == ['for=unknown;host="shop.example:8080";proto=http']
    weir.reload(identity={"trusted_proxies": ["127.0.0.1"]})
    assert forwarded(weir, Forwarded="for=203.0.113.9") == ["for=203.0.113.9, " + ours]
    assert forwarded(weir, Forwarded='for="203.0.113.9') == [ours], "an unclosed quote would include weir's element"
    assert forwarded(weir, **{"Forwarded": "for=a", "forwarded": "for=b"}) == ["for=a, for=b, " + ours]
    weir.reload(upstreams={"api": {"servers": [rig.upstream().text]}})
    assert forwarded(weir, Forwarded="for=203.0.113.9") == ["for=203.0.113.9"], "off: unchanged from a trusted peer"
    weir.reload(identity={})
    assert forwarded(weir, Forwarded="for=203.0.113.9") == []


# --- the first line ------------------------------------------------------------------------------------------------------

def test_an_invalid_request_line_is_refused_at_once(rig):
    """For example, an HTTP/0.9 client sends one line and waits."""
    weir = rig.weir(workers=1)
    for line, status in ((b"GET /\r\n", 400), (b"PRI * HTTP/2.0\r\nX", 505), (b"EHLO me\r\n", 400), (b"GET / HTTP/1.1 x\r\n", 400)):
        with Connection(weir.address, timeout=5) as connection:
            assert connection.send(line).response().status == status, line
            assert connection.is_closed()
