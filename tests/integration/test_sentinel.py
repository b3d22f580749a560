"""Redis Sentinel: real sentinels, and a real master that is killed, demoted or frozen under
load."""

import time

from rig import eventually, free_port, time_scale
from topology import MASTER, Load, Sentinel, Sentinels, charged_twice
from wire import count, flood, get


def weirs_with(rig, sentinels, number=1, limits=None, **redis):
    weirs = [rig.weir(redis=sentinels.policy(**redis),
                      limits=limits or {"many": dict(script="fixed_window", limit=1000000, period="10d", lease="off")})
             for _ in range(number)]
    for weir in weirs:
        weir.expect_errors("[Rr]edis")
        weir.wait_for_redis()
    return weirs


def assert_decisions_resume(load, at):
    eventually(lambda: load.since(at), 5, "a decision by the new master")
    took = load.since(at) - at
    assert took < 3 * time_scale, f"{took:.2f} s after a sentinel named the new master"


def test_the_master_is_killed_under_load(rig):
    sentinels = Sentinels(rig, replicas=2)
    weirs = weirs_with(rig, sentinels, 2, timeout="5s")
    load = Load([weir.address for weir in weirs])
    eventually(lambda: len(load.responses) > 500)
    assert {status for _, status, _ in load.responses} == {200}
    sentinels.master.kill()
    _, named = sentinels.new_master()
    assert_decisions_resume(load, named)
    for weir in weirs:
        weir.wait_for_redis()  # with every worker
    soon = time.monotonic() + 1.0 * time_scale
    eventually(lambda: sum(t > soon for t, *_ in list(load.responses)) > 100)
    answers = load.stop()
    assert {status for _, status, _ in answers} == {200, 503}, "only on_failure decides in between"
    assert {s for t, s, _ in answers if t > soon} == {200}, "every worker of every weir uses the new master"
    charged_twice(answers, named)
    for weir in weirs:
        weir.counts(1, "weir_redis_master_changes_total")
        weir.wait_for_output(f"redis {MASTER}: the master is", count=2)
        messages = [message for _, message in weir.log() if f"redis {MASTER}: the master is" in message]
        assert len(messages) == 2, f"one log line per change: {messages}"
        assert "if no sentinel names another master soon" in weir.output() and "redis.address" not in weir.output()
        eventually(lambda w=weir: w.metric("weir_redis_ready_workers") == 2)


def test_replicated_charges_survive_a_failover(rig):
    sentinels = Sentinels(rig)
    weirs = weirs_with(rig, sentinels, 2, limits={"few": dict(script="sliding_window_log", limit=100, period="10d")})
    addresses = [weir.address for weir in weirs]
    assert count(flood(addresses, 60, connections=8)) == {200: 60}
    assert sentinels.master.command("WAIT", 1, 5000) == 1
    sentinels.master.kill()
    _, named = sentinels.new_master()
    looks = []

    def are_admitted_again():
        looks.append([get(address).status for address in addresses])
        return set(looks[-1]) == {200}
    eventually(are_admitted_again, 5)
    for weir in weirs:
        weir.wait_for_redis()  # with every worker
    admitted = 60 + sum(look.count(200) for look in looks)
    assert admitted + count(flood(addresses, 200, connections=32)).get(200, 0) == 100, "no unit was lost with the master"


def test_a_planned_failover(rig):
    sentinels = Sentinels(rig)
    weir, = weirs_with(rig, sentinels, timeout="200ms")
    load = Load([weir.address])
    eventually(lambda: len(load.responses) > 200)
    assert sentinels.sentinels[0].command("SENTINEL", "FAILOVER", MASTER) == "OK"
    _, named = sentinels.new_master()
    eventually(lambda: load.since(named), 5)
    load.stop()
    assert sentinels.master.process.alive()
    master = f'"master":"{sentinels.replicas[0].text}"'
    eventually(lambda: master in get(weir.admin, "/api/v1/status").body.decode(), what="the new master in the status resource")
    eventually(lambda: get(weir.address).status == 200)


def test_a_frozen_master_and_a_frozen_sentinel(rig):
    sentinels = Sentinels(rig)
    weir, = weirs_with(rig, sentinels, timeout="500ms")
    load = Load([weir.address], connections=4)
    eventually(lambda: len(load.responses) > 100)
    frozen = sentinels.sentinels.pop()
    frozen.signal(19)
    sentinels.master.freeze()
    _, named = sentinels.new_master()
    assert_decisions_resume(load, named)
    load.stop()
    frozen.signal(18)
    sentinels.master.thaw()
    eventually(lambda: {get(weir.address).status for _ in range(50)} == {200}, what="decisions by the new master only")


