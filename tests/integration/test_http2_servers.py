"""HTTP/2 with servers: requests as streams, flow control, GOAWAY, refused streams, protocol
violations; also with a real nginx."""

import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time

from http2_server import Http2Peer, Http2Server, respond_to_requests
from http2_wire import (CANCEL, DATA, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, MAX_CONCURRENT_STREAMS,
                        MAX_HEADER_LIST_SIZE, PING, PUSH_PROMISE, REFUSED_STREAM, SETTINGS, WINDOW_UPDATE, Http2, frame, in_table,
                        never_indexed)
from rig import Process, eventually, free_port
from scripted import Scripted, respond_to_all
from tls_server import CA, TlsServer, context
from wire import Connection, IncompleteResponse, chunked, connect, get, request_bytes, run_in_threads

NEVER_EJECT = {"failures": 0, "failure_rate": "0%"}


def weir_before(rig, *servers, protocol="http2", **more):
    upstream = {"servers": [s if isinstance(s, str) else s.text for s in servers], "protocol": protocol, "eject": NEVER_EJECT,
                **more.pop("upstream", {})}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, rules=[], **more)
    weir.expect_errors("upstream|server")
    return weir


def gather(client, count):
    results = [None] * count

    def store_result(number):
        results[number] = client(number)
    run_in_threads(store_result, count)
    return results


def accepts(port):
    try:
        connect(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def assert_problem(weir, status, cause, **more):
    assert get(weir.address, **more).status == status
    weir.counts(1, "weir_errors_total", cause=cause)


# --- requests and responses ---

def test_a_request_is_sent_as_a_stream(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            server.record(request)
            request.read_all()
            request.respond(b"body", 201, [("x-one", "1"), ("set-cookie", "a=1"), ("set-cookie", "b=2")])
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    response = get(weir.address, "/a?b=c", method="POST", body=b"content",
                   headers=[("X-Upper", "Value"), ("Connection", "close, X-Mine"), ("X-Mine", "1"), ("TE", "gzip"), ("Cookie", "a=1")])
    assert (response.status, response.reason, response.body, response["x-one"]) == (201, "Created", b"body", "1")
    assert response.all("set-cookie") == ["a=1", "b=2"] and response["via"].startswith("2 weir-")
    request = server.next_recorded()
    assert request.fields[:4] == [(":method", "POST"), (":scheme", "http"), (":authority", "api.test"), (":path", "/a?b=c")]
    names = [name for name, _ in request.fields]
    assert request.body == b"content" and request["content-length"] == "7" and request["x-upper"] == "Value"
    assert names == [name.lower() for name in names]
    assert not {"connection", "x-mine", "te", "host", "transfer-encoding", "keep-alive"} & set(names)
    with Http2(weir.address) as client:  # both sides use HTTP/2; content of unknown length
        stream = client.start("/x", method="POST", end=False)
        client.send_body(stream, b"some content")
        response = client.response(stream)
        assert (response.status, response.body) == (201, b"body")
    assert server.next_recorded().body == b"some content"
    assert server.accepted == 1 and weir.metric("weir_upstream_reused_total") == 1


def test_responses_without_content(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            status = int(request[":path"][1:])
            request.head(status, [("content-length", "5")] if status in (200, 304) else [], end=True)
    weir = weir_before(rig, Http2Server(rig, script))
    with Connection(weir.address) as client:
        assert client.request("/204").status == 204
        assert client.request("/304").status == 304
        head = client.request("/200", method="HEAD")
        assert head["content-length"] == "5"
        assert client.request("/404").body == b""


def test_interim_responses_are_forwarded(rig):
    def script(connection, _number):
        request = connection.next_request()
        request.head(103, [("link", "</a.css>")])
        request.head(100)
        request.read_all()
        request.respond(request.body)
    weir = weir_before(rig, Http2Server(rig, script))
    with Http2(weir.address) as client:
        stream = client.start("/", method="POST", fields=[("expect", "100-continue")], end=False)
        client.read_until(lambda: client.streams[stream].interim == [103, 100])
        client.send_body(stream, b"content")
        assert client.response(stream).body == b"content"


def test_trailers_are_forwarded_in_both_directions(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.read_all()
            server.record(request)
            request.respond(b"body", end=False)
            request.raw_head([("grpc-status", "0"), ("cache-control", "no-store")], end=True)
    server = Http2Server(rig, script, settings=[(INITIAL_WINDOW_SIZE, 2)])
    weir = weir_before(rig, server)
    with Http2(weir.address) as client:
        stream = client.put_request("/", method="POST", fields=[("te", "trailers")], end=False)
        client.put(DATA, 0, stream, b"content")
        client.put_headers([("x-sum", "7")], stream)
        client.flush()
        response = client.response(stream)
        assert response.body == b"body" and response.trailers == [("grpc-status", "0")]
    request = server.next_recorded()
    assert request.body == b"content" and request.trailers == [("x-sum", "7")] and request["te"] == "trailers"


def test_fields_stay_never_indexed(rig):
    """RFC 7541 section 6.2.3, in both directions: no table contains the field, and other fields of
    the message are still in it. With small windows, weir stores trailers until they can be sent."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.read_all()
            server.record((request, in_table(connection.decoder)))
            secret = request["x-token"] is not None
            request.head(103, [("x-early", "1", secret)])
            request.respond(b"some body", fields=[("x-answer", "2", secret), ("x-plain", "3")], end=False)
            request.raw_head([("x-last", "4", secret), ("x-plain", "5")], end=True)
    for window in 65535, 2:
        server = Http2Server(rig, script, settings=[(INITIAL_WINDOW_SIZE, window)])
        weir = weir_before(rig, server)
        with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, window)]) as client:
            def send(secret):
                fields = [("x-plain", "1"), *([("x-token", "2", True), ("authorization", "Basic YQ==", True)] if secret else [])]
                stream = client.put_request("/", method="POST", fields=fields, end=False)
                client.put(DATA, 0, stream, b"content")
                client.put_headers([("x-sum", "7", secret), ("x-rest", "8")], stream)
                client.flush()
                response = client.response(stream)
                assert response.interim == [103] and response["x-answer"] == "2" and response.body == b"some body"
                assert response.trailers == [("x-last", "4"), ("x-plain", "5")]
                return response.secret, *server.next_recorded()
            secret, request, table = send(True)
            assert request["x-token"] == "2" and request["x-plain"] == "1" and request.trailers == [("x-sum", "7"), ("x-rest", "8")]
            assert never_indexed(request.fields) == ["x-token", "authorization"]
            assert never_indexed(request.trailers) == ["x-sum"]
            assert {"x-plain", "x-rest"} <= table and not {"x-token", "authorization", "x-sum"} & table
            assert secret == ["x-early", "x-answer", "x-last"]
            assert "x-plain" in in_table(client.decoder) and not set(secret) & in_table(client.decoder)
            secret, request, table = send(False)  # the rule is per message
            assert not {"x-plain", "x-sum", "x-early", "x-answer", "x-last"} & {*secret, *never_indexed(request.fields + request.trailers)}
            assert "x-sum" in table and {"x-early", "x-answer", "x-last"} <= in_table(client.decoder)


def test_trailers_after_content_that_waits_stay_never_indexed(rig):
    """The client's window has no room for the last piece of the content."""
    def script(connection, _number):
        request = connection.next_request()
        request.respond(b"some ", end=False)
        connection.next_request().respond()  # when the first piece has filled the window
        request.data(b"body")
        request.raw_head([("x-last", "4", True), ("x-plain", "5")], end=True)
        connection.next_request().respond()
    weir = weir_before(rig, Http2Server(rig, script))
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 2)], hold=True) as client:
        stream = client.start()
        first = client.streams[stream]
        client.read_until(lambda: first.body == b"so")
        for _ in range(2):  # with the second response, weir has all of the first one
            other = client.streams[client.start()]
            client.read_until(lambda: other.status == 200)
        for size, body in (4, b"some b"), (4, b"some body"):
            client.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))
            client.read_until(lambda: first.body == body)
        response = client.response(stream)
        assert response.trailers == [("x-last", "4"), ("x-plain", "5")] and response.secret == ["x-last"]


