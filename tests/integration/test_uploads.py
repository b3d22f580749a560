"""Responses to clients that are still sending content: the client gets the response and no
reset."""

import fcntl
import http.client
import queue
import signal
import socket
import struct
import subprocess
import termios
import threading

from rig import eventually, time_scale, sanitized, timeout
from scripted import OK, Scripted, respond_to_all
from tls_client import client as tls_client, pair
from wire import Connection, get, request_bytes, run_in_threads

MIB = 1024 * 1024
UPLOADS, SIZE = 20, 20_000_000
CONTENT = bytes(SIZE)
EARLY = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nno way"
NO_MORE = dict(script="fixed_window", limit=1, period="1h")


def tls_listener():
    return {"listen": [{"address": "127.0.0.1:0", "tls": pair("one")}]}


def trusting():
    """A TLS context for clients that does not verify host names."""
    context = tls_client()
    context.check_hostname = False
    return context


def weir_that_rejects(rig, **more):
    """weir in a state in which it rejects every request with 429."""
    weir = rig.weir(limits={"few": NO_MORE}, **more)
    assert get(weir.address).status == 200
    return weir


def weir_before(rig, script, **more):
    api = Scripted(rig, script)
    return rig.weir(upstreams={"api": {"servers": [api.text]}}, **more), api


