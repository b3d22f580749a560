"""Every error with which Redis can refuse a call: on_failure decides the request, the cause is
counted, and the log names the remedy. With real servers where possible, otherwise with scripted
ones."""

import contextlib
import json
import os
import re
import threading

from redis_errors import FEW, assert_refused, assert_decided_by_redis, weir_before
from rig import Redis, eventually, free_port, text_of, timeout
from scripted import Scripted, redis_commands
from wire import connect, get


# --- real servers --------------------------------------------------------------------------------------------------------

def assert_shown_as_errors(rig, weir):
    """/readyz and `weir top` do not say that all is well: Redis is connected, but decides nothing."""
    done = threading.Event()

    def ask():
        while not done.wait(0.01):
            get(weir.address)
    asking = threading.Thread(target=ask)
    asking.start()

    def shown():  # a Redis that also stalls is shown as unavailable meanwhile
        screen = rig.command("top", "--once", "http://" + text_of(weir.admin)).stdout
        ready = get(weir.admin, "/readyz")
        return (ready.status, ready.body) == (200, b"ready; Redis answers calls with errors, on_failure applies\n") and \
            re.search(r"^Redis +errors .*\n +\S+ decisions/s without Redis, by on_failure$", screen, re.M)
    try:
        eventually(shown, 20, "errors of Redis in top and /readyz")
    finally:
        done.set()
        asking.join()


def test_out_of_memory(rig):
    weir = weir_before(rig, rig.redis().text)
    assert_decided_by_redis(weir)
    rig.redis().command("CONFIG", "SET", "maxmemory", "1")
    assert_refused(weir, "oom", "raise maxmemory in Redis")
    assert_shown_as_errors(rig, weir)
    rig.redis().command("CONFIG", "SET", "maxmemory", "0")
    assert_decided_by_redis(weir)


def test_redis_is_a_replica(rig):
    master, replica = Redis(rig, "master", tcp=True), rig.redis()
    replica.command("REPLICAOF", *master.address)
    weir = weir_before(rig, replica.text)
    assert_refused(weir, "readonly", "point redis.address at the master")
    replica.command("REPLICAOF", "NO", "ONE")
    assert_decided_by_redis(weir)


def test_a_master_becomes_a_replica(rig):
    master, other = rig.redis(), Redis(rig, "other", tcp=True)
    weir = weir_before(rig, master.text)
    assert_decided_by_redis(weir)
    master.command("REPLICAOF", *other.address)
    assert_refused(weir, "readonly", "point redis.address at the master")


def test_the_first_refused_request_shows_that_a_master_became_a_replica(rig):
    """Four workers, of which one has seen it: it logs the cause, and /readyz is not ready."""
    redis = rig.redis()
    weir = weir_before(rig, redis.text, on_failure="deny", timeout="10s", options=dict(workers=4)).wait_for_redis()
    redis.command("REPLICAOF", "127.0.0.1", "1")
    assert get(weir.address).status == 503
    weir.wait_for_output("Redis is a read-only replica")
    eventually(lambda: get(weir.address).status == 503 and get(weir.admin, "/readyz").status == 503, what="/readyz to tell it")
    redis.command("REPLICAOF", "NO", "ONE")
    weir.wait_for_output("available again after")
    assert_decided_by_redis(weir)
    assert "calls succeed again" not in weir.output()


def test_a_replica_without_its_master(rig):
    replica = rig.redis(arguments=["--replica-serve-stale-data", "no"])
    acl_user(replica, *[rule for rule in ALL if rule != "+role"])  # otherwise weir reports the role
    replica.command("REPLICAOF", "127.0.0.1", "1")
    weir = weir_before(rig, replica.text, username="weir", password="secret")
    assert_refused(weir, "masterdown", "point redis.address at the master")


def test_too_few_replicas(rig):
    weir = weir_before(rig, rig.redis(arguments=["--min-replicas-to-write", "1"]).text)
    assert_refused(weir, "replicas", "min-replicas-to-write")
    rig.redis().command("CONFIG", "SET", "min-replicas-to-write", "0")
    assert_decided_by_redis(weir)


