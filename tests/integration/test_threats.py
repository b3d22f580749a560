"""Attacks beyond malformed messages: fields that are not forwarded, responses that do not match
their request, exhausted descriptors, clients that do not read. These are the lines of
docs/threat-model.md without other tests."""

import fcntl
import os
import queue
import resource
import select
import signal
import socket
import termios
import threading

from echoes import echo
from rig import TimedOut, eventually
from scripted import OK, Scripted, respond_to_all
from wire import Connection, IncompleteResponse, get, request_bytes


def weir_before(rig, script, **more):
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, **more)
    weir.expect_errors("upstream|server|api")
    return weir, api


# --- fields that decide but are not forwarded
# ----------------------------------------------------------------------------

def test_connection_cannot_remove_the_identity_header(rig):
    """Otherwise a request would be charged to a key that the server does not see."""
    weir = rig.weir(identity={"from": ["header:X-Api-Key", "ip"]})
    assert get(weir.address, "/echo", headers={"X-Api-Key": "k"}).status == 200
    for connection in "X-Api-Key", "close, x-api-key", "keep-alive,X-API-KEY":
        refused = get(weir.address, "/echo", headers={"X-Api-Key": "k", "Connection": connection})
        assert refused.status == 400 and b"Connection names" in refused.body
    assert get(weir.address, "/echo", headers={"Connection": "X-Api-Key"}).status == 200, "there is no such field to remove"


def test_deduplication_requires_that_the_key_is_forwarded(rig):
    limits = {"few": dict(script="fixed_window", limit=2, period="1h", dedup="Idempotency-Key")}
    weir = rig.weir(limits=limits)
    key = {"Idempotency-Key": "a"}
    assert [get(weir.address, headers=key).status for _ in range(4)] == [200] * 4
    named_away = {**key, "Connection": "Idempotency-Key"}
    assert [get(weir.address, headers=named_away).status for _ in range(3)] == [200, 429, 429]


def test_two_values_of_a_header_do_not_create_a_new_counter(rig):
    """The server could use either value. Invented values before the real one must not select
    another counter."""
    limits = {"few": dict(script="fixed_window", limit=2, period="1h", per="header:X-Tenant")}
    weir = rig.weir(limits=limits)
    seen = [get(weir.address, headers=[("X-Tenant", f"made-up-{n}"), ("X-Tenant", "t")]).status for n in range(4)]
    assert seen == [200, 200, 429, 429]
    assert get(weir.address, headers={"X-Tenant": "t", "Connection": "X-Tenant"}).status == 429, "the same counter as without the header"
    assert get(weir.address, headers={"X-Tenant": "t"}).status == 200


def test_names_that_cgi_reads_as_weirs_own_are_removed(rig):
    """CGI and similar interfaces read X_Weir_Client as X-Weir-Client."""
    limits = {"each": dict(script="gcra", limit=1000, period="1d")}
    weir = rig.weir(limits=limits)
    forged = ["X_Weir_Client", "X-Weir_Client", "x_weir-client", "X_Forwarded_For", "X_Client_Id", "Content_Length", "Transfer_Encoding"]
    names = [name for name, _ in echo(weir.address, headers=[(name, "1") for name in forged])["fields"]]
    assert not set(forged) & set(names), names


def test_trailers_with_a_meaning_as_headers_are_dropped(rig):
    def script(peer, _number):
        head, _ = peer.read_request()
        assert b"\r\ntrailer:" not in head.lower(), head
        assert not peer.trailers, peer.trailers
        peer.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
                  b"X-Sum: 1\r\nSet-Cookie: a=b\r\nContent-Length: 9\r\n\r\n")
    weir, api = weir_before(rig, script)
    with Connection(weir.address) as connection:
        body = b"1\r\nx\r\n0\r\nX-Client-Id: forged\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(request_bytes("/", "POST", {"TE": "trailers", "Connection": "TE", "Trailer": "X-Client-Id",
                                                    "Transfer-Encoding": "chunked"}, body))
        response = connection.response()
        assert (response.status, response.body) == (200, b"ok")
        assert "set-cookie" not in response.names() and "trailer" not in response.names()
        assert connection.trailers == [("X-Sum", "1")]
    assert not api.failures, api.failures