def test_fields_of_a_kept_request_stay_never_indexed(rig):
    """weir reads the content before it chooses the rule, and the server refuses the first try."""
    def script(connection, _number):
        connection.next_request().rst(REFUSED_STREAM)
        request = connection.next_request()
        server.record(request)
        request.read_all()
        request.respond()
    server = Http2Server(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [server.text], "protocol": "http2"}},
                    rules=[{"match": {"json": {"model": "a"}}, "limits": "none"}])
    with Http2(weir.address) as client:
        stream = client.put_headers([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("host", "api.test", True),
                                     ("x-token", "2", True), ("x-plain", "1"), ("content-type", "application/json")], end=False)
        assert client.responds_to_ping()  # the header waits for the content
        client.send_body(stream, b'{"model": "a"}')
        assert client.response(stream).status == 200
    names = never_indexed(server.next_recorded().fields)
    assert {"x-token", ":authority"} <= set(names) and "x-plain" not in names
    weir.counts(1, "weir_upstream_retries_total", cause="refused")


def test_an_upgrade_is_not_forwarded(rig):
    def script(connection, _number):
        request = connection.next_request()
        server.record(request)
        request.respond(b"", 426)
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    response = get(weir.address, headers=[("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")])
    assert response.status == 426
    assert server.next_recorded()["upgrade"] is None


