"""HTTP/2 servers: reloads, responses that end with RST_STREAM, requests that are sent again."""

import socket
import struct
import threading

from http2_server import Http2Peer, Http2Server, respond_to_requests
from http2_wire import ACK, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, NO_ERROR, PING, REFUSED_STREAM, WINDOW_UPDATE, Http2
from rig import eventually, free_port
from scripted import Peer, Scripted, respond_to_all
from tls_server import CA, TlsServer, context
from wire import Connection, IncompleteResponse, get, request_bytes, run_in_threads


def weir_before(rig, *servers, protocol="http2", **upstream):
    texts = [s if isinstance(s, str) else s.text for s in servers]
    weir = rig.weir(workers=1, upstreams={"api": {"servers": texts, "protocol": protocol, **upstream}}, rules=[])
    weir.expect_errors("upstream|server")
    return weir


# --- reloads ---

def test_requests_that_wait_for_a_connection_survive_a_reload(rig):
    """The connection opens after the reload, and has no stream until the waiting requests get it."""
    gate = threading.Event()
    rig.add_cleanup(gate.set)

    def script(peer, number):
        gate.wait()
        respond_to_requests(Http2Peer(peer), number)
    server = Scripted(rig, script)
    weir = weir_before(rig, server)
    statuses = []
    clients = threading.Thread(target=run_in_threads, args=(lambda _: statuses.append(get(weir.address).status), 8))
    clients.start()
    eventually(lambda: weir.metric("weir_requests_active") == 8 and server.accepted, what="the requests")
    weir.reload(log={"access": "off", "level": "info"})
    gate.set()
    clients.join()
    assert statuses == [200] * 8
    assert server.accepted <= 2, "no connection was dialed in vain"
    eventually(lambda: weir.metric("weir_upstream_connections") == 0, what="the close of the old connection")


# --- RST_STREAM(NO_ERROR) ---

def ends_by_reset(code=NO_ERROR, fields=(), body=b"x" * 50000):
    """Sends a response without END_STREAM, and resets the stream."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.head(200, fields)
            if request[":method"] != "HEAD" and body:
                request.data(body)
            request.rst(code)
    return script


def both_protocols(weir, method="GET"):
    """The content of two responses; None: incomplete."""
    bodies = []
    try:
        response = get(weir.address, method=method)
        assert response.status == 200
        bodies.append(response.body)
    except IncompleteResponse:
        bodies.append(None)
    with Http2(weir.address) as client:
        stream = client.start("/", method=method)
        client.read_until(lambda: client.streams[stream].over())
        got = client.streams[stream]
        bodies.append(got.body if got.ended else None)
    return bodies


def test_no_error_ends_a_response_without_content_length(rig):
    for body in b"x" * 50000, b"":
        weir = weir_before(rig, Http2Server(rig, ends_by_reset(body=body)))
        assert both_protocols(weir) == [body] * 2
        assert weir.metric("weir_errors_total", cause="upstream_closed") == 0


def test_no_error_ends_a_response_with_all_of_its_content(rig):
    weir = weir_before(rig, Http2Server(rig, ends_by_reset(fields=[("content-length", "50000")])))
    assert both_protocols(weir) == [b"x" * 50000] * 2
    assert both_protocols(weir, "HEAD") == [b""] * 2
    assert weir.metric("weir_errors_total", cause="upstream_closed") == 0


def test_no_error_does_not_complete_a_response_whose_content_is_too_short(rig):
    weir = weir_before(rig, Http2Server(rig, ends_by_reset(fields=[("content-length", "50001")])))
    assert both_protocols(weir) == [None] * 2
    weir.counts(2, "weir_errors_total", cause="upstream_closed")


def test_other_codes_do_not_complete_a_response(rig):
    weir = weir_before(rig, Http2Server(rig, ends_by_reset(INTERNAL_ERROR)))
    assert both_protocols(weir) == [None] * 2
    weir.counts(2, "weir_errors_total", cause="upstream_closed")


def test_no_error_before_the_response_is_a_failure(rig):
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.rst(NO_ERROR)
    weir = weir_before(rig, Http2Server(rig, script))
    assert get(weir.address, method="POST").status == 502
    weir.counts(1, "weir_errors_total", cause="upstream_closed")


def test_no_error_ends_a_response_to_a_request_that_is_still_sent(rig):
    """The server does not want the rest of the content."""
    weir = weir_before(rig, Http2Server(rig, ends_by_reset(body=b"enough")))
    with Connection(weir.address) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nx")
        response = client.response()
        assert (response.status, response.body) == (200, b"enough")


def test_no_error_while_the_client_reads_slowly(rig):
    """The last content is still stored when the stream is reset."""
    body = b"x" * 200000

    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.head()
            sent = 0
            while sent < len(body):
                sent += connection.send_as_windows_permit(request, len(body) - sent)
                if sent < len(body) and not connection.read_frame():
                    return
            request.rst(NO_ERROR)
            server.record(request)
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True) as client:
        stream = client.start()
        client.read_until(lambda: client.streams[stream].status)
        for number in stream, 0:
            client.send(WINDOW_UPDATE, 0, number, struct.pack(">I", 2 * len(body)))
        assert client.response(stream).body == body
        server.next_recorded()


# --- interim responses ---

def slow_client(weir):
    """Its connection holds little that it does not read."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    s.connect(weir.address)
    return Peer(s)


