"""Monitoring signals: certificates that expire, failed reloads, Redis memory, and the process
itself."""

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rig import eventually, timeout, top
from topology import Cluster
from wire import get

FILES = os.path.join(top, "tests/tls")
HOUR = {"each": dict(script="gcra", limit=3, period="1h")}
EXPIRED_AT = 1609459200  # notAfter of tests/tls/expired.pem: 2021-01-01


def tls(certificate, key):
    return {"address": "127.0.0.1:0", "tls": {"certificate": os.path.join(FILES, certificate), "key": os.path.join(FILES, key)}}


def check(rig, **keys):
    policy = rig.policy(rules=[], redis={"address": "127.0.0.1:6379"}, **keys)
    return rig.command("check", "-c", rig.write("policy.yaml", json.dumps(policy)))


# --- certificates ---------------------------------------------------------------------------------------------------------

def test_an_expired_certificate_is_reported_by_check_and_at_start(rig):
    result = check(rig, listen=[tls("expired.pem", "server.key")])
    assert result.returncode == 0
    assert re.search(r'listen\[0\]\.tls\.certificate: "\S+expired.pem" has expired, on 2021-\S+ \S+ UTC: .*renew it', result.stderr), result.stderr
    weir = rig.weir(listen=["127.0.0.1:0", tls("expired.pem", "server.key"), tls("cert.pem", "key.pem"), tls("cert.pem", "key.pem")], rules=[])
    assert any(level == "warn" and "expired.pem\" has expired" in message for level, message in weir.log())
    assert "cert.pem\"" not in weir.output()
    name = "weir_certificate_expiry_timestamp_seconds"
    assert abs(weir.metric(name, certificate=os.path.join(FILES, "expired.pem")) - EXPIRED_AT) < 2 * 86400
    body = get(weir.admin, "/metrics").body.decode()
    assert len(re.findall(rf"^{name}\{{", body, re.M)) == 2, "one sample per file"
    assert weir.metric(name, certificate=os.path.join(FILES, "cert.pem")) > time.time() + 365 * 86400


def test_the_client_certificate_for_upstreams_is_checked_too(rig):
    files = {"certificate": os.path.join(FILES, "expired.pem"), "key": os.path.join(FILES, "server.key")}
    upstreams = {"api": {"servers": ["127.0.0.1:1"], "tls": {"ca": os.path.join(FILES, "ca.pem"), **files}}}
    assert re.search(r'upstreams\.api\.tls\.certificate: "\S+expired.pem" has expired', check(rig, upstreams=upstreams).stderr)
    weir = rig.weir(upstreams=upstreams, rules=[])
    assert weir.metric("weir_certificate_expiry_timestamp_seconds", certificate=files["certificate"]) < time.time()


def test_certificates_that_expire_soon_are_reported(rig):
    key, certificate = os.path.join(rig.directory, "soon.key"), os.path.join(rig.directory, "soon.pem")
    for days, words in (13, "expires in 1[23] days, on "), (1, "expires in 2[34] hours, on "), (16, None):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
                        "-keyout", key, "-out", certificate, "-subj", "/CN=one.test"], check=True, capture_output=True)
        # The first certificate of a chain to expire determines the date.
        with open(os.path.join(FILES, "cert.pem"), encoding="ascii") as other, open(certificate, "a", encoding="ascii") as chain:
            chain.write(other.read())
        result = check(rig, listen=[{"address": "127.0.0.1:0", "tls": {"certificate": certificate, "key": key}}])
        assert result.returncode == 0 and ("soon.pem\" expires" in result.stderr) == bool(words), result.stderr
        assert not words or re.search(words, result.stderr), result.stderr


def test_a_reload_updates_the_dates_of_certificates(rig):
    for name, file in ("cert.pem", "expired.pem"), ("key.pem", "server.key"):
        shutil.copy(os.path.join(FILES, file), os.path.join(rig.directory, name))
    listen = [{"address": "127.0.0.1:0", "tls": {"certificate": "cert.pem", "key": "key.pem"}}]
    weir = rig.weir(listen=listen, rules=[])
    path = os.path.join(rig.directory, "cert.pem")
    assert weir.metric("weir_certificate_expiry_timestamp_seconds", certificate=path) < time.time()
    shutil.copy(os.path.join(FILES, "server.pem"), path)
    weir.reload()
    assert weir.metric("weir_certificate_expiry_timestamp_seconds", certificate=path) > time.time()


