"""Client certificates: which ones are refused, and which client they name."""

import hashlib
import ipaddress
import json
import re
import socket
import ssl
import subprocess

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certificates import FROM_CN, MANY, Authority, hours, listener, write
from rig import eventually
from tls_client import TlsConnection, client, pair
from wire import Connection, get, request_bytes

VERSIONS = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def failures(weir, reason):
    return weir.metric("weir_tls_handshake_failures_total", reason=reason, listener="%s:%d" % weir.address) or 0


def is_refused(weir, reason, context=None):
    """Every version of TLS; the client receives an alert, not a reset."""
    for version in VERSIONS:
        before = failures(weir, reason)
        made = context or client("one")
        made.minimum_version = made.maximum_version = version
        try:
            with TlsConnection(weir.address, context=made) as connection:
                response = connection.request()
            raise AssertionError(f"{response.status} in place of a refusal")
        except ssl.SSLError as error:
            assert "ALERT" in str(error).upper(), error
        eventually(lambda: failures(weir, reason) == before + 1, what=f"the failure {reason} to be counted")


def asked(weir, context, **more):
    """Returns the header that the server received, by lower-case names."""
    with TlsConnection(weir.address, context=context) as connection:
        response = connection.request("/echo", **more)
        assert response.status == 200, response.status
        return {name.lower(): value for name, value in json.loads(response.body)["fields"]}


def client_of(weir, context):
    return asked(weir, context).get("x-weir-client")


def test_required_and_optional(rig):
    ca, other = Authority(rig.directory), Authority(rig.directory, "Others")
    alice = ca.issue("alice")
    foreign = other.issue("alice")
    required = rig.weir(listen=[listener(ca.file)], identity=FROM_CN, limits=MANY)
    optional = rig.weir(listen=[listener(ca.file, client_certificate="optional")], identity=FROM_CN, limits=MANY)
    for weir in required, optional:
        assert client_of(weir, alice.context()) == "certificate:alice"
        is_refused(weir, "unknown_ca", foreign.context())
    is_refused(required, "no_certificate")
    assert client_of(optional, client("one")) == "ip:127.0.0.1"
    assert required.metric("weir_tls_handshake_errors_total") == 4
    required.wait_for_output(r"client 127\.0\.0\.1:\d+ on 127\.0\.0\.1:\d+: TLS handshake refused, unknown_ca: .*client_ca.*; subject: CN=alice$")
    required.wait_for_output("no_certificate: it sent no certificate; give it one, or set client_certificate: optional")


def test_bad_certificates(rig):
    ca = Authority(rig.directory)
    revoked, alice = ca.issue("revoked"), ca.issue("alice")
    crl = write(rig, "crl.pem", ca.crl(revoked))
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl, client_certificate="optional")], identity=FROM_CN, limits=MANY)
    assert client_of(weir, alice.context()) == "certificate:alice"
    is_refused(weir, "expired", ca.issue("old", since=hours(-2), until=hours(-1)).context())
    is_refused(weir, "not_yet_valid", ca.issue("early", since=hours(1)).context())
    is_refused(weir, "revoked", revoked.context())
    is_refused(weir, "bad_certificate", ca.issue("server", usage=ExtendedKeyUsageOID.SERVER_AUTH).context())
    assert client_of(weir, ca.issue("plain", usage=None).context()) == "certificate:plain"


def test_a_long_chain_is_refused(rig):
    authority = Authority(rig.directory, "Root")
    weir = rig.weir(listen=[listener(authority.file)], identity=FROM_CN, limits=MANY)
    for level in range(8):
        authority = Authority(rig.directory, f"Level {level}", authority)
    assert client_of(weir, authority.issue("alice").context()) == "certificate:alice"
    is_refused(weir, "bad_certificate", Authority(rig.directory, "One more", authority).issue("bob").context())
    weir.wait_for_output("bad_certificate: .* has more than 8 intermediate ones above it")


