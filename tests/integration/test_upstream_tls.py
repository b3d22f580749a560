"""TLS to upstreams: certificate verification, error messages, connection reuse, session resumption,
truncated responses."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

from certificates import Authority
from cryptography.x509.oid import ExtendedKeyUsageOID
from rig import eventually, free_port
from scripted import OK, Scripted, respond_to_all
from tls_server import CA, TlsServer, context, file
from wire import Connection, IncompleteResponse, get, request_bytes


def weir_before(rig, *servers, tls=None, workers=1, **more):
    upstream = {"servers": [s if isinstance(s, str) else s.text for s in servers], "tls": {"ca": CA} if tls is None else tls}
    return rig.weir(upstreams={"api": {**upstream, **more}}, workers=workers, rules=[])


def describe_request(peer, _number):
    """Responds with the request head and the size of the content."""
    while (received := peer.read_request()) is not None:
        body = json.dumps({"head": received[0].decode("latin-1"), "content": len(received[1])}).encode()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def test_requests_over_both_tls_versions(rig):
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        tls_context = context(version=version)
        names = []
        tls_context.sni_callback = lambda _socket, name, _context: names.append(name)
        server = TlsServer(rig, describe_request, lambda _: tls_context)
        weir = weir_before(rig, server, tls={"ca": CA, "server_name": "server.test"})
        with Connection(weir.address) as client:
            for size in 0, 5, 300000:
                received_request = json.loads(client.request("/", "POST", body=b"x" * size).body)
                assert received_request["content"] == size and "x-forwarded-proto: http\r\n" in received_request["head"].lower()
        weir.counts(2, "weir_upstream_reused_total")
        assert server.handshakes == 1 and names == ["server.test"]


def test_an_ip_address_is_verified_but_not_sent_as_sni(rig):
    tls_context, names = context(), []
    tls_context.sni_callback = lambda _socket, name, _context: names.append(name)
    weir = weir_before(rig, TlsServer(rig, respond_to_all(), lambda _: tls_context))
    assert get(weir.address).status == 200 and names == [None]


def test_a_large_response_and_a_unix_socket(rig):
    body = os.urandom(3 << 20)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    server = TlsServer(rig, respond_to_all(answer), address=os.path.join(rig.directory, "api.sock"))
    weir = weir_before(rig, server, tls={"ca": CA, "server_name": "server.test"})
    for _ in range(2):
        assert get(weir.address).body == body


def test_the_servers_certificate_can_be_pinned(rig):
    """The certificate itself is in tls.ca, without its CA."""
    assert get(weir_before(rig, TlsServer(rig, respond_to_all()), tls={"ca": file("server.pem")}).address).status == 200


def assert_certificate_error(rig, words, servers=None, tls_context=None, **more):
    """The response is a 502 with its own cause, and the log describes the error once."""
    server = servers or TlsServer(rig, respond_to_all(), lambda _: tls_context or context())
    weir = weir_before(rig, server, **more)
    with Connection(weir.address) as client:
        for _ in range(5):
            answer = client.request()
            assert answer.status == 502 and b"no TLS handshake with a server" in answer.body, answer
    eventually(lambda: weir.metric("weir_errors_total", cause="upstream_tls") == 5, what="the requests to be counted")
    weir.wait_for_output(re.escape(words))
    lines = [line for _, line in weir.log() if words in line]
    assert len(lines) == 1 and "127.0.0.1" in lines[0], weir.output()


def test_an_expired_certificate_is_refused(rig):
    assert_certificate_error(rig, "expired on 2021-01-01", tls_context=context("expired.pem"))


def test_a_certificate_for_another_name_is_refused(rig):
    assert_certificate_error(rig, "its certificate is not valid for other.test but for server.test (tls.server_name says another)",
            tls={"ca": CA, "server_name": "other.test"})


def test_a_common_name_is_no_name_of_a_server(rig):
    authority = Authority(rig.directory)
    one = authority.issue("other.test", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    assert_certificate_error(rig, "its certificate is not valid for other.test but for no host name in its subjectAltName; a common name does not count",
            tls={"ca": authority.file, "server_name": "other.test"}, tls_context=context(one.file, one.key_file))


def test_an_unknown_authority_is_refused(rig):
    assert_certificate_error(rig, "its certificate is from an authority that is not trusted (see tls.ca): Test", tls={"ca": file("two.pem")})


def test_a_self_signed_certificate_is_refused(rig):
    assert_certificate_error(rig, "its certificate is self-signed and not trusted", tls_context=context("cert.pem", "key.pem"))


def test_the_system_authorities_are_the_default(rig):
    assert_certificate_error(rig, "its certificate is from an authority that is not trusted (see tls.ca): Test", tls=True)


def test_a_server_without_tls_is_refused(rig):
    def plain(peer, _number):
        peer.socket.recv(100)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert_certificate_error(rig, "no TLS handshake with it: wrong version number", servers=Scripted(rig, plain))


class Restarting(TlsServer):
    """Closes its connections until the one with the number `until`, some before and some after it
    has received the ClientHello."""
    until = 0

    def serve(self, peer, number):
        if number >= self.until:
            return super().serve(peer, number)
        if number % 2:
            peer.socket.recv(1)
        peer.close()


def test_a_server_that_closes_new_connections_gets_one_more_try(rig):
    """As of a server during its restart. The request was not sent, so its method does not
    matter."""
    def describe_once(peer, _number):
        _, body = peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    server = Restarting(rig, describe_once)
    weir = weir_before(rig, server)
    for closed in 1, 0, 1:
        server.until = server.accepted + closed
        answer = get(weir.address, method="POST", body=b"12345")
        assert answer.status == 200 and answer.body == b"12345", answer
    weir.counts(2, "weir_upstream_retries_total", cause="connect")
    accepted, server.until, began = server.accepted, 1 << 20, time.monotonic()
    assert get(weir.address).status == 502
    weir.counts(3, "weir_upstream_retries_total", cause="connect")
    eventually(lambda: server.accepted >= accepted + 2, what="one more try")
    # 1 s after the failure, weir probes the server
    assert server.accepted == accepted + 2 or time.monotonic() - began > 1, "no more than one more try"
    weir.counts(1, "weir_errors_total", cause="upstream_connect")


def test_another_server_is_preferred_to_one_that_closes_new_connections(rig):
    closing, good = Restarting(rig, respond_to_all()), TlsServer(rig, respond_to_all())
    closing.until = 1 << 20
    weir = weir_before(rig, closing, good, eject={"time": "1h"})
    began = time.monotonic()
    assert [get(weir.address).status for _ in range(6)] == [200] * 6
    assert closing.accepted <= 2 + int(time.monotonic() - began), "once, and at most a probe per second"


def test_verification_can_be_disabled(rig):
    tls_context = context("expired.pem")
    weir = weir_before(rig, TlsServer(rig, respond_to_all(), lambda _: tls_context), tls={"verify": False, "server_name": "any.test"})
    assert get(weir.address).status == 200
    done = rig.command("check", "-c", weir.policy_file)
    assert done.returncode == 0 and "warning: upstreams.api.tls.verify: an attacker between" in done.stderr, done.stderr


def test_a_server_that_requires_a_client_certificate(rig):
    tls_context = context(client_ca=CA, version=ssl.TLSVersion.TLSv1_2)
    server = TlsServer(rig, respond_to_all(), lambda _: tls_context)
    own = {"ca": CA, "certificate": file("client.pem"), "key": file("client.key")}
    assert get(weir_before(rig, server, tls=own).address).status == 200
    assert_certificate_error(rig, "no TLS handshake with it: ", servers=server)
    # with TLS 1.3 the error arrives after the handshake
    newer = context(client_ca=CA, version=ssl.TLSVersion.TLSv1_3)
    server = TlsServer(rig, respond_to_all(), lambda _: newer)
    assert get(weir_before(rig, server, tls=own).address).status == 200
    weir = weir_before(rig, server)
    assert get(weir.address).status == 502
    # "tlsv13 alert certificate required", unless a reset of the connection arrives first.
    eventually(lambda: any("closed the connection before the end of its response" in line for _, line in weir.log()))


def test_a_stalled_handshake_times_out(rig):
    weir = weir_before(rig, Scripted(rig, lambda peer, _: peer.socket.recv(100000) and peer.socket.recv(1)), connect_timeout="500ms")
    answer = get(weir.address)
    assert answer.status == 504
    eventually(lambda: weir.metric("weir_errors_total", cause="upstream_connect_timeout") == 1)
    weir.wait_for_output("no TLS handshake within connect_timeout")


def test_after_a_tls_error_the_next_server_is_used(rig):
    expired = context("expired.pem")
    bad, good = TlsServer(rig, respond_to_all(), lambda _: expired), TlsServer(rig, respond_to_all())
    weir = weir_before(rig, bad, good)
    assert {get(weir.address).status for _ in range(8)} == {200}
    weir.counts(1, "weir_upstream_retries_total")


def test_a_probe_includes_the_tls_handshake(rig):
    expired, valid, renewed = context("expired.pem"), context(), []
    server = TlsServer(rig, respond_to_all(), lambda _: valid if renewed else expired)
    weir = weir_before(rig, server)
    assert get(weir.address).status == 502
    weir.wait_for_output("expired on 2021-01-01; ejected")
    renewed.append(True)
    weir.wait_for_output("accepts connections again")
    eventually(lambda: server.handshakes == 1)
    assert get(weir.address).status == 200 and server.handshakes == 1, "the probe's connection is used for requests"


def test_sessions_are_resumed(rig):
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        tls_context = context(version=version)
        server = TlsServer(rig, respond_to_all(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")), lambda _: tls_context)
        weir = weir_before(rig, server)
        for _ in range(4):
            assert get(weir.address).status == 200
        assert (server.handshakes, server.resumed) == (4, 3)


def respond_until_close(with_close_notify, head=b"HTTP/1.1 200 OK\r\n\r\n"):
    def script(peer, _number):
        peer.read_request()
        peer.send(head + b"half of it")
        if with_close_notify:
            peer.socket.unwrap()
    return script


def test_a_response_delimited_by_close_requires_close_notify(rig):
    """RFC 9112 section 9.8: only close_notify marks the end."""
    assert get(weir_before(rig, TlsServer(rig, respond_until_close(True))).address).body == b"half of it"
    weir = weir_before(rig, TlsServer(rig, respond_until_close(False)))
    try:
        raise AssertionError(f"a truncated response looks complete: {get(weir.address)}")
    except IncompleteResponse:
        pass
    weir.counts(1, "weir_errors_total", cause="upstream_closed")


class Interactive:
    """openssl s_server, controlled through its stdin: K starts a key update."""

    def __init__(self, rig):
        self.port = free_port()
        self.text = f"127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            ["openssl", "s_server", "-accept", self.text, "-cert", file("server.pem"), "-key", file("server.key"), "-tls1_3", "-crlf", "-msg"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        rig.add_cleanup(self.close)
        self.wait(b"ACCEPT")

    def wait(self, word):
        while word not in (line := self.process.stdout.readline()):
            assert line, "s_server ended"

    def type(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close(self):
        self.process.kill()
        self.process.communicate()


def test_an_idle_connection_survives_tls_messages_but_not_data(rig):
    """Key updates and session tickets are allowed; application data is not."""
    server = Interactive(rig)
    weir = weir_before(rig, server)
    with Connection(weir.address) as client:
        for number in range(3):
            client.send(request_bytes("/", "POST", body=b"mark\n"))
            server.wait(b"mark")
            server.type(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n")
            assert client.response().status == 200
            eventually(lambda: weir.metric("weir_requests_active") == 0)
            server.type(b"k\n")
            server.wait(b"KeyUpdate")
        weir.counts(2, "weir_upstream_reused_total")
        weir.counts(1, "weir_upstream_connections_opened_total")
        server.type(b"unexpected data\n")
        eventually(lambda: weir.metric("weir_upstream_connections") == 0, what="the connection to be closed")


def test_unexpected_data_on_an_idle_connection_is_not_a_response(rig):
    """The request arrives first. In the loop iteration that reports both, weir finds the data on
    the idle connection, or its end."""
    def script(peer, number):
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)   # nothing waits for an acknowledgement
        respond_to_all()(peer, number)

    server = TlsServer(rig, script)
    weir = weir_before(rig, server)
    with Connection(weir.address) as client:
        for ill in False, True, False, True:
            assert client.request().body == b"ok"
            link = server.peers[-1]
            weir.signal(signal.SIGSTOP)
            client.send(request_bytes())
            if ill:
                link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON")
            else:
                link.socket.shutdown(socket.SHUT_RDWR)
            weir.signal(signal.SIGCONT)
            assert client.response().body == b"ok"


def test_a_reload_changes_the_trusted_authorities(rig):
    server = TlsServer(rig, respond_to_all())
    weir = weir_before(rig, server)
    assert get(weir.address).status == 200
    weir.reload(upstreams={"api": {"servers": [server.text], "tls": {"ca": file("two.pem")}}})
    eventually(lambda: get(weir.address).status == 502, what="the new authorities to be in effect")
    weir.reload(upstreams={"api": {"servers": [server.text], "tls": {"ca": CA}}})
    eventually(lambda: get(weir.address).status == 200, what="the old authorities to be in effect again")


def test_connections_leak_no_descriptors(rig):
    server = TlsServer(rig, respond_to_all(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
    weir = weir_before(rig, server)
    get(weir.address)
    before = weir.descriptors()
    with Connection(weir.address) as client:
        for _ in range(60):
            assert client.request().status == 200
    eventually(lambda: weir.descriptors() <= before, what="the connections to be closed")


def test_a_hanging_server_has_one_probe_at_a_time(rig):
    """A request that fails during a probe must not start another probe, which would survive a
    reload."""
    probe_ended = threading.Event()
    begun_by_then = []

    def mute(peer, number):
        # the first request fails when the second connection is established, the second request
        # while the probe runs
        if number < 2:
            eventually(lambda: server.accepted > number + 1, what="the next connection")
            return
        while peer.fill():
            pass
        if number == 2:
            begun_by_then.append(server.accepted)
            probe_ended.set()

    server = Scripted(rig, mute)
    # longer than the interval between probes
    weir = weir_before(rig, server, connect_timeout="5s", retry={"on": ["reset"]})
    weir.expect_errors("upstream|server|api")
    with Connection(weir.address) as first, Connection(weir.address) as second:
        first.send(request_bytes())
        second.send(request_bytes())
        assert [first.response().status, second.response().status] == [502, 502]
    assert probe_ended.wait(20)
    assert begun_by_then == [3]
