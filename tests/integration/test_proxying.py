"""Forwarding: requests as the upstream receives them and responses as the client receives them, in
all sizes."""

import hashlib
import json
import os
import re
import threading
import zlib

from echoes import echo, fields_of
from rig import eventually, free_port, sanitized, timeout
from scripted import OK, Scripted, respond_with, respond_to_all
from slow_reader import read_slowly
from wire import Connection, chunked, get, request_bytes

MIB = 1024 * 1024


def weir_without_limits(rig, **more):
    """weir without limits in front of the test's upstream."""
    return rig.weir(**more)


def weir_before(rig, script, **more):
    """weir without limits in front of a scripted upstream. Returns both."""
    api = Scripted(rig, script)
    return rig.weir(upstreams={"api": {"servers": [api.text], **more.pop("upstream", {})}}, **more), api


# --- connections ---------------------------------------------------------------------------------------------------------

def test_connections_are_reused_on_both_sides(rig):
    weir = weir_without_limits(rig, workers=1)
    connections_before = rig.upstream().stats()["connections"]
    with Connection(weir.address) as connection:
        for _ in range(50):
            assert connection.request().status == 200
    for _ in range(10):
        assert get(weir.address).status == 200
    assert rig.upstream().stats()["connections"] - connections_before <= 3, "upstream connections are pooled across clients"