def test_request_ids_do_not_reveal_the_number_of_requests(rig):
    """A counter with a reversible mapping would let a client compute the load of other clients."""
    def inverse_xorshift(x, shift):
        y = x
        for _ in range(64 // shift):
            y = x ^ y >> shift
        return y

    weir, words, counts = rig.weir(workers=1), 2 ** 64, []
    for _ in range(3):
        x = int(dict(get(weir.address).fields)["X-Request-Id"][16:], 16)
        x = inverse_xorshift(x, 31) * pow(0x94d049bb133111eb, -1, words) % words
        x = inverse_xorshift(x, 27) * pow(0xbf58476d1ce4e5b9, -1, words) % words
        counts.append(inverse_xorshift(x, 30))
    assert all((b - a) % words > 1000 for a, b in zip(counts, counts[1:])), counts


# --- responses that do not match
# -----------------------------------------------------------------------------------------

POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"


def test_content_of_responses_without_content_reaches_no_client(rig):
    """The server sends content with a response to HEAD, a 204 or a 304. It would be read as the
    next client's response."""
    answers = {"/head": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(POISON),
               "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
               "/204": b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(POISON),
               "/204-chunked": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
               "/304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: %d\r\n\r\n" % len(POISON)}

    def script(peer, _number):
        while request := peer.read_request():
            answer = answers.get(request[0].split(b" ")[1].decode())
            peer.send(answer + POISON if answer else OK)

    weir, _ = weir_before(rig, script)
    with Connection(weir.address) as connection:
        for target in answers:
            for _ in range(3):
                method = "HEAD" if target in ("/head", "/chunked") else "GET"
                response = connection.request(target, method)
                assert b"POISON" not in connection.buffer
                assert response.status != 204 or response.names().isdisjoint({"content-length", "transfer-encoding"})
                assert connection.request("/").body == b"ok", target


def test_bytes_after_a_large_response_are_not_the_next_response(rig):
    """The bytes are still in the kernel when the next request has already arrived, and the event
    loop has not reported them yet."""
    def script(peer, _number):
        while request := peer.read_request():
            if request[0].startswith(b"GET /large"):
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000 + POISON)
            else:
                peer.send(OK)

    weir, _ = weir_before(rig, script)
    with Connection(weir.address) as connection:
        for _ in range(50):
            connection.send(request_bytes("/large") + request_bytes("/next"))
            assert len(connection.response().body) == 100000
            assert connection.response().body == b"ok"


def test_unexpected_data_on_idle_connections_is_not_a_response(rig):
    """Requests arrive first, then unexpected data on some of the idle server connections, and EOF
    on others. All this happens in one loop iteration, and weir handles the requests before the
    events of the connections."""
    many = 12
    all_open = threading.Barrier(many)

    def script(peer, _number):
        # POISON is sent without waiting for an acknowledgement
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := peer.read_request():
            if b"/open" in request[0]:
                all_open.wait(20)
            peer.send(OK)

    weir, api = weir_before(rig, script)
    clients = [Connection(weir.address) for _ in range(many)]
    for ill in range(many + 1):
        for client in clients:
            client.send(request_bytes("/open"))
        assert [client.response().body for client in clients] == [b"ok"] * many
        weir.signal(signal.SIGSTOP)
        idle = api.peers[-many:]
        for client in clients:
            client.send(request_bytes("/next"))
        for i, peer in enumerate(idle):
            if i % 3 == 0 and i < ill:
                peer.socket.shutdown(socket.SHUT_WR)
            elif i < ill:
                peer.send(POISON)
        weir.signal(signal.SIGCONT)
        assert [client.response().body for client in clients] == [b"ok"] * many, ill
    assert not api.failures, api.failures