def expiring_certificate(directory, seconds):
    """Writes a certificate that expires in so many seconds, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "one.test")])
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - datetime.timedelta(days=1),
                                          now + datetime.timedelta(seconds=seconds)).sign(key, hashes.SHA256())
    files = {"certificate": os.path.join(directory, "soon.pem"), "key": os.path.join(directory, "soon.key")}
    with open(files["certificate"], "wb") as file:
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
    with open(files["key"], "wb") as file:
        file.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files


def test_a_certificate_that_expires_while_weir_runs_is_reported_everywhere(rig):
    rig.redis(), rig.upstream()  # before the certificate's time runs
    files = expiring_certificate(rig.directory, 6)
    weir = rig.weir(listen=["127.0.0.1:0", {"address": "127.0.0.1:0", "tls": files}], rules=[{"limits": "none"}])
    weir.expect_errors("soon.pem has expired")
    weir.wait_for_output("soon.pem has expired: .*reload", seconds=30)
    assert len(re.findall("soon.pem has expired", weir.output())) == 1, "one line"
    sentence = "a certificate has expired: " + files["certificate"]
    ready = get(weir.admin, "/readyz")
    assert (ready.status, ready.body.decode()) == (200, f"ready; {sentence}\n")
    assert weir.metric("weir_problem", problem="certificate_expired") == 1
    status = json.loads(get(weir.admin, "/api/v1/status").body)
    assert status["problems"] == [{"name": "certificate_expired", "text": sentence}]
    shown = rig.command("top", "--once", "http://%s:%d" % weir.admin).stdout
    assert re.search(r"^Problem +a certificate has expired", shown, re.M), shown
    expiring_certificate(rig.directory, 86400 * 30)
    weir.reload()
    assert get(weir.admin, "/readyz").body == b"ready\n"
    assert weir.metric("weir_problem", problem="certificate_expired") == 0


# --- reloads --------------------------------------------------------------------------------------------------------------

def test_reloads_have_counters_and_timestamps(rig):
    before = time.time()
    weir = rig.weir(limits=HOUR)
    weir.expect_errors("current policy stays in effect", r"\.yaml:")
    started = weir.metric("process_start_time_seconds")
    loaded = weir.metric("weir_policy_loaded_timestamp_seconds")
    assert before - 1 <= started <= loaded <= time.time()
    assert weir.metric("weir_reload_total", result="success") == weir.metric("weir_reload_total", result="failure") == 0
    weir.reload(limits={"each": {**HOUR["each"], "limit": 4}}).wait_for_redis()
    assert weir.metric("weir_reload_total", result="success") == 1
    reloaded = weir.metric("weir_policy_loaded_timestamp_seconds")
    assert loaded < reloaded <= time.time()
    rig.write(os.path.basename(weir.policy_file), "limits: [ 1 ]\n")
    for number in 1, 2:
        weir.signal(signal.SIGHUP)
        weir.wait_for_output("the current policy stays in effect", count=number)
    assert weir.metric("weir_reload_total", result="failure") == 2
    assert weir.metric("weir_problem", problem="reload_failed") == 1
    assert get(weir.admin, "/readyz").body == b"ready; the last reload failed, the policy before it is in effect\n"
    assert weir.metric("weir_reload_total", result="success") == 1
    assert weir.metric("weir_policy_loaded_timestamp_seconds") == reloaded, "the timestamp of the policy in effect"
    assert weir.metric("process_start_time_seconds") == started
    weir.reload(limits=HOUR)
    assert weir.metric("weir_problem", problem="reload_failed") == 0


# --- Redis' memory --------------------------------------------------------------------------------------------------------

def test_memory_metrics_of_redis(rig):
    redis = rig.redis()
    redis.command("CONFIG", "SET", "maxmemory", "50mb")
    weir = rig.weir(limits=HOUR)
    used = eventually(lambda: weir.metric("weir_redis_memory_used_bytes"))
    assert 100_000 < used < 50 << 20 and weir.metric("weir_redis_memory_max_bytes") == 50 << 20
    redis.command("CONFIG", "SET", "maxmemory", "0")
    redis.kill()
    weir.expect_errors("^redis ")
    eventually(lambda: weir.metric("weir_redis_memory_used_bytes") is None, what="no number of a Redis that is down")
    redis.start()  # queried at once on the new connection, not after ten seconds
    eventually(lambda: weir.metric("weir_redis_memory_max_bytes") == 0)


def test_without_permission_for_info_there_are_no_memory_metrics(rig):
    """Grants over the same connection still work."""
    redis = rig.redis()
    redis.command("ACL", "SETUSER", "weir", "on", ">secret", "~weir:*", "&weir:*", "+@all", "-info")
    weir = rig.weir(limits=HOUR, redis={"username": "weir", "password": "secret"})
    assert get(weir.admin, "/api/v1/clients/a", method="PUT", body=b'{"quota": 9, "for": "1h"}').status == 200
    eventually(lambda: weir.metric("weir_grants") == 1)
    assert weir.metric("weir_redis_memory_used_bytes") is None
    assert not [line for line in weir.log() if line[0] in ("warn", "error") and "redis" in line[1]], weir.log()
    denied = [entry for entry in redis.command("ACL", "LOG") if "info" in entry]
    redis.command("ACL", "SETUSER", "weir", "+info")
    redis.command("CLIENT", "KILL", "TYPE", "normal")
    weir.expect_errors("^redis ")
    eventually(lambda: weir.metric("weir_redis_memory_used_bytes"))
    assert len(denied) <= 1, denied


@timeout(120)
def test_memory_metrics_of_each_cluster_master(rig):
    cluster = Cluster(rig, replicas=False)
    weir = rig.weir(limits=HOUR, redis=cluster.policy())

    def nodes():
        body = get(weir.admin, "/metrics").body.decode()
        return dict(re.findall(r'^weir_redis_memory_used_bytes\{node="(\S+)"\} (\d+)$', body, re.M))
    assert sorted(eventually(lambda: len(nodes()) == 3 and nodes(), 30)) == sorted(m.text for m in cluster.masters)
    assert weir.metric("weir_redis_memory_max_bytes") == 0


# --- the process ----------------------------------------------------------------------------------------------------------

def test_process_metrics(rig):
    weir = rig.weir(rules=[])
    used = weir.metric("process_cpu_seconds_total")
    assert used > 0
    assert abs(weir.metric("process_resident_memory_bytes") / 1024 - weir.resident_kib()) < 4096
    assert weir.metric("process_max_fds") > weir.metric("process_open_fds") > 0
    assert abs(weir.metric("process_open_fds") - weir.descriptors()) <= 2
    eventually(lambda: get(weir.address).status == 200 and weir.metric("process_cpu_seconds_total") > used)