def test_snapshots_that_cannot_be_written(rig):
    redis = rig.redis()
    os.mkdir(os.path.join(rig.directory, "dump.rdb"))
    redis.command("CONFIG", "SET", "save", "3600 1")
    redis.command("SET", "something", "to write")
    redis.command("BGSAVE")
    eventually(lambda: "rdb_last_bgsave_status:err" in redis.command("INFO", "persistence"))
    weir = weir_before(rig, redis.text)
    assert_refused(weir, "persistence", "stop-writes-on-bgsave-error no")
    redis.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert_decided_by_redis(weir)


def test_a_required_password_is_missing(rig):
    weir = weir_before(rig, rig.redis(arguments=["--requirepass", "open sesame"]).text)
    assert_refused(weir, "auth", "redis.password")


def test_a_required_password_is_missing_for_a_long_script(rig):
    """Before authentication, Redis rejects arguments above 16 KiB with a different error."""
    scripts = ("gcra", "token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log", "sliding_window_counter")
    weir = weir_before(rig, rig.redis(arguments=["--requirepass", "open sesame"]).text,
                       limits={name: dict(script=name, limit=20, period="1d") for name in scripts})
    assert_refused(weir, "auth", "redis.password")
    result = rig.command("inspect", "-c", weir.policy_file, "alice")
    assert result.returncode == 1 and "check redis.username and redis.password" in result.stderr, result


def test_a_password_without_requirepass(rig):
    weir = weir_before(rig, rig.redis().text, password="open sesame")
    assert_refused(weir, "auth", "redis.password")


def acl_user(redis, *rules):
    redis.command("ACL", "SETUSER", "weir", "reset", "on", ">secret", "~weir:*", "&*", *rules)


ALL = ("+@connection", "+@scripting", "+role", "+time", "+get", "+mget", "+set", "+setrange", "+del", "+publish", "+subscribe",
       "+hget", "+hset", "+hdel", "+hgetall", "+exists", "+pttl", "+pexpire")


def test_a_user_without_permission_to_run_scripts(rig):
    acl_user(rig.redis(), "+@connection")
    weir = weir_before(rig, rig.redis().text, username="weir", password="secret")
    assert_refused(weir, "permission", "ACL SETUSER")
    acl_user(rig.redis(), *ALL)
    assert_decided_by_redis(weir)


def test_a_user_without_permission_for_the_commands_of_the_script(rig):
    acl_user(rig.redis(), "+@connection", "+@scripting", "+get")
    weir = weir_before(rig, rig.redis().text, username="weir", password="secret")
    assert_refused(weir, "permission", "ACL SETUSER")
    acl_user(rig.redis(), *ALL)
    assert_decided_by_redis(weir)


def test_a_user_without_permission_for_the_keys(rig):
    acl_user(rig.redis(), *ALL)
    weir = weir_before(rig, rig.redis().text, username="weir", password="secret", key_prefix="other")
    assert_refused(weir, "permission", "ACL SETUSER")


def test_what_an_operator_may_not_do_is_no_error_of_decisions(rig):
    """A reset searches for keys, which the user may not. The requests are decided by Redis."""
    acl_user(rig.redis(), *ALL)
    limits = {"each": dict(script="fixed_window", limit=1000, period="10d", per=["client", "route"])}
    weir = rig.weir(limits=limits, redis={"username": "weir", "password": "secret", "on_failure": "deny"}).wait_for_redis()
    assert get(weir.address, headers={"X-Client-Id": "a"}).status == 200
    refused = get(weir.admin, "/api/v1/clients/a", method="DELETE")
    assert refused.status == 503 and b"permission" in refused.body, (refused, refused.body)
    ready = get(weir.admin, "/readyz")
    assert (ready.status, ready.body) == (200, b"ready\n") and "on_failure" not in weir.output()


def test_a_renamed_command(rig):
    weir = weir_before(rig, rig.redis(arguments=["--rename-command", "EVALSHA", ""]).text)
    assert_refused(weir, "permission", "ACL SETUSER")


def test_maxclients_is_reached(rig):
    redis = rig.redis()
    redis.command("CONFIG", "SET", "maxclients", "1")
    with connect(redis.address) as taken:
        taken.sendall(b"PING\r\n")
        assert taken.recv(100)
        weir = weir_before(rig, redis.text)
        assert_refused(weir, "clients", "maxclients")
        taken.sendall(b"CONFIG SET maxclients 100\r\n")
        assert taken.recv(100)
    assert_decided_by_redis(weir)


