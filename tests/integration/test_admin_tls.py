"""Admin listeners with TLS and client certificates."""

import datetime
import json
import os
import re
import ssl
import subprocess

from certificates import Authority, write
from rig import address_of, eventually, text_of
from tls_client import FILES, ManualTls, TlsConnection, client, pair
from wire import Connection, get, request_bytes


PLAIN = {"address": "127.0.0.1:0", "hosts": ["api.test", "one.test"]}


def weir_with_admin(rig, **tls):
    """Returns weir, whose second admin listener has TLS, and the address of that one."""
    weir = rig.weir(admin=["127.0.0.1:0", {**PLAIN, "tls": {**pair("one"), **tls}}],
                    rules=[])
    return weir, address_of(re.findall(r"admin on (\S+)$", weir.output(), re.M)[1])


def test_everything_is_served_over_tls(rig):
    weir, address = weir_with_admin(rig)
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        with TlsConnection(address, context=client("one", version=version)) as connection:
            assert connection.socket.selected_alpn_protocol() == "http/1.1"
            assert connection.request("/healthz").body == b"ok\n"
            assert len(connection.request("/metrics").body) > 10000
            assert json.loads(connection.request("/api/v1/status").body)["version"]
            assert b"<html" in connection.request("/").body
            assert connection.request("/api/v1/clients/ip:127.0.0.1", "POST").status in (404, 405)
        with TlsConnection(address, context=client("one", version=version)) as events:
            events.send(b"GET /api/v1/events HTTP/1.1\r\nHost: api.test\r\n\r\n")
            assert events.read_head().status == 200
            for _ in range(2):
                events.read_until(b"\n\n", "an event")
    done = subprocess.run(["curl", "-sS", "--cacert", pair("one")["certificate"], "--resolve", f"one.test:{address[1]}:127.0.0.1",
                           f"https://one.test:{address[1]}/readyz"], capture_output=True, timeout=20)
    assert done.stdout.startswith(b"ready"), done
    with Connection(address) as plain:
        plain.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        while plain.fill():
            pass
        assert b"ok" not in plain.buffer
    distrustful = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        TlsConnection(address, context=distrustful).close()
    except ssl.SSLError:
        pass
    labels = {"listener": text_of(address), "reason": "client_alert"}
    eventually(lambda: weir.metric("weir_tls_handshake_failures_total", **labels) == 1)


def test_requests_that_are_sent_at_once_are_all_answered(rig):
    """Some of them wait in OpenSSL."""
    _, address = weir_with_admin(rig)
    with TlsConnection(address, context=client("one")) as connection:
        connection.send(request_bytes("/healthz") * 1000)
        for _ in range(1000):
            assert connection.response().status == 200


def test_all_failed_handshakes_of_an_admin_listener_are_counted(rig):
    """Also those without an alert. check_tls_bufferevent has the timeout, which is 10 s here."""
    weir, address = weir_with_admin(rig)
    manual = ManualTls(address)
    manual.try_to(manual.tls.do_handshake)
    hello = manual.take()
    manual.socket.close()

    def count(reason):
        return weir.metric("weir_tls_handshake_failures_total", listener=text_of(address), reason=reason)
    eventually(lambda: count("closed") == 1, what="a connection that sent nothing")
    for reason, data in ("closed", hello[:50]), ("closed", hello), ("plain_http", request_bytes("/healthz")), ("protocol", b"SSH-2.0-x\r\n"):
        before = count(reason)
        with Connection(address) as connection:
            connection.send(data)
        eventually(lambda: count(reason) == before + 1, what=f"{reason} after {data[:10]!r}")


def test_client_certificates_of_an_admin_listener(rig):
    ca, other = Authority(rig.directory), Authority(rig.directory, "Others")
    crl = write(rig, "crl.pem", ca.crl())
    weir, address = weir_with_admin(rig, client_ca=ca.file, client_crl=crl)
    alice = ca.issue("alice")

    def failures(reason):
        return weir.metric("weir_tls_handshake_failures_total", listener=text_of(address), reason=reason)

    def is_refused(context):
        try:
            with TlsConnection(address, context=context) as connection:
                assert connection.request("/healthz").status == 200
        except (ssl.SSLError, OSError):
            return True
        return False
    assert not is_refused(alice.context())
    for context, reason in ((client("one"), "no_certificate"), (other.issue("alice").context(), "unknown_ca")):
        for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
            context.minimum_version = context.maximum_version = version
            assert is_refused(context)
        eventually(lambda: failures(reason) == 2, what=reason)
        weir.wait_for_output(rf"client 127\.0\.0\.1:\d+ on {re.escape(text_of(address))}: TLS handshake refused, {reason}: ")
    context = alice.context()
    with TlsConnection(address, context=context) as connection:
        assert connection.request("/healthz").status == 200
        session = connection.socket.session
        write(rig, "crl.pem", ca.crl(alice))
        weir.reload()
        assert connection.request("/healthz").status == 421, "an open connection is verified anew"
    try:
        with TlsConnection(address, context=context, session=session) as connection:
            connection.request("/healthz")
        raise AssertionError("the session has survived the revocation")
    except (ssl.SSLError, OSError):
        eventually(lambda: failures("revoked") == 1)