def upload(address, body=CONTENT, **headers):
    """The status as http.client sees it. It sends all of the content before it reads."""
    connection = http.client.HTTPConnection(*address, timeout=30 * time_scale)
    try:
        connection.request("POST", "/", body=body, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def uploads(address, count=UPLOADS, **more):
    seen = []

    def client(_):
        try:
            seen.append(upload(address, **more))
        except OSError as failure:
            seen.append(type(failure).__name__)

    for _ in range(count // 4):
        run_in_threads(client, 4)
    return seen


def unsent(connection):
    """The number of bytes that the peer's kernel has not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]


def pieces(total=SIZE, size=50_000):
    for _ in range(total // size):
        yield bytes(size)


# --- responses of weir
# ---------------------------------------------------------------------------------------------------

@timeout(120)
def test_a_rejected_upload_gets_its_429(rig):
    weir = weir_that_rejects(rig)
    assert uploads(weir.address) == [429] * UPLOADS


@timeout(120)
def test_a_rejected_chunked_upload_gets_its_429(rig):
    weir = weir_that_rejects(rig)
    assert [upload(weir.address, pieces()) for _ in range(8)] == [429] * 8


@timeout(120)
def test_an_upload_that_is_too_large_gets_its_413(rig):
    weir = rig.weir(size_limits={"request_body": "1m"})
    assert uploads(weir.address) == [413] * UPLOADS
    assert [upload(weir.address, pieces()) for _ in range(8)] == [413] * 8, "detected in the middle of the content"


@timeout(120)
def test_curl_gets_its_429(rig):
    weir = weir_that_rejects(rig)
    file = rig.write("content", "x" * SIZE)
    for more in [], ["-H", "Expect:"]:
        for _ in range(5):
            ran = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *more, "-T", file,
                                  "http://%s:%d/" % weir.address], capture_output=True, text=True, check=False)
            assert ran.stdout == "429", ran


@timeout(120)
def test_uploads_over_tls_get_their_responses(rig):
    total = []
    weir, _ = weir_before(rig, respond_and_read(total), **tls_listener())
    refuses = rig.weir(size_limits={"request_body": "1m"}, **tls_listener())
    for address, status in (weir.address, 401), (refuses.address, 413):
        for _ in range(6):
            connection = http.client.HTTPSConnection("localhost", address[1], timeout=30 * time_scale, context=trusting())
            connection.request("POST", "/", body=CONTENT)
            assert connection.getresponse().status == status
            connection.close()
    eventually(lambda: total == [SIZE] * 6, what="all content to reach the server")


def send_slowly(connection, total=300_000, rate=100_000):
    """Sends content at a low rate."""
    pause, sent = threading.Event(), 0
    while sent < total:
        connection.send(bytes(rate // 50))
        sent += rate // 50
        pause.wait(0.02)


@timeout(120)
def test_a_slow_upload_gets_its_response(rig):
    """300 kB at 100 kB/s: takes longer than two seconds."""
    refuses, limits = rig.weir(size_limits={"request_body": "1k"}), weir_that_rejects(rig)

    def client(number):
        address, status = ((refuses.address, 413), (limits.address, 429))[number % 2]
        with Connection(address) as connection:
            connection.send(request_bytes(method="POST", headers={"Content-Length": "300000"}))
            send_slowly(connection)
            assert connection.response("POST").status == status

    run_in_threads(client, 10)


def test_discarded_content_is_not_parsed_as_requests(rig):
    """The content contains requests, with a length and in chunks. The response contains Connection:
    close."""
    weir = weir_that_rejects(rig)
    served = rig.upstream().stats()["requests"]
    inner = request_bytes("/smuggled") * 4000
    for data in (request_bytes(method="POST", body=inner),
                 request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)):
        with Connection(weir.address) as connection:
            connection.send(data + request_bytes("/behind"))
            response = connection.response("POST")
            assert response.status == 429 and response["Connection"] == "close"
            assert connection.is_closed()
    assert rig.upstream().stats()["requests"] == served + 1, "the request for /stats"


def test_a_rejected_client_that_expects_100_receives_no_100(rig):
    weir = weir_that_rejects(rig)
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Expect": "100-continue", "Content-Length": str(SIZE)}))
        response = connection.response("POST")
        assert response.status == 429 and response["Connection"] == "close"
        assert connection.is_closed(), "weir has closed its side"
    eventually(lambda: weir.metric("weir_connections") == 0, 4, "the connection to end when the client closes")


# --- early responses of the server
# ---------------------------------------------------------------------------------------

def respond_and_read(total):
    """Responds after the head, then reads all the content and appends its size to `total`."""
    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(EARLY)
        read = len(peer.buffer)
        while read < SIZE and (data := peer.socket.recv(MIB)):
            read += len(data)
        total.append(read)
    return script


@timeout(120)
def test_content_that_the_server_has_not_read_outlives_the_client(rig):
    """The server responds early and reads the content only after the client has received the response
    and closed. Of one size, weir has read all the content and waits for room at the server."""
    closed, received = queue.Queue(), queue.Queue()

    def script(peer, _number):
        head = peer.read_until(b"\r\n\r\n", "a head")
        if not head.startswith(b"POST"):
            peer.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            return
        peer.send(EARLY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        closed.get(timeout=30)
        read = len(peer.buffer)
        while data := peer.socket.recv(MIB):
            read += len(data)
        received.put(read)

    weir, _ = weir_before(rig, script, workers=1)
    for size in range(100_000, 5_000_000, 100_000):
        with Connection(weir.address) as client:
            client.send(request_bytes(method="POST", headers={"Connection": "close"}, body=bytes(size)))
            assert client.response("POST").status == 401
        for _ in range(2):
            assert get(weir.address).status == 200  # then weir has noticed the end
        closed.put(True)
        assert received.get(timeout=30) == size


@timeout(120)
def test_after_an_early_response_the_content_is_still_forwarded(rig):
    total = []
    weir, api = weir_before(rig, respond_and_read(total))
    assert uploads(weir.address) == [401] * UPLOADS
    eventually(lambda: len(total) == UPLOADS, what="all content to be read")
    assert total == [SIZE] * UPLOADS, total
    assert api.accepted == UPLOADS, "a connection with an early response is not reused"
    weir.counts(0, "weir_upstream_connections")
    weir.counts(0, "weir_requests_active")


def test_an_early_response_is_delivered_during_the_upload(rig):
    """The client receives the response at once, and the content that it sends afterwards is
    forwarded."""
    total = []
    weir, _ = weir_before(rig, respond_and_read(total))
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": str(SIZE)}))
        response = connection.response("POST")
        assert response.status == 401 and response.body == b"no way"
        assert not total
        connection.send(CONTENT)
        eventually(lambda: total == [SIZE], what="the whole content to reach the server")
        if response["Connection"] != "close":
            assert connection.request().status == 401, "the connection can be used after the content"


@timeout(120)
def test_an_early_response_of_a_server_that_closes_is_delivered(rig):
    def script(peer, number):
        peer.read_until(b"\r\n\r\n", "a head")
        answer = EARLY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        peer.send(answer)
        if number % 2:
            peer.socket.shutdown(socket.SHUT_WR)

    weir, _ = weir_before(rig, script)
    seen = uploads(weir.address)
    assert seen == [401] * UPLOADS, seen


@timeout(120)
def test_an_early_response_delimited_by_close_is_delivered(rig):
    """It ends when the server shuts down its sending side; the server continues to read."""
    total = []

    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(b"HTTP/1.0 401 Unauthorized\r\n\r\nno way")
        peer.socket.shutdown(socket.SHUT_WR)
        read = len(peer.buffer)
        while read < SIZE and (data := peer.socket.recv(MIB)):
            read += len(data)
        total.append(read)

    weir, _ = weir_before(rig, script)
    assert uploads(weir.address, 8) == [401] * 8
    eventually(lambda: total == [SIZE] * 8, what="all content to reach the server")


def slow_reader(address):
    """A connection with a small receive buffer."""
    connection = Connection.__new__(Connection)
    connection.buffer, connection.socket = b"", socket.socket()
    connection.socket.settimeout(20 * time_scale)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.socket.connect(address)
    return connection


@timeout(120)
def test_a_large_early_response_is_delivered_while_content_is_discarded(rig):
    """The server closes. The client reads only after it has sent everything, so the response waits
    in weir."""
    size = 2_000_000

    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size + bytes(size))
        eventually(lambda: unsent(peer.socket) == 0, what="weir to receive the whole response")

    weir, _ = weir_before(rig, script)
    for _ in range(4):
        with slow_reader(weir.address) as connection:
            connection.send(request_bytes(method="POST", body=CONTENT))
            response = connection.response("POST")
            assert response.status == 200 and len(response.body) == size


def test_a_client_that_stops_sending_after_an_early_response_ends_the_server_connection(rig):
    ended = threading.Event()

    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(EARLY)
        while peer.socket.recv(MIB):
            pass
        ended.set()

    weir, _ = weir_before(rig, script)
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": str(SIZE)}) + bytes(1000))
        assert connection.response("POST").status == 401
    assert ended.wait(10 * time_scale)
    weir.counts(0, "weir_requests_active")
    assert not weir.metric("weir_errors_total", cause="client_gone"), "the response was complete"


def test_a_server_that_stops_reading_after_its_response_is_disconnected(rig):
    """Content that the server does not read is discarded after response_timeout, and the client has
    its response."""
    over = threading.Event()
    rig.add_cleanup(over.set)

    def script(peer, _number):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.send(EARLY)
        over.wait(60)

    api = Scripted(rig, script)
    weir = rig.weir(upstreams={"api": {"servers": [api.text], "response_timeout": "2s"}})
    assert upload(weir.address) == 401
    weir.counts(0, "weir_upstream_connections")


# --- limits for discarded content
# ------------------------------------------------------------------------------------------

def rejected_upload(weir):
    """A connection whose upload was rejected and can still send."""
    connection = Connection(weir.address)
    connection.send(request_bytes(method="POST", headers={"Content-Length": str(SIZE)}))
    assert connection.response("POST").status == 429
    return connection


def test_lingering_connections_are_limited_and_the_oldest_is_closed_first(rig):
    weir = weir_that_rejects(rig, workers=1, size_limits={"connections": 16, "connections_per_ip": 0})
    lingering = [rejected_upload(weir) for _ in range(8)]
    weir.counts(4, "weir_connections_lingering")
    for connection in lingering[:4]:
        eventually(lambda c=connection: not is_accepting(c), what="the oldest connection to be closed")
    assert all(is_accepting(connection) for connection in lingering[4:])
    for connection in lingering:
        connection.close()
    weir.counts(0, "weir_connections_lingering")


def is_accepting(connection):
    """Whether weir still reads content."""
    try:
        connection.send(b"x")
        return True
    except OSError:
        return False


def test_endless_content_is_discarded_until_timeouts_linger(rig):
    weir = weir_that_rejects(rig, timeouts={"linger": "700ms"})
    with rejected_upload(weir) as connection:
        pause = threading.Event()
        eventually(lambda: pause.wait(0.01) or not is_accepting(connection), 10, "the end of timeouts.linger")
    weir.counts(0, "weir_connections")


def test_a_slow_lingering_client_is_disconnected_earlier(rig):
    """A byte from time to time is not progress."""
    weir = weir_that_rejects(rig, timeouts={"linger": "1h"})
    with rejected_upload(weir) as connection:
        pause = threading.Event()
        eventually(lambda: pause.wait(0.5) or not is_accepting(connection), 20, "the slow client to be disconnected")
    weir.counts(0, "weir_connections")


def test_lingering_connections_do_not_delay_the_shutdown(rig):
    weir = weir_that_rejects(rig, timeouts={"linger": "1h"})
    with rejected_upload(weir) as connection:
        weir.counts(1, "weir_connections_lingering")
        over = threading.Event()
        sender = threading.Thread(target=lambda: over.wait(0.01) or keep_sending(connection, over))
        sender.start()
        weir.signal(signal.SIGTERM)
        assert weir.wait(10) == 0
        over.set()
        sender.join()


def keep_sending(connection, over):
    while not over.wait(0.01) and is_accepting(connection):
        pass


def test_a_shutdown_forwards_content_after_an_early_response(rig):
    total = []
    weir, _ = weir_before(rig, respond_and_read(total))
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"Content-Length": str(SIZE)}))
        assert connection.response("POST").status == 401
        weir.signal(signal.SIGTERM)
        weir.wait_for_output("finishing requests in progress")
        connection.send(CONTENT)
        assert weir.wait(20) == 0
    eventually(lambda: total == [SIZE], what="the whole content to reach the server")


def test_a_reload_forwards_content_after_an_early_response(rig):
    total = []
    weir, _ = weir_before(rig, respond_and_read(total))
    rejecting = weir_that_rejects(rig)
    with Connection(weir.address) as connection, rejected_upload(rejecting) as lingering:
        connection.send(request_bytes(method="POST", headers={"Content-Length": str(SIZE)}))
        assert connection.response("POST").status == 401
        weir.reload(timeouts={"linger": "1s"})
        connection.send(CONTENT)
        lingering.send(bytes(100_000))  # weir closes after a pause of 5 s, or below 1000 B/s
        rejecting.reload(timeouts={"linger": "1h"})
        rejecting.counts(1, "weir_connections_lingering")
        assert is_accepting(lingering)
        eventually(lambda: total == [SIZE], what="the whole content to reach the server")


def test_a_connection_stays_usable_after_an_early_response_and_unread_content(rig):
    """The server responds and closes. The client's connection stays open: after the content follows
    the next request."""
    def script(peer, number):
        if number:
            return respond_to_all()(peer, number)
        peer.read_until(b"\r\n\r\n", "a head")
        return peer.send(EARLY)

    weir, _ = weir_before(rig, script, workers=1)
    with Connection(weir.address) as connection:
        sender = threading.Thread(target=connection.send, args=(request_bytes(method="POST", body=CONTENT) + request_bytes("/next"),))
        sender.start()
        response = connection.response("POST")
        assert response.status == 401 and response["Connection"] != "close"
        assert connection.response().body == b"ok"
        sender.join()


def test_invalid_content_after_an_early_response_is_not_parsed_as_a_request(rig):
    """Broken chunks, and too much content: the response was delivered, and the connection is
    closed."""
    heads = []

    def script(peer, _number):
        heads.append(peer.read_until(b"\r\n\r\n", "a head"))
        peer.send(EARLY)
        while peer.socket.recv(MIB):
            pass

    weir, _ = weir_before(rig, script, workers=1, size_limits={"request_body": "100k"})
    inner = request_bytes("/smuggled") * 3000
    for count, rest in enumerate((b"5\r\nab\r\nxx" + inner, b"%x\r\n%s\r\n" % (len(inner), inner) * 2 + inner, b"zz\r\n" + inner), 1):
        with Connection(weir.address) as connection:
            connection.send(request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n")
            assert connection.response("POST").status == 401
            connection.send(rest + request_bytes("/smuggled"))
            assert connection.is_closed()
        weir.counts(0, "weir_requests_active")
        assert len(heads) == count, heads


def test_many_lingering_connections_need_little_memory(rig):
    weir = weir_that_rejects(rig, workers=1, size_limits={"connections": 2000, "connections_per_ip": 0})
    rejected_upload(weir).close()
    weir.counts(0, "weir_connections_lingering")
    before_it = weir.resident_kib()
    lingering = []
    for _ in range(10):
        lingering += [rejected_upload(weir) for _ in range(20)]
        for connection in lingering:
            connection.send(bytes(10_000))  # weir closes after a pause of 5 s, or below 1000 B/s
    for connection in lingering:
        connection.send(bytes(100_000))
    weir.counts(200, "weir_connections_lingering")
    assert sanitized or weir.resident_kib() - before_it < 8 * 200, "lingering connections have no buffers"
    for connection in lingering:
        connection.close()
    weir.counts(0, "weir_connections_lingering")