def test_large_content_in_both_directions(rig):
    """Through a real nginx as the HTTP/2 server, in front of the test's upstream."""
    port = free_port()
    rig.write("nginx.conf", f"""daemon off; master_process off; pid {rig.directory}/nginx.pid; error_log stderr; events {{}}
        http {{ access_log off; client_body_temp_path {rig.directory}; proxy_temp_path {rig.directory}; client_max_body_size 0;
          fastcgi_temp_path {rig.directory}; uwsgi_temp_path {rig.directory}; scgi_temp_path {rig.directory};
          server {{ listen 127.0.0.1:{port} http2; location / {{ proxy_pass http://{rig.upstream().text}; }} }} }}""")
    Process(rig, "nginx", [shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-c", f"{rig.directory}/nginx.conf"])
    eventually(lambda: accepts(port))
    weir = weir_before(rig, f"127.0.0.1:{port}")
    size = 3000000
    for response in gather(lambda _: get(weir.address, f"/bytes/{size}"), 4):
        assert len(response.body) == size
    assert len(get(weir.address, f"/chunked/{size}").body) == size
    body = os.urandom(size)
    assert get(weir.address, "/body", method="POST", body=body).status == 200
    with Http2(weir.address) as client:
        streams = [client.start(f"/bytes/{size}") for _ in range(4)]
        assert [len(client.response(s).body) for s in streams] == [size] * 4
    assert weir.metric("weir_upstream_connections_opened_total") <= 2
    assert weir.metric("weir_upstream_http2_errors_total") == 0


# --- streams and connections ---

def test_requests_share_a_connection(rig):
    def script(connection, _number):
        requests = [connection.next_request() for _ in range(20)]
        for request in reversed(requests):
            request.respond(request[":path"].encode())
        connection.next_request()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    responses = gather(lambda n: get(weir.address, f"/{n}"), 20)
    assert sorted(r.body for r in responses) == sorted(b"/%d" % n for n in range(20))
    assert server.accepted == 1


def test_a_full_connection_opens_another_one(rig):
    """The server allows two streams: five concurrent requests need three connections."""
    all_received = threading.Barrier(5)

    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            threading.Thread(target=respond_when_all_received, args=(request,), daemon=True).start()

    def respond_when_all_received(request):
        all_received.wait(20)
        request.respond()
    server = Http2Server(rig, script, settings=[(MAX_CONCURRENT_STREAMS, 2)])
    weir = weir_before(rig, server)
    assert [r.status for r in gather(lambda n: get(weir.address), 5)] == [200] * 5
    assert server.accepted == 3


def test_a_lowered_stream_limit_applies_at_once(rig):
    def script(connection, number):
        request = connection.next_request()
        if number == 0:
            connection.put(SETTINGS, payload=struct.pack(">HI", MAX_CONCURRENT_STREAMS, 0))
        request.respond()
        while (request := connection.next_request()) is not None:
            server.record(number)
            request.respond()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    assert [get(weir.address).status for _ in range(3)] == [200] * 3
    assert server.next_recorded() == 1 and server.accepted == 2


def test_a_server_that_allows_no_stream(rig):
    """weir makes one connection and waits for new SETTINGS."""
    server = Http2Server(rig, respond_to_requests, settings=[(MAX_CONCURRENT_STREAMS, 0)])
    weir = weir_before(rig, server, upstream={"connect_timeout": "300ms"})
    began = time.monotonic()
    assert get(weir.address).status == 504
    eventually(lambda: server.accepted, what="the connection")
    # 1 s after the failure, weir probes the server
    assert server.accepted <= 1 + int(time.monotonic() - began)
    weir.counts(1, "weir_errors_total", cause="upstream_connect_timeout")
    eventually(lambda: "no HTTP/2 SETTINGS that allow a stream within connect_timeout" in weir.output())


def test_a_header_list_that_the_server_does_not_permit(rig):
    """Servers close the connection because of it, and with it the streams of other clients."""
    server = Http2Server(rig, respond_to_requests, settings=[(MAX_HEADER_LIST_SIZE, 2000)])
    weir = weir_before(rig, server)
    large = {"X-Large": "x" * 1900}
    assert get(weir.address).status == 200
    assert get(weir.address, headers=large).status == 431
    assert get(weir.address, method="POST", headers=large, body=b"x" * 200000).status == 431
    with Http2(weir.address) as client:
        stream = client.start(method="POST", fields=[("x-large", "x" * 1900)], end=False)
        assert client.response(stream).status == 431
        assert client.get(fields=[("x-small", "x" * 500)]).status == 200
    assert server.accepted == 1
    weir.counts(3, "weir_errors_total", cause="request_header_too_large")
    weir.counts(0, "weir_requests_active")


def test_a_header_list_that_the_server_just_permits(rig):
    """The size is that of RFC 9113 section 6.5.2, of all fields that weir sends."""
    limit, sizes = 2000, []

    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            sizes.append(sum(len(name) + len(value) + 32 for name, value in request.fields))
            request.respond()
    weir = weir_before(rig, Http2Server(rig, script, settings=[(MAX_HEADER_LIST_SIZE, limit)]))
    for te in [], [("te", "trailers")]:
        sizes.clear()
        with Http2(weir.address) as client:
            assert client.get(fields=[*te, ("x-large", "")]).status == 200
            room = limit - sizes.pop()
            statuses = [client.get(fields=[*te, ("x-large", "x" * (room + n))]).status for n in range(-8, 60)]
        assert statuses[0] == 200 and statuses[-1] == 431, statuses
        assert sizes and limit - 8 <= max(sizes) <= limit, (te, sizes)


def test_a_server_that_allows_streams_late(rig):
    def script(connection, number):
        asked.wait(20)
        connection.put(SETTINGS, payload=struct.pack(">HI", MAX_CONCURRENT_STREAMS, 10))
        respond_to_requests(connection, number)
    asked, server = threading.Event(), Http2Server(rig, script, settings=[(MAX_CONCURRENT_STREAMS, 0)])
    weir = weir_before(rig, server)
    with Connection(weir.address) as client:
        client.send(request_bytes("/"))
        eventually(lambda: server.accepted == 1)
        asked.set()
        assert client.response().status == 200
    assert server.accepted == 1


def test_a_server_that_goes_away_at_once(rig):
    """A GOAWAY follows the SETTINGS: weir tries another server, and not another connection."""
    def script(peer, _number):
        peer.send(frame(SETTINGS) + frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))
        while peer.socket.recv(65536):
            pass
    leaving, other = Scripted(rig, script), Http2Server(rig, respond_to_requests)
    alone = weir_before(rig, leaving)
    assert_problem(alone, 502, "upstream_connect")
    assert leaving.accepted and alone.metric("weir_upstream_retries_total") == 0
    weir, began = weir_before(rig, leaving, other), time.monotonic()
    assert [get(weir.address).status for _ in range(4)] == [200] * 4
    # 1 s after a failure, weir probes the server
    assert weir.metric("weir_upstream_retries_total") <= 1 + int(time.monotonic() - began)


def test_a_client_that_disconnects_resets_its_stream(rig):
    def script(connection, _number):
        request = connection.next_request()
        server.record(request)
        connection.read_until(lambda: request.reset is not None)
        server.record(request.reset)
        respond_to_requests(connection, 0)
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    with Connection(weir.address) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        server.next_recorded()
    assert server.next_recorded() == CANCEL
    assert get(weir.address).status == 200 and server.accepted == 1


# --- flow control ---

def test_a_client_that_does_not_read_stalls_only_its_own_stream(rig):
    """weir buffers at most one window of a response, and forwards the server's other responses."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            if request[":path"] != "/large":
                request.respond()
                continue
            request.head()
            while connection.window and (connection.windows[request.stream] or
                                         connection.read_until(lambda: connection.windows[request.stream] or connection.new)):
                if not connection.send_as_windows_permit(request, 1 << 30):
                    break  # continues with the next request
                sent[0] += 1
    sent = [0]
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, timeouts={"send": "1m"})
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with client:
        client.connect(weir.address)
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: sent[0])
        before = weir.resident_kib()
        assert [get(weir.address).status for _ in range(20)] == [200] * 20
        assert weir.resident_kib() - before < 10000
    assert server.accepted == 1


def test_uploads_share_the_window_of_the_connection(rig):
    """Each client always has content to send. None may keep the others from the server."""
    def script(connection, _number):
        def received():
            return [len(request.body) for request in connection.requests.values()]
        connection.hold = True
        connection.read_until(lambda: len(received()) == 4)
        connection.release()
        begun = sum(received())
        connection.read_until(lambda: min(received()) >= 100000 or sum(received()) - begun > 6000000)
        server.record(received())
        stop.set()
        connection.read_until(lambda: False)

    def upload():
        with connect(weir.address) as client:
            # the kernel has content of each, also if its thread does not run
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + bytes(200000))
            while not stop.is_set():
                client.sendall(bytes(65536))
    stop = threading.Event()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    clients = [threading.Thread(target=upload) for _ in range(4)]
    for client in clients:
        client.start()
    received = server.next_recorded()
    for client in clients:
        client.join()
    assert len(received) == 4 and min(received) >= 100000, received


def test_a_window_of_one_byte(rig):
    server = Http2Server(rig, respond_to_requests, settings=[(INITIAL_WINDOW_SIZE, 1)])
    weir = weir_before(rig, server)
    assert get(weir.address, method="POST", body=b"0123456789").status == 200


def test_a_server_that_does_not_read_stops_the_client(rig):
    """The client can send only as much as the server's window permits."""
    def script(connection, _number):
        request = connection.next_request()
        connection.read_until(lambda: len(request.body) == 65535)
        server.record(request)
        assert answer_now.wait(20)
        request.respond(b"early")
        connection.next_request()
    answer_now = threading.Event()
    server = Http2Server(rig, script, hold=True)
    weir = weir_before(rig, server)
    with Http2(weir.address) as client:
        stream = client.start("/", method="POST", end=False)
        client.send_body(stream, b"x" * 65535, end=False)
        server.next_recorded()
        answer_now.set()
        response = client.streams[stream]
        client.read_until(lambda: response.ended or response.reset is not None)
        assert response.body == b"early"


# --- the end of connections ---

def test_goaway_loses_no_request(rig):
    """Requests after the last stream were not processed and are sent on another connection, with
    any method."""
    def script(connection, number):
        if number:
            respond_to_requests(connection, number)
            return
        requests = [connection.next_request() for _ in range(6)]
        connection.go_away(requests[2].stream)
        for request in requests[:3]:
            request.respond(b"old")
        while connection.read_frame():
            pass
        server.record(connection)
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    responses = gather(lambda n: get(weir.address, f"/{n}", method="POST" if n % 2 else "GET"), 6)
    assert sorted(r.body for r in responses) == [b"ok"] * 3 + [b"old"] * 3
    server.next_recorded()  # weir has closed the old connection
    assert server.accepted == 2
    weir.counts(3, "weir_upstream_retries_total", cause="going_away")


def test_graceful_shutdowns_under_load_fail_no_request(rig):
    """A server that restarts all the time: every connection ends gracefully after ten requests. No
    request fails, not even with content."""
    def script(connection, _number):
        for n in range(10):
            request = connection.next_request()
            if request is None:
                return
            if n == 9:
                connection.go_away(request.stream)
            request.respond(request.read_all())
        while connection.read_frame():
            pass
    weir = weir_before(rig, Http2Server(rig, script), upstream={"retry": {"tries": 5}})
    with Http2(weir.address) as one, Http2(weir.address) as two:
        for _ in range(10):
            streams = [(client, client.start(method="POST", end=False)) for client in (one, two) for _ in range(10)]
            for client, stream in streams:
                client.send_body(stream, b"content of %d" % stream)
            for client, stream in streams:
                assert client.response(stream).body == b"content of %d" % stream


def test_a_refused_stream_is_sent_again(rig):
    def script(connection, _number):
        refused = 0
        while (request := connection.next_request()) is not None:
            if refused < 2:
                refused += 1
                request.rst(REFUSED_STREAM)
            else:
                request.respond()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, upstream={"retry": {"tries": 3}})
    assert get(weir.address, method="POST").status == 200
    assert server.accepted == 1
    weir.counts(2, "weir_upstream_retries_total", cause="refused")


