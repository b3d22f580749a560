"""size_limits.memory bounds the buffers of the process. Clients that read are served meanwhile, and
the memory returns to the system afterwards."""

import re
import struct
import time

from http2_server import Http2Server
from http2_wire import DATA, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, SETTINGS, WINDOW_UPDATE, Http2
from queues import queue
from rig import address_of, eventually, sanitized, text_of
from scripted import OK, Scripted
from tls_client import TlsConnection, pair, weir_with_tls
from tunnels import SWITCH, open_tunnel
from wire import Connection, get, request_bytes

MIB = 1024 * 1024
LIMIT = 16 * MIB
MOST = LIMIT * 9 / 8 + MIB / 4
SIZE = 1000000  # of a response
HELLO = b"\x16\x03\x01\x00\x06\x01\x01\xff\x00\x03\x03"  # claims a ClientHello of 128 KiB


def small_weir(rig, **more):
    return rig.weir(workers=1, size_limits={"memory": "16m"}, timeouts={"send": "600s", "request_body": "600s"}, **more)


def stall(weir, streams, path=f"/bytes/{SIZE}"):
    """A client with this many requests whose responses it does not take."""
    client = Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True)
    for _ in range(streams):
        client.put_request(path)
    client.flush()
    return client


def open_windows(client):
    """The client takes everything from now on."""
    client.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fffffff - 65535))
    client.put(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0x7fffffff))
    client.flush()


def exhaust(weir):
    """Stalls responses until weir does not read further ones from the server."""
    return [stall(weir, 100) for _ in range(5)], eventually(
        lambda: weir.metric("weir_responses_paused_total"), what="a paused response")


def used(weir):
    return weir.metric("weir_buffer_memory_bytes")


def test_stalled_responses_are_bounded(rig):
    weir = small_weir(rig)
    assert get(weir.address, f"/bytes/{SIZE}").status == 200
    before = weir.resident_kib()
    assert weir.metric("weir_buffer_memory_max_bytes") == LIMIT
    clients, _ = exhaust(weir)
    assert LIMIT * 0.8 < used(weir) <= MOST
    weir.wait_for_output(r"size_limits.memory is 16 MiB: responses are not read from servers while")
    assert len(get(weir.address, f"/bytes/{5 * SIZE}").body) == 5 * SIZE
    with Http2(weir.address) as honest:
        assert len(honest.get(f"/bytes/{5 * SIZE}").body) == 5 * SIZE
    assert used(weir) <= MOST
    assert sanitized or weir.resident_kib() < before + 28 * 1024
    for client in clients:
        client.socket.close()
    weir.counts(0, "weir_requests_active")
    if not sanitized:  # AddressSanitizer keeps freed memory
        eventually(lambda: weir.resident_kib() < before + 8 * 1024, seconds=10, what="the return of the memory")
    eventually(lambda: used(weir) < MIB)
    weir.wait_for_output("less than 90 % of size_limits.memory again")


