"""What an attacker tries beyond malformed messages: fields that vanish on the way, answers that do not fit their request,
descriptors that run out, readers that do not read. Each line of docs/threat-model.md that no other file here tests."""

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
from rig import eventually
from scripted import OK, Scripted, respond_to_all
from wire import Connection, IncompleteResponse, get, request_bytes


def before(rig, script, **more):
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, **more)
    weir.expect_errors("upstream|server|api")
    return weir, api


# --- fields that decide, and do not arrive -------------------------------------------------------------------------------

def test_the_identity_header_cannot_be_named_away(rig):
    """A server that asks for the key must not be asked without it, at the expense of the key's owner."""
    weir = rig.weir(identity={"from": ["header:X-Api-Key", "ip"]})
    assert get(weir.address, "/echo", headers={"X-Api-Key": "k"}).status == 200
    for connection in "X-Api-Key", "close, x-api-key", "keep-alive,X-API-KEY":
        refused = get(weir.address, "/echo", headers={"X-Api-Key": "k", "Connection": connection})
        assert refused.status == 400 and b"Connection names" in refused.body
    assert get(weir.address, "/echo", headers={"Connection": "X-Api-Key"}).status == 200, "there is none to name"


def test_a_repeat_is_free_only_where_the_server_sees_that_it_is_one(rig):
    limits = {"few": dict(script="fixed_window", limit=2, period="1h", dedup="Idempotency-Key")}
    weir = rig.weir(limits=limits)
    key = {"Idempotency-Key": "a"}
    assert [get(weir.address, headers=key).status for _ in range(4)] == [200] * 4
    named_away = {**key, "Connection": "Idempotency-Key"}
    assert [get(weir.address, headers=named_away).status for _ in range(3)] == [200, 429, 429]


def test_two_values_are_not_a_new_place_in_a_limit_per_header(rig):
    """Which of them the server takes nobody knows: made-up ones in front must not give the last one a limit of its own."""
    limits = {"few": dict(script="fixed_window", limit=2, period="1h", per="header:X-Tenant")}
    weir = rig.weir(limits=limits)
    seen = [get(weir.address, headers=[("X-Tenant", f"made-up-{n}"), ("X-Tenant", "t")]).status for n in range(4)]
    assert seen == [200, 200, 429, 429]
    assert get(weir.address, headers={"X-Tenant": "t", "Connection": "X-Tenant"}).status == 429, "the same as none"
    assert get(weir.address, headers={"X-Tenant": "t"}).status == 200


def test_names_that_pass_for_weirs_own_are_removed(rig):
    """CGI and its heirs read X_Weir_Client as X-Weir-Client."""
    limits = {"each": dict(script="gcra", limit=1000, period="1d")}
    weir = rig.weir(limits=limits)
    forged = ["X_Weir_Client", "X-Weir_Client", "x_weir-client", "X_Forwarded_For", "X_Client_Id", "Content_Length", "Transfer_Encoding"]
    names = [name for name, _ in echo(weir.address, headers=[(name, "1") for name in forged])["fields"]]
    assert not set(forged) & set(names), names


def test_trailers_that_mean_something_in_a_header_are_dropped(rig):
    def script(peer, _number):
        head, _ = peer.read_request()
        assert b"\r\ntrailer:" not in head.lower(), head
        assert not peer.trailers, peer.trailers
        peer.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
                  b"X-Sum: 1\r\nSet-Cookie: a=b\r\nContent-Length: 9\r\n\r\n")
    weir, api = before(rig, script)
    with Connection(weir.address) as connection:
        body = b"1\r\nx\r\n0\r\nX-Client-Id: forged\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(request_bytes("/", "POST", {"TE": "trailers", "Connection": "TE", "Trailer": "X-Client-Id",
                                                    "Transfer-Encoding": "chunked"}, body))
        response = connection.response()
        assert (response.status, response.body) == (200, b"ok")
        assert "set-cookie" not in response.names() and "trailer" not in response.names()
        assert connection.trailers == [("X-Sum", "1")]
    assert not api.failures, api.failures


