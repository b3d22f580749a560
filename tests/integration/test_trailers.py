"""Trailers in both directions: RFC 9110 section 6.5, RFC 9112 section 7.1.2, RFC 9113 section 8.1."""

from http2_wire import ENHANCE_YOUR_CALM, INITIAL_WINDOW_SIZE, WINDOW_UPDATE, Http2
from scripted import Scripted
from wire import Connection, request_bytes

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b"2\r\nok\r\n0\r\n"
SENT = b"X-Sum: 1\r\nSet-Cookie: a=b\r\nContent-Length: 9\r\nGrpc-Status: 0\r\n\r\n"
KEPT = [("X-Sum", "1"), ("Grpc-Status", "0")]
LOWER = [(name.lower(), value) for name, value in KEPT]


class Api(Scripted):
    """Responds with trailers; records heads and trailers of requests."""

    def __init__(self, rig, pieces=(CHUNKED + BODY + SENT,)):
        self.heads, self.trailers, self.pieces = [], [], pieces
        super().__init__(rig, self.one)

    def one(self, peer, _number):
        while True:
            peer.trailers = []
            request = peer.read_request()
            if request is None:
                return
            self.heads.append(request[0])
            self.trailers.append(peer.trailers)
            for piece in self.pieces:
                peer.send(piece)


def weir_before(rig, *args, **more):
    api = Api(rig, *args)
    return rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, **more), api


def fetch_trailers(connection, headers=(), body=b""):
    method = "POST" if body else "GET"
    connection.trailers = None
    connection.send(request_bytes("/", method, dict(headers), body))
    response = connection.response()
    assert (response.status, response.body) == (200, b"ok")
    return connection.trailers


TE = {"TE": "trailers", "Connection": "TE"}


def test_trailers_of_responses_from_http_1_to_http_1(rig):
    weir, api = weir_before(rig)
    with Connection(weir.address) as connection:
        assert fetch_trailers(connection, TE) == KEPT
        assert fetch_trailers(connection) == [], "the client does not accept trailers"
        assert fetch_trailers(connection, {"TE": "trailers"}) == [], "Connection does not list TE"
        assert fetch_trailers(connection, {**TE, "TE": "gzip"}) == []
        assert fetch_trailers(connection, {"TE": "gzip;q=1, trailers", "Connection": "x, te"}) == KEPT
        connection.send(b"GET / HTTP/1.0\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
        response = connection.response()
        assert response.body == b"ok" and "x-sum" not in response.names()
    assert [b"\r\nTE: trailers\r\n" in head for head in api.heads] == [True, False, False, False, True, False]
    assert all((b"\r\nConnection: TE\r\n" in head) == (b"\r\nTE:" in head) for head in api.heads)


def test_trailers_of_responses_in_pieces(rig):
    whole = CHUNKED + BODY + SENT
    for cut in len(CHUNKED), len(CHUNKED) + 5, len(whole) - len(SENT), len(whole) - len(SENT) + 4, len(whole) - 1:
        weir, _ = weir_before(rig, (whole[:cut], whole[cut:]))
        with Connection(weir.address) as connection, Http2(weir.address) as client:
            assert fetch_trailers(connection, TE) == KEPT and fetch_trailers(connection, TE) == KEPT
            response = client.get("/")
            assert (response.body, response.trailers) == (b"ok", LOWER)


def test_trailers_of_responses_from_http_1_to_http_2(rig):
    weir, api = weir_before(rig)
    with Http2(weir.address) as client:
        response = client.get("/", fields=[("te", "trailers")])
        assert (response.status, response.body, response.trailers) == (200, b"ok", LOWER)
        assert client.get("/").trailers == LOWER, "every HTTP/2 client accepts trailers"
    assert b"\r\nTE: trailers\r\n" in api.heads[0] and b"\r\nTE:" not in api.heads[1]


def test_trailers_are_sent_after_content_that_waits_for_the_window(rig):
    weir, _ = weir_before(rig, (CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n" + SENT,))
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 100)], hold=True) as client:
        stream = client.start("/")
        assert client.responds_to_ping()
        client.put(WINDOW_UPDATE, stream=stream, payload=(900).to_bytes(4, "big"))
        client.flush()
        assert client.responds_to_ping()
        client.put(WINDOW_UPDATE, stream=stream, payload=(100).to_bytes(4, "big"))
        client.flush()
        response = client.response(stream)
        assert (len(response.body), response.trailers) == (1000, LOWER)


def test_trailers_of_requests(rig):
    weir, api = weir_before(rig, limits={"each": dict(script="gcra", limit=1000, period="1s")},
                       identity={"from": ["header:X-Api-Key", "ip"]})
    chunks = b"1\r\nx\r\n0\r\nX-Sum: 1\r\nX-Api-Key: victim\r\nx_api_key: victim\r\nX-Weir-Client: id:a\r\nHost: b\r\n\r\n"
    with Connection(weir.address) as connection, Http2(weir.address) as client:
        fetch_trailers(connection, {"Transfer-Encoding": "chunked"}, chunks)
        fetch_trailers(connection, {"Transfer-Encoding": "chunked"}, b"1\r\nx\r\n0\r\nHost: b\r\n\r\n")
        for fields in [], [("content-length", "1")]:
            stream = client.start("/", method="POST", fields=fields, end=False)
            client.send_body(stream, b"x", end=False)
            client.put_headers([("x-sum", "1"), ("x-api-key", "victim"), ("host", "b")], stream)
            client.flush()
            assert client.response(stream).body == b"ok"
    assert api.trailers == [[("X-Sum", "1")], [], [("x-sum", "1")], []], "a request with Content-Length cannot have trailers"
    assert api.accepted == 3, "weir does not reuse a connection after trailers"


def test_size_and_number_of_trailers_are_limited(rig):
    weir, _ = weir_before(rig)
    for trailers, status in (b"a: " + b"x" * 8000, 200), (b"a: " + b"x" * 9000, 400), (b"\r\n".join([b"a: b"] * 101), 400):
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", "POST", {"Transfer-Encoding": "chunked"}, b"0\r\n" + trailers + b"\r\n\r\n"))
            assert connection.response().status == status
    with Http2(weir.address) as client:
        stream = client.start("/", method="POST", end=False)
        client.put_headers([("a", "x" * 9000)], stream)
        client.flush()
        client.read_until(client.streams[stream].over)
        assert client.streams[stream].reset == ENHANCE_YOUR_CALM
