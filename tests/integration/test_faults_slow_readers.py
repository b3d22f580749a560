"""Clients that do not take their responses cannot keep others out. Clients that do, at any rate above
timeouts.send_min_rate, are never cut off nor evicted."""

import socket
import struct
import threading
import time

from http2_wire import DATA, INITIAL_WINDOW_SIZE, WINDOW_UPDATE, Http2
from rig import eventually
from scripted import Scripted
from wire import Connection, get, request_bytes

SLOTS = 100
ATTACKERS = [f"127.0.0.{n}" for n in range(11, 15)]
ONE_REQUEST = {"few": dict(script="fixed_window", limit=1, period="1h")}


class Background:
    """Calls `step` every `pause` seconds until the end of the block. Failures end it early."""

    def __init__(self, step, pause):
        self.step, self.pause, self.ends = step, pause, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ends.wait(self.pause):
            self.step()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


def update(connection, stream, size):
    """Opens both windows. A connection that weir has closed is left alone."""
    try:
        connection.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", size))
        connection.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))
    except OSError:
        pass


def octets(connections):
    for connection in connections:
        for stream in connection.streams:
            update(connection, stream, 1)


def stalled_http2(weir, source, path="/"):
    connection = Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True, source=source)
    for _ in range(2):
        connection.put_request(path)
    connection.flush()
    return connection


def connect_slowly(address, source=None, receive=4096):
    """A small maximum segment makes the kernel report each step of reading, as on a real network."""
    s = socket.socket()
    s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    if source:
        s.bind((source, 0))
    s.connect(address)
    return s


def slow_socket(weir, source=None, path="/bytes/50000000", receive=4096):
    """Requests a large response."""
    s = connect_slowly(weir.address, source, receive)
    s.sendall(request_bytes(path))
    return s


class SlowHttp2(Http2):
    """Requests a large response. The windows are open."""

    def __init__(self, weir):
        super().__init__(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0x7fffffff)], hold=True)
        self.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fff0000))
        self.start("/bytes/50000000")

    def connect(self, address, timeout, source):
        return connect_slowly(address, source)