def test_request_ids_do_not_tell_how_many_requests_there_were(rig):
    """What makes a number of a count can be undone, by whoever wants to know how busy his neighbours are."""
    def undone(x, shift):
        y = x
        for _ in range(64 // shift):
            y = x ^ y >> shift
        return y

    weir, words, counts = rig.weir(workers=1), 2 ** 64, []
    for _ in range(3):
        x = int(dict(get(weir.address).fields)["X-Request-Id"][16:], 16)
        x = undone(x, 31) * pow(0x94d049bb133111eb, -1, words) % words
        x = undone(x, 27) * pow(0xbf58476d1ce4e5b9, -1, words) % words
        counts.append(undone(x, 30))
    assert all((b - a) % words > 1000 for a, b in zip(counts, counts[1:])), counts


# --- answers that do not fit ---------------------------------------------------------------------------------------------

POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"


def test_content_where_none_may_be_reaches_nobody(rig):
    """The server sends content with an answer to HEAD, a 204 or a 304: its bytes would be the next client's answer."""
    answers = {"/head": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(POISON),
               "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
               "/204": b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(POISON),
               "/204-chunked": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
               "/304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: %d\r\n\r\n" % len(POISON)}

    def script(peer, _number):
        while request := peer.read_request():
            answer = answers.get(request[0].split(b" ")[1].decode())
            peer.send(answer + POISON if answer else OK)

    weir, _ = before(rig, script)
    with Connection(weir.address) as connection:
        for target in answers:
            for _ in range(3):
                method = "HEAD" if target in ("/head", "/chunked") else "GET"
                response = connection.request(target, method)
                assert b"POISON" not in connection.buffer
                assert response.status != 204 or response.names().isdisjoint({"content-length", "transfer-encoding"})
                assert connection.request("/").body == b"ok", target


def test_bytes_behind_a_large_answer_are_not_the_next_one(rig):
    """They are in the kernel still when the next request is there already, and the loop has not told of them."""
    def script(peer, _number):
        while request := peer.read_request():
            if request[0].startswith(b"GET /large"):
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000 + POISON)
            else:
                peer.send(OK)

    weir, _ = before(rig, script)
    with Connection(weir.address) as connection:
        for _ in range(50):
            connection.send(request_bytes("/large") + request_bytes("/next"))
            assert len(connection.response().body) == 100000
            assert connection.response().body == b"ok"


def test_what_idle_links_hold_is_nobodys_answer(rig):
    """Requests are there first, then what nobody asked for, in some of the links that would take them, and the end of others: all in
    one turn of the loop, which meets the requests before it hears of the links."""
    many = 12
    all_open = threading.Barrier(many)

    def script(peer, _number):
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)   # POISON does not wait for an acknowledgement
        while request := peer.read_request():
            if b"/open" in request[0]:
                all_open.wait(20)
            peer.send(OK)

    weir, api = before(rig, script)
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


def test_bytes_behind_an_answer_that_waited_are_not_the_next_one(rig):
    """The client reads nothing: a response that was read together with the interim ones before it waits in weir, and later bytes wait in
    the kernel. When the client reads, the response, its end and the next request are processed in one iteration of the loop.

    How much the kernel stores for a client that reads nothing differs between connections. So the size of the response that fills this
    store is searched: with a smaller one weir sends the next response too; with a larger one weir does not get to the next request."""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 4000 + b"\r\n\r\n"
    waited = {}  # per attempt: a queue of whether the response waited in weir

    def heard(peer):
        return select.select([peer.socket], [], [], 0)[0]

    def send_all(peer, data):
        """Returns when weir's kernel has it, or has said something itself."""
        peer.send(data)
        eventually(lambda: fcntl.ioctl(peer.socket, termios.TIOCOUTQ, bytes(4)) == bytes(4) or heard(peer), what="an acknowledgement")

    def script(peer, _number):
        while request := peer.read_request():
            target = request[0].split(b" ")[1]
            if target.startswith(b"/full/"):
                content = b"y" * int(target[6:])
                try:
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
                except OSError:
                    return   # the test has given this attempt up
                continue
            if not target.startswith(b"/waits/"):
                peer.send(OK)
                continue
            weir.signal(signal.SIGSTOP)
            try:
                send_all(peer, interim * 15 + OK)
            finally:
                weir.signal(signal.SIGCONT)
            with Connection(weir.address) as other:
                assert other.request("/").body == b"ok"   # by then the response was read, and sent if there was room
            try:
                send_all(peer, POISON)
                waited[int(target[7:])].put(not heard(peer))
            except OSError:
                waited[int(target[7:])].put(False)   # weir is done with the response, and closed the connection or sent the next request

    weir, api = before(rig, script)
    size, received = 40000, b""
    for attempt in range(200):
        waited[attempt] = queue.Queue()
        client = socket.socket()
        client.settimeout(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)   # then it takes less
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