def test_handshakes_are_bounded(rig):
    """OpenSSL allocates the memory that eleven bytes claim."""
    weir = weir_with_tls(rig, workers=1, size_limits={"memory": "16m"}, timeouts={"request_header": "60s"})
    with TlsConnection(weir.address) as connection:
        assert connection.request().status == 200
    before = weir.resident_kib()
    waiting = [Connection(weir.address) for _ in range(300)]
    for connection in waiting:
        connection.send(HELLO)
    eventually(lambda: weir.metric("weir_tls_handshake_failures_total", reason="memory_limit") >= 300 - LIMIT // (160 * 1024), what="handshakes that are given up")
    weir.wait_for_output(r"warn  client 127.0.0.1:\d+ on \S+: TLS handshake refused, memory_limit: .*; raise it, or ")
    assert weir.output().count("memory_limit: ") < 10
    assert LIMIT * 0.8 < used(weir) <= MOST
    assert sanitized or weir.resident_kib() < before + 24 * 1024
    for _ in range(5):
        with TlsConnection(weir.address) as honest:
            assert honest.request(f"/bytes/{SIZE}").status == 200
    for connection in waiting:
        connection.close()
    eventually(lambda: used(weir) < MIB)


def test_handshakes_of_admin_listeners_are_bounded(rig):
    """A flood of them resets no requests, and operators can look at a weir without memory."""
    admin = [{"address": "127.0.0.1:0", "hosts": ["api.test"]}, {"address": "127.0.0.1:0", "hosts": ["api.test"], "tls": pair("one")}]
    weir = weir_with_tls(rig, workers=1, size_limits={"memory": "16m"}, admin=admin, timeouts={"request_header": "60s"})
    listener = re.findall(r"admin on (\S+)$", weir.output(), re.M)[1]
    address = address_of(listener)

    def flood(target, count):
        connections = [Connection(target) for _ in range(count)]
        for connection in connections:
            connection.send(HELLO)
        return connections
    connections = flood(address, 60)
    eventually(lambda: weir.metric("weir_tls_handshake_failures_total", reason="displaced", listener=listener) == 44, what="a bound")
    weir.wait_for_output(f"on {listener}: TLS handshake refused, displaced: ")
    assert 2 * MIB <= used(weir) <= 3 * MIB
    with TlsConnection(address) as operator:  # handshakes that do not end keep nobody out
        assert operator.request("/healthz").status == 200
    for connection in connections:
        connection.close()
    eventually(lambda: used(weir) < MIB)
    connections = flood(weir.address, 200)
    eventually(lambda: weir.metric("weir_tls_handshake_failures_total", reason="memory_limit", listener=text_of(weir.address)) >= 80, what="no memory")
    with TlsConnection(address) as operator:
        assert operator.request("/healthz").status == 200
    for connection in connections:
        connection.close()


def test_a_paused_response_continues_when_the_client_reads(rig):
    weir = small_weir(rig)
    clients, before = exhaust(weir)
    late = stall(weir, 20)
    eventually(lambda: weir.metric("weir_responses_paused_total") > before)
    open_windows(late)
    for stream in range(1, 41, 2):
        assert len(late.response(stream).body) == SIZE
    assert used(weir) > LIMIT * 0.8  # the others still stall
    for client in clients:
        client.socket.close()


def test_windows_of_some_bytes_are_used(rig):
    """A response is not held back until a window is large: the client may never open one."""
    weir = small_weir(rig)
    clients, _ = exhaust(weir)
    late = stall(weir, 1, "/bytes/3000")
    for _ in range(3):
        late.send(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1000))
    assert len(late.response(1).body) == 3000
    for client in clients:
        client.socket.close()


def test_headers_do_not_wait_for_windows(rig):
    """A client may open its window only after the header."""
    weir = small_weir(rig)
    clients, _ = exhaust(weir)
    late = stall(weir, 1)
    late.read_until(lambda: late.streams[1].status == 200)
    assert not late.closed
    open_windows(late)
    assert len(late.response(1).body) == SIZE
    for client in clients:
        client.socket.close()


def test_http1_responses_are_paused_and_continue(rig):
    weir = small_weir(rig)
    stalled, _ = exhaust(weir)
    paused = weir.metric("weir_responses_paused_total")
    size = 30 * MIB  # more than sockets hold
    slow = Connection(weir.address).send(request_bytes(f"/bytes/{size}"))
    eventually(lambda: weir.metric("weir_responses_paused_total") > paused)
    assert len(slow.response().body) == size
    for client in stalled:
        client.socket.close()