def test_bytes_after_a_delayed_response_are_not_the_next_response(rig):
    """The client does not read. A response that was read together with preceding interim responses
    waits in weir, and further bytes wait in the kernel. When the client reads, the rest of the
    response and the next request are handled in one loop iteration.

    The kernel's buffer for a client that does not read differs between connections, so the test
    searches for the response size that fills it. With a smaller response, weir also sends the next
    one. With a larger one, weir does not reach the next request."""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 4000 + b"\r\n\r\n"
    waited = {}  # per attempt: a queue of whether the response waited in weir

    def closed_or_readable(peer):
        return select.select([peer.socket], [], [], 0)[0]

    def send_all(peer, data):
        """Returns when weir's kernel has received the data, or when weir has sent or closed."""
        peer.send(data)
        eventually(lambda: fcntl.ioctl(peer.socket, termios.TIOCOUTQ, bytes(4)) == bytes(4) or closed_or_readable(peer), 2, "the acknowledgement")

    def response_waits(peer):
        """Sends the response, and more bytes after it. Returns whether weir had them all while the response waited."""
        weir.signal(signal.SIGSTOP)
        try:
            send_all(peer, interim * 15 + OK)
        finally:
            weir.signal(signal.SIGCONT)
        with Connection(weir.address) as other:
            # then the response has been read, and sent if there was room
            assert other.request("/").body == b"ok"
        send_all(peer, POISON)
        return not closed_or_readable(peer)

    def script(peer, _number):
        while request := peer.read_request():
            target = request[0].split(b" ")[1]
            if target.startswith(b"/full/"):
                content = b"y" * int(target[6:])
                try:
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
                except OSError:
                    return   # the test has ended this attempt
                continue
            if not target.startswith(b"/waits/"):
                peer.send(OK)
                continue
            try:
                usable = response_waits(peer)
            except (OSError, TimedOut):
                usable = False
            waited[int(target[7:])].put(usable)
            if not usable:
                return   # weir may take the additional bytes for the response to its next request

    weir, api = weir_before(rig, script)
    size, received = 40000, b""
    for attempt in range(200):
        waited[attempt] = queue.Queue()
        client = socket.socket()
        client.settimeout(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # so that the kernel buffers less
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
        client.connect(weir.address)
        client.sendall(request_bytes(f"/full/{size}") + request_bytes(f"/waits/{attempt}") + request_bytes("/next"))
        try:
            if waited[attempt].get(timeout=3):
                break
            size += 20000
        except queue.Empty:
            size -= 30000
        client.close()
    else:
        assert False, "no response waited in weir"
    while received.count(b"HTTP/1.1 200 OK") < 3 or not received.endswith((b"ok", b"POISON")):
        received += client.recv(65536)
    assert received.count(interim) == 15 and b"POISON" not in received
    client.close()
    assert not api.failures, api.failures


def test_a_tunnel_requires_a_valid_upgrade(rig):
    """No tunnel for HTTP/1.0, for a 200, for Upgrade without Connection, or for a protocol that was
    not requested."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
    weir, api = weir_before(rig, respond_to_all(switch + POISON))
    upgrade_fields = {"Connection": "upgrade", "Upgrade": "echo"}
    for headers, more in ((upgrade_fields, {"version": "HTTP/1.0"}), ({"Upgrade": "echo"}, {}), ({"Connection": "upgrade"}, {}),
                          ({**upgrade_fields, "Upgrade": "other"}, {})):
        with Connection(weir.address) as connection:
            connection.send(request_bytes(headers=headers, **more))
            assert connection.response().status == 502, headers
    weir, _ = weir_before(rig, respond_to_all(OK))
    with Connection(weir.address) as connection:
        # The next bytes are a request and not tunnel data: the server responded with 200.
        connection.send(request_bytes(headers=upgrade_fields) + request_bytes("/second"))
        assert [connection.response().body for _ in range(2)] == [b"ok", b"ok"]


def test_response_splitting_is_a_502(rig):
    """Folded lines, bare CR, bare LF and NUL in the server's response: 502, whatever follows."""
    for line in (b"X: a\r\n Set-Cookie: b", b"X: a\r\n\tSet-Cookie: b", b"X: a\rSet-Cookie: b", b"X: a\nSet-Cookie: b", b"X: a\0b",
                 b"X\r: a", b"X : a", b": a", b"X: a\r\n\r"):
        weir, _ = weir_before(rig, respond_to_all(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 2\r\n\r\nok"))
        response = get(weir.address)
        assert response.status == 502 and response["Set-Cookie"] is None, line


def test_an_early_response_to_expect_does_not_desynchronize(rig):
    """The server responds without a 100, and the client still sends its content: it is not a
    request."""
    weir, _ = weir_before(rig, respond_to_heads(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    with Connection(weir.address) as connection:
        content = request_bytes("/smuggled")
        connection.send(request_bytes("/", "POST", {"Expect": "100-continue", "Content-Length": str(len(content))}))
        response = connection.response()
        assert response.status == 200 and response["Connection"] == "close"
        try:
            connection.send(content)
        except OSError:
            pass
        assert connection.is_closed(), connection.buffer


def respond_to_heads(answer):
    """Responds to each head and leaves the following bytes unread."""
    def script(peer, _number):
        while True:
            head = peer.read_until(b"\r\n\r\n", "a head")
            assert b"smuggled" not in head
            peer.send(answer)
    return script


# --- exhausted resources
# -------------------------------------------------------------------------------------------------

def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_descriptor_exhaustion_does_not_spin(rig):
    """At the limit, new connections wait in the kernel, the event loop sleeps, idle connections are
    closed for new ones, and all clients are served in the end."""
    weir = rig.weir(workers=1, size_limits={"connections": 0})
    weir.expect_errors("descriptors: all")
    get(weir.address)
    limit = weir.descriptors() + 8
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, limit))
    # more than there are descriptors, and none is idle
    held = [Connection(weir.address).send(b"GET / HTTP/1.1\r\n") for _ in range(12)]
    eventually(lambda: "descriptors: all" in weir.output(), what="all descriptors to be used")
    before_it = cpu_seconds(weir.pid)
    threading.Event().wait(1)
    assert cpu_seconds(weir.pid) - before_it < 0.3, "weir spins"
    for connection in held[:6]:
        connection.close()
    for connection in held[6:]:
        assert connection.send(b"Host: a\r\n\r\n").response().status in (200, 503), "503: no descriptor for its server"
    # These connections are idle now and are closed for new ones.
    for _ in range(12):
        held.append(Connection(weir.address))
        assert held[-1].request().status in (200, 503)
    eventually(lambda: weir.metric("weir_connections_evicted_total") > 0)
    for connection in held[6:]:
        connection.close()
    eventually(lambda: get(weir.address).status == 200, what="a response with free descriptors")


def test_a_client_that_does_not_read_is_disconnected(rig):
    """Slow read attack: the client accepts no byte of the response for timeouts.send."""
    weir = rig.weir(workers=1, timeouts={"send": "500ms"})
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(weir.address)
    s.sendall(request_bytes("/bytes/50000000"))
    eventually(lambda: weir.metric("weir_errors_total", cause="client_stalled") == 1, what="the response to be aborted")
    eventually(lambda: weir.metric("weir_upstream_connections") == 0 and weir.metric("weir_connections") == 0)
    s.close()


def test_connections_per_address_are_limited(rig):
    weir = rig.weir(size_limits={"connections_per_ip": 3})
    near = [Connection(weir.address) for _ in range(3)]
    assert [c.request().status for c in near] == [200] * 3
    for _ in range(3):
        assert Connection(weir.address).is_closed()
    with Connection(weir.address, source="127.0.0.2") as far:
        assert far.request().status == 200
    near.pop().close()

    def served():
        try:
            return get(weir.address).status == 200
        except (IncompleteResponse, OSError):
            return False
    eventually(served, what="a connection for the address")