def test_a_tunnel_is_for_who_may_have_one(rig):
    """No tunnel for HTTP/1.0, for a 200, for Upgrade without Connection, for another protocol than asked."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
    weir, api = before(rig, respond_to_all(switch + POISON))
    asked = {"Connection": "upgrade", "Upgrade": "echo"}
    for headers, more in ((asked, {"version": "HTTP/1.0"}), ({"Upgrade": "echo"}, {}), ({"Connection": "upgrade"}, {}),
                          ({**asked, "Upgrade": "other"}, {})):
        with Connection(weir.address) as connection:
            connection.send(request_bytes(headers=headers, **more))
            assert connection.response().status == 502, headers
    weir, _ = before(rig, respond_to_all(OK))
    with Connection(weir.address) as connection:
        # What follows is a request, and not a tunnel's bytes: the server said 200.
        connection.send(request_bytes(headers=asked) + request_bytes("/second"))
        assert [connection.response().body for _ in range(2)] == [b"ok", b"ok"]


def test_an_answer_cannot_be_split(rig):
    """Folded lines, bare CR and LF, NUL in what the server says: a 502, whatever stands behind them."""
    for line in (b"X: a\r\n Set-Cookie: b", b"X: a\r\n\tSet-Cookie: b", b"X: a\rSet-Cookie: b", b"X: a\nSet-Cookie: b", b"X: a\0b",
                 b"X\r: a", b"X : a", b": a", b"X: a\r\n\r"):
        weir, _ = before(rig, respond_to_all(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 2\r\n\r\nok"))
        response = get(weir.address)
        assert response.status == 502 and response["Set-Cookie"] is None, line


def test_an_early_answer_to_a_client_that_expects_does_not_desynchronise(rig):
    """The server answers without a 100, and the client sends its content all the same: it is no request."""
    weir, _ = before(rig, keeping_heads(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
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


def keeping_heads(answer):
    """Answers each head and leaves what follows it in the connection."""
    def script(peer, _number):
        while True:
            head = peer.read_until(b"\r\n\r\n", "a head")
            assert b"smuggled" not in head
            peer.send(answer)
    return script


# --- what runs out -------------------------------------------------------------------------------------------------------

def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_out_of_descriptors_is_survived_without_spinning(rig):
    """At the limit newcomers wait in the kernel, the loop rests, idle connections make room, and all are served in the end."""
    weir = rig.weir(workers=1, size_limits={"connections": 0})
    weir.expect_errors("descriptors: all")
    get(weir.address)
    limit = weir.descriptors() + 8
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, limit))
    held = [Connection(weir.address).send(b"GET / HTTP/1.1\r\n") for _ in range(12)]  # more than fit, and none is idle
    eventually(lambda: "descriptors: all" in weir.output(), what="the end of all descriptors")
    before_it = cpu_seconds(weir.pid)
    threading.Event().wait(1)
    assert cpu_seconds(weir.pid) - before_it < 0.3, "weir spins"
    for connection in held[:6]:
        connection.close()
    for connection in held[6:]:
        assert connection.send(b"Host: a\r\n\r\n").response().status in (200, 502), "502: no descriptor for its server"
    # Those are idle now, and make room.
    for _ in range(12):
        held.append(Connection(weir.address))
        assert held[-1].request().status in (200, 502)
    eventually(lambda: weir.metric("weir_connections_evicted_total") > 0)
    for connection in held[6:]:
        connection.close()
    eventually(lambda: get(weir.address).status == 200, what="an answer with descriptors to spare")


def test_a_client_that_does_not_read_is_cut(rig):
    """Slow reading, the third form of slowloris: no byte of the answer is taken for timeouts.send."""
    weir = rig.weir(workers=1, timeouts={"send": "500ms"})
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(weir.address)
    s.sendall(request_bytes("/bytes/50000000"))
    eventually(lambda: weir.metric("weir_errors_total", cause="client_stalled") == 1, what="the end of the answer")
    eventually(lambda: weir.metric("weir_upstream_connections") == 0 and weir.metric("weir_connections") == 0)
    s.close()


def test_connections_of_one_address_are_bounded_and_others_get_in(rig):
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
    eventually(served, what="a place for the address")
