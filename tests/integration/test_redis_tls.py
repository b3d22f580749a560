"""TLS to Redis, with real servers: standalone, Sentinel and Cluster; certificate errors, reloads,
and a lost connection under load."""

import os

from few_descriptors import exhaust
from redis_errors import FEW, assert_refused, assert_decided_by_redis, weir_before
from rig import TLS_FILES, Redis, eventually, redis_tls
from scripted import Scripted
from topology import LATE_NODE, Cluster, Load, Sentinels, charged_twice
from wire import count, flood, get

CA = os.path.join(TLS_FILES, "ca.pem")
PASSWORD = "p@ss/w:rd%"
MANY = {"many": dict(script="fixed_window", limit=1000000, period="10d", lease="off")}


def tls(**more):
    return {"ca": CA, **more}


def test_a_rediss_url(rig):
    """Decisions, the command line and resets over TLS. The password does not appear in any log."""
    redis = rig.redis(tls=redis_tls(), arguments=["--requirepass", PASSWORD])
    url = f"rediss://:p%40ss%2Fw%3Ard%25@{redis.text}"
    weir = rig.weir(redis={"address": url, "tls": tls()}, limits=FEW, workers=2)
    weir.wait_for_redis()
    assert count(flood([weir.address], 30, connections=4)) == {200: 20, 429: 10}
    shown = rig.command("inspect", "-c", weir.policy_file, "ip:127.0.0.1")
    assert shown.returncode == 0 and "0 of 20" in shown.stdout, shown
    reset = rig.command("reset", "-c", weir.policy_file, "ip:127.0.0.1")
    assert reset.returncode == 0, reset
    eventually(lambda: get(weir.address).status == 200, 5, "the reset to end a cached denial")
    granted = rig.command("grant", "-c", weir.policy_file, "ip:127.0.0.1", "unlimited", "1h")
    assert granted.returncode == 0, granted
    eventually(lambda: count(flood([weir.address], 30)) == {200: 30}, 5, "the grant")
    assert "p@ss" not in weir.output() and "p%40ss" not in weir.output()


def test_certificate_errors_are_reported(rig):
    """Each cause has a metric label and a remedy in the log. A reload with the right CA ends the
    error."""
    server = rig.redis(tls=redis_tls())
    weir = weir_before(rig, server.text, tls={"ca": os.path.join(TLS_FILES, "cert.pem")})
    assert_refused(weir, "tls_untrusted", "name the authority of its certificate in redis.tls.ca")
    weir.reload(redis={"address": server.text, "tls": tls()})
    assert_decided_by_redis(weir)
    named = weir_before(rig, server.text, tls=tls(server_name="other.test"))
    assert_refused(named, "tls_name", "redis.tls.server_name")
    assert "is not valid for other.test but for server.test" in named.output()
    expired = weir_before(rig, Redis(rig, "expired", tls=redis_tls("expired.pem")).text, tls=tls())
    assert_refused(expired, "tls_expired", "renew the certificate of Redis")
    assert "expired on 2021-" in expired.output()


def test_a_server_that_requires_a_client_certificate(rig):
    server = rig.redis(tls=redis_tls(clients="yes"))
    weir = weir_before(rig, server.text, tls=tls())
    assert_refused(weir, "tls", "check redis.tls.certificate")
    own = tls(certificate=os.path.join(TLS_FILES, "client.pem"), key=os.path.join(TLS_FILES, "client.key"))
    weir.reload(redis={"address": server.text, "tls": own})
    assert_decided_by_redis(weir)


def test_tls_on_one_side_only(rig):
    """A server without TLS does not reply to the handshake, or replies in plain text. A server with
    TLS closes plain-text connections."""
    plain = weir_before(rig, Redis(rig, "plain", tcp=True).text, tls=tls())
    assert_refused(plain, "tls_timeout", "check that redis.address is Redis' tls-port")
    plain_text_server = Scripted(rig, lambda peer, _number: peer.send(b"-ERR unknown command\r\n"))
    answered = weir_before(rig, plain_text_server.text, tls=tls())
    assert_refused(answered, "tls_missing", "check that redis.address is Redis' tls-port")
    secure = weir_before(rig, rig.redis(tls=redis_tls()).text)
    assert_refused(secure, "tls_required", "set redis.tls")
    result = rig.command("inspect", "-c", secure.policy_file, "ip:127.0.0.1")
    assert result.returncode == 1 and "requires TLS" in result.stderr, result