def test_a_response_header_in_pieces_is_sent_as_received(rig):
    """weir keeps the pieces in a buffer, which it returns while the header is in use. With little
    memory, returned buffers are freed at once."""
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"%d" % n * 500) for n in range(20))

    def script(peer, _number):
        while peer.read_request():
            peer.send(b"HTTP/1.1 204 No Content\r\n" + lines[:4000])
            weir.metric("weir_requests_active")  # meanwhile weir can read
            peer.send(lines[4000:] + b"\r\n")

    weir = small_weir(rig, upstreams={"api": {"servers": [rig.upstream().text]}, "pieces": {"servers": [Scripted(rig, script).text]}},
                      rules=[{"match": {"path": "/pieces"}, "upstream": "pieces"}, {"upstream": "api"}])
    for clients in [], exhaust(weir)[0]:
        for connection in Connection(weir.address), Http2(weir.address):
            with connection:
                response = connection.request("/pieces") if isinstance(connection, Connection) else connection.get("/pieces")
                assert response.status == 204 and all(response[f"x-{n}"] == f"{n}" * 500 for n in range(20)), (len(clients), response)


def test_requests_that_hold_the_most_are_reset(rig):
    """Content of held requests: weir cannot pause anything, so it resets requests."""
    started = time.monotonic()
    weir = small_weir(rig, limits={"slow": queue(limit=650, period="1h", max_delay="1h")},
                      rules=[{"match": {"path": "/slow"}, "limits": ["slow"]}, {}])
    assert get(weir.address, "/slow").status == 200
    modest = Http2(weir.address)
    modest.send_body(modest.start("/slow", method="POST", end=False), bytes(1000))
    clients = []
    for _ in range(40):
        client = Http2(weir.address, hold=True)
        for _ in range(16):
            client.send_body(client.start("/slow", method="POST", end=False), bytes(60000), end=False)
        clients.append(client)
        assert used(weir) <= MOST
    assert eventually(lambda: weir.metric("weir_errors_total", cause="memory_limit")) > 0
    weir.wait_for_output(r"reset \d+ requests that held the most and did not move, most of them of client 127.0.0.1")
    # Content that the kernel still has may fill the memory again for a moment.
    eventually(lambda: len(get(weir.address, f"/bytes/{SIZE}").body) == SIZE, what="a response after the last content")
    assert modest.responds_to_ping() and modest.streams[1].reset is None
    assert any(stream.reset is not None for client in clients if client.responds_to_ping()
               for stream in client.streams.values())
    lines = len(weir.wait_for_output("reset .* requests that held the most"))
    assert lines <= 1 + (time.monotonic() - started) / 10
    for client in [*clients, modest]:
        client.socket.close()


def test_a_steady_reader_is_not_reset(rig):
    """A client that takes its response did not stand still, however long timeouts.send is. Requests
    that hold more, and do not move, are reset before it."""
    weir = small_weir(rig, limits={"slow": queue(limit=650, period="1h", max_delay="1h")},
                      rules=[{"match": {"path": "/slow"}, "limits": ["slow"]}, {}])
    assert get(weir.address, "/slow").status == 200
    reader = Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True)
    stream = reader.start(f"/bytes/{30 * MIB}")

    def take(size):
        got = reader.streams[stream]
        due = len(got.body) + size
        reader.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", size))
        reader.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))
        reader.read_until(lambda: len(got.body) == due or got.reset is not None)
        assert got.reset is None and not reader.closed
    clients = []
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        clients.append(Http2(weir.address, hold=True))
        for _ in range(16):
            clients[-1].send_body(clients[-1].start("/slow", method="POST", end=False), bytes(60000), end=False)
        assert used(weir) <= MOST
        take(10000)
    take(10000)
    for client in [*clients, reader]:
        client.socket.close()


