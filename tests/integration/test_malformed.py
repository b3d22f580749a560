"""Requests that a strict proxy must refuse: each gets its status and a closed connection, and the
upstream receives nothing. Most of them have been used for request smuggling."""

from http2_wire import Http2
from scripted import Scripted, respond_to_all
from wire import Connection, IncompleteResponse, chunked, get, request_bytes

H = b"Host: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "content-length with transfer-encoding":
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 6\r\n" + CHUNKED + b"\r\n0\r\n\r\nX",
    "transfer-encoding with content-length":
        b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"Content-Length: 6\r\n\r\n0\r\n\r\nX",
    "two content-lengths": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "content-length twice with the same value": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a list of content-lengths": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1, 1\r\n\r\na",
    "an empty content-length": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: \r\n\r\n",
    "a signed content-length": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: +1\r\n\r\na",
    "a negative content-length": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: -1\r\n\r\n",
    "a hexadecimal content-length": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0x1\r\n\r\na",
    "a content-length beyond 63 bits": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 18446744073709551617\r\n\r\na",
    "a blank inside content-length": b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1 2\r\n\r\n",
    "a blank before the colon": b"POST / HTTP/1.1\r\n" + H + b"Content-Length : 1\r\n\r\na",
    "a tab before the colon": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding xchunked": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding identity": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: identity\r\n\r\n",
    "transfer-encoding gzip, chunked": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding chunked, chunked": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding twice": b"POST / HTTP/1.1\r\n" + H + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "transfer-encoding with a vertical tab": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "transfer-encoding quoted": b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    "transfer-encoding in HTTP/1.0": b"POST / HTTP/1.0\r\n" + H + CHUNKED + b"\r\n0\r\n\r\n",
    "a chunk size with a sign": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n+1\r\na\r\n0\r\n\r\n",
    "a chunk size with 0x": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk size that overflows": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n10000000000000001\r\na\r\n0\r\n\r\n",
    "an empty chunk size": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n\r\na\r\n0\r\n\r\n",
    "a chunk line ended by LF": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n1\na\r\n0\r\n\r\n",
    "a bare LF in a chunk extension": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n1;a\nb\r\na\r\n0\r\n\r\n",
    "a chunk longer than its size": b"POST / HTTP/1.1\r\n" + H + CHUNKED + b"\r\n1\r\nab\r\n0\r\n\r\n",
    "a bare LF in the head": b"GET / HTTP/1.1\nHost: a\n\n",
    "a bare LF after a field": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "a bare CR in a field": b"GET / HTTP/1.1\r\n" + H + b"X: a\rContent-Length: 5\r\n\r\n",
    "a NUL in a field": b"GET / HTTP/1.1\r\n" + H + b"X: a\x00b\r\n\r\n",
    "a folded field": b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n",
    "a blank before the first field": b"GET / HTTP/1.1\r\n X: a\r\n" + H + b"\r\n",
    "an empty field name": b"GET / HTTP/1.1\r\n" + H + b": a\r\n\r\n",
    "a field without a colon": b"GET / HTTP/1.1\r\n" + H + b"Xa\r\n\r\n",
    "a field name with a blank": b"GET / HTTP/1.1\r\n" + H + b"X a: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + H + H + b"\r\n",
    "a host with a blank": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host with userinfo": b"GET / HTTP/1.1\r\nHost: me@a\r\n\r\n",
    "no version (HTTP/0.9)": b"GET /\r\n\r\n",
    "two blanks in the request line": b"GET  / HTTP/1.1\r\n" + H + b"\r\n",
    "a blank in the target": b"GET /a b HTTP/1.1\r\n" + H + b"\r\n",
    "a tab in the request line": b"GET\t/ HTTP/1.1\r\n" + H + b"\r\n",
    "a control byte in the target": b"GET /\x7f HTTP/1.1\r\n" + H + b"\r\n",
    "a fragment in the target": b"GET /a#b HTTP/1.1\r\n" + H + b"\r\n",
    "a relative target": b"GET a HTTP/1.1\r\n" + H + b"\r\n",
    "an asterisk with GET": b"GET * HTTP/1.1\r\n" + H + b"\r\n",
    "a version in lower case": b"GET / http/1.1\r\n" + H + b"\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + H + b"\r\n",
    "HTTP/1.10": b"GET / HTTP/1.10\r\n" + H + b"\r\n",
    "a malformed preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",  # a valid one: test_http2
    "a TLS hello": b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"\r\n\r\n",
}