def refuse_once(refuse):
    """A script that calls `refuse(connection, request)` for the first request of each path, after
    it has read it completely. It responds to further requests of the path with their content."""
    refused = set()

    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.read_all()
            if request[":path"] in refused:
                request.respond(request.body)
            else:
                refused.add(request[":path"])
                refuse(connection, request)
    return script


def send_content(weir, contents):
    """Sends each content with a length, in chunks, and in an HTTP/2 stream of unknown length.
    Yields the content and what the server received."""
    with Connection(weir.address) as client, Http2(weir.address) as client2:
        for n, content in enumerate(contents):
            yield content, client.request(f"/{n}", method="POST", body=content).body
            client.send(request_bytes(f"/{n}/chunked", "POST", {"Transfer-Encoding": "chunked"}) + chunked(content))
            yield content, client.response("POST").body
            stream = client2.start(f"/{n}/stream", method="POST", end=False)
            client2.send_body(stream, content)
            yield content, client2.response(stream).body


KEPT = 65536  # content that weir buffers to send it again after a refusal


def test_content_of_a_refused_request_is_sent_again(rig):
    """The server refuses a request after it has read all of it."""
    server = Http2Server(rig, refuse_once(lambda _, request: request.rst(REFUSED_STREAM)))
    weir = weir_before(rig, server, upstream={"retry": {"tries": 2, "budget_min": 100}})
    contents = b"", b"short", os.urandom(4097), os.urandom(KEPT)
    for sent, received in send_content(weir, contents):
        assert received == sent, (len(sent), len(received))
    weir.counts(3 * len(contents), "weir_upstream_retries_total", cause="refused")
    assert server.accepted == 1