def test_a_response_that_is_reset_before_the_client_gets_its_header_is_502(rig):
    """weir stores the final header if the client does not take the interim ones. How many of those the sockets hold is
    not known: with too few, the client gets the header at once; with too many, weir stores no more."""
    reset, interims = threading.Semaphore(0), range(4, 16, 3)

    def script(connection, number):
        request = connection.next_request()
        for _ in range(interims[number]):
            request.head(103, [("link", "x" * 15000)])
        request.head(200, [("content-length", "5")])
        request.rst(INTERNAL_ERROR)
        connection.put(PING, payload=bytes(8))
        while (received := connection.take_frame())[:2] != (PING, ACK):
            connection.apply(*received)
        reset.release()
    weir, answers = weir_before(rig, Http2Server(rig, script)), []
    for number in interims:
        with slow_client(weir) as client:
            client.send(request_bytes())
            assert reset.acquire(timeout=20)
            while (head := client.read_head()).status == 103:
                pass
            answers.append(head.status == 502 and client.read_body(head))
    assert any(b"INTERNAL_ERROR" in body for body in answers if body), answers


# --- many fields ---

def test_a_request_with_the_most_fields_reaches_the_server(rig):
    """With those that weir adds it has more than 128."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            server.record(request)
            request.respond()
    server = Http2Server(rig, script)
    weir = weir_before(rig, server)
    fields = [(f"X-{number}", "1") for number in range(127)]
    assert get(weir.address, headers=fields).status == 200
    assert len(server.next_recorded().fields) > 128
    assert get(weir.address, headers=[*fields, ("X-More", "1")]).status == 431


# --- retries ---

def test_kept_content_behind_a_large_header_is_sent_to_an_http1_server(rig):
    """protocol auto: the server refuses the stream, and speaks HTTP/1.1 on the next connection. The
    header and the kept content together exceed a buffer; check_relay.c has the case that the socket
    does not take them at once."""
    body, names = b"x" * 65536, [f"X-{number}" for number in range(15)]
    received = []

    def chosen(number):
        made = context()
        made.set_alpn_protocols(["h2"] if number == 0 else ["http/1.1"])
        return made

    def script(peer, number):
        if number == 0:
            connection = Http2Peer(peer)
            request = connection.next_request()
            request.read_all()
            connection.go_away(0)
            request.rst(REFUSED_STREAM)
            connection.read_until(lambda: False)
        else:
            head, content = peer.read_request()
            received.append((head, content))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    server = TlsServer(rig, script, chosen)
    policy = {"servers": [server.text], "protocol": "auto", "tls": {"ca": CA}}
    weir = rig.weir(workers=1, upstreams={"api": policy}, rules=[], size_limits={"request_header": "64k"})
    weir.expect_errors("upstream|server")
    fields = [(name, "v" * 3600) for name in names]
    assert get(weir.address, method="POST", body=body, headers=fields).status == 200
    head, content = received[0]
    assert content == body and all(f"{name}: vvv".encode() in head for name in names)


def in_both_orders(servers):
    return servers, servers[::-1]


def test_a_retry_without_a_reachable_server_keeps_the_status_of_the_first(rig):
    """The connection to the second server fails at once (HTTP/1.1) or later (HTTP/2)."""
    def respond(status):
        def script(connection, _number):
            while (request := connection.next_request()) is not None:
                request.respond(b"late", status)
        return script
    for status in 502, 503, 504:
        answer = b"HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\nlate" % status
        http1 = Scripted(rig, respond_to_all(answer)), f"127.0.0.1:{free_port()}"
        http2 = Http2Server(rig, respond(status)), Scripted(rig, lambda peer, _: peer.close())
        for protocol, servers in ("http1", http1), ("http2", http2):
            for order in in_both_orders(servers):
                weir = weir_before(rig, *order, protocol=protocol, retry={"on": ["connect", status]})
                assert [get(weir.address).status for _ in range(4)] == [status] * 4, order


def test_a_retry_without_a_reachable_server_keeps_the_failure_of_the_first(rig):
    def silent(connection, _number):
        connection.read_until(lambda: False)

    def closing(connection, _number):
        connection.next_request()
    for script, status, cause in (silent, 504, "upstream_timeout"), (closing, 502, "upstream_closed"):
        for order in in_both_orders((Http2Server(rig, script), Scripted(rig, lambda peer, _: peer.close()))):
            weir = weir_before(rig, *order, response_timeout="3s", retry={"on": ["connect", "reset", "timeout"]})
            assert get(weir.address).status == status
            weir.counts(1, "weir_errors_total", cause=cause)
