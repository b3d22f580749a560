"""TLS sessions and open connections of verified clients: what survives a reload, and what ends with
a certificate, its authority or its revocation list."""

import datetime
import json
import ssl
import time

from cryptography import x509

from certificates import FROM_CN, MANY, Authority, hours, listener, write
from gate import Gate
from http2_wire import Http2
from rig import eventually
from scripted import Scripted
from tls_client import TlsConnection, client, weir_with_tls
from tunnels import SWITCH, echo_after, open_tunnel
from wire import request_bytes

VERSIONS = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def visit(weir, context, session=None):
    """Returns whether the session was resumed, and the session for the next visit."""
    with TlsConnection(weir.address, context=context, session=session) as connection:
        assert connection.request().status == 200
        return connection.socket.session_reused, connection.socket.session


def is_refused(weir, context, session=None):
    try:
        visit(weir, context, session)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def soon(seconds):
    return datetime.timedelta(seconds=seconds)


def wait_for_openssl():
    """OpenSSL verifies dates with time(2). That can be a clock tick (4 ms) behind the clock by
    which weir closes connections."""
    time.sleep(0.05)


def test_sessions_survive_a_reload_that_changes_neither_file(rig):
    ca = Authority(rig.directory)
    crl = write(rig, "crl.pem", ca.crl())
    verifying = rig.weir(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    for weir, context in (verifying, ca.issue("alice").context), (weir_with_tls(rig), lambda version: client("one", version=version)):
        for version in VERSIONS:
            made = context(version=version)
            _, session = visit(weir, made)
            with TlsConnection(weir.address, context=context(version=version)) as open_connection:
                assert open_connection.request().status == 200
                weir.reload(limits={"per-client": {"script": "gcra", "limit": 500, "period": "1h"}}).wait_for_redis()
                for _ in range(4):  # by any worker
                    resumed, session = visit(weir, made, session)
                    assert resumed
                assert open_connection.request().status == 200


def test_sessions_end_with_a_reload_that_changes_a_file(rig):
    ca, other = Authority(rig.directory), Authority(rig.directory, "Others")
    authorities, crl = write(rig, "ca.pem", read(ca.file)), write(rig, "crl.pem", ca.crl())
    alice, bob = ca.issue("alice"), ca.issue("bob")
    weir = rig.weir(listen=[listener(authorities, client_crl=crl)], identity=FROM_CN, limits=MANY)
    for step in (lambda: write(rig, "crl.pem", ca.crl(bob)), lambda: write(rig, "ca.pem", read(ca.file), read(other.file)) and
                 write(rig, "crl.pem", ca.crl(bob), other.crl())):
        contexts = [alice.context(version=version) for version in VERSIONS]
        sessions = [visit(weir, context)[1] for context in contexts]
        theirs = bob.context()
        session = None if is_refused(weir, theirs) else visit(weir, theirs)[1]
        step()
        weir.reload().wait_for_redis()
        for context, one in zip(contexts, sessions):
            assert not visit(weir, context, one)[0], "a session from before the reload was resumed"
        assert is_refused(weir, theirs, session)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_open_connections_are_drained_when_a_file_changes(rig):
    """Idle ones close at once; requests under way get their responses, and the connection ends."""
    ca, gate = Authority(rig.directory), Gate(rig)
    crl = write(rig, "crl.pem", ca.crl())
    alice = ca.issue("alice")
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl), "127.0.0.1:0"], identity=FROM_CN, limits=MANY, upstreams=gate.upstreams)
    busy, idle = TlsConnection(weir.address, context=alice.context()), TlsConnection(weir.address, context=alice.context())
    plain = TlsConnection.__mro__[1](weir.addresses[1])
    gate.open.set()
    assert idle.request().status == plain.request().status == 200
    gate.open.clear()
    busy.send(request_bytes())
    http2 = Http2(weir.address, tls=alice.context(alpn=["h2"]), host="one.test")
    stream = http2.start()
    eventually(lambda: gate.now == 2)
    write(rig, "crl.pem", ca.crl(alice))
    weir.reload().wait_for_redis()
    assert idle.is_closed()
    http2.read_until(lambda: http2.goaways)
    gate.open.set()
    response = busy.response()
    assert (response.status, response["Connection"]) == (200, "close") and busy.is_closed()
    assert http2.response(stream).status == 200
    http2.read_to_end()
    assert http2.closed
    assert plain.request().status == 200, "other listeners keep their connections"
    eventually(lambda: is_refused(weir, alice.context()))


def test_drained_connections_are_cut_after_the_shutdown_timeout(rig):
    ca = Authority(rig.directory)
    crl = write(rig, "crl.pem", ca.crl())
    alice = ca.issue("alice")
    api = Scripted(rig, echo_after(SWITCH))
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, rules=[], timeouts={"shutdown": "400ms"},
                    upstreams={"api": {"servers": [api.text]}})
    with TlsConnection(weir.address, context=alice.context()) as connection:
        open_tunnel(connection)
        connection.send(b"ping")
        assert connection.read_exactly(4, "the echo") == b"ping"
        start = time.monotonic()
        write(rig, "crl.pem", ca.crl(alice))
        weir.reload().wait_for_redis()
        try:
            assert connection.is_closed()
        except ssl.SSLEOFError:  # an abrupt end
            pass
        assert time.monotonic() - start > 0.35
    weir.counts(1, "weir_errors_total", cause="verification_ended")