def test_other_sentinels_are_discovered_and_resets_are_delivered(rig):
    sentinels = Sentinels(rig)
    policy = sentinels.policy()
    policy["sentinel"]["nodes"] = [f"127.0.0.1:{free_port()}", sentinels.sentinels[0].text]
    weirs = [rig.weir(redis=policy, limits={"few": dict(script="gcra", limit=3, period="10d")}) for _ in range(2)]
    for weir in weirs:
        weir.expect_errors("[Rr]edis")
        weir.wait_for_redis()
    assert [get(weirs[0].address, headers={"X-Client-Id": "a"}).status for _ in range(4)] == [200, 200, 200, 429]
    sentinels.sentinels[0].kill()
    sentinels.master.kill()
    sentinels.sentinels.pop(0)
    sentinels.new_master()
    eventually(lambda: get(weirs[1].address, headers={"X-Client-Id": "a"}).status == 429)
    shown = rig.command("inspect", "-c", weirs[0].policy_file, "a")
    assert shown.returncode == 1 and "sentinel" in shown.stderr, "neither of the two configured sentinels is running"
    eventually(lambda: get(weirs[0].admin, "/api/v1/clients/a", method="DELETE").status == 200, what="the new master at the first weir")
    eventually(lambda: get(weirs[1].address, headers={"X-Client-Id": "a"}).status == 200)


def test_inspect_and_reset_use_the_master(rig):
    sentinels = Sentinels(rig)
    weir, = weirs_with(rig, sentinels, limits={"few": dict(script="gcra", limit=3, period="10d")})
    assert [get(weir.address, headers={"X-Client-Id": "a"}).status for _ in range(4)] == [200, 200, 200, 429]
    shown = rig.command("inspect", "-c", weir.policy_file, "a")
    assert "0 of 3" in shown.stdout, shown
    assert rig.command("reset", "-c", weir.policy_file, "a").returncode == 0
    eventually(lambda: get(weir.address, headers={"X-Client-Id": "a"}).status == 200)


def test_sentinels_with_their_own_users(rig):
    rights = "+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe +ping &+switch-master"
    sentinels = Sentinels(rig, arguments=[f"user weir on >sesame {rights}"])
    for sentinel in sentinels.sentinels:
        sentinel.command("ACL", "SETUSER", "default", "-@all", "+client|list")
    policy = sentinels.policy()
    policy["sentinel"].update(username="weir", password="sesame")
    limits = {"few": dict(script="gcra", limit=3, period="10d")}
    weir = rig.weir(redis=policy, limits=limits)
    weir.wait_for_redis()
    assert [get(weir.address).status for _ in range(4)] == [200, 200, 200, 429]
    assert "0 of 3" in rig.command("inspect", "-c", weir.policy_file, "ip:127.0.0.1").stdout
    eventually(lambda: any("cmd=ping" in line and "sub=1" in line for line in
                           sum((s.command("CLIENT", "LIST").splitlines() for s in sentinels.sentinels), [])
                           if "user=weir" in line), 5, "the subscription to be active and checked with PING")
    policy["sentinel"].update(username="weir", password="wrong")
    weir = rig.weir(redis=policy, limits=limits, wait="listening")
    weir.expect_errors("redis shop")
    weir.wait_for_output("does not name the master: WRONGPASS")
    assert get(weir.address).status == 503


def test_a_sentinel_that_announces_host_names_is_reported(rig):
    master = rig.redis(tcp=True)
    hostnames = ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"]
    sentinel = Sentinel(rig, 0, master, 1, hostnames, host="localhost")
    eventually(lambda: sentinel.is_ready(1, 0))
    weir = rig.weir(redis={"sentinel": {"master": MASTER, "nodes": [sentinel.text]}, "on_failure": "deny"},
                    limits={"few": dict(script="gcra", limit=3, period="10d")}, wait="listening")
    weir.expect_errors("redis shop")
    weir.wait_for_output('gives an invalid address for the master: "localhost"; configure it to announce addresses')
    assert get(weir.address).status == 503


def test_a_reload_from_one_server_to_sentinels(rig):
    sentinels = Sentinels(rig)
    weir = rig.weir(workers=1, limits={"few": dict(script="gcra", limit=3, period="10d")})
    assert [get(weir.address).status for _ in range(4)] == [200, 200, 200, 429]
    weir.reload(redis=sentinels.policy(timeout="5s", on_failure="deny"))
    eventually(lambda: get(weir.address).status == 200, what="the new policy to be in effect")
    assert [get(weir.address).status for _ in range(3)] == [200, 200, 429]
    assert sentinels.master.command("DBSIZE") == 1


def test_no_sentinel_is_reachable(rig):
    nodes = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    weir = rig.weir(redis={"sentinel": {"master": MASTER, "nodes": nodes}, "on_failure": "deny"},
                    limits={"few": dict(script="gcra", limit=3, period="10d")})
    weir.expect_errors("none of 2 sentinels names the master")
    assert get(weir.address).status == 503
    assert get(weir.admin, "/readyz").status == 503
    weir.wait_for_output("none of 2 sentinels")
    assert len([m for level, m in weir.log() if level == "error"]) == 1