def fill(weir, connect):
    connections = [connect(weir, source) for source in ATTACKERS for _ in range(SLOTS // 4)]
    weir.counts(SLOTS, "weir_connections")
    return connections


def others_get_through(weir):
    """Each of them needs the slot of an attacker."""
    others = [Connection(weir.address, source="127.0.0.99") for _ in range(5)]
    for other in others:
        other.send(request_bytes("/slow?ms=100"))
    for other in others:
        assert other.response().status in (200, 429)
        other.close()
    assert weir.metric("weir_connections_evicted_total") >= 1


def test_an_octet_of_window_does_not_keep_others_out(rig):
    weir = rig.weir(workers=1, limits=ONE_REQUEST, size_limits={"connections": SLOTS})
    connections = fill(weir, stalled_http2)
    with Background(lambda: octets(connections), 0.5):
        others_get_through(weir)
    assert weir.metric("weir_errors_total", cause="client_stalled") <= 10, "not by a timeout"
    for connection in connections:
        connection.socket.close()


def test_downloads_that_are_not_read_do_not_keep_others_out(rig):
    weir = rig.weir(workers=1, size_limits={"connections": SLOTS})
    connections = fill(weir, slow_socket)
    others_get_through(weir)
    for connection in connections:
        connection.close()


def test_without_a_rate_no_reader_is_evicted(rig):
    weir = rig.weir(workers=1, size_limits={"connections": 4, "connections_per_ip": 0}, timeouts={"send_min_rate": 0})
    connections = [slow_socket(weir) for _ in range(4)]
    weir.counts(4, "weir_connections")
    with socket.create_connection(weir.address) as other:
        other.sendall(request_bytes("/"))
        other.settimeout(4)
        try:
            assert not other.recv(1), "served"
        except TimeoutError:
            pass
    assert weir.metric("weir_connections_evicted_total") == 0
    for connection in connections:
        connection.close()


def silent_server(rig):
    """Sends half of a response, and the rest when `more` is set."""
    more = threading.Event()

    def script(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 1000)
        more.wait(50)
        peer.send(b"x" * 1000)
    return Scripted(rig, script), more


def test_honest_downloads_are_not_evicted(rig):
    """Of eight slots three serve honest clients: one reads slowly over HTTP/1.1, one opens its
    HTTP/2 window slowly, the server of one is slow."""
    server, more = silent_server(rig)
    fast = rig.upstream().text
    weir = rig.weir(workers=1, size_limits={"connections": 8, "connections_per_ip": 0}, upstreams={
        "api": {"servers": [fast]}, "slow": {"servers": [server.text]}},
        rules=[{"match": {"path": "/slow"}, "upstream": "slow"}, {"upstream": "api"}])
    reader, patient = slow_socket(weir), Connection(weir.address)
    patient.send(request_bytes("/slow"))
    patient.read_until(b"x" * 1000, "the first half")
    window = Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True)
    stream = window.start("/bytes/5000000")
    received = [0]

    def read():
        received[0] += len(reader.recv(1024))
        update(window, stream, 256)

    with Background(read, 0.1):
        stalled = [slow_socket(weir) for _ in range(5)]
        for n in range(1, 6):
            with socket.create_connection(weir.address) as other:
                other.settimeout(30)
                other.sendall(request_bytes("/bytes/50000000"))
                assert other.recv(1), "not served"
                stalled.append(other.dup())
            eventually(lambda: weir.metric("weir_connections_evicted_total") >= n)
            assert weir.metric("weir_connections_evicted_total") == n
    more.set()
    patient.read_until(b"x" * 1000, "the second half")
    window.read_until(lambda: len(window.streams[stream].body) >= 2000)
    assert not window.closed and received[0] > 5000
    assert reader.recv(1024), "cut off"
    for s in stalled + [reader, window.socket, patient.socket]:
        s.close()


def test_octets_of_window_do_not_renew_the_timeout(rig):
    weir = rig.weir(workers=1, timeouts={"send": "2s"})
    connection = stalled_http2(weir, None, "/bytes/100000")
    with Background(lambda: octets([connection]), 0.3):
        streams = [connection.streams[n] for n in (1, 3)]
        connection.read_until(lambda: all(stream.over() for stream in streams))
    assert all(stream.reset is not None for stream in streams)
    weir.counts(2, "weir_errors_total", cause="client_stalled")
    connection.socket.close()


def test_a_response_of_weir_has_ten_seconds_in_all(rig):
    weir = rig.weir(workers=1, limits=ONE_REQUEST)
    assert get(weir.address).status == 200
    start = time.monotonic()
    connection = stalled_http2(weir, None)
    with Background(lambda: octets([connection]), 0.5):
        streams = [connection.streams[n] for n in (1, 3)]
        connection.read_until(lambda: all(stream.over() for stream in streams))
    assert all(stream.status == 429 and stream.reset is not None for stream in streams)
    assert time.monotonic() - start >= 9.5
    weir.counts(2, "weir_errors_total", cause="client_stalled")
    connection.socket.close()


def test_a_slow_reader_behind_large_kernel_buffers_is_not_cut_off(rig):
    """weir can write again only when a third of the kernel's buffer is free, which takes the client
    much longer than timeouts.send."""
    weir = rig.weir(workers=1, timeouts={"send": "4s"})
    with slow_socket(weir, receive=8192) as s:
        end, received = time.monotonic() + 12, 0
        while time.monotonic() < end:
            data = s.recv(2048)
            assert data, f"cut off after {received} bytes"
            received += len(data)
            threading.Event().wait(0.02)
        assert weir.metric("weir_requests_active") == 1


def test_a_slow_http2_reader_behind_large_kernel_buffers_is_not_cut_off(rig):
    weir = rig.weir(workers=1, timeouts={"send": "3s"})
    with SlowHttp2(weir) as client:
        end, received = time.monotonic() + 9, 0
        while time.monotonic() < end:
            data = client.socket.recv(512)
            assert data, f"cut off after {received} bytes"
            received += len(data)
            threading.Event().wait(0.05)
        assert weir.metric("weir_requests_active") == 1


def test_an_http2_reader_below_the_rate_loses_the_connection(rig):
    """A write alone does not renew the time, whether requests are left or not."""
    weir = rig.weir(workers=1, timeouts={"send": "4s", "send_min_rate": 1000000})
    with SlowHttp2(weir) as client:
        weir.counts(1, "weir_connections")
        with Background(lambda: client.socket.recv(1024), 0.05):
            eventually(lambda: weir.metric("weir_connections") == 0, seconds=30, what="the close")
    weir.counts(1, "weir_errors_total", cause="client_stalled")


def test_a_window_above_the_rate_is_not_cut_off(rig):
    weir = rig.weir(workers=1, timeouts={"send": "2s"})
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True) as connection:
        stream = connection.start("/bytes/4000")
        with Background(lambda: update(connection, stream, 100), 0.1):
            connection.read_until(connection.streams[stream].over)
        got = connection.streams[stream]
        assert got.ended and len(got.body) == 4000, got.reset
