"""Attacks on HTTP/2 servers. Each ends the attacker's connection or stream and is logged with its
cause and the client. Other clients are still served, and memory stays flat."""

import re
import signal
import threading
import time

from envoy_calls import weir_with_service
from http2_wire import (CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, INITIAL_WINDOW_SIZE, NO_ERROR, PADDED,
                        PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2, frame)
from rig import eventually, sanitized
from scripted import Scripted
from wire import get


def attack(rig, cause, each, repeats=3000, **keys):
    """Sends `each(client, i)` until weir closes the connection. Meanwhile another connection is
    served."""
    weir = rig.weir(workers=1, **keys)
    with Http2(weir.address) as other, Http2(weir.address) as client:
        assert other.get().status == 200 and client.responds_to_ping()
        before = weir.resident_kib()
        name = "%s:%d" % client.socket.getsockname()
        try:
            for i in range(repeats):
                each(client, i)
                if i % 50 == 49:
                    client.flush()
            client.flush()
        except OSError:
            pass
        client.read_to_end()
        assert client.goaways and client.goaways[-1][1] == ENHANCE_YOUR_CALM, client.goaways
        assert other.get().status == 200 and not other.goaways
        assert sanitized or weir.resident_kib() < before + 2048
    weir.counts(1, "weir_http2_errors_total", cause=cause)
    eventually(lambda: [m for level, m in weir.log() if level == "warn" and m.startswith(f"client {name}: HTTP/2 connection closed: ")],
               what="the warning")
    return weir


def test_rapid_reset(rig):  # CVE-2023-44487
    def each(client, _):
        client.put(RST_STREAM, 0, client.put_request("/slow?ms=60000"), CANCEL.to_bytes(4, "big"))
    weir = attack(rig, "resets", each)
    weir.counts(0, "weir_requests_active")


def test_made_you_reset(rig):  # CVE-2025-8671
    def each(client, i):
        client.put(WINDOW_UPDATE, 0, client.put_request(method="POST", end=False), b"\x7f\xff\xff\xff")
        if i % 10 == 9:
            client.responds_to_ping()
    attack(rig, "resets", each)


def test_resets_per_second_is_configurable(rig):
    weir = rig.weir(workers=1, http2={"resets_per_second": 2})
    with Http2(weir.address) as client:
        assert client.responds_to_ping()
        for i in range(5):
            client.put(RST_STREAM, 0, client.put_request("/slow?ms=60000"), CANCEL.to_bytes(4, "big"))
        client.flush()
        client.read_to_end()
        assert client.goaways[-1][1] == ENHANCE_YOUR_CALM


def test_proxies_may_reset_the_calls_of_the_rate_limit_service(rig):
    """Envoy resets each call that takes too long, and has many on one connection."""
    for trusted in ["127.0.0.0/8"], ["192.0.2.1"]:
        _, listener = weir_with_service(rig, {"edge": {"descriptors": [{"key": "free"}]}}, {"trusted": trusted},
                                        workers=1, http2={"resets_per_second": 2})
        with Http2(listener) as client:
            assert client.responds_to_ping()
            for _ in range(50):
                client.put(RST_STREAM, 0, client.put_request("/json", "POST", end=False), CANCEL.to_bytes(4, "big"))
            client.flush()
            if trusted == ["127.0.0.0/8"]:
                assert client.responds_to_ping() and not client.goaways
            else:
                client.read_to_end()
                assert client.goaways[-1][1] == ENHANCE_YOUR_CALM


def test_continuation_flood(rig):  # CVE-2024-27316
    def each(client, i):
        if i == 0:
            client.put(HEADERS, END_STREAM, 1, client.encoder.encode([(":method", "GET")]))
        client.put(CONTINUATION, 0, 1, client.encoder.encode([(f"x-{i}", "y" * 100)]))
    attack(rig, "continuations", each)


def test_settings_flood(rig):  # CVE-2019-9515
    attack(rig, "settings", lambda client, i: client.put(SETTINGS, 0, 0, b"\0\4\0\1\0\0"))


def test_ping_flood(rig):  # CVE-2019-9512
    attack(rig, "pings", lambda client, i: client.put(PING, 0, 0, b"12345678"))


def test_priority_flood(rig):  # CVE-2019-9513
    attack(rig, "priorities", lambda client, i: client.put(PRIORITY, 0, 2 * i + 1, b"\0\0\0\0\1"))