def test_a_tunnel_that_moves_is_not_reset(rig):
    """However old it is."""
    def pour(peer, _number):
        upgrades = b"upgrade" in peer.read_request()[0].lower()
        peer.send(SWITCH if upgrades else OK)
        while upgrades:
            peer.send(bytes(65536))
    weir = small_weir(rig, limits={"slow": queue(limit=650, period="1h", max_delay="1h")},
                      upstreams={"api": {"servers": [Scripted(rig, pour).text]}},
                      rules=[{"match": {"path": "/slow"}, "limits": ["slow"]}, {}],
                      listen=[{"address": "127.0.0.1:0", "tls": pair("one")}, "127.0.0.1:0"])
    secure, plain = weir.addresses
    tunnel = TlsConnection(secure)
    open_tunnel(tunnel)
    eventually(lambda: used(weir) > 60000, what="content that the client does not take")
    assert get(plain, "/slow").status == 200
    clients = []
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        clients.append(Http2(plain, hold=True))
        clients[-1].send_body(clients[-1].start("/slow", method="POST", end=False), bytes(60000), end=False)
        tunnel.read_exactly(100000, "content")
    for _ in range(3000):
        tunnel.read_exactly(10000, "content, more than sockets hold")
    for client in [*clients, tunnel]:
        client.socket.close()


def event_streams(rig):
    """A server whose responses begin and do not end."""
    def script(connection, _number):
        while (request := connection.next_request()) is not None:
            request.head(fields=[("content-type", "text/event-stream")])
    return {"servers": [Http2Server(rig, script, [(MAX_CONCURRENT_STREAMS, 1000)]).text], "protocol": "http2"}


def open_event_streams(weir):
    """100 of them, with the longest log lines: weir escapes each of these characters."""
    client, value = Http2(weir.address), "\u0080" * 512
    streams = [client.put_request(fields=[("user-agent", value), ("referer", value)]) for _ in range(100)]
    client.flush()
    client.read_until(lambda: all(client.streams[stream].status == 200 for stream in streams))
    assert not client.closed
    return client


def test_begun_log_lines_are_small(rig):
    """weir keeps the line of a request until its end."""
    for access in "json", "combined":
        weir = small_weir(rig, upstreams={"api": event_streams(rig)}, rules=[], log={"access": access})
        before = used(weir)
        client = open_event_streams(weir)
        each = (used(weir) - before) / 100
        assert 4096 <= each <= 16 * 1024, f"{each} bytes for an event stream, with log.access {access}"
        client.socket.close()


def test_log_lines_count_when_requests_are_reset(rig):
    """Event streams hold only their log lines, but most of the memory."""
    weir = rig.weir(workers=1, limits={"slow": queue(limit=650, period="1h", max_delay="1h")}, upstreams={"api": event_streams(rig)},
                    rules=[{"match": {"path": "/slow"}, "limits": ["slow"]}, {}], log={"access": "json"},
                    size_limits={"memory": "16m", "requests_per_client": 10000}, timeouts={"send": "600s", "request_body": "600s"})
    with Http2(weir.address) as first:
        first.start("/slow")
        first.read_until(lambda: first.streams[1].status == 200)
    streaming, clients = [], []
    while used(weir) < LIMIT * 0.8:
        streaming.append(open_event_streams(weir))
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        clients.append(Http2(weir.address, hold=True))
        clients[-1].send_body(clients[-1].start("/slow", method="POST", end=False), bytes(60000), end=False)
        assert len(clients) < 300
    assert any(stream.reset is not None for client in streaming if client.responds_to_ping() for stream in client.streams.values())
    for client in [*streaming, *clients]:
        client.socket.close()


JSON_RULES = [{"match": {"json": {"model": "x"}}}, {}]
JSON_TYPE = ("content-type", "application/json")