def test_admin_connections_end_with_the_certificate(rig):
    ca = Authority(rig.directory)
    _, address = weir_with_admin(rig, client_ca=ca.file)
    context = ca.issue("alice", until=datetime.timedelta(seconds=8)).context()
    with TlsConnection(address, context=context) as connection, TlsConnection(address, context=context) as events:
        assert connection.request("/healthz").status == 200
        events.send(b"GET /api/v1/events HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert events.read_head().status == 200
        while events.fill():  # weir closes the stream
            pass
        assert connection.request("/healthz").status == 421


def test_tls_begins_and_ends_with_a_reload(rig):
    weir = rig.weir(admin=["127.0.0.1:0", PLAIN], rules=[])
    address = address_of(re.findall(r"admin on (\S+)$", weir.output(), re.M)[1])
    with Connection(address) as plain:
        assert plain.request("/healthz").status == 200
        weir.reload(admin=["127.0.0.1:0", {**PLAIN, "tls": pair("one")}])
        assert plain.request("/healthz").status == 421
    with TlsConnection(address, context=client("one")) as connection:
        assert connection.request("/healthz", headers={"Connection": "close"}).status == 200
    weir.reload(admin=["127.0.0.1:0", PLAIN])
    assert get(address, "/healthz").status == 200


def test_weir_top_by_url(rig):
    ca = Authority(rig.directory)
    alice = ca.issue("alice")
    server = {"certificate": os.path.join(FILES, "server.pem"), "key": os.path.join(FILES, "server.key")}  # for 127.0.0.1
    weir = rig.weir(rules=[], admin=["127.0.0.1:0", {"address": "127.0.0.1:0", "tls": server},
                                     {"address": "127.0.0.1:0", "tls": {**server, "client_ca": ca.file}}])
    plain, one, verifying = re.findall(r"admin on (\S+)$", weir.output(), re.M)
    trust = ["--ca", os.path.join(FILES, "ca.pem")]
    certificate = ["--cert", alice.file, "--key", alice.key_file]
    for arguments in [*trust, f"https://{one}/"], [*trust, *certificate, f"https://{verifying}"], [f"http://{plain}"]:
        shown = rig.command("top", "--once", *arguments)
        assert shown.returncode == 0 and "BUSIEST CLIENTS" in shown.stdout, shown
    for arguments, why in (
            ([*trust, f"https://localhost:{address_of(one)[1]}"], "its certificate is not valid for localhost"),
            (["--ca", pair("two")["certificate"], f"https://{one}"], "its certificate is not trusted; name its authority with --ca"),
            ([*trust, f"https://{plain}"], "it does not use TLS; use http://"), ([f"http://{one}"], "the answer is no HTTP"),
            ([*trust, f"https://{verifying}"], "the listener refuses the connection: tlsv13 alert certificate required"),
            (["--ca", "/nowhere", f"https://{one}"], "/nowhere cannot be read"),
            ([*trust, "--cert", alice.file, "--key", pair("two")["key"], f"https://{one}"], "is not the key of the certificate")):
        shown = rig.command("top", "--once", *arguments)
        assert shown.returncode == 1 and why in shown.stderr and not shown.stdout, (arguments, shown)
    assert rig.command("top", "--once", "--cert", alice.file, f"https://{one}").returncode == 2, "a certificate without its key"


def test_weir_top_by_policy(rig):
    """It trusts the certificates of the policy. Listeners without TLS are preferred, then those without client certificates."""
    ca = Authority(rig.directory)
    alice = ca.issue("alice")
    sockets = {name: "unix:" + os.path.join(rig.directory, name) for name in ("plain", "secure", "verifying", "nowhere")}
    secure = {"address": sockets["secure"], "tls": [pair("rsa"), pair("one")]}
    verifying = {"address": sockets["verifying"], "tls": {**pair("one"), "client_ca": ca.file}}
    nowhere = {"address": sockets["nowhere"], "tls": pair("one")}
    rig.weir(rules=[], admin=["127.0.0.1:0", sockets["plain"], secure, verifying])

    def top(*listeners, more=()):
        policy = rig.write("top.yaml", json.dumps(rig.policy(admin=list(listeners))))
        return rig.command("top", "--once", "-c", policy, *more)
    for listeners in [secure], [nowhere, sockets["plain"]], [{**verifying, "address": sockets["nowhere"]}, secure]:
        shown = top(*listeners)
        assert shown.returncode == 0 and "BUSIEST CLIENTS" in shown.stdout, (listeners, shown)
    assert top(verifying, more=["--cert", alice.file, "--key", alice.key_file]).returncode == 0
    for listener, more, why in ((verifying, [], "requires client certificates; name one with --cert and --key"),
                                ({**secure, "tls": pair("two")}, [], "its certificate is not trusted"),
                                (secure, ["--ca", pair("two")["certificate"]], "its certificate is not trusted")):
        shown = top(listener, more=more)
        assert shown.returncode == 1 and why in shown.stderr and not shown.stdout, (listener, more, shown)