def test_intermediate_authorities(rig):
    root = Authority(rig.directory, "Root")
    issuing = Authority(rig.directory, "Issuing", root)
    alice = issuing.issue("alice")
    with_root = rig.weir(listen=[listener(root.file)], identity=FROM_CN, limits=MANY)
    assert client_of(with_root, alice.context()) == "certificate:alice"
    with open(alice.file, "rb") as chain:  # the client forgets the intermediate certificate
        alone = write(rig, "alone.pem", x509.load_pem_x509_certificate(chain.read()).public_bytes(serialization.Encoding.PEM))
    incomplete = client("one")
    incomplete.load_cert_chain(alone, alice.key_file)
    is_refused(with_root, "unknown_ca", incomplete)
    # Only the intermediate authority is trusted: its sibling is not, and its own list suffices.
    crl = write(rig, "issuing.crl", issuing.crl())
    anchored = rig.weir(listen=[listener(issuing.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    assert client_of(anchored, alice.context()) == client_of(anchored, incomplete) == "certificate:alice"
    is_refused(anchored, "unknown_ca", Authority(rig.directory, "Sibling", root).issue("alice").context())
    is_refused(anchored, "unknown_ca", root.issue("alice").context())
    # The list of every issuer is required.
    crl = write(rig, "root.crl", root.crl())
    lists = rig.weir(listen=[listener(root.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    is_refused(lists, "crl_missing", alice.context())
    write(rig, "root.crl", root.crl(), issuing.crl())
    lists.reload().wait_for_redis()
    assert client_of(lists, alice.context()) == "certificate:alice"
    write(rig, "root.crl", root.crl(issuing), issuing.crl())
    lists.reload().wait_for_redis()
    eventually(lambda: is_revoked(lists, alice), what="the revoked authority")


def is_revoked(weir, one):
    """Whether a new connection is refused; a worker may use the previous policy for a moment."""
    before = failures(weir, "revoked")
    try:
        with TlsConnection(weir.address, context=one.context()) as connection:
            connection.request()
    except (ssl.SSLError, ConnectionError):
        eventually(lambda: failures(weir, "revoked") > before, what="the reason")
        return True
    return False


def test_an_expired_revocation_list_refuses_and_is_named(rig):
    ca = Authority(rig.directory)
    alice = ca.issue("alice")
    crl = write(rig, "crl.pem", ca.crl(until=hours(-1)))
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    assert any("client_crl: a revocation list in this file has expired" in message for _, message in weir.log())
    is_refused(weir, "crl_expired", alice.context())
    ready = get(weir.admin, "/readyz")
    assert (ready.status, "a revocation list has expired" in ready.body.decode(), crl in ready.body.decode()) == (200, True, True)
    assert weir.metric("weir_problem", problem="crl_expired") == 1
    assert weir.metric("weir_certificate_expiry_timestamp_seconds", certificate=crl, kind="crl") > 0
    write(rig, "crl.pem", ca.crl())
    weir.reload().wait_for_redis()
    eventually(lambda: weir.metric("weir_problem", problem="crl_expired") == 0)
    eventually(lambda: succeeds(weir, alice), what="the new list")


def succeeds(weir, one):
    try:
        return client_of(weir, one.context()) == "certificate:alice"
    except (ssl.SSLError, ConnectionError):
        return False


DNS, URI, MAIL = x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name


def test_names(rig):
    """Control characters, NUL and several common names are no value; long names are hashed."""
    ca = Authority(rig.directory)
    source = {name: rig.weir(listen=[listener(ca.file)], identity={"from": [f"certificate:{name}", "ip"]}, limits=MANY)
              for name in ("cn", "san", "fingerprint")}
    nobody = "ip:127.0.0.1"
    for attributes, expected in ((("alice",), "alice"), (("alice\0.example",), None), (("alice", "bob"), None), (("al\nice",), None),
                                 (("jürgen",), "jürgen"), (("\x7f",), None), (("a\x85b",), None),
                                 (((NameOID.ORGANIZATION_NAME, "alice"),), None),
                                 (("alice", (NameOID.ORGANIZATION_NAME, "bob")), "alice"), (("x" * 256,), "x" * 256)):
        got = client_of(source["cn"], ca.issue(*attributes).context())
        assert got.encode("latin-1", "replace").decode("utf-8", "replace") == (f"certificate:{expected}" if expected else nobody) or \
            got == (f"certificate:{expected}" if expected else nobody), (attributes, got)
    long = client_of(source["cn"], ca.issue("x" * 300).context())
    assert re.fullmatch("certificate:h:[0-9a-f]{32}", long) and long != client_of(source["cn"], ca.issue("y" * 300).context())
    for sans, expected in (([DNS("a.example"), URI("spiffe://x/y")], "a.example"), ([URI("spiffe://x/y"), DNS("a.example")], "spiffe://x/y"),
                           ([MAIL("alice@example.com"), DNS("a.example")], "alice@example.com"),
                           ([x509.IPAddress(ipaddress.ip_address("10.0.0.1")), DNS("a.example")], "a.example"),
                           ([x509.RegisteredID(NameOID.COMMON_NAME)], None), ([], None), ([URI("spiffe://x/\0"), DNS("a.example")], None)):
        got = client_of(source["san"], ca.issue("alice", sans=sans).context())
        assert got == (f"certificate:{expected}" if expected else nobody), (sans, got)
    one = ca.issue("alice")
    digest = hashlib.sha256(one.certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    assert client_of(source["fingerprint"], one.context()) == f"certificate:{digest}"


def test_the_client_is_limited_and_named_everywhere(rig):
    """`clients`, inspect and reset take certificate:NAME; the count follows the name, not the address or the connection."""
    ca = Authority(rig.directory)
    weir = rig.weir(listen=[listener(ca.file)], identity=FROM_CN, limits={"per-client": {"script": "gcra", "limit": 3, "period": "1h"}}, log={"access": "json"},
                    clients={"certificate:bob": {"quota": "unlimited"}}).wait_for_redis()
    alice, bob = ca.issue("alice"), ca.issue("bob")

    def status(one):
        with TlsConnection(weir.address, context=one.context()) as connection:
            return connection.request("/").status
    assert [status(alice) for _ in range(4)] == [200, 200, 200, 429]
    assert [status(bob) for _ in range(5)] == [200] * 5
    shown = rig.command("inspect", "-c", weir.policy_file, "certificate:alice")
    assert shown.returncode == 0 and "certificate:alice" in shown.stdout and re.search("per-client", shown.stdout), shown
    assert rig.command("reset", "-c", weir.policy_file, "certificate:alice").returncode == 0
    eventually(lambda: status(alice) == 200, what="the reset to reach the worker's denials")
    first = weir.wait_for_output(r'^\{.*"client".*$')[0]
    assert json.loads(first)["client"] == "certificate:alice"


def test_headers_do_not_name_a_certificate(rig):
    ca = Authority(rig.directory)
    weir = rig.weir(listen=[listener(ca.file, client_certificate="optional"), "127.0.0.1:0"], limits=MANY,
                    identity={"from": ["certificate:cn", "header:X-Client-Id", "ip"]})
    with Connection(weir.addresses[1]) as plain:
        fields = dict(json.loads(plain.request("/echo", headers={"X-Client-Id": "certificate:alice"}).body)["fields"])
        assert fields["X-Weir-Client"] == "id:certificate:alice"
    assert client_of(weir, client("one")) == "ip:127.0.0.1"
    assert client_of(weir, ca.issue("alice").context()) == "certificate:alice"


def test_the_subject_is_forwarded_and_cannot_be_forged(rig):
    ca = Authority(rig.directory)
    api = rig.upstream()
    weir = rig.weir(listen=[listener(ca.file, client_certificate="optional"), "127.0.0.1:0"], identity={"trusted_proxies": ["127.0.0.1"]},
                    upstreams={"api": {"servers": [api.text], "client_certificate_header": "X-SSL-Client-Subject"}}, rules=[])
    forged = {"X-SSL-Client-Subject": "CN=mallory", "x_ssl_client_subject": "CN=mallory", "X.SSL.CLIENT.SUBJECT": "CN=mallory",
              "Connection": "close, X-SSL-Client-Subject"}
    for attributes, expected in ((("alice", (NameOID.ORGANIZATION_NAME, "A, B")), r"O=A\, B,CN=alice"),
                                 (("jürgen\n",), r"CN=j\C3\BCrgen\0A"), (("a ",), r"CN=a\20"), (("x" * 5000,), None), ((), None)):
        got = asked(weir, ca.issue(*attributes, sans=[DNS("a")]).context(), headers=forged)
        assert {name: value for name, value in got.items() if "subject" in name} == ({"x-ssl-client-subject": expected} if expected else {})
    assert not [name for name in asked(weir, client("one"), headers=forged) if "subject" in name]
    with Connection(weir.addresses[1]) as plain:
        names = [name.lower() for name, _ in json.loads(plain.request("/echo", headers=forged).body)["fields"]]
        assert not [name for name in names if "subject" in name]
    body = b"3\r\nabc\r\n0\r\nX-SSL-Client-Subject: CN=mallory\r\n\r\n"
    with TlsConnection(weir.address, context=ca.issue("alice").context()) as connection:
        connection.send(request_bytes("/echo", "POST", {"Transfer-Encoding": "chunked", "Trailer": "X-SSL-Client-Subject"}) + body)
        assert b"mallory" not in connection.response("POST").body


def test_http2_curl_and_openssl(rig):
    ca = Authority(rig.directory)
    alice = ca.issue("alice")
    weir = rig.weir(listen=[listener(ca.file)], identity=FROM_CN, limits=MANY, workers=3)
    url = f"https://one.test:{weir.address[1]}/echo"
    common = ["curl", "-sS", "--cacert", pair("one")["certificate"], "--resolve", f"one.test:{weir.address[1]}:127.0.0.1"]
    for version in "--http1.1", "--http2":
        for _ in range(4):  # by any worker
            done = subprocess.run([*common, version, "--cert", alice.file, "--key", alice.key_file, url, url], capture_output=True, timeout=20)
            assert done.returncode == 0 and done.stdout.count(b"certificate:alice") == 2, done
        done = subprocess.run([*common, version, url], capture_output=True, timeout=20)
        assert done.returncode and b"alert" in done.stderr, done
    for flag in "-tls1_2", "-tls1_3":
        shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{weir.address[1]}", "-servername", "one.test", flag, "-cert",
                                alice.file, "-key", alice.key_file, "-ign_eof"], input=b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                               capture_output=True, timeout=20)
        names = shown.stdout.split(b"Acceptable client certificate CA names")[1]
        assert b"certificate:alice" in shown.stdout and re.search(rb"CN ?= ?Clients", names), shown.stdout


def test_min_version_and_ciphers(rig):
    ca = Authority(rig.directory)
    modern = rig.weir(listen=[listener(ca.file, client_certificate="optional", min_version=1.3)], rules=[])
    try:
        TlsConnection(modern.address, context=client("one", version=ssl.TLSVersion.TLSv1_2)).close()
        raise AssertionError("TLS 1.2 is accepted")
    except ssl.SSLError:
        eventually(lambda: failures(modern, "protocol") == 1)
    with TlsConnection(modern.address, context=client("one", version=ssl.TLSVersion.TLSv1_3)) as connection:
        assert connection.request().status == 200
    chosen = rig.weir(listen=[listener(ca.file, client_certificate="optional", ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")], rules=[])
    with TlsConnection(chosen.address, context=client("one", version=ssl.TLSVersion.TLSv1_2)) as connection:
        assert connection.socket.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_failed_handshakes_have_reasons(rig):
    ca = Authority(rig.directory)
    patient, brief = (rig.weir(listen=[listener(ca.file)], rules=[], timeouts={"request_header": within}) for within in ("20s", "300ms"))
    for weir, data, reason in ((patient, b"\0" * 100, "protocol"), (patient, b"GET / HTTP/1.1\r\n\r\n", "plain_http"), (brief, b"", "timeout"),
                               (patient, None, "closed")):
        with socket.create_connection(weir.address) as s:
            if data is None:
                s.shutdown(socket.SHUT_WR)
            elif data:
                s.sendall(data)
            try:
                while s.recv(1000):
                    pass
            except ConnectionResetError:
                pass
        eventually(lambda: failures(weir, reason) == 1, what=reason)
    distrustful = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for version in VERSIONS:
        distrustful.minimum_version = distrustful.maximum_version = version
        try:
            TlsConnection(patient.address, context=distrustful).close()
        except ssl.SSLError:
            pass
    eventually(lambda: failures(patient, "client_alert") == 2)