def test_window_update_flood(rig):
    attack(rig, "window_updates", lambda client, i: client.put(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"))


def test_empty_data_flood(rig):  # CVE-2019-9518
    def each(client, i):
        if i == 0:
            client.put_request(method="POST", end=False)
        client.put(DATA, 0, 1)
    attack(rig, "empty_frames", each)


def test_padding_flood(rig):
    def each(client, i):
        if i == 0:
            client.put_request(method="POST", end=False)
        client.put(DATA, PADDED, 1, b"\x3f" + bytes(63))
    attack(rig, "empty_frames", each)


def test_unknown_frames_flood(rig):
    attack(rig, "other_frames", lambda client, i: client.put(0x77, 0, 0, b"x"))


def test_windows_of_one_byte(rig):  # CVE-2019-9511
    def each(client, i):
        if i == 0:
            client.hold = True
            client.put(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (1).to_bytes(4, "big"))
            client.put_request("/bytes/100000")
            client.flush()
            client.responds_to_ping()
        client.put(WINDOW_UPDATE, 0, 1, b"\0\0\0\1")
        client.responds_to_ping() if i % 20 == 0 and i < 60 else client.flush()
        client.read_until(lambda: client.closed or len(client.streams[1].body) > i)
    attack(rig, "small_windows", each)


def test_hpack_bomb(rig):
    weir = rig.weir(workers=1)
    entry = ("x-bomb", "y" * 3000)
    with Http2(weir.address) as client:
        assert client.get(fields=[entry]).status == 200  # the entry is now in the dynamic table
        before = weir.resident_kib()
        head = client.encoder.encode([(":method", "GET"), (":scheme", "http"), (":authority", "api.test"), (":path", "/")])
        reference = client.encoder.encode([entry])
        assert len(reference) == 1
        for stream in range(3, 43, 2):
            client.put(HEADERS, END_STREAM | END_HEADERS, stream, head + reference * 15000)
        client.flush()
        client.next = 43
        assert client.get().status == 200
        assert all(client.streams[stream].reset == ENHANCE_YOUR_CALM for stream in range(3, 43, 2))
        assert sanitized or weir.resident_kib() < before + 1024
    weir.counts(20, "weir_http2_errors_total", cause="header_list")


def test_stalled_windows(rig):  # CVE-2019-9517: large responses that the client does not read
    weir = rig.weir(workers=1, timeouts={"send": "1s"})
    clients = [Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0)], hold=True) for _ in range(5)]
    for client in clients:
        for _ in range(100):
            client.put_request("/bytes/10000000")
        client.flush()
    assert get(weir.address, "/bytes/100").status == 200
    for client in clients:
        client.read_until(lambda client=client: all(s.over() for s in client.streams.values()))
        assert not any(s.ended for s in client.streams.values())
        client.socket.close()
    weir.counts(500, "weir_errors_total", cause="client_stalled")
    # 500 streams with at most one chunk of 64 KiB each
    assert sanitized or weir.resident_kib() < 100 * 1024


def test_a_client_that_does_not_read_is_disconnected(rig):
    """weir stops reading from the client and closes the connection at the timeout. Only the
    client's own requests are delayed."""
    weir = rig.weir(workers=1, timeouts={"send": "1s"})
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 0x7fffffff)], hold=True) as client:
        client.put(WINDOW_UPDATE, 0, 0, (0x7fffffff - 65535).to_bytes(4, "big"))
        for _ in range(50):
            client.put_request("/bytes/10000000")
        client.flush()
        assert get(weir.address, "/bytes/100").status == 200
        weir.counts(0, "weir_requests_active")
    assert sanitized or weir.resident_kib() < 60 * 1024


def test_slow_bodies_time_out(rig):
    weir = rig.weir(workers=1, timeouts={"request_body": "500ms"})
    with Http2(weir.address) as client:
        streams = [client.put_request("/echo", method="POST", end=False) for _ in range(50)]
        client.flush()
        assert {client.response(stream).status for stream in streams} == {408}
        assert client.get().status == 200
    weir.counts(50, "weir_errors_total", cause="request_body_timeout")


def test_a_deadline_beside_other_input(rig):
    """Unread input of other streams extends a deadline only once."""
    weir = rig.weir(workers=1, timeouts={"request_body": "200ms"})
    with Http2(weir.address) as client:
        stalled = client.start("/echo", method="POST", end=False)
        assert client.responds_to_ping()
        for _ in range(6):
            weir.signal(signal.SIGSTOP)
            time.sleep(0.3)  # the deadline passes
            client.send(PING, 0, 0, b"unread  ")
            weir.signal(signal.SIGCONT)
            assert client.responds_to_ping() and client.responds_to_ping()
            if client.streams[stalled].status:
                break
        else:
            raise AssertionError("the deadline was extended six times")
        assert client.response(stalled).status == 408


def test_an_end_that_does_not_fit_the_window(rig):
    """The content fills the window, and END_STREAM does not fit: after the GOAWAY, the client has
    timeouts.send to open the window."""
    def script(peer, _number):
        while peer.read_request():
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            read.wait(20)
            peer.send(b"0\r\n\r\n")
    read, api = threading.Event(), Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, timeouts={"keepalive": "3s", "send": "3s"})
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 5)], hold=True) as client:
        stream = client.start()
        client.read_until(lambda: client.streams[stream].body == b"hello")
        read.set()
        assert client.read_to_end()[-1] == (stream, NO_ERROR) and client.streams[stream].cut
    with Http2(weir.address, settings=[(INITIAL_WINDOW_SIZE, 5)], hold=True) as client:
        stream = client.start()
        client.read_until(lambda: client.goaways)
        client.send(WINDOW_UPDATE, 0, stream, b"\0\0\0\1")
        assert client.response(stream).body == b"hello"
        client.read_to_end()
    weir.counts(0, "weir_connections")


def test_random_frames_do_not_crash_weir(rig):
    """Frames with random types, lengths and streams: weir closes the connection and keeps
    running."""
    import random
    weir = rig.weir(workers=1)
    for seed in range(30):
        chosen = random.Random(seed)
        with Http2(weir.address) as client:
            client.start()
            try:
                for _ in range(50):
                    client.socket.sendall(frame(chosen.randrange(12), chosen.randrange(256), chosen.randrange(8), chosen.randbytes(chosen.randrange(40))))
            except OSError:
                continue
    assert get(weir.address).status == 200
    weir.counts(0, "weir_requests_active")
    assert not re.search("error", "".join(level for level, _ in weir.log()))