def test_a_refused_request_is_charged_once(rig):
    server = Http2Server(rig, refuse_once(lambda _, request: request.rst(REFUSED_STREAM)))
    weir = rig.weir(upstreams={"api": {"servers": [server.text], "protocol": "http2"}},
                    limits={"a": {"script": "fixed_window", "limit": 10, "period": "1d"}})
    for n in range(3):
        response = get(weir.address, f"/{n}", method="POST", body=b"content")
        assert response.body == b"content" and response.number("X-RateLimit-Remaining") == 9 - n
    weir.counts(3, "weir_upstream_retries_total", cause="refused")


def test_content_before_goaway_is_sent_again(rig):
    """The server closes the connection with GOAWAY: none of its requests were processed."""
    server = Http2Server(rig, refuse_once(lambda connection, _: connection.go_away(0)))
    weir = weir_before(rig, server)
    contents = b"short", os.urandom(KEPT)
    for sent, received in send_content(weir, contents):
        assert received == sent, (len(sent), len(received))
    weir.counts(3 * len(contents), "weir_upstream_retries_total", cause="going_away")


def test_content_continues_after_a_refusal(rig):
    """The server refuses the request after the first part. The second part arrives after the retry
    has started."""
    first, second = os.urandom(3000), os.urandom(100000)

    def script(connection, _number):
        for refuse in (True, False):
            request = connection.next_request()
            connection.read_until(lambda: len(request.body) == len(first))
            if refuse:
                request.rst(REFUSED_STREAM)
            else:
                server.record("retry")
                request.respond(hashlib.sha256(request.read_all()).digest())
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    with Connection(weir.address) as client:
        client.send(request_bytes("/", "POST", {"Content-Length": len(first + second)}) + first)
        assert server.next_recorded() == "retry"
        client.send(second)
        assert client.response("POST").body == hashlib.sha256(first + second).digest()


def test_content_length_is_checked_after_a_refusal(rig):
    def script(connection, _number):
        request = connection.next_request()
        connection.read_until(lambda: request.body == b"x" * 60)
        request.rst(REFUSED_STREAM)
        request = connection.next_request()
        connection.read_until(lambda: request.body == b"x" * 60)
        server.record("retry")
        request.read_all()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, size_limits={"request_body": 100})
    with Connection(weir.address) as client:
        client.send(request_bytes("/", "POST", {"Transfer-Encoding": "chunked"}) + b"3c\r\n" + b"x" * 60 + b"\r\n")
        assert server.next_recorded() == "retry"
        client.send(b"3c\r\n" + b"x" * 60 + b"\r\n")
        assert client.response("POST").status == 413


