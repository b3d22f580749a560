"""TLS on listeners: handshakes, host selection, bodies with slow peers, the end of connections,
reloads."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import zlib

from proxy_header import V1
from rig import eventually, sanitized, time_scale, timeout
from scripted import OK, Scripted
from slow_reader import read_slowly
from tls_client import FILES, ManualTls, TlsConnection, client, pair, weir_with_tls
from tunnels import ASKED, echo_after
from wire import Connection, IncompleteResponse, chunked, connect, get, request_bytes


def handshake_errors(weir):
    return weir.metric("weir_tls_handshake_errors_total")


def test_requests_over_both_tls_versions(rig):
    weir = weir_with_tls(rig)
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        with TlsConnection(weir.address, context=client(version=version)) as connection:
            assert connection.socket.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):
                fields = json.loads(connection.request("/echo").body)["fields"]
                fields_received = {name.lower(): value for name, value in fields}
                assert fields_received["x-forwarded-proto"] == "https" and fields_received["x-forwarded-for"] == "127.0.0.1"
    assert handshake_errors(weir) == 0


def test_curl(rig):
    weir = weir_with_tls(rig)
    url = f"https://one.test:{weir.address[1]}/bytes/100000"
    done = subprocess.run(["curl", "-sS", "--cacert", os.path.join(FILES, "cert.pem"), "--resolve",
                           f"one.test:{weir.address[1]}:127.0.0.1", url, url], capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 200000


def assert_handshake_fails(weir, **more):
    before = handshake_errors(weir)
    try:
        TlsConnection(weir.address, **more).close()
    except (ssl.SSLError, OSError):
        eventually(lambda: handshake_errors(weir) == before + 1, what="the failed handshake to be counted")
        return
    raise AssertionError("the handshake should have failed")


def test_unsupported_versions_and_protocols_are_refused(rig):
    weir = weir_with_tls(rig)
    old = client()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    assert_handshake_fails(weir, context=old)
    static = client(version=ssl.TLSVersion.TLSv1_2)
    static.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    assert_handshake_fails(weir, context=static)
    assert_handshake_fails(weir, context=client(alpn=["spdy/3"]))
    with TlsConnection(weir.address, context=client(alpn=["http/1.1", "h2"])) as connection:
        assert connection.socket.selected_alpn_protocol() == "h2"
    with TlsConnection(weir.address, context=client(alpn=["spdy/3", "http/1.1"])) as connection:
        assert connection.socket.selected_alpn_protocol() == "http/1.1"
    with TlsConnection(weir.address, context=client(alpn=None)) as connection:
        assert connection.request().status == 200


def test_the_certificate_is_selected_by_host(rig):
    weir = weir_with_tls(rig, "one", "two")
    for host, file in ("one.test", "one"), ("a.one.test", "one"), ("two.test", "two"), ("b.two.test", "two"), ("TWO.test", "two"):
        with TlsConnection(weir.address, host, client(file)) as connection:
            assert connection.request().status == 200
    any_host = client("one")
    any_host.check_hostname = False
    for host in None, "other.test":  # the first certificate is the default
        with TlsConnection(weir.address, host, any_host) as connection:
            assert connection.request().status == 200


def test_each_client_gets_a_certificate_type_that_it_supports(rig):
    """RSA and ECDSA certificates for the same hosts, in either order; also without SNI."""
    for order in ("one", "rsa", "two"), ("two", "rsa", "one"), ("rsa", "one"):
        weir = weir_with_tls(rig, *order)
        for ciphers, file in ("ECDHE-ECDSA-AES128-GCM-SHA256", "one"), ("ECDHE-RSA-AES128-GCM-SHA256", "rsa"):
            for host in ("one.test", "a.one.test") + ((None, "other.test") if order[0] != "two" else ()):
                context = client(file, version=ssl.TLSVersion.TLSv1_2)
                context.check_hostname = host in ("one.test", "a.one.test")
                context.set_ciphers(ciphers)
                with TlsConnection(weir.address, host, context) as connection:
                    assert connection.request().status == 200
        with TlsConnection(weir.address, "two.test", client("two")) if "two" in order else TlsConnection(weir.address, "one.test") as connection:
            assert connection.request().status == 200


def test_sessions_are_resumed_with_tickets(rig):
    weir = weir_with_tls(rig, workers=3)
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        context = client(version=version)
        with TlsConnection(weir.address, context=context) as connection:
            connection.request()
            session = connection.socket.session
        for _ in range(4):  # by any worker
            with TlsConnection(weir.address, context=context, session=session) as connection:
                assert connection.socket.session_reused
                assert connection.request().status == 200


def test_garbage_is_refused(rig):
    weir = weir_with_tls(rig)
    for count, data in enumerate((b"\x16\x03\x01\x00\x05hello", b"\0" * 1000, b"\x80\x2e\x01", V1), 1):
        with Connection(weir.address) as connection:
            connection.send(data)
            try:
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:  # already closed
                pass
            while connection.fill():
                pass
            assert b"HTTP/1.1" not in connection.buffer
        eventually(lambda: handshake_errors(weir) == count, what="each failure to be counted")
    assert not [line for line in weir.log() if "handshake" in line[1]], "no log line per failure"
    with TlsConnection(weir.address) as connection:
        assert connection.request().status == 200


def test_handshake_and_request_sent_byte_by_byte(rig):
    weir = weir_with_tls(rig)
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        manual = ManualTls(weir.address, client(version=version)).handshake(step=1)
        manual.tls.write(request_bytes("/bytes/30000", headers={"Connection": "close"}))
        for byte in manual.take():
            manual.socket.sendall(bytes([byte]))
        assert manual.read_all().endswith((b"abcdefghijklmnopqrstuvwxyz" * 2000)[:30000][-100:])
        manual.socket.close()


def test_incomplete_handshakes_time_out(rig):
    weir = weir_with_tls(rig, timeouts={"request_header": f"{2 * time_scale}s"})
    first = ManualTls(weir.address)
    first.try_to(first.tls.do_handshake)
    hello = first.take()
    waiting = [Connection(weir.address) for _ in range(3)]
    waiting[1].send(hello[:50])
    waiting[2].send(hello)
    for connection in waiting[:2]:
        assert connection.is_closed()
    while waiting[2].fill():
        pass
    eventually(lambda: handshake_errors(weir) == 4, what="all four to be counted, including the one that sent nothing")
    with TlsConnection(weir.address) as silent:  # one timeout for handshake and head
        assert silent.is_closed()
    for connection in waiting:
        connection.close()
    eventually(lambda: weir.metric("weir_connections") == 0)


def test_requests_within_one_record_are_all_served(rig):
    """Records with several requests each, with and without content, after a slow request."""
    weir = weir_with_tls(rig, workers=1)
    bodies = [os.urandom(size) for size in (0, 1, 10, 5000, 16000, 3)]
    batch = b"".join(request_bytes("/echo", "POST", body=body) for body in bodies) + request_bytes("/") * 50
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        with TlsConnection(weir.address, context=client(version=version)) as connection:
            for _ in range(3):
                connection.send(request_bytes("/slow?ms=100") + batch)
                assert connection.response().status == 200
                for body in bodies:
                    echoed = json.loads(connection.response("POST").body)
                    assert (echoed["content_length"], echoed["content_crc32"]) == (len(body), zlib.crc32(body))
                for _ in range(50):
                    assert connection.response().status == 200
            body = os.urandom(300000)
            echoed = json.loads(connection.request("/echo", "POST", {"Transfer-Encoding": "chunked"}, chunked(body, 7777)).body)
            assert echoed["content_crc32"] == zlib.crc32(body)


def test_a_connection_with_a_request_in_its_record_is_not_idle(rig):
    """Between the requests of one record the connection is idle for a loop iteration, while new
    connections wait."""
    weir = weir_with_tls(rig, workers=1, size_limits={"connections": 2, "connections_per_ip": 0})

    def are_served():
        began = time.monotonic()
        with contextlib.ExitStack() as connections:
            try:
                first, second = (connections.enter_context(TlsConnection(weir.address)) for _ in range(2))
                assert [c.request().status for c in (first, second)] == [200, 200]
                weir.signal(signal.SIGSTOP)
                for _ in range(3):
                    connections.enter_context(connect(weir.address))
                first.send(request_bytes() * 20)
                weir.signal(signal.SIGCONT)
                assert [first.response().status for _ in range(20)] == [200] * 20
                return True
            except (IncompleteResponse, OSError):  # weir closes a connection that is idle and 1 s old for a new one
                assert time.monotonic() - began > 0.9, "closed before the end of its first second"
    eventually(are_served, 30, "20 responses within a second")


@timeout(120)
def test_a_large_response_to_a_slow_reader_uses_constant_memory(rig):
    weir = weir_with_tls(rig, workers=1)
    size = 20_000_000
    expected = hashlib.md5((b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]).hexdigest()
    with TlsConnection(weir.address) as connection:
        connection.request("/bytes/1000000")
    at_rest = weir.resident_kib()
    with TlsConnection(weir.address) as connection:
        connection.send(request_bytes(f"/bytes/{size}"))
        assert connection.read_head().number("Content-Length") == size
        assert read_slowly(connection, size) == expected
    grown = weir.resident_kib() - at_rest
    assert sanitized or grown < 2000, f"{grown} KiB more than at rest"


@timeout(120)
def test_a_large_upload_to_a_slow_server_uses_constant_memory(rig):
    total, digests = 20_000_000, []

    def slow_server(peer, _number):
        peer.read_until(b"\r\n\r\n", "the head")
        digests.append(read_slowly(peer, total))
        peer.send(OK)

    api = Scripted(rig, slow_server)
    weir = weir_with_tls(rig, workers=1, upstreams={"api": {"servers": [api.text]}})
    body = os.urandom(total)
    at_rest = weir.resident_kib()
    with TlsConnection(weir.address, timeout=60) as connection:
        connection.send(request_bytes("/", "POST", {"Content-Length": str(total)}))
        for at in range(0, total, 65536):
            connection.send(body[at:at + 65536])
        assert connection.response().status == 200
    assert digests == [hashlib.md5(body).hexdigest()]
    grown = weir.resident_kib() - at_rest
    assert sanitized or grown < 2000, f"{grown} KiB more than at rest"


def test_a_tunnel_transfers_in_both_directions_at_once(rig):
    api = Scripted(rig, echo_after(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                                   b"Sec-WebSocket-Accept: y\r\n\r\n"))
    weir = weir_with_tls(rig, workers=1, upstreams={"api": {"servers": [api.text]}})
    manual = ManualTls(weir.address).handshake()
    manual.tls.write(request_bytes(headers=ASKED))
    sent = os.urandom(3_000_000)
    received, done = bytearray(), threading.Event()
    lock = threading.Lock()

    def read():
        while not done.is_set():
            data = manual.socket.recv(10000)
            with lock:
                if data:
                    manual.incoming.write(data)
                else:
                    manual.incoming.write_eof()
                try:
                    while (piece := manual.try_to(manual.tls.read, 65536)):
                        received.extend(piece)
                except ssl.SSLZeroReturnError:  # close_notify
                    done.set()

    manual.socket.sendall(manual.take())
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    eventually(lambda: b"\r\n\r\n" in received, what="101")
    head = bytes(received).index(b"\r\n\r\n") + 4
    for at in range(0, len(sent), 50000):
        with lock:
            manual.tls.write(sent[at:at + 50000])
            data = manual.take()
        manual.socket.sendall(data)
    eventually(lambda: len(received) >= head + len(sent), 30, "the complete echo")
    with lock:  # half-close: after close_notify, the server's last data still arrives
        manual.try_to(manual.tls.unwrap)
        data = manual.take()
    assert bytes(received[head:]) == sent
    manual.socket.sendall(data)
    manual.socket.shutdown(socket.SHUT_WR)
    assert done.wait(20) and bytes(received[head + len(sent):]) == b"goodbye"
    manual.socket.close()


def test_close_notify_is_sent_only_after_complete_responses(rig):
    """close_notify after the last response, none after a truncated one."""
    weir = weir_with_tls(rig)
    manual = ManualTls(weir.address).handshake()
    manual.tls.write(request_bytes("/bytes/1000", headers={"Connection": "close"}))
    assert manual.read_all().endswith(b"l")  # an end without close_notify would raise SSLEOFError
    manual.socket.close()

    def cut(peer, _number):
        peer.read_until(b"\r\n\r\n", "the head")
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        peer.read_until(b"go", "the sign")
        peer.reset()

    api = Scripted(rig, cut)
    weir = weir_with_tls(rig, upstreams={"api": {"servers": [api.text]}})
    manual = ManualTls(weir.address).handshake()
    manual.tls.write(request_bytes(version="HTTP/1.0", method="POST", headers={"Content-Length": "2"}))
    manual.socket.sendall(manual.take())
    received = b""
    while not received.endswith(b"half"):
        received += manual.until(manual.tls.read, 65536)
    manual.tls.write(b"go")
    manual.socket.sendall(manual.take())
    try:
        assert manual.read_all() is None, "a truncated response looks complete"
    except (ssl.SSLEOFError, ConnectionResetError):
        pass
    manual.socket.close()


def test_half_close_with_close_notify_still_gets_the_response(rig):
    weir = weir_with_tls(rig, half_close="allow")
    manual = ManualTls(weir.address, client(version=ssl.TLSVersion.TLSv1_3)).handshake()
    manual.tls.write(request_bytes("/slow?ms=200"))
    manual.try_to(manual.tls.unwrap)
    manual.socket.sendall(manual.take())
    manual.socket.shutdown(socket.SHUT_WR)
    while manual.socket.recv(65536):
        pass  # Python cannot read the response after unwrap
    eventually(lambda: weir.metric("weir_responses_total", **{"class": "2xx"}) == 1)
    manual.socket.close()


def test_key_updates_during_a_download(rig):
    """RFC 8446 section 4.6.3: reading a key update requires writing one."""
    weir = weir_with_tls(rig)
    with subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{weir.address[1]}", "-servername", "one.test", "-tls1_3",
                           "-crlf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as peer:
        for _ in range(5):
            peer.stdin.write(b"K\n")
            peer.stdin.flush()
            while b"KEYUPDATE" not in (line := peer.stderr.readline()):
                assert line, "no key update"
        peer.stdin.write(b"GET /bytes/26 HTTP/1.1\nHost: a\nConnection: close\n\n")
        peer.stdin.flush()
        out = peer.stdout.read()
    assert b"abcdefghijklmnopqrstuvwxyz" in out, out[-500:]


def test_a_reload_loads_the_new_certificate(rig):
    for name, file in ("cert.pem", "cert.pem"), ("key.pem", "key.pem"):
        shutil.copy(os.path.join(FILES, file), os.path.join(rig.directory, name))
    weir = rig.weir(listen=[{"address": "127.0.0.1:0", "tls": {"certificate": "cert.pem", "key": "key.pem"}}])
    with TlsConnection(weir.address, "one.test", client("one")) as before:
        assert before.request().status == 200
        shutil.copy(os.path.join(FILES, "three.pem"), os.path.join(rig.directory, "cert.pem"))
        weir.expect_errors("is not the key of the certificate", "has errors")
        weir.signal(1)
        weir.wait_for_output("(the current policy stays in effect)")
        with TlsConnection(weir.address, "one.test", client("one")) as connection:
            assert connection.request().status == 200
        shutil.copy(os.path.join(FILES, "three.key"), os.path.join(rig.directory, "key.pem"))
        weir.signal(1)
        weir.wait_for_output("reload: (.*) is in effect")

        def renewed():
            try:
                with TlsConnection(weir.address, "three.test", client("three")) as connection:
                    return connection.request().status == 200
            except ssl.SSLError:
                return False
        eventually(renewed, what="the new certificate")
        assert before.request().status == 200, "an open connection keeps its certificate"


def test_tls_after_a_proxy_protocol_header(rig):
    weir = weir_with_tls(rig, extra={"proxy_protocol": True}, identity={"trusted_proxies": ["127.0.0.1"]})
    with TlsConnection(weir.address, plain=V1) as connection:
        fields_received = {name.lower(): value for name, value in json.loads(connection.request("/echo").body)["fields"]}
        assert fields_received["x-forwarded-for"] == "203.0.113.7" and fields_received["x-forwarded-proto"] == "https"
    manual = ManualTls(weir.address)
    manual.try_to(manual.tls.do_handshake)
    manual.socket.sendall(V1 + manual.take())  # in one piece
    manual.receive()
    manual.handshake().tls.write(request_bytes("/bytes/26", headers={"Connection": "close"}))
    assert manual.read_all().endswith(b"xyz")
    manual.socket.close()


def test_errors_in_certificate_files_are_reported_at_start(rig):
    rig.write("policy.yaml", json.dumps(rig.policy(listen=[{"address": "127.0.0.1:0", "tls": {**pair("one"), "key": "no.key"}}])))
    done = rig.command("-c", "policy.yaml")
    assert done.returncode == 1 and '"no.key" cannot be read: No such file or directory' in done.stderr, done.stderr


def test_connections_leak_no_descriptors(rig):
    weir = weir_with_tls(rig, workers=1)
    get_one = lambda: TlsConnection(weir.address).request().status
    assert get_one() == 200
    eventually(lambda: weir.metric("weir_connections") == 0)
    descriptors = weir.descriptors()
    for _ in range(30):
        connection = TlsConnection(weir.address)
        connection.send(request_bytes("/bytes/1000000"))
        connection.close()
        assert get_one() == 200
    eventually(lambda: weir.metric("weir_connections") == 0)
    eventually(lambda: weir.descriptors() <= descriptors + 2, what="the number of descriptors from before")
    assert get(weir.admin, "/healthz").status == 200