def test_pipelined_requests_get_responses_in_order(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        connection.send(b"".join(request_bytes(f"/echo?{i}") for i in range(100)))
        for i in range(100):
            assert json.loads(connection.response().body)["target"] == f"/echo?{i}"


def test_pipelined_requests_with_bodies_after_a_slow_one(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/slow?ms=200") + request_bytes("/echo?1", "POST", body=b"x" * 1000) +
                        request_bytes("/echo?2", "POST", {"Transfer-Encoding": "chunked"}, chunked(b"y" * 5000)) +
                        request_bytes("/echo?3"))
        assert connection.response().body == b'{"message":"after the delay"}\n'
        lengths = [json.loads(connection.response().body)["content_length"] for _ in range(3)]
        assert lengths == [1000, 5000, 0]


def test_a_request_sent_byte_by_byte(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        for byte in request_bytes("/echo", "POST", {"Transfer-Encoding": "chunked"}, chunked(b"hello world", 4)):
            connection.send(bytes([byte]))
        echoed = json.loads(connection.response().body)
        assert (echoed["content_length"], echoed["content_crc32"]) == (11, zlib.crc32(b"hello world"))


def test_connection_close_is_honoured(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        response = connection.request(headers={"Connection": "close"})
        assert response.status == 200 and response["Connection"] == "close"
        assert connection.is_closed()


def test_if_the_upstream_closes_the_client_connection_stays_open(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        for _ in range(5):
            assert connection.request("/close")["Connection"] == "keep-alive"


def test_an_http_1_0_client(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        response = connection.request("/bytes/1000", version="HTTP/1.0", host=None)
        assert response.status == 200 and len(response.body) == 1000
        assert connection.is_closed()
    with Connection(weir.address) as connection:
        response = connection.request("/chunked/100000", version="HTTP/1.0")
        assert response["Transfer-Encoding"] is None, "HTTP/1.0 has no chunked coding"
        assert len(response.body) == 100000 and connection.is_closed()
    with Connection(weir.address) as connection:
        for _ in range(3):
            response = connection.request("/bytes/10", version="HTTP/1.0", headers={"Connection": "keep-alive"})
            assert response["Connection"].lower() == "keep-alive" and len(response.body) == 10


def test_an_http_1_0_response_delimited_by_close(rig):
    weir, _ = weir_before(rig, respond_with(b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\n" + b"z" * 100000))
    with Connection(weir.address) as connection:
        for _ in range(2):
            response = connection.request()
            assert response.version == "HTTP/1.1" and response.body == b"z" * 100000
            assert response["Transfer-Encoding"] == "chunked", "so that the client's connection stays open"


def test_unix_sockets_on_both_sides(rig):
    path = os.path.join(rig.directory, "weir.sock")
    api = rig.upstream(listen="unix:" + os.path.join(rig.directory, "api.sock"))
    weir = rig.weir(listen=["unix:" + path], upstreams={"api": {"servers": [api.text]}})
    assert [get(path, "/bytes/100000").status for _ in range(3)] == [200] * 3
    weir.signal(15)
    weir.wait()
    assert not os.path.exists(path), "weir removes its socket file"


def test_an_ipv6_listener(rig):
    weir = rig.weir(listen=["127.0.0.1:0", "[::1]:0"])
    assert len(weir.addresses) == 2
    for address in weir.addresses:
        assert get(address).status == 200


# --- bodies --------------------------------------------------------------------------------------------------------------

def test_bodies_of_many_sizes_in_both_directions_and_framings(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        for size in (0, 1, 2, 1023, 4096, 16383, 16384, 65535, 65536, 65537, 300000):
            body = os.urandom(size)
            for headers, data in (({}, body), ({"Transfer-Encoding": "chunked"}, chunked(body, 7777))):
                echoed = json.loads(connection.request("/echo", "POST", headers, data).body)
                assert (echoed["content_length"], echoed["content_crc32"]) == (size, zlib.crc32(body)), (size, headers)
            for target in f"/bytes/{size}", f"/chunked/{size}":
                assert connection.request(target).body == (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size], target


@timeout(120)
def test_a_large_response_to_a_slow_reader_uses_constant_memory(rig):
    weir = weir_without_limits(rig, workers=1)
    size = 64 << 20
    expected = hashlib.md5((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]).hexdigest()
    get(weir.address, "/bytes/1000000")
    at_rest = weir.resident_kib()
    with Connection(weir.address) as connection:
        connection.send(request_bytes(f"/bytes/{size}"))
        head = connection.read_head()
        assert head.number("Content-Length") == size
        sizes = []
        assert read_slowly(connection, size, lambda: sizes.append(weir.resident_kib())) == expected
    grown = max(sizes) - at_rest
    assert grown < (20000 if sanitized else 2000), f"{grown} KiB more than at rest"


@timeout(120)
def test_a_large_upload_uses_constant_memory(rig):
    total, piece, received = 64 << 20, b"x" * 65536, []

    def slow_server(peer, _number):
        peer.read_until(b"\r\n\r\n", "the head")
        left = total - len(peer.buffer)
        pause, step = threading.Event(), 0
        while left > 0 and (data := peer.socket.recv(min(65536, left))):
            left -= len(data)
            step += 1
            if step % 64 == 0:
                pause.wait(0.01)
        received.append(total - left)
        peer.send(OK)

    weir, _ = weir_before(rig, slow_server, workers=1)
    at_rest = weir.resident_kib()
    with Connection(weir.address, timeout=60) as connection:
        connection.send(request_bytes("/", "POST", {"Content-Length": str(total)}))
        left, peak = total, at_rest
        while left > 0:
            connection.send(piece[:left])
            left -= min(left, len(piece))
            peak = max(peak, weir.resident_kib())
        assert connection.response().status == 200
    assert received == [total]
    assert peak - at_rest < (20000 if sanitized else 2000), f"{peak - at_rest} KiB more than at rest"


def test_a_response_before_the_whole_request_was_read(rig):
    """The upstream responds early and closes: the client receives the response, not a reset."""
    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "the head")
        peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
    weir, _ = weir_before(rig, script)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", {"Content-Length": "1000000"}) + b"x" * 1000)
        response = connection.response()
        assert (response.status, response.body) == (403, b"no")


def test_expect_100_continue_is_forwarded(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/echo", "POST", {"Expect": "100-continue", "Content-Length": "5"}))
        assert connection.read_head().status == 100
        connection.send(b"hello")
        assert json.loads(connection.response().body)["content_length"] == 5
        assert connection.request().status == 200


def test_no_content_after_head_204_and_304(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        for _ in range(3):
            head = connection.request("/bytes/1234", "HEAD")
            assert head.status == 200 and head["Content-Length"] == "1234"
            assert connection.request("/chunked/1234", "HEAD").status == 200
            assert connection.request("/status/204").status == 204
            assert connection.request("/status/304").status == 304
            assert connection.request("/bytes/5").body == b"abcde", "the next response is parsed correctly"


def test_interim_responses_are_sent_to_http_1_1_clients_only(rig):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    weir, _ = weir_before(rig, respond_to_all(early + OK))
    with Connection(weir.address) as connection:
        connection.send(request_bytes())
        head = connection.read_head()
        assert (head.status, head["Link"]) == (103, "</a.css>; rel=preload")
        assert connection.response().status == 200
    with Connection(weir.address) as connection:
        connection.send(request_bytes(version="HTTP/1.0"))
        assert connection.read_head().status == 200


def test_every_status_is_forwarded(rig):
    weir = weir_without_limits(rig)
    with Connection(weir.address) as connection:
        for status in (200, 201, 206, 301, 400, 401, 403, 404, 429, 451, 500, 503, 599):
            assert connection.request(f"/status/{status}").status == status


# --- fields --------------------------------------------------------------------------------------------------------------

def test_fields_to_the_upstream(rig):
    weir = weir_without_limits(rig)
    echoed = echo(weir.address, host="shop.example:8080")
    assert fields_of(echoed, "Host") == ["shop.example:8080"]
    assert fields_of(echoed, "X-Forwarded-For") == ["127.0.0.1"]
    assert fields_of(echoed, "X-Forwarded-Proto") == ["http"]
    assert fields_of(echoed, "X-Forwarded-Host") == ["shop.example:8080"]
    assert len(fields_of(echoed, "Via")) == 1 and fields_of(echoed, "Via")[0].startswith("1.1 ")
    made = fields_of(echoed, "X-Request-Id")
    assert len(made) == 1 and len(made[0]) >= 16
    assert fields_of(echo(weir.address), "X-Request-Id") != made
    assert fields_of(echo(weir.address, headers={"X-Request-Id": "abc-1"}), "X-Request-Id") == ["abc-1"]


def test_weir_appends_to_via(rig):
    weir = weir_without_limits(rig)
    via = ", ".join(fields_of(echo(weir.address, headers={"Via": "1.0 fred"}), "Via"))
    assert via.startswith("1.0 fred, 1.1 "), via
    assert get(weir.address)["Via"].startswith("1.1 ")


def test_forwarding_fields_of_a_trusted_proxy_are_kept(rig):
    weir = weir_without_limits(rig, identity={"trusted_proxies": ["127.0.0.1"]})
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}
    echoed = echo(weir.address, headers=headers)
    assert ", ".join(fields_of(echoed, "X-Forwarded-For")) == "203.0.113.7, 127.0.0.1"
    assert fields_of(echoed, "X-Forwarded-Proto") == ["https"]
    assert fields_of(echoed, "X-Forwarded-Host") == ["shop.example"]
    stranger = weir_without_limits(rig)
    echoed = echo(stranger.address, headers=headers)
    assert fields_of(echoed, "X-Forwarded-Proto") == ["http"]
    assert fields_of(echoed, "X-Forwarded-Host") == ["api.test"]


def test_hop_by_hop_fields_are_not_forwarded(rig):
    weir = weir_without_limits(rig)
    hop = {"Connection": "keep-alive, X-Private", "X-Private": "1", "Keep-Alive": "timeout=5", "TE": "gzip",
           "Proxy-Connection": "keep-alive", "Upgrade": "websocket", "Proxy-Authorization": "Basic eA==",
           "Trailer": "X-Sum", "X-Public": "2"}
    echoed = echo(weir.address, headers=hop)
    names = {name.lower() for name, _ in echoed["fields"]}
    assert names.isdisjoint({"x-private", "keep-alive", "te", "proxy-connection", "upgrade", "proxy-authorization"})
    assert "x-public" in names


def test_hop_by_hop_fields_of_the_upstream_are_not_forwarded(rig):
    weir, _ = weir_before(rig, respond_to_all(b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\n"
                                  b"Keep-Alive: timeout=5\r\nX-Public: 2\r\nContent-Length: 2\r\n\r\nok"))
    response = get(weir.address)
    assert "x-secret" not in response.names() and response["X-Public"] == "2"
    assert response["Keep-Alive"] == "timeout=74", "weir's own"


def test_connection_cannot_remove_framing_and_identity_fields(rig):
    limits = {"each": dict(script="gcra", limit=1000, period="1d")}
    for name, source, client in (("X-Client-Id", "header:X-Client-Id", "id:c=c"), ("Authorization", "header:Authorization", "id:c=c"),
                                 ("Cookie", "cookie:c", "cookie:")):
        weir = rig.weir(limits=limits, identity={"from": [source, "ip"]})
        headers = {"Connection": f"close, Content-Length, Host, X-Forwarded-For, {name}", name: "c=c"}
        response = get(weir.address, "/echo", method="POST", headers=headers, body=b"12345")
        assert response.status == 200, response
        echoed = json.loads(response.body)
        assert echoed["content_length"] == 5
        assert fields_of(echoed, "X-Forwarded-For") == ["127.0.0.1"] and fields_of(echoed, name) == [headers[name]]
        assert fields_of(echoed, "X-Weir-Client")[0].startswith(client), echoed


def test_other_fields_keep_their_order_and_case(rig):
    weir = weir_without_limits(rig)
    sent = [("X-b", "2"), ("x-A", "1"), ("Cookie", "a=1"), ("X-b", "3"), ("Cookie", "b=2"), ("X-Empty", "")]
    echoed = echo(weir.address, headers=sent)
    assert [(n, v) for n, v in echoed["fields"] if n.lower() in ("x-b", "x-a", "cookie", "x-empty")] == sent


# --- the connection pool
# ------------------------------------------------------------------------------------------------

def test_a_response_can_have_a_thousand_fields(rig):
    """For example 140 times Set-Cookie. The maximum for requests is 128."""
    count = [140]

    def script(peer, _number):
        while peer.read_request() is not None:
            cookies = b"".join(b"Set-Cookie: c%d=%d\r\n" % (i, i) for i in range(count[0] - 1))
            peer.send(b"HTTP/1.1 200 OK\r\n" + cookies + b"Content-Length: 2\r\n\r\nok")
    weir, _ = weir_before(rig, script)
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as connection:
        for count[0] in (140, 1000):
            response = connection.request()
            assert (response.status, response.body) == (200, b"ok")
            assert response.all("Set-Cookie") == [f"c{i}={i}" for i in range(count[0] - 1)]
        count[0] = 1001
        assert connection.request().status == 502


def test_a_pooled_connection_that_failed_is_replaced(rig):
    def script(peer, number):
        peer.read_request()
        peer.send(OK)
        if number == 0:
            peer.read_request()   # reads the second request and closes without a response
            return
        while peer.read_request() is not None:
            peer.send(OK)
    weir, api = weir_before(rig, script, workers=1)
    with Connection(weir.address) as connection:
        assert [connection.request().status for _ in range(3)] == [200] * 3
    assert api.accepted == 2


def test_a_post_is_not_sent_twice(rig):
    seen = []

    def script(peer, number):
        seen.append(peer.read_request())
        peer.send(OK)
        if number == 0:
            seen.append(peer.read_request())
    weir, _ = weir_before(rig, script, workers=1)
    with Connection(weir.address) as connection:
        assert connection.request(method="POST", body=b"1").status == 200
        assert connection.request(method="POST", body=b"2").status == 502
    assert [body for _, body in seen] == [b"1", b"2"]


def test_unexpected_bytes_close_the_upstream_connection(rig):
    def script(peer, number):
        peer.read_request()
        peer.send(OK + (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison" if number == 0 else b""))
        while peer.read_request() is not None:
            peer.send(OK)
    weir, _ = weir_before(rig, script, workers=1)
    for _ in range(4):
        response = get(weir.address)
        assert response.status == 200 and response.body == b"ok"


def test_the_server_with_the_fewest_requests_is_selected(rig):
    release, counts = threading.Event(), {"slow": 0, "fast": 0}

    def serving(name):
        def script(peer, _number):
            while (request := peer.read_request()) is not None:
                counts[name] += 1
                if b"/hold" in request[0]:
                    release.wait(20)
                peer.send(OK)
        return Scripted(rig, script)
    slow, fast = serving("slow"), serving("fast")
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [slow.text, fast.text]}})
    held = [Connection(weir.address).send(request_bytes("/hold"))]
    eventually(lambda: counts["slow"] + counts["fast"] == 1)
    busy = "slow" if counts["slow"] else "fast"
    idle = "fast" if busy == "slow" else "slow"
    for _ in range(20):
        assert get(weir.address).status == 200
    assert counts[busy] == 1 and counts[idle] == 20, counts
    release.set()
    assert held[0].response().status == 200


def test_a_loop_ends_with_508(rig):
    """An upstream that leads back to weir: the request ends at its third return."""
    port = free_port()
    weir = rig.weir(listen=[f"127.0.0.1:{port}"], upstreams={"api": {"servers": [f"127.0.0.1:{port}"]}}, rules=[], workers=1)
    weir.expect_errors("come back")
    answer = get(weir.address)
    assert answer.status == 508, answer
    weir.counts(1, "weir_errors_total", cause="loop")
    weir.counts(4, "weir_responses_total", **{"class": "5xx"})  # weir has met the request four times
    own = answer.all("Via")[0].split(" ")[1]
    assert re.fullmatch("weir-[0-9a-f]{8}", own)
    other = rig.weir(rules=[])
    passed = ", ".join(["1.1 a", f"1.1 {own}", f"HTTP/1.1 {own} (a comment)", f"1.1 {own}"])
    assert get(other.address, headers={"Via": passed}).status == 200, "another weir's"
    assert get(weir.address, headers={"Via": passed}).status == 508