def test_malformed_requests_are_refused_and_the_connection_is_closed(rig):
    api = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, timeouts={"request_header": "2s"})
    wrong = []
    for name, request in REFUSED.items():
        with Connection(weir.address, timeout=5) as connection:
            # The second request must never get a response.
            connection.send(request + request_bytes("/smuggled"))
            try:
                response = connection.response()
                if not 400 <= response.status <= 505:
                    wrong.append(f"{name}: {response.status}")
                elif not connection.is_closed():
                    wrong.append(f"{name}: {response.status}, but the connection stays open: {connection.buffer[:60]!r}")
            except (IncompleteResponse, TimeoutError) as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
    whole = [peer for peer in api.peers if b"smuggled" in peer.buffer]
    assert not whole, "a smuggled request was forwarded"
    assert get(weir.address).status == 200


def test_the_status_of_refused_requests(rig):
    weir = rig.weir(workers=1, size_limits={"request_header": "16k"})
    for status, request in ((414, request_bytes("/" + "a" * 20000)),
                            (431, request_bytes(headers={"X": "a" * 20000})),
                            (431, request_bytes(headers=[(f"X-{i}", "1") for i in range(200)])),
                            (505, b"GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
                            (417, request_bytes(headers={"Expect": "a-miracle"}))):
        with Connection(weir.address) as connection:
            assert connection.send(request).response().status == status


def test_refused_head_requests_get_no_content(rig):
    weir = rig.weir(workers=1)
    fields = [(f"x-{i}", "1") for i in range(200)]
    refused = get(weir.address, headers=fields)
    with Connection(weir.address) as connection:
        response = connection.send(request_bytes(method="HEAD", headers=fields)).response("HEAD")
        assert response.status == 431 and response["Content-Length"] == str(len(refused.body))
        assert connection.is_closed(), "content"
    with Http2(weir.address) as client:
        response = client.get("/", method="HEAD", fields=fields)
        assert (response.status, response.body, response.ended) == (431, b"", True)


def test_a_header_that_is_too_large_with_the_fields_of_weir(rig):
    """Host is written three times. The client is at fault: weir has memory."""
    weir = rig.weir(workers=1, size_limits={"request_header": "64k"},
                    upstreams={"api": {"servers": [rig.upstream().text], "forwarded": True}})
    assert [get(weir.address, host="a" * size).status for size in (20000, 60000)] == [200, 431]
    weir.counts(1, "weir_errors_total", cause="request_header_too_large")


def test_connect_and_trace_are_refused(rig):
    weir = rig.weir(workers=1)
    with Connection(weir.address) as connection:
        connection.send(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
        assert connection.response().status in (400, 405, 501)


def test_a_body_above_the_limit_is_413(rig):
    weir = rig.weir(workers=1, size_limits={"request_body": "1k"})
    assert get(weir.address, method="POST", body=b"x" * 1024).status == 200
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": "1025"}))
        assert connection.response().status == 413
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + b"800\r\n" + b"x" * 2048)
        assert connection.response().status == 413


def test_an_incomplete_head_or_body_is_a_408(rig):
    weir = rig.weir(workers=1, timeouts={"request_header": "2s", "request_body": "2s"})
    for request in (b"GET / HTTP/1.1\r\nHos", request_bytes(method="POST", headers={"Content-Length": "10"}) + b"12345"):
        with Connection(weir.address) as connection:
            assert connection.send(request).response().status == 408
            assert connection.is_closed()


def test_a_silent_connection_is_closed_without_a_response(rig):
    weir = rig.weir(workers=1, timeouts={"request_header": "2s", "keepalive": "300ms"})
    with Connection(weir.address) as connection:
        connection.socket.settimeout(10)
        while connection.fill():
            pass
        assert connection.buffer == b"" or b" 408 " in connection.buffer
    with Connection(weir.address) as connection:
        assert connection.request().status == 200
        assert connection.is_closed(), "idle connections are closed"


def test_a_slow_body_is_cut_by_body_min_rate(rig):
    send_single_bytes(rig, b"")


def test_a_body_that_was_fast_at_first_is_cut_by_body_min_rate(rig):
    """The first bytes are 60 s of the minimum rate. They count for two of request_body."""
    send_single_bytes(rig, b"x" * 60000)


def send_single_bytes(rig, first):
    """Frequent single bytes keep each pause below the timeout, so only the minimum rate ends the
    request."""
    import threading
    weir = rig.weir(workers=1, timeouts={"request_body": "1s", "body_min_rate": 1000})
    pause = threading.Event()
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": "100000"}) + first)
        for _ in range(200):
            try:
                connection.send(b"x")
            except OSError:
                break
            pause.wait(0.1)
            connection.socket.setblocking(False)
            try:
                if not connection.fill() or connection.buffer:
                    break
            except BlockingIOError:
                pass
            finally:
                connection.socket.settimeout(10)
        else:
            raise AssertionError("a body with ten bytes per second was accepted for 20 s")


def test_content_of_a_rejected_request_is_not_parsed_as_a_request(rig):
    """weir discards the content of a request that it rejects with 429, or closes the connection."""
    api = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}},
                    limits={"one": dict(script="gcra", limit=1, period="1h")})
    assert get(weir.address).status == 200
    inner = request_bytes("/smuggled", headers={"X-Client-Id": "other"})
    for body in inner, inner * 2000:
        with Connection(weir.address) as connection:
            try:
                connection.send(request_bytes("/", "POST", body=body) + request_bytes("/next"))
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert connection.response().status == 429
            try:
                assert connection.response().status == 429, "the next response belongs to the next request"
            except IncompleteResponse:
                pass
    assert api.accepted == 1


