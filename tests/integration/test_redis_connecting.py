"""When weir connects to Redis (only if a request can be limited), and to which address (the current
one of its name)."""

import json
import os
import subprocess
import time

from nameserver import Nameserver
from rig import Redis, eventually, free_port, sanitized, top
from scripted import Scripted, redis_commands
from wire import get

LIMITED = {"day": dict(script="fixed_window", limit=2, period="10d")}


def test_without_limits_redis_is_not_needed(rig):
    """Nothing listens at the address, and weir reports no error."""
    weir = rig.weir(redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "deny"}, limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200
    ready = get(weir.admin, "/readyz")
    assert (ready.status, ready.body) == (200, b"ready\n")
    assert json.loads(get(weir.admin, "/api/v1/status").body)["redis"] is None
    assert weir.metric("weir_redis_ready_workers") is None and weir.metric("weir_redis_breaker_workers") is None
    assert not [message for _, message in weir.log() if "redis" in message.lower()]


def test_the_start_waits_for_redis_as_long_as_a_decision_may(rig):
    """The fastest start with a timeout of 10 ms is compared with the fastest one with 1 s, which takes that long at least."""
    silent = Scripted(rig, lambda peer, number: peer.socket.recv(1))
    waits = {"10ms": [], "1s": []}

    def differ():
        for timeout, taken in waits.items():
            began = time.monotonic()
            weir = rig.weir(wait="listening", redis={"address": silent.text, "timeout": timeout, "on_failure": "allow"}, limits=LIMITED,
                            rules=[{"limits": ["day"]}])
            weir.wait_for_output("ready$")
            taken.append(time.monotonic() - began)
            weir.expect_errors("^redis ")
        return min(waits["10ms"]) < min(waits["1s"]) - 0.4
    eventually(differ, 30, "a start that does not wait")
    assert min(waits["1s"]) >= 0.8, waits


def test_a_new_connection_waits_as_long_as_a_decision_may(rig):
    """Its first reply comes after more than the 2 s that a connection may take at least. Else it
    would never be ready."""
    def slow(peer, _number):
        time.sleep(2.5)
        for words in redis_commands(peer):
            peer.send(b"$40\r\n" + b"0" * 40 + b"\r\n" if words[0].upper() == b"SCRIPT" else b"+OK\r\n")
    server = Scripted(rig, slow)
    weir = rig.weir(wait="listening", redis={"address": server.text, "timeout": "10s"}, limits=LIMITED, workers=1)
    weir.wait_for_redis()