def test_a_server_is_killed_under_load(rig):
    server = rig.redis(tls=redis_tls())
    weir = rig.weir(redis={"address": server.text, "tls": tls(), "on_failure": "deny"}, limits=MANY, workers=2)
    weir.expect_errors("redis ")
    weir.wait_for_redis()
    load = Load([weir.address])
    eventually(lambda: len(load.responses) > 300)
    server.kill()
    eventually(lambda: any(status == 503 for _, status, _ in list(load.responses)), 5)
    server.start()
    weir.wait_for_output("available again after")
    before = len(load.responses)
    eventually(lambda: len(load.responses) > before + 300)
    answers = load.stop()
    assert {status for _, status, _ in answers} == {200, 503} and answers[-1][1] == 200
    assert all(remaining is not None for _, status, remaining in answers if status == 200)


def test_a_stalled_handshake_does_not_delay_requests(rig):
    """If the server stops during the handshake, on_failure decides requests at once. After it
    continues, Redis decides."""
    server = rig.redis(tls=redis_tls())
    server.freeze()
    weir = weir_before(rig, server.text, tls=tls())
    assert get(weir.address).status == 200
    server.thaw()
    assert_decided_by_redis(weir)


def test_sentinels_over_tls(rig):
    sentinels = Sentinels(rig, tls=redis_tls())
    weir = rig.weir(redis=sentinels.policy(tls=tls(), timeout="1s", on_failure="deny"), limits=MANY)
    weir.expect_errors("[Rr]edis")
    weir.wait_for_redis()
    load = Load([weir.address])
    eventually(lambda: len(load.responses) > 200)
    sentinels.master.kill()
    _, named = sentinels.new_master()
    eventually(lambda: load.since(named), 10, "a decision by the new master")
    answers = load.stop()
    charged_twice(answers, named)
    assert rig.command("inspect", "-c", weir.policy_file, "ip:127.0.0.1").returncode == 0


def test_a_cluster_over_tls(rig):
    cluster = Cluster(rig, replicas=False, tls=redis_tls())
    weir = rig.weir(redis=cluster.policy(cluster.masters[0], tls=tls()), limits=FEW)
    weir.expect_errors(LATE_NODE)
    weir.wait_for_redis()
    for name in [f"client-{i}" for i in range(12)]:
        assert count(flood([weir.address], 25, connections=4, headers={"X-Client-Id": name})) == {200: 20, 429: 5}, name
    assert rig.command("inspect", "-c", weir.policy_file, "client-3").returncode == 0


def test_a_cluster_whose_certificate_is_refused_is_reported(rig):
    redis = rig.redis(tls=redis_tls())
    for given, cause, remedy in (tls(ca=os.path.join(TLS_FILES, "two.pem")), "tls_untrusted", "redis.tls.ca"), (None, "tls_required", "set redis.tls"):
        weir = rig.weir(redis={"cluster": [redis.text], "on_failure": "deny", **({"tls": given} if given else {})}, wait="listening", limits=FEW)
        weir.expect_errors("none of 1 nodes returns the slot map")
        weir.wait_for_output(f"none of 1 nodes returns the slot map .*{remedy}")
        eventually(lambda: get(weir.address).status == 503 and weir.metric("weir_redis_errors_total", cause=cause), what=f"an error {cause}")
        weir.finish()


def test_weir_reconnects_without_a_free_descriptor(rig):
    """A TLS connection needs four descriptors, from the reserve."""
    server = rig.redis(tls=redis_tls())
    weir = rig.weir(redis={"address": server.text, "tls": tls()}, limits=FEW, workers=2, size_limits={"connections": 0})
    weir.expect_errors("redis ")
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 2)
    exhaust(rig, weir)
    server.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    server.start()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 2, 15, "reconnections with descriptors from the reserve")
