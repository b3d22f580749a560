"""101 Switching Protocols without a request for it must not open a tunnel: later requests would
pass without limits."""

from scripted import Scripted
from wire import Connection, IncompleteResponse, request_bytes

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
PLAIN = request_bytes()
WITH_UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"\r\n"
SECOND = b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n"


def switch(fields):
    return b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n"


# description: (bytes of the request, bytes of the response)
INVALID_SWITCHES = {
    "no upgrade requested, an empty Upgrade": (PLAIN, switch(b"Connection: upgrade\r\nUpgrade: \r\n")),
    "no upgrade requested, a comma": (PLAIN, switch(b"Connection: upgrade\r\nUpgrade: ,\r\n")),
    "no upgrade requested, no Upgrade": (PLAIN, switch(b"Connection: upgrade\r\n")),
    "no upgrade requested, a protocol": (PLAIN, switch(UPGRADE)),
    "requested, an empty Upgrade": (WITH_UPGRADE, switch(b"Connection: upgrade\r\nUpgrade: \r\n")),
    "requested, only commas": (WITH_UPGRADE, switch(b"Connection: upgrade\r\nUpgrade: , ,\r\n")),
    "requested, no Upgrade": (WITH_UPGRADE, switch(b"Connection: upgrade\r\n")),
    "requested, another protocol": (WITH_UPGRADE, switch(b"Connection: upgrade\r\nUpgrade: ssh\r\n")),
    "requested, a longer name": (WITH_UPGRADE, switch(b"Connection: upgrade\r\nUpgrade: websocket2\r\n")),
    "requested, a list with another protocol": (WITH_UPGRADE, switch(b"Connection: upgrade\r\nUpgrade: websocket, ssh\r\n")),
    "requested, two Upgrade fields": (WITH_UPGRADE, switch(UPGRADE + b"Upgrade: ssh\r\n")),
    "requested, two equal Upgrade fields": (WITH_UPGRADE, switch(UPGRADE + b"Upgrade: websocket\r\n")),
    "requested, Connection does not list Upgrade": (WITH_UPGRADE, switch(b"Upgrade: websocket\r\n")),
    "requested, Connection: close": (WITH_UPGRADE, switch(b"Connection: close\r\nUpgrade: websocket\r\n")),
    "Upgrade without Connection": (b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", switch(UPGRADE)),
    "Connection without Upgrade": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n", switch(UPGRADE)),
    "an empty Upgrade requested": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: \r\n\r\n",
                               switch(b"Connection: upgrade\r\nUpgrade: \r\n")),
    "requested with two Upgrade fields": (b"GET / HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"Upgrade: ssh\r\n\r\n", switch(UPGRADE)),
    "requested with HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: a\r\n" + UPGRADE + b"\r\n", switch(UPGRADE)),
    "requested with content": (b"POST / HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"Content-Length: 2\r\n\r\nhi", switch(UPGRADE)),
    "requested with chunked content": (b"POST / HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", switch(UPGRADE)),
    "h2c requested": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
                  switch(b"Connection: upgrade\r\nUpgrade: h2c\r\n")),
    "HTTP/2.0 requested": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: HTTP/2.0\r\n\r\n",
                       switch(b"Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n")),
    "TLS requested": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket, tls/1.2\r\n\r\n",
                  switch(b"Connection: upgrade\r\nUpgrade: TLS/1.2\r\n")),
    "103 first": (PLAIN, b"HTTP/1.1 103 Early Hints\r\n\r\n" + switch(b"Upgrade: \r\n")),
}


def test_an_invalid_101_is_a_502_and_no_byte_is_relayed(rig):
    current, seen = [b""], []

    def script(peer, _number):
        request = peer.read_request()
        if request is None:
            return
        peer.send(current[0] + b"from the server")
        while piece := peer.buffer or peer.socket.recv(65536):
            seen.append(piece)
            peer.buffer = b""
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    weir.expect_errors("upstream|server|api")
    for name, (request, answer) in INVALID_SWITCHES.items():
        current[0] = answer
        with Connection(weir.address) as connection:
            connection.send(request)
            response = connection.read_head()
            while 100 < response.status < 200 and response.status != 101:
                response = connection.read_head()
            assert response.status == 502, (name, response)
            assert response["Upgrade"] is None, name
            connection.read_exactly(response.number("Content-Length"), "the 502")
            try:  # the next bytes are a new request, or are not read
                connection.send(SECOND)
                assert connection.response().status == 502, name
            except (IncompleteResponse, OSError):
                pass
        assert not any(b"/second" in piece for piece in seen), f"{name}: the second request bypassed weir"


def test_upgrade_in_other_responses_opens_no_tunnel(rig):
    """In other responses, Upgrade is hop-by-hop (RFC 9110 section 7.6.1)."""
    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\n" + UPGRADE + b"Content-Length: 2\r\n\r\nok")
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Connection(weir.address) as connection:
        for request in (PLAIN, WITH_UPGRADE):
            connection.send(request)
            response = connection.response()
            assert response.status == 200 and response.body == b"ok"
            assert response["Upgrade"] is None and "upgrade" not in response.all("Connection")


def test_a_426_keeps_its_upgrade_field(rig):
    """RFC 9110 section 15.5.22."""
    fields = [b""]

    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(b"HTTP/1.1 426 Upgrade Required\r\n" + fields[0] + b"Content-Length: 0\r\n\r\n")
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    fields[0] = b"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: HTTP/3.0\r\n"
    with Connection(weir.address) as connection:
        for _ in range(2):  # and the connection stays usable
            connection.send(PLAIN)
            response = connection.response()
            assert response.status == 426 and response.all("Connection")[0] == "upgrade"
            assert response.all("Upgrade") == ["websocket", "HTTP/3.0"]
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        response = connection.response()
        assert response.all("Connection") == ["upgrade", "close"] and response.all("Upgrade") == ["websocket", "HTTP/3.0"]
    with Connection(weir.address) as connection:
        connection.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
        response = connection.response()
        assert (response.status, response["Upgrade"], response["Connection"]) == (426, None, "close")
    fields[0] = b"Connection: Upgrade\r\nUpgrade: \r\n"
    with Connection(weir.address) as connection:
        connection.send(PLAIN)
        response = connection.response()
        assert response.status == 426 and response["Upgrade"] is None and "upgrade" not in response.all("Connection")
    assert api.failures == []