def test_without_limits_weir_does_not_connect_to_redis(rig):
    """Until a reload adds a limit, and again after a reload has removed the last limit."""
    seen = []
    silent = Scripted(rig, lambda peer, number: seen.append(number) or peer.socket.recv(1))
    weir = rig.weir(wait="listening", redis={"address": silent.text}, limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200 and not seen
    redis = rig.redis()
    weir.reload(redis={"address": redis.text}, limits=LIMITED, rules=[{"limits": ["day"]}])
    weir.wait_for_redis()
    assert [get(weir.address).status for _ in range(3)] == [200, 200, 429] and not seen
    weir.reload(limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200
    eventually(lambda: "name=weir" not in redis.command("CLIENT", "LIST") and redis.command("CLIENT", "LIST").count("\n") == 1,
               what="all connections to Redis to be closed")


def test_check_reports_that_redis_is_not_needed(rig):
    policy = rig.write("none.yaml", json.dumps({**rig.policy(limits={}), "rules": [{"limits": []}]}))
    done = rig.command("check", "-c", policy)
    assert done.returncode == 0 and "there are no limits, so weir does not connect to Redis" in done.stderr, done.stderr


def pubsub_server(answers_ping, seen):
    """A Redis that implements only subscriptions without AUTH. `seen` records the commands of each
    connection."""
    def script(peer, number):
        commands = b""
        while True:
            data = peer.socket.recv(65536)
            if not data:
                return
            commands += data
            if b"SUBSCRIBE" in data:
                seen.append(number)
                peer.socket.sendall(b"*3\r\n$9\r\nsubscribe\r\n$11\r\nweir:resets\r\n:1\r\n")
            elif b"PING" in data and b"SUBSCRIBE" in commands and answers_ping:
                seen.append("pong")
                peer.socket.sendall(answers_ping)
    return script


def test_a_half_open_subscription_is_renewed(rig):
    """weir sends PING on the subscription. A NOPERM error is a reply as well, so the connection is
    alive."""
    seen = {"dead": [], "alive": [], "not allowed": []}
    answers = {"dead": None, "alive": b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", "not allowed": b"-NOPERM no PING for you\r\n"}
    for name, answer in answers.items():
        server = Scripted(rig, pubsub_server(answer, seen[name]))
        rig.weir(wait="listening", redis={"address": server.text}, limits=LIMITED).expect_errors("redis ")
    eventually(lambda: len([n for n in seen["dead"] if n != "pong"]) >= 2, 15, "the second subscription")
    for name in "alive", "not allowed":
        eventually(lambda n=name: seen[n].count("pong") >= 2, 15, "a second PING")
        assert len([n for n in seen[name] if n != "pong"]) == 1, seen[name]


# --- redis.address as a name ---------------------------------------------------------------------------------------------

def two_redis(rig):
    """Redis servers at 127.0.0.1 and 127.0.0.2, on the same port."""
    one, two = Redis(rig, "one", tcp=True), Redis(rig, "two", tcp=True, arguments=["--bind", "127.0.0.2"], start=False)
    two.address = ("127.0.0.2", one.address[1])
    return one, two.start()


def weir_with_redis_name(rig, dns, port, **redis):
    weir = rig.weir(wait="listening", limits=LIMITED, log={"level": "debug"},
                    redis={"address": f"redis.test:{port}", "on_failure": "allow", **redis},
                    resolver={"nameservers": [dns.text], "min_ttl": "100ms", "timeout": "2s"})
    weir.expect_errors("redis ")
    return weir


def decided_by(weir, redis):
    before = redis.calls("evalsha") + redis.calls("eval")
    return get(weir.address).names() >= {"x-ratelimit-limit"} and redis.calls("evalsha") + redis.calls("eval") > before


def test_after_a_failure_the_name_is_resolved_again(rig):
    """As in the failover of a managed Redis: neither a reload nor a restart is needed, although the
    TTL has not expired."""
    one, two = two_redis(rig)
    dns = Nameserver(rig, ttl=3600, **{"redis.test": ["127.0.0.1"]})
    weir = weir_with_redis_name(rig, dns, one.address[1])
    weir.wait_for_redis()
    assert decided_by(weir, one)
    one.kill()
    dns.records["redis.test"] = ["127.0.0.2"]
    eventually(lambda: decided_by(weir, two), 15, "a decision by the server at the new address")
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 2, 15, "every worker to connect to the new address")
    eventually(lambda: two.command("PUBSUB", "NUMSUB", "weir:resets")[1] == 1, 15, "the subscription")
    port = one.address[1]
    weir.wait_for_output("info +redis .*its address is now")
    assert weir.output().count(f"redis redis.test:{port}: its address is now 127.0.0.2:{port}, was 127.0.0.1:{port}") == 1


def test_a_changed_address_applies_even_if_the_old_server_is_up(rig):
    """Otherwise some weirs would count on one server and some on the other."""
    one, two = two_redis(rig)
    dns = Nameserver(rig, **{"redis.test": ["127.0.0.1"]})
    weir = weir_with_redis_name(rig, dns, one.address[1])
    weir.wait_for_redis()
    assert decided_by(weir, one)
    assert get(weir.admin, "/api/v1/clients/alice").status == 200
    dns.records["redis.test"] = ["127.0.0.2", "127.0.0.1"]
    count = len(dns.queries)
    eventually(lambda: len(dns.queries) > count + 3)
    assert decided_by(weir, one), "the address is still listed"
    dns.records["redis.test"] = ["127.0.0.2"]
    weir.wait_for_output("its address is now 127.0.0.2")
    eventually(lambda: decided_by(weir, two), what="a decision by the second server")
    eventually(lambda: one.command("CLIENT", "LIST").count("name=weir") == 0, 15, what="the connections to the first server to be closed")
    assert get(weir.admin, "/api/v1/clients/alice").status == 200


def connections_of_weir(redis):
    return {line.split()[0] for line in redis.command("CLIENT", "LIST").splitlines() if "name=weir" in line}


def test_with_several_addresses_a_reachable_one_is_used(rig):
    """And stays in use: a failure of the first one does not count as one of the second. No request
    makes a worker look at the address."""
    one, two = two_redis(rig)
    one.kill()
    dns = Nameserver(rig, ttl=1, **{"redis.test": ["127.0.0.1", "127.0.0.2"]})
    weir = weir_with_redis_name(rig, dns, one.address[1])
    eventually(lambda: len(connections_of_weir(two)) == 3, 15, "the connections of two workers, and of the reader of grants")
    connections, lookups = connections_of_weir(two), len(dns.queries) // 2
    eventually(lambda: len(dns.queries) // 2 > lookups + 1, 15, "further lookups")
    assert connections_of_weir(two) == connections and weir.output().count("its address is now") == 1
    assert decided_by(weir, two)


def test_a_master_that_restarts_is_used_again_if_the_other_address_is_a_replica(rig):
    one, two = two_redis(rig)
    two.command("REPLICAOF", "127.0.0.1", str(one.address[1]))
    dns = Nameserver(rig, ttl=3600, **{"redis.test": ["127.0.0.1", "127.0.0.2"]})
    weir = weir_with_redis_name(rig, dns, one.address[1])
    weir.wait_for_redis()
    one.kill()
    weir.wait_for_output("its role is replica")
    one.start()
    eventually(lambda: decided_by(weir, one), 15, "a decision by the restarted master")


def test_weir_starts_before_the_name_resolves(rig):
    redis = Redis(rig, "one", tcp=True)
    dns = Nameserver(rig, **{"api.test": ["127.0.0.1"]})
    weir = weir_with_redis_name(rig, dns, redis.address[1], on_failure="deny")
    assert get(weir.address).status == 503
    weir.wait_for_output("warn +redis redis.test:.*on_failure applies until it is resolved; check redis.address")
    dns.records["redis.test"] = ["127.0.0.1"]
    eventually(lambda: get(weir.address).status == 200, 15, "a decision by Redis")
    weir.wait_for_output("info +redis redis.test:.*is resolved again")


def test_the_command_line_resolves_names(rig):
    redis = Redis(rig, "one", tcp=True, arguments=["--bind", "127.0.0.1", "-::1"])
    policy = rig.policy(redis={"address": f"localhost:{redis.address[1]}"}, limits=LIMITED)
    done = rig.command("inspect", "-c", rig.write("named.yaml", json.dumps(policy)), "alice")
    assert done.returncode == 0 and "2 of 2" in done.stdout, done


def test_the_command_line_uses_an_address_that_works_and_is_no_replica(rig):
    if sanitized:  # the sanitizer's runtime must be loaded first
        return
    one, two = two_redis(rig)
    library = os.path.join(rig.directory, "libtwo_addresses.so")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library,
                    os.path.join(top, "tests", "support", "two_addresses.c")], check=True)
    policy = rig.write("named.yaml", json.dumps(rig.policy(redis={"address": f"redis.test:{one.address[1]}"}, limits=LIMITED)))

    def inspects_two():
        before = two.calls("eval") + two.calls("evalsha")
        done = rig.command("inspect", "-c", policy, "alice", env={**os.environ, "LD_PRELOAD": library})
        assert done.returncode == 0 and "2 of 2" in done.stdout, done
        return two.calls("eval") + two.calls("evalsha") > before
    one.command("REPLICAOF", "127.0.0.2", str(two.address[1]))
    assert inspects_two()
    one.kill()
    assert inspects_two()


def test_check_warns_about_an_unresolvable_name(rig):
    dns = Nameserver(rig, **{"redis.test": ["127.0.0.1"]})
    for name, warned in ("redis.test", False), ("other.test", True):
        policy = rig.policy(redis={"address": f"{name}:6379"}, limits=LIMITED, resolver={"nameservers": [dns.text]})
        done = rig.command("check", "-c", rig.write("named.yaml", json.dumps(policy)))
        assert done.returncode == 0 and (f"warning: redis.address: {name}:6379" in done.stderr) == warned, done