def test_requests_beyond_the_buffer_are_not_sent_again(rig):
    """Content larger than the buffer, and content with trailers."""
    refused = []

    def refuse(_, request):
        refused.append(request[":path"])
        request.rst(REFUSED_STREAM)
    weir = weir_before(rig, Http2Server(rig, refuse_once(refuse)))
    assert get(weir.address, "/large", method="POST", body=os.urandom(KEPT + 1)).status == 502
    with Http2(weir.address) as client:
        stream = client.start("/trailers", method="POST", end=False)
        client.send_body(stream, b"content", end=False)
        client.put_headers([("x-checksum", "1")], stream)
        client.flush()
        assert client.response(stream).status == 502
    assert refused == ["/large", "/trailers"]
    weir.counts(0, "weir_upstream_retries_total", cause="refused")


def test_retries_of_refused_streams_count_against_the_budget(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.rst(REFUSED_STREAM)
    weir = weir_before(rig, Http2Server(rig, script), upstream={"retry": {"tries": 10, "budget": "0%", "budget_min": 4}})
    assert get(weir.address).status == 502
    weir.counts(4, "weir_upstream_retries_total", cause="refused")
    weir.counts(1, "weir_upstream_retries_over_budget_total")


def test_a_refused_stream_is_not_repeated_as_if_the_connection_was_lost(rig):
    requests = []

    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            requests.append(request)
            request.rst(REFUSED_STREAM)
    weir = weir_before(rig, Http2Server(rig, script), upstream={"retry": {"tries": 1}})
    assert [get(weir.address).status for _ in range(3)] == [502] * 3
    assert len(requests) == 3 and not weir.metric("weir_upstream_retries_total", cause="idle_closed")


def test_a_request_that_has_waited_is_repeated_after_a_lost_connection(rig):
    """The second request of a connection is sent once more on a new one, also if it waited for the first."""
    requests_wait = threading.Event()
    rig.add_cleanup(requests_wait.set)

    def script(peer, number):
        assert number or requests_wait.wait(20)
        connection = Http2Peer(peer)
        requests = [connection.next_request() for _ in range(1 if number else 2)]
        if number:
            requests[0].respond()
    weir = weir_before(rig, Scripted(rig, script))
    clients = [Connection(weir.address).send(request_bytes("/")) for _ in range(2)]
    weir.counts(2, "weir_requests_active")
    requests_wait.set()
    assert sorted(client.response().status for client in clients) == [200, 502]
    weir.counts(1, "weir_upstream_retries_total", cause="idle_closed")


def test_after_a_lost_connection_only_idempotent_requests_are_sent_again(rig):
    """A GET is sent to another server. A POST is not, because the server may have processed it."""
    def script(connection, _number):
        connection.next_request()
    broken_server = Http2Server(rig, script)
    good = Http2Server(rig, respond_to_requests)
    weir = weir_before(rig, broken_server, good)
    assert [get(weir.address).status for _ in range(4)] == [200] * 4
    weir.counts(broken_server.accepted, "weir_upstream_retries_total", cause="reset")
    assert sorted(get(weir.address, method="POST").status for _ in range(2)) == [200, 502]


def test_whole_content_of_an_idempotent_request_is_sent_again(rig):
    """weir keeps the content of requests to HTTP/2 servers, and can repeat a PUT that a server has read."""
    got = []

    def script(broken):
        def respond(connection, _number):
            while (request := connection.next_request()) is not None:
                request.read_all()
                got.append((request[":method"], request.body))
                if broken:
                    return
                request.respond()
        return Http2Server(rig, respond)
    weir = weir_before(rig, script(True), script(False))
    body = bytes(range(256)) * 16
    assert [get(weir.address, method="PUT", body=body).status for _ in range(2)] == [200] * 2
    assert set(got) == {("PUT", body)} and len(got) == 3, [(method, len(content)) for method, content in got]
    assert sorted(get(weir.address, method="POST", body=body).status for _ in range(2)) == [200, 502]


def test_a_server_that_stops_responding_is_detected_by_ping(rig):
    """Its connection stays open, but it sends nothing: weir sends a PING, and then closes the
    connection."""
    over = threading.Event()

    def script(connection, _number):
        connection.next_request().respond()
        connection.next_request()
        over.wait(20)
    gone, good = Http2Server(rig, script), Http2Server(rig, respond_to_requests)
    # A third of it is the deadline of a PING, which the good server must meet on a busy machine.
    weir = weir_before(rig, gone, good, upstream={"response_timeout": "6s", "retry": {"tries": 2, "budget_min": 100}})
    assert [get(weir.address).status for _ in range(6)] == [200] * 6
    weir.counts(1, "weir_upstream_http2_errors_total", cause="no_ping_response")
    weir.wait_for_output(re.escape(f"server {gone.text}: HTTP/2 connection closed: no response to a PING"))
    over.set()


def test_a_slow_server_that_acknowledges_pings_is_kept(rig):
    """One PING per silent period: gRPC servers close connections with unnecessary PINGs."""
    def script(connection, _number):
        request = connection.next_request()
        connection.read_until(lambda: connection.pings == 1)
        request.head(200)
        connection.read_until(lambda: connection.pings == 2)
        request.data(b"slow", end=True)
        connection.next_request()
    weir = weir_before(rig, Http2Server(rig, script), upstream={"response_timeout": "6s"})
    assert get(weir.address).body == b"slow"
    weir.counts(0, "weir_upstream_http2_errors_total", cause="no_ping_response")


def test_a_stream_reset_cuts_the_response(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.respond(b"part", end=False)
            request.rst(INTERNAL_ERROR)
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    try:
        get(weir.address)
        raise AssertionError("a truncated response is marked as complete")
    except IncompleteResponse:
        pass
    with Http2(weir.address) as client:
        stream = client.start()
        client.read_until(client.streams[stream].over)
        assert client.streams[stream].reset is not None and not client.streams[stream].ended
    assert server.accepted == 1
    eventually(lambda: "the server reset the stream: INTERNAL_ERROR" in weir.output())


def test_a_stream_without_a_response_times_out_alone(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            if request[":path"] == "/silent":
                server.record(request)
            else:
                request.respond()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, upstream={"response_timeout": "6s"})
    with Http2(weir.address) as client:
        silent = client.start("/silent")
        request = server.next_recorded()
        assert client.get("/").status == 200
        assert client.response(silent).status == 504
        assert client.get("/").status == 200
    assert server.accepted == 1 and request.peer is not None
    weir.counts(1, "weir_errors_total", cause="upstream_timeout")


def test_a_stream_without_response_beside_other_input(rig):
    """Unread input of the connection extends the deadline only once."""
    def script(connection, _number):
        server.record(connection)
        while connection.next_request() is not None:
            pass
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, upstream={"response_timeout": "3s"})
    with Connection(weir.address) as client:
        client.send(request_bytes("/"))
        connection = server.next_recorded()
        for _ in range(6):
            weir.signal(signal.SIGSTOP)
            time.sleep(3.1)  # the deadline passes
            try:
                connection.put(PING, 0, 0, b"unread  ")
            except OSError:  # closed: the worker noticed the last deadline after the metrics were read
                break
            finally:
                weir.signal(signal.SIGCONT)
            get(weir.admin, "/healthz", host="127.0.0.1")
            if weir.metric("weir_errors_total", cause="upstream_timeout"):
                break
        else:
            raise AssertionError("the deadline was extended six times")
        assert client.response().status == 504


def test_after_a_timeout_a_silent_server_gets_a_new_connection(rig):
    def script(connection, number):
        if number:
            respond_to_requests(connection, number)
        while connection.read_frame():
            pass
    server = Http2Server(rig, script)
    # A third of it is the deadline of a PING, which this server must meet on a busy machine.
    weir = weir_before(rig, server, upstream={"response_timeout": "6s"})
    assert get(weir.address).status == 504
    assert get(weir.address).status == 200
    assert server.accepted == 2, server.accepted


# --- servers that violate the protocol ---

MALFORMED = {
    "no status": [("x-one", "1")],
    "two statuses": [(":status", "200"), (":status", "200")],
    "a status after a field": [("x-one", "1"), (":status", "200")],
    "status 99": [(":status", "99")],
    "status 101": [(":status", "101")],
    "a request pseudo-header": [(":status", "200"), (":path", "/")],
    "an upper-case name": [(":status", "200"), ("X-One", "1")],
    "a connection-specific field": [(":status", "200"), ("connection", "close")],
    "Transfer-Encoding": [(":status", "200"), ("transfer-encoding", "chunked")],
    "two lengths": [(":status", "200"), ("content-length", "2"), ("content-length", "3")],
    "a line break in a value": [(":status", "200"), ("x-one", "1\r\nx-two: 2")],
}


def test_malformed_responses_reset_only_their_stream(rig):
    """Other streams on the connection continue."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            name = request[":path"][1:].replace("%20", " ")
            if name in MALFORMED:
                request.raw_head(MALFORMED[name], end=True)
            elif name == "less than its length":
                request.respond(b"less", fields=[("content-length", "5")])
            elif name == "more than its length":
                request.respond(b"more and more", fields=[("content-length", "5")])
            else:
                request.respond()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, http2={"resets_per_second": 1000})
    for name in MALFORMED:
        response = get(weir.address, "/" + name.replace(" ", "%20"))
        assert response.status == 502, name
        assert get(weir.address).status == 200, name
    for name in ("less than its length", "more than its length"):
        try:
            assert get(weir.address, "/" + name.replace(" ", "%20")).status == 502, name
        except IncompleteResponse:
            pass
        assert get(weir.address).status == 200, name
    assert server.accepted == 1
    weir.counts(len(MALFORMED) + 2, "weir_upstream_http2_errors_total", cause="malformed")
    weir.counts(len(MALFORMED) + 2, "weir_errors_total", cause="upstream_bad_response")


def assert_connection_error(rig, cause, send):
    """The server violates a connection-level rule: the request fails, the connection is closed, and
    the cause is counted and logged."""
    def script(connection, number):
        request = connection.next_request()
        if number:
            request.respond()
        else:
            send(connection, request)
        while connection.read_frame():
            pass
    server = Http2Server(rig, script)
    weir = weir_before(rig, server, upstream={"retry": {"on": []}})
    assert_problem(weir, 502, "upstream_bad_response")
    assert get(weir.address).status == 200
    weir.counts(1, "weir_upstream_http2_errors_total", cause=cause)
    weir.wait_for_output(f"server {server.text}: HTTP/2 connection closed")


def test_a_frame_on_the_wrong_stream_is_a_connection_error(rig):
    assert_connection_error(rig, "protocol_error", lambda connection, request: connection.put(DATA, 0, 0, b"on stream 0"))


def test_a_push_promise_is_a_connection_error(rig):
    assert_connection_error(rig, "protocol_error", lambda connection, request: connection.put(PUSH_PROMISE, 4, request.stream, struct.pack(">I", 2)))


def test_a_huge_header_list_is_refused(rig):
    """An HPACK bomb: one byte expands to 4,000."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            block = connection.encoder.encode([(":status", "200"), ("x-bomb", "x" * 3000)])
            connection.put(HEADERS, 4, request.stream, block + b"\xbe" * 10000)
    weir = weir_before(rig, Http2Server(rig, script))
    assert get(weir.address).status == 502
    weir.counts(1, "weir_upstream_http2_errors_total", cause="header_list")


def flood(kind, payload=b"", flags=0):
    def send(connection, request):
        try:
            for _ in range(300):
                connection.peer.socket.sendall((len(payload).to_bytes(3, "big") + bytes((kind, flags)) + bytes(4) + payload) * 100)
        except OSError:
            pass
    return send


def test_a_flood_of_pings_is_a_connection_error(rig):
    assert_connection_error(rig, "pings", flood(PING, b"12345678"))


def test_a_flood_of_settings_is_a_connection_error(rig):
    assert_connection_error(rig, "settings", flood(SETTINGS))


def test_an_http1_server_is_ejected(rig):
    """The server does not send SETTINGS, so no request was sent. weir ejects it, as it does after a
    refused connection."""
    good = Http2Server(rig, respond_to_requests)
    weir = weir_before(rig, Scripted(rig, respond_to_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")), good)
    assert [get(weir.address, method="POST", body=b"x").status for _ in range(4)] == [200] * 4
    weir.counts(1, "weir_upstream_ejections_total", reason="connect")


# --- TLS and ALPN ---

class SecureHttp2(TlsServer):
    """A server that offers these protocols by ALPN and uses the negotiated one."""

    def __init__(self, rig, protocols):
        def chosen(_number):
            tls_context = context()
            tls_context.set_alpn_protocols(protocols)
            return tls_context

        def script(peer, number):
            if peer.socket.selected_alpn_protocol() == "h2":
                respond_to_requests(Http2Peer(peer), number)
            else:
                respond_to_all()(peer, number)
        super().__init__(rig, script, chosen)


def test_protocol_auto_uses_alpn(rig):
    for protocols in (["h2", "http/1.1"], ["http/1.1"]):
        server = SecureHttp2(rig, protocols)
        weir = weir_before(rig, server, protocol="auto", upstream={"tls": {"ca": CA}})
        assert [r.status for r in gather(lambda n: get(weir.address), 6)] == [200] * 6
        assert [get(weir.address).status for _ in range(4)] == [200] * 4
        assert not server.failures
        if protocols[0] == "h2":
            assert server.accepted == 1
        else:
            assert server.accepted <= 6


def test_protocol_http2_requires_alpn_h2(rig):
    weir = weir_before(rig, SecureHttp2(rig, ["http/1.1"]), upstream={"tls": {"ca": CA}})
    assert_problem(weir, 502, "upstream_tls")
    weir.wait_for_output(r"the server does not offer HTTP/2 \(ALPN h2\)")


def test_a_server_that_closes_before_its_settings_gets_one_more_try(rig):
    class Restarting(Http2Server):
        def serve(self, peer, number):
            return super().serve(peer, number) if number >= self.until else peer.close()
    for until, status in (1, 200), (2, 502):
        server = Restarting(rig, respond_to_requests)
        server.until = until
        assert get(weir_before(rig, server).address, method="POST", body=b"12345").status == status
        assert server.accepted == 2


def test_health_checks_use_http2(rig):
    """With and without TLS. A server that fails its checks gets no requests."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            if request[":path"] == "/healthz":
                server.record(request[":authority"])
                request.respond(status=503 if is_unhealthy.is_set() else 200)
            else:
                request.respond()
    is_unhealthy = threading.Event()
    server = Http2Server(rig, script)
    health = {"path": "/healthz", "interval": "20ms", "timeout": "20s", "unhealthy": 1, "healthy": 1, "host": "health.test"}
    weir = weir_before(rig, server, upstream={"health": health})
    assert server.next_recorded() == "health.test"
    assert get(weir.address).status == 200
    is_unhealthy.set()
    eventually(lambda: get(weir.address).status == 503)
    weir.wait_for_output("health check: status 503")
    is_unhealthy.clear()
    eventually(lambda: get(weir.address).status == 200)
    http1 = SecureHttp2(rig, ["http/1.1"])
    weir = weir_before(rig, http1, upstream={"health": health, "tls": {"ca": CA}})
    eventually(lambda: "health check: it does not offer HTTP/2 (ALPN h2)" in weir.output())
    weir = weir_before(rig, SecureHttp2(rig, ["h2"]), upstream={"health": health, "tls": {"ca": CA}})
    assert get(weir.address).status == 200
    assert "health check" not in weir.output()
