"""Large content, relayed with splice(2): complete, at any speed, and when a side fails."""

import collections
import fcntl
import hashlib
import json
import os
import random
import socket
import sys
import termios
import threading
import zlib

from rig import eventually, sanitized, timeout
from scripted import Scripted
from wire import Connection, IncompleteResponse, get, request_bytes

MIB = 1024 * 1024
BIG = (16 if sanitized else 64) * MIB
SPLICE_MIN = 128 * 1024


def block(size, seed=1):
    return random.Random(seed).randbytes(min(size, MIB)) * (size // MIB + 1)


def weir_before(rig, script, **more):
    api = Scripted(rig, script)
    return rig.weir(upstreams={"api": {"servers": [api.text]}}, workers=1, **more), api


def count_pipes(weir, holding=False):
    """The number of pipes of which weir holds both ends; with `holding`, only those that contain
    data. Some pipes have other purposes."""
    held = collections.defaultdict(list)
    for fd in os.listdir(f"/proc/{weir.pid}/fd"):
        try:
            held[os.readlink(f"/proc/{weir.pid}/fd/{fd}")].append(f"/proc/{weir.pid}/fd/{fd}")
        except OSError:
            pass                             # was closed meanwhile
    own = [ends[0] for name, ends in held.items() if name.startswith("pipe:") and len(ends) == 2]
    return sum(map(contains_data, own)) if holding else len(own)


def contains_data(path):
    try:
        end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False                         # was closed meanwhile
    with os.fdopen(end, "rb", 0):
        return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder) > 0


def test_sizes_around_the_splice_threshold_arrive_complete(rig):
    weir = rig.weir(workers=1)
    with Connection(weir.address) as connection:
        for size in (SPLICE_MIN - 1, SPLICE_MIN, SPLICE_MIN + 1, 262144, 262145, 2 * MIB + 3):
            body = connection.request(f"/bytes/{size}").body
            assert hashlib.sha256(body).digest() == hashlib.sha256((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]).digest()
            content = block(size)[:size]
            echoed = json.loads(connection.request("/echo", "POST", body=content).body)
            assert (echoed["content_length"], echoed["content_crc32"]) == (size, zlib.crc32(content)), (size, echoed)


@timeout(120)
def test_large_content_in_both_directions_at_once(rig):
    weir = rig.weir(workers=1)
    content = block(BIG)[:BIG]
    crc, results = zlib.crc32(content), []

    def up():
        with Connection(weir.address, timeout=100) as connection:  # sends all content within this time
            results.append(json.loads(connection.request("/echo", "POST", body=content).body)["content_crc32"] == crc)

    def down():
        results.append(len(get(weir.address, f"/bytes/{BIG}").body) == BIG)
    threads = [threading.Thread(target=way) for way in (up, down, up, down)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_a_slow_client_uses_one_pipe(rig):
    weir = rig.weir(workers=1)
    size, others = 8 * MIB, count_pipes(weir)
    with Connection(weir.address) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(request_bytes(f"/bytes/{size}"))
        assert connection.read_head().status == 200
        eventually(lambda: count_pipes(weir) == others + 1, what="a pipe with the data that the client does not read")
        digest, left, expected = hashlib.sha256(), size, hashlib.sha256((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size])
        while left:
            piece = connection.take(min(left, 100000)) if connection.buffer else connection.socket.recv(min(left, 100000))
            assert piece
            digest.update(piece)
            left -= len(piece)
        assert digest.digest() == expected.digest()
        assert connection.request("/bytes/5").body == b"abcde", "the next response is parsed correctly"


def test_pipes_are_freed_when_clients_disconnect(rig):
    weir = rig.weir(workers=1)
    others = count_pipes(weir)
    for _ in range(3):
        connections = [Connection(weir.address) for _ in range(10)]
        for connection in connections:
            connection.send(request_bytes(f"/bytes/{64 * MIB}"))
        for connection in connections:
            connection.read_head()
        eventually(lambda: count_pipes(weir) == others + 10 and count_pipes(weir, holding=True) == 10, what="a pipe with data for each client")
        for connection in connections:
            connection.close()
        eventually(lambda: count_pipes(weir) == others, what="all pipes with data to be closed")
    assert get(weir.address).status == 200


def test_a_truncated_response_is_truncated_for_the_client(rig):
    def script(peer, _):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + block(3000000)[:3000000])

    weir, _ = weir_before(rig, script)
    weir.expect_errors("closed the connection")
    try:
        get(weir.address)
        raise AssertionError("a truncated response looked complete")
    except IncompleteResponse as cut:
        assert cut.received == block(3000000)[:len(cut.received)]
    assert weir.alive()


def test_an_early_response_during_an_upload_is_forwarded(rig):
    response_received = threading.Event()

    def script(peer, _):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.read_exactly(300000, "some content")
        peer.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        peer.socket.shutdown(socket.SHUT_WR)
        response_received.wait(20)                       # the connection is then reset because of unread data

    weir, _ = weir_before(rig, script)
    with Connection(weir.address) as connection:
        sender = threading.Thread(target=lambda: try_to_send(connection, request_bytes("/", "POST", body=block(8 * MIB))), daemon=True)
        sender.start()
        assert connection.response("POST").status == 413
        response_received.set()


def test_urgent_data_is_dropped(rig):
    """TCP urgent data is out of band and not part of the content."""
    content = block(MIB)[:MIB]

    def send_with_urgent(connection):
        connection.send(content[:MIB // 2])
        # one byte: with several pending, TCP treats all but the last as normal data
        connection.socket.send(b"!", socket.MSG_OOB)
        connection.send(content[MIB // 2:])

    def script(peer, _):
        assert peer.read_request()[1] == content
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIB)
        send_with_urgent(peer)
        peer.read_request()

    weir, api = weir_before(rig, script)
    with Connection(weir.address) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MIB)
        send_with_urgent(connection)
        assert connection.response("POST").body == content
    assert not api.failures, api.failures


def try_to_send(connection, data):
    try:
        connection.send(data)
    except OSError:
        pass                                 # weir has closed the connection, as announced