def test_redis_is_loading_its_data(rig):
    try:
        redis = rig.redis(arguments=["--enable-debug-command", "local"])
    except AssertionError:  # before Redis 7
        redis = rig.redis()
    redis.command("CONFIG", "SET", "save", "3600 1000000")
    redis.command("CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
    redis.command("CONFIG", "SET", "key-load-delay", "1000")
    redis.command("DEBUG", "POPULATE", "20000")
    with connect(redis.address) as reloading:
        reloading.sendall(b"DEBUG RELOAD\r\n")
        eventually(lambda: is_loading(redis), what="LOADING")
        weir = weir_before(rig, redis.text)
        assert_refused(weir, "loading", "it is available when its data is loaded")
        redis.command("CONFIG", "SET", "key-load-delay", "0")
        assert reloading.recv(100).startswith(b"+OK")
    assert_decided_by_redis(weir)


def is_loading(redis):
    try:
        redis.command("GET", "x")
    except RuntimeError as error:
        return "LOADING" in str(error)
    return False


def test_a_script_that_does_not_end(rig):
    redis = rig.redis()
    redis.command("CONFIG", "SET", "busy-reply-threshold", "1")
    weir = weir_before(rig, redis.text)
    assert_decided_by_redis(weir)
    with connect(redis.address) as endless:
        endless.sendall(b'EVAL "while true do end" 0\r\n')
        eventually(lambda: is_busy(redis), what="BUSY")
        assert_refused(weir, "busy", "SLOWLOG")
        redis.command("SCRIPT", "KILL")
        assert endless.recv(1000).startswith(b"-")
    assert_decided_by_redis(weir)


def is_busy(redis):
    try:
        redis.command("PING")
    except RuntimeError as error:
        return "BUSY" in str(error)
    return False


def test_a_cluster_node_in_redis_address(rig):
    redis = rig.redis(tcp=True, arguments=["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-config-file", "nodes.conf"])
    weir = weir_before(rig, redis.text)
    assert_refused(weir, "cluster", "list the nodes in redis.cluster")


def test_an_http_server_in_redis_address(rig):
    weir = weir_before(rig, rig.upstream().text)
    assert_refused(weir, "reply", "check that redis.address is a Redis server")


# --- scripted servers
# ----------------------------------------------------------------------------------------------------

def reply_to_scripts(answer, then_close=False):
    """Behaves correctly except for script calls, which get this reply."""
    def script(peer, _number):
        for words in redis_commands(peer):
            name = words[0].upper()
            if name in (b"EVALSHA", b"EVAL"):
                with contextlib.suppress(OSError):
                    peer.send(answer)
                if then_close:
                    return
            elif name == b"SCRIPT":
                peer.send(b"$40\r\n" + b"0" * 40 + b"\r\n")
            else:
                peer.send(b"+PONG\r\n" if name == b"PING" else b"+OK\r\n")
    return script


def reply_and_close(line):
    """The reply with which Redis refuses a connection."""
    def script(peer, _number):
        peer.read_until(b"\r\n", "a command")
        peer.send(line)
    return script


CASES = [
    # description, reply, cause, remedy; two replies if the first is valid
    ("half a reply", reply_to_scripts(b"*6\r\n:1\r\n"), "timeout", "redis.timeout"),
    ("half a reply, then closed", reply_to_scripts(b"*6\r\n:1\r\n", True), "closed", "check the Redis log"),
    ("no reply, then closed", reply_to_scripts(b"", True), "closed", "check the Redis log"),
    ("a huge string", reply_to_scripts(b"$2000000\r\n" + b"x" * 2000000 + b"\r\n"), "reply", "is a Redis server"),
    ("a huge array", reply_to_scripts(b"*1000000\r\n" + b":1\r\n" * 1000000), "reply", "is a Redis server"),
    ("an unexpected reply", reply_to_scripts(b"$-1\r\n$-1\r\n"), "reply", "is a Redis server"),
    ("garbage", reply_to_scripts(b"\x15\x03\x01\x00\x02\x02\x46"), "reply", "is a Redis server"),
    ("MOVED", reply_to_scripts(b"-MOVED 3999 127.0.0.1:6381\r\n"), "cluster", "redis.cluster"),
    ("ASK", reply_to_scripts(b"-ASK 3999 127.0.0.1:6381\r\n"), "cluster", "redis.cluster"),
    ("CLUSTERDOWN", reply_to_scripts(b"-CLUSTERDOWN Hash slot not served\r\n"), "cluster", "redis.cluster"),
    ("TRYAGAIN", reply_to_scripts(b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), "cluster", "redis.cluster"),
    ("protected mode", reply_and_close(b"-DENIED Redis is running in protected mode because...\r\n"), "protected", "protected-mode"),
    ("NOSCRIPT for every call", reply_to_scripts(b"-NOSCRIPT No matching script.\r\n"), "script", "weir check"),
]


@timeout(120)
def test_invalid_and_error_replies(rig):
    for name, script, cause, remedy in CASES:
        weir = weir_before(rig, Scripted(rig, script).text)
        try:
            assert_refused(weir, cause, remedy)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        weir.finish()


def test_check_names_a_redis_that_refuses_writes(rig):
    redis = rig.redis()
    rig.write("checked.yaml", json.dumps(rig.policy(limits=FEW, redis={"address": redis.text})))
    def warning():
        done = rig.checked("checked.yaml")
        assert done.returncode == 0, done
        return "".join(line for line in done.stderr.splitlines(True) if "on_failure" in line)
    assert warning() == "" and redis.command("DBSIZE") == 0
    for mends, breaks, words in [
            (["REPLICAOF", "NO", "ONE"], ["REPLICAOF", "127.0.0.1", "1"], "Redis is a read-only replica.*point redis.address at the master"),
            (["CONFIG", "SET", "min-replicas-to-write", "0"], ["CONFIG", "SET", "min-replicas-to-write", "1"], "min-replicas-to-write"),
            (["CONFIG", "SET", "maxmemory", "0"], ["CONFIG", "SET", "maxmemory", "1"], "Redis is out of memory.*raise maxmemory"),
            *((["ACL", "SETUSER", "default", "+@all"], ["ACL", "SETUSER", "default", refused], "may not run a command.*docs/backends.md")
              for refused in ("-setrange", "-evalsha", "-eval", "-script|load"))]:
        redis.command(*breaks)
        assert re.search(f"checked.yaml: warning: redis {redis.text}: .*{words}", warning()), warning()
        redis.command(*mends)
    assert warning() == ""


def test_check_names_a_redis_that_cannot_be_used(rig):
    def needs_password(peer, _number):
        for _ in redis_commands(peer):
            peer.send(b"-NOAUTH Authentication required.\r\n")
    for address, words in [(f"127.0.0.1:{free_port()}", "Connection refused (tried now"),
                           (f"unix:{rig.directory}/none.sock", "No such file or directory (tried now"),
                           (Scripted(rig, needs_password).text, "it requires a password")]:
        policy = rig.policy(limits={"each": dict(script="gcra", limit=5, period="1m")}, redis={"address": address})
        rig.write("checked.yaml", json.dumps(policy))
        result = rig.checked("checked.yaml")
        assert result.returncode == 0 and f"checked.yaml: warning: redis {address}: {words}" in result.stderr, result


def test_check_names_a_redis_that_does_not_reply(rig):
    """Neither to its first command after PING, nor to a later one."""
    def silent_for(*names):
        def script(peer, _number):
            for words in redis_commands(peer):
                if words[0].upper() not in names:
                    peer.send(b"+PONG\r\n" if words[0].upper() == b"PING" else b"$15\r\naof_enabled:0\r\n\r\n")
        return script
    for names in (b"INFO",), (b"CONFIG",), (b"SCRIPT",), (b"EVALSHA", b"EVAL"):
        address = Scripted(rig, silent_for(*names)).text
        rig.write("checked.yaml", json.dumps(rig.policy(limits=FEW, redis={"address": address})))
        done = rig.command("check", "-c", "checked.yaml")
        warnings = [line for line in done.stderr.splitlines() if "warning: redis" in line]
        assert done.returncode == 0 and len(warnings) == 1, (names, done)
        assert f"redis {address}: no reply in time (tried now, from this machine)" in warnings[0], (names, done)