def test_headers_of_waiting_requests_are_bounded(rig):
    """weir keeps the header of a request while it waits for the content that the rules match on."""
    weir = rig.weir(workers=1, rules=JSON_RULES, size_limits={"memory": "16m", "request_header": "32k"}, timeouts={"request_body": "600s"})
    header = [JSON_TYPE, *[("x-part", "x" * 3500)] * 6]  # HPACK sends a field once

    def wait_for_content(requests):
        client = Http2(weir.address, hold=True)
        streams = [client.put_request(method="POST", fields=header, end=False) for _ in range(requests)]
        assert client.responds_to_ping()
        return client, streams
    before = used(weir)
    client, streams = wait_for_content(100)
    held = used(weir)
    assert held - before >= 100 * 6 * 3500
    for stream in streams:
        client.send_body(stream, b"{}")
        assert client.response(stream).status == 200
    weir.counts(0, "weir_requests_active")
    assert used(weir) <= held - 100 * 5 * 3500
    clients = [client]
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        clients.append(wait_for_content(90)[0])
        assert used(weir) <= MOST and len(clients) < 12
    assert get(weir.address, f"/bytes/{SIZE}").status == 200
    for client in clients:
        client.socket.close()


def test_incomplete_trailers_count_when_requests_are_reset(rig):
    """weir keeps them in a large buffer. Requests that hold less are not reset."""
    weir = small_weir(rig, rules=JSON_RULES)

    def waiting(count, *header, rest=b""):
        request = request_bytes("/", "POST", [JSON_TYPE, *header]) + rest
        return [Connection(weir.address).send(request) for _ in range(count)]

    def with_trailers(count):
        return waiting(count, ("Transfer-Encoding", "chunked"), rest=b"0\r\nX: y")
    clients = with_trailers(20)
    weir.counts(20, "weir_requests_active")
    modest = waiting(80, ("Content-Length", "2"), ("X-Part", "x" * 12000))
    weir.counts(100, "weir_requests_active")
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        clients += with_trailers(1)
        assert len(clients) < 400
    for connection in modest:
        assert connection.send(b"{}").response().status == 200
    for connection in [*clients, *modest]:
        connection.close()


def test_lingering_http2_connections_hold_no_request(rig):
    """Their session has ended when memory runs out."""
    weir = small_weir(rig, limits={"slow": queue(limit=650, period="1h", max_delay="1h")},
                      rules=[{"match": {"path": "/slow"}, "limits": ["slow"]}, {}])
    assert get(weir.address, "/slow").status == 200
    clients = []
    while not weir.metric("weir_errors_total", cause="memory_limit"):
        lingers = Http2(weir.address)
        lingers.send(DATA, 0, 0, b"on no stream")
        lingers.read_until(lambda: lingers.goaways)
        clients += [lingers, Http2(weir.address, hold=True)]
        for _ in range(16):
            clients[-1].send_body(clients[-1].start("/slow", method="POST", end=False), bytes(60000), end=False)
    assert weir.metric("weir_connections_lingering") > 0
    assert get(weir.address, "/bytes/100").status == 200
    for client in clients:
        client.socket.close()


def test_a_reload_changes_the_limit(rig):
    weir = small_weir(rig)
    weir.reload(size_limits={"memory": "32m"})
    weir.counts(2 * LIMIT, "weir_buffer_memory_max_bytes")
    weir.reload(size_limits={})
    assert weir.metric("weir_buffer_memory_max_bytes") >= 64 * MIB


def test_idle_http2_connections(rig):
    """libnghttp2 1.52 allocates 9 KB for a session, without the frame buffer that weir places, and
    1 KB for HPACK with the first response. weir's own share is at most 4 KB."""
    weir = rig.weir(workers=1)

    def connections(count):
        opened = [Http2(weir.address) for _ in range(count)]
        for client in opened:
            assert client.get("/bytes/100").status == 200
        return opened
    clients = connections(50)
    eventually(lambda: used(weir) < MIB / 2)  # free buffers were returned
    before = weir.resident_kib()
    clients += connections(400)
    eventually(lambda: used(weir) < MIB / 2)
    each = (weir.resident_kib() - before) / 400
    assert sanitized or each <= 9 + 1 + 4, f"{each} KiB for an idle connection"
    for client in clients:
        client.socket.close()
