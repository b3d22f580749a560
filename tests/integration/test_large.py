"""Large content, which passes without being copied into weir: byte for byte, at every pace, and whatever happens to either side."""

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

from rig import eventually, sanitized
from scripted import Scripted
from wire import Connection, IncompleteResponse, get, request_bytes

MIB = 1024 * 1024
BIG = (16 if sanitized else 64) * MIB
SPLICE_MIN = 128 * 1024


def block(size, seed=1):
    return random.Random(seed).randbytes(min(size, MIB)) * (size // MIB + 1)


def before(rig, script, **more):
    api = Scripted(rig, script)
    return rig.weir(upstreams={"api": {"servers": [api.text]}}, workers=1, **more), api


def pipes(weir, holding=False):
    """How many pipes it has of which it holds both ends, or those of them that hold something; a few are not for content."""
    held = collections.defaultdict(list)
    for fd in os.listdir(f"/proc/{weir.pid}/fd"):
        try:
            held[os.readlink(f"/proc/{weir.pid}/fd/{fd}")].append(f"/proc/{weir.pid}/fd/{fd}")
        except OSError:
            pass                             # closed meanwhile
    own = [ends[0] for name, ends in held.items() if name.startswith("pipe:") and len(ends) == 2]
    return sum(map(holds_something, own)) if holding else len(own)


def holds_something(path):
    try:
        end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False                         # closed meanwhile
    with os.fdopen(end, "rb", 0):
        return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder) > 0


def test_sizes_around_the_threshold_arrive_whole_both_ways(rig):
    weir = rig.weir(workers=1)
    with Connection(weir.address) as connection:
        for size in (SPLICE_MIN - 1, SPLICE_MIN, SPLICE_MIN + 1, 262144, 262145, 2 * MIB + 3):
            body = connection.request(f"/bytes/{size}").body
            assert hashlib.sha256(body).digest() == hashlib.sha256((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]).digest()
            content = block(size)[:size]
            echoed = json.loads(connection.request("/echo", "POST", body=content).body)
            assert (echoed["content_length"], echoed["content_crc32"]) == (size, zlib.crc32(content)), (size, echoed)


def test_64_mb_both_ways_at_once(rig):
    weir = rig.weir(workers=1)
    content = block(BIG)[:BIG]
    crc, results = zlib.crc32(content), []

    def up():
        results.append(json.loads(get(weir.address, "/echo", method="POST", body=content).body)["content_crc32"] == crc)

    def down():
        results.append(len(get(weir.address, f"/bytes/{BIG}").body) == BIG)
    threads = [threading.Thread(target=way) for way in (up, down, up, down)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_a_slow_client_gets_everything_and_holds_one_pipe(rig):
    weir = rig.weir(workers=1)
    size, others = 8 * MIB, pipes(weir)
    with Connection(weir.address) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(request_bytes(f"/bytes/{size}"))
        assert connection.read_head().status == 200
        eventually(lambda: pipes(weir) == others + 1, what="a pipe that holds what the client does not take")
        digest, left, expected = hashlib.sha256(), size, hashlib.sha256((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size])
        while left:
            piece = connection.take(min(left, 100000)) if connection.buffer else connection.socket.recv(min(left, 100000))
            assert piece
            digest.update(piece)
            left -= len(piece)
        assert digest.digest() == expected.digest()
        assert connection.request("/bytes/5").body == b"abcde", "the connection is in step"


def test_pipes_are_given_back_when_clients_go(rig):
    weir = rig.weir(workers=1)
    others = pipes(weir)
    for _ in range(3):
        connections = [Connection(weir.address) for _ in range(10)]
        for connection in connections:
            connection.send(request_bytes(f"/bytes/{64 * MIB}"))
        for connection in connections:
            connection.read_head()
        eventually(lambda: pipes(weir) == others + 10 and pipes(weir, holding=True) == 10, what="each holds a pipe that holds something")
        for connection in connections:
            connection.close()
        eventually(lambda: pipes(weir) == others, what="pipes that held something are closed")
    assert get(weir.address).status == 200


def test_an_upstream_that_cuts_large_content_is_told_to_the_client(rig):
    def script(peer, _):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + block(3000000)[:3000000])

    weir, _ = before(rig, script)
    weir.expect_errors("closed the connection")
    try:
        get(weir.address)
        raise AssertionError("a cut message looked whole")
    except IncompleteResponse as cut:
        assert cut.received == block(3000000)[:len(cut.received)]
    assert weir.alive()


def test_a_server_that_answers_early_and_goes_is_heard(rig):
    heard = threading.Event()

    def script(peer, _):
        peer.read_until(b"\r\n\r\n", "a head")
        peer.read_exactly(300000, "some content")
        peer.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        peer.socket.shutdown(socket.SHUT_WR)
        heard.wait(20)                       # then what it left unread resets the connection

    weir, _ = before(rig, script)
    with Connection(weir.address) as connection:
        sender = threading.Thread(target=lambda: try_to_send(connection, request_bytes("/", "POST", body=block(8 * MIB))), daemon=True)
        sender.start()
        assert connection.response("POST").status == 413
        heard.set()


def test_urgent_bytes_are_left_out_and_nothing_waits_behind_them(rig):
    """Out of band of TCP, and no part of what a message holds."""
    content = block(MIB)[:MIB]

    def send_with_urgent(connection):
        connection.send(content[:MIB // 2])
        connection.socket.send(b"!", socket.MSG_OOB)  # one: of several that wait, TCP makes content of all but the last
        connection.send(content[MIB // 2:])

    def script(peer, _):
        assert peer.read_request()[1] == content
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIB)
        send_with_urgent(peer)
        peer.read_request()

    weir, api = before(rig, script)
    with Connection(weir.address) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MIB)
        send_with_urgent(connection)
        assert connection.response("POST").body == content
    assert not api.failures, api.failures


def try_to_send(connection, data):
    try:
        connection.send(data)
    except OSError:
        pass                                 # weir has closed, as it told