def test_chunked_content_of_a_rejected_request_ends_before_the_next_request(rig):
    """If the end has arrived with the head, the connection is kept. Otherwise it ends."""
    seen = []

    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            seen.append(request[0].split(b" ")[1])
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}},
                    limits={"one": dict(script="gcra", limit=1, period="1h")},
                    rules=[{"match": {"path": "/free"}, "limits": "none"}, {"limits": ["one"]}])
    assert get(weir.address).status == 200
    inner = request_bytes("/free/smuggled")
    whole = chunked(inner, 30)
    rejected = request_bytes("/", "POST", {"Transfer-Encoding": "chunked"})
    for content in whole, b"0\r\n\r\n", b"3;a=b\r\nabc\r\n0\r\nX-A: b\r\n\r\n":
        with Connection(weir.address) as connection:
            connection.send((rejected + content) * 3 + request_bytes("/free"))
            assert [connection.response().status for _ in range(4)] == [429, 429, 429, 200], content
    expecting = request_bytes("/", "POST", {"Transfer-Encoding": "chunked", "Expect": "100-continue"})
    for request in (rejected + whole[:-5] + b"0\n\r\n", rejected + whole[:-2] + b"a\r\n\r\n", rejected + b"3\r\nabcd\r\n0\r\n\r\n",
                    rejected + whole[:-5] + b"5000\r\n", rejected + b"0\r\nA: b\r\n", expecting + whole):
        with Connection(weir.address) as connection:
            connection.send(request + request_bytes("/free/after"))
            assert connection.response().status == 429
            assert connection.is_closed(), request
    assert seen == [b"/", b"/free", b"/free", b"/free"]


def test_empty_lines_before_a_request_are_skipped(rig):
    weir = rig.weir(workers=1)
    with Connection(weir.address) as connection:
        assert connection.send(b"\r\n" + request_bytes()).response().status == 200


def test_pipelined_requests_do_not_grow_memory(rig):
    weir = rig.weir(workers=1, limits={"one": dict(script="gcra", limit=1, period="1h")})
    get(weir.address)
    at_rest = weir.resident_kib()
    with Connection(weir.address) as connection:
        connection.send(request_bytes() * 1000)
        assert {connection.response().status for _ in range(1000)} == {429}
    assert weir.resident_kib() - at_rest < 20000