def test_a_connection_and_its_session_end_with_the_certificate(rig):
    ca = Authority(rig.directory)
    weir = rig.weir(listen=[listener(ca.file)], identity=FROM_CN, limits=MANY)
    one = ca.issue("alice", until=soon(8))
    contexts = [one.context(version=version) for version in VERSIONS]
    sessions = [visit(weir, context)[1] for context in contexts]
    assert all(visit(weir, context, session)[0] for context, session in zip(contexts, sessions))
    with TlsConnection(weir.address, context=one.context()) as connection:
        assert connection.request().status == 200
        assert connection.is_closed()  # much earlier than timeouts.keepalive
    wait_for_openssl()
    for context, session in zip(contexts, sessions):
        assert is_refused(weir, context, session)
    eventually(lambda: weir.metric("weir_tls_handshake_failures_total", reason="expired", listener="%s:%d" % weir.address) == 2)


def test_a_connection_and_its_session_end_with_the_revocation_list_of_its_issuer(rig):
    ca, other = Authority(rig.directory), Authority(rig.directory, "Others")
    authorities, crl = write(rig, "ca.pem", read(ca.file), read(other.file)), write(rig, "crl.pem", ca.crl(), other.crl())
    weir = rig.weir(listen=[listener(authorities, client_crl=crl)], identity=FROM_CN, limits=MANY)
    context, others = ca.issue("alice").context(), other.issue("bob").context()
    write(rig, "crl.pem", ca.crl(until=soon(6)), other.crl())
    weir.reload().wait_for_redis()
    _, session = visit(weir, context)
    _, kept = visit(weir, others)
    weir.expect_errors("the revocation list .*crl.pem has expired: all clients of its issuer are refused; replace the file and reload")
    with TlsConnection(weir.address, context=context) as connection, TlsConnection(weir.address, context=others) as stays:
        assert connection.request().status == stays.request().status == 200
        assert connection.is_closed()  # much earlier than timeouts.keepalive
        wait_for_openssl()
        assert is_refused(weir, context, session)
        assert stays.request().status == 200, "the list of its issuer is valid"
    assert visit(weir, others, kept)[0], "the session was not resumed"
    with TlsConnection(weir.address, context=others) as connection:
        assert [connection.request().status for _ in range(2)] == [200, 200], "another list had expired before"
    eventually(lambda: weir.metric("weir_problem", problem="crl_expired") == 1)


def test_of_several_revocation_lists_of_an_issuer_the_latest_counts(rig):
    ca = Authority(rig.directory)
    old = ca.crl(until=soon(-60))
    crl = write(rig, "crl.pem", old, ca.crl(), old)
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    context = ca.issue("alice").context()
    assert visit(weir, context, visit(weir, context)[1])[0], "the session was not resumed"
    assert weir.metric("weir_problem", problem="crl_expired") == 0
    authorities = x509.IssuingDistributionPoint(full_name=None, relative_name=None, only_contains_user_certs=False, only_contains_ca_certs=True,
                                                only_some_reasons=None, indirect_crl=False, only_contains_attribute_certs=False)
    write(rig, "crl.pem", ca.crl(until=soon(-60), critical=[authorities]), ca.crl())
    weir.expect_errors("a revocation list in this file has expired")
    weir.reload().wait_for_redis()
    eventually(lambda: weir.metric("weir_problem", problem="crl_expired") == 1, what="a list of another scope to count")


def test_the_latest_revocation_list_counts_also_if_it_has_expired_first(rig):
    """An earlier list may lack certificates that were revoked since."""
    ca = Authority(rig.directory)
    alice, bob = ca.issue("alice"), ca.issue("bob")
    crl = write(rig, "crl.pem", ca.crl(age=hours(9)), ca.crl(alice, until=soon(-60)))
    weir = rig.weir(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, limits=MANY)
    weir.expect_errors("has expired")
    assert is_refused(weir, alice.context()) and is_refused(weir, bob.context())
    assert weir.metric("weir_problem", problem="crl_expired") == 1


def test_each_key_of_an_authority_has_a_revocation_list(rig):
    """The list of the old key has expired, that of the new one is later."""
    old, new = Authority(rig.directory), Authority(rig.directory)
    authorities = write(rig, "ca.pem", read(old.file), read(new.file))
    crl = write(rig, "crl.pem", old.crl(until=soon(-60), names_key=True), new.crl(names_key=True))
    weir = rig.weir(listen=[listener(authorities, client_crl=crl)], identity=FROM_CN, limits=MANY)
    weir.expect_errors("has expired")
    assert weir.metric("weir_problem", problem="crl_expired") == 1


def test_delta_lists_are_refused(rig):
    """OpenSSL would take one for a complete list."""
    ca = Authority(rig.directory)
    crl = write(rig, "crl.pem", ca.crl(ca.issue("alice"), age=hours(9)), ca.crl(critical=[x509.DeltaCRLIndicator(1)]))
    path = rig.write("delta.yaml", json.dumps(rig.policy(listen=[listener(ca.file, client_crl=crl)], identity=FROM_CN, limits=MANY)))
    done = rig.command("check", "-c", path)
    assert done.returncode == 1 and "has a delta list of CN=Clients; weir needs complete lists" in done.stderr, done


def test_a_session_without_a_certificate_does_not_satisfy_required(rig):
    ca = Authority(rig.directory)
    optional = [listener(ca.file, client_certificate="optional")]
    weir = rig.weir(listen=optional, identity=FROM_CN, limits=MANY)
    for version in VERSIONS:
        context = client("one", version=version)
        _, session = visit(weir, context)
        assert visit(weir, context, session)[0]
        weir.reload(listen=[listener(ca.file)]).wait_for_redis()
        assert is_refused(weir, context, session)
        weir.reload(listen=optional).wait_for_redis()
        eventually(lambda: not is_refused(weir, context))
