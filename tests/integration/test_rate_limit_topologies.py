"""Calls of Envoy's rate limit service over Redis Cluster and Redis Sentinel: real nodes."""

import json

import envoy_messages as envoy
from envoy_calls import Caller, listener_of, weir_with_service
from grpc_programs import begin, run
from rig import eventually
from topology import Cluster, Sentinels, slot_of
from wire import get

YEAR = "year"


def domains(user, group, **of_user):
    entries = [{"key": key, "rate_limit": {"unit": YEAR, "requests_per_unit": limit}} for key, limit in (("user", user), ("group", group))]
    entries[0].update(of_user)
    return {"edge": {"descriptors": entries}}


def load(listeners, calls, *descriptors):
    """Calls from 64 clients, to the listeners in turn. Returns the number of replies by their code."""
    texts = ["%s:%d" % listener for listener in listeners]
    message = envoy.request("edge", *descriptors).SerializeToString().hex()
    return run((",".join([*texts[:-1], listeners[-1][0]]), listeners[-1][1]), "rate_limit_load", message, str(calls))["results"]


def left(listener, **entries):
    """What a descriptor has left. The call charges nothing."""
    request = envoy.request("edge", entries)
    request.descriptors[0].hits_addend.value = 0
    with Caller(listener) as caller:
        return caller.call(request).statuses[0].limit_remaining


def test_descriptors_in_several_slots_of_a_cluster_are_exact(rig):
    """A call is charged to both of its descriptors or to none, from two weirs at once."""
    cluster = Cluster(rig, replicas=False)
    for node in cluster.masters:  # on a busy machine, a node may be silent for a second
        node.command("CONFIG", "SET", "cluster-node-timeout", 30000)
    weirs = [weir_with_service(rig, domains(15, 200), redis=cluster.policy()) for _ in range(2)]
    listeners = [listener for _, listener in weirs]
    for weir, _ in weirs:
        weir.wait_for_redis()
    for user in "abcd":
        assert load(listeners, 192, {"user": user}, {"group": "all"}) == {"OK": 15, "OVER_LIMIT": 177}, user
    keys = cluster.keys()
    assert len(keys) == 5 and len({cluster.owner(slot_of(key)) for key in keys}) == 3, keys
    eventually(lambda: left(listeners[0], group="all") == 140, what="charges before a rejection to be returned")
    assert left(listeners[1], user="e") == 15
    assert load(listeners, 192, {"group": "all"}) == {"OK": 140, "OVER_LIMIT": 52}
    assert load(listeners, 64, {"user": "e"}, {"group": "all"}) == {"OVER_LIMIT": 64}
    eventually(lambda: left(listeners[0], user="e") == 15, what="no charge for the user")


def test_a_rejected_call_refunds_nothing_in_a_cluster(rig):
    """With quota_mode, each descriptor is an op; without, the slots are asked in turn."""
    cluster = Cluster(rig, replicas=False)
    first, quotas = weir_with_service(rig, domains(5, 5, quota_mode=True), redis=cluster.policy())
    weir, plain = weir_with_service(rig, domains(5, 5), redis=cluster.policy())
    first.wait_for_redis(), weir.wait_for_redis()
    with Caller(plain) as caller:
        assert caller.code("edge", {"group": "full"}, hits_addend=5) == envoy.OK
    for listener in quotas, plain:
        assert left(listener, group="full") == 0
        for user in "abcd":  # of different slots
            used = 5 - left(listener, user=user)
            refund = envoy.request("edge", {"user": user}, {"user": user}, {"group": "full"})
            refund.descriptors[0].hits_addend.value = 4
            refund.descriptors[0].is_negative_hits = True
            with Caller(listener) as caller:
                caller.call("edge", {"user": user})
                assert caller.code(refund) == envoy.OVER_LIMIT, user
            eventually(lambda: left(listener, user=user) == 5 - used - 1, what=f"one unit of {user} in use")  # noqa: B023


def test_while_a_slot_moves_every_limit_is_charged(rig):
    """With charge: every. The keys of a descriptor are on two nodes, so each of its limits is a call."""
    cluster = Cluster(rig, replicas=False)
    limits = {"a": dict(script="fixed_window", limit=10, period="10d"), "b": dict(script="fixed_window", limit=2, period="10d"),
              "c": dict(script="fixed_window", limit=10, period="10d")}
    weir, listener = weir_with_service(rig, {"edge": {"charge": "every", "descriptors": [{"key": "user", "limits": list(limits)}]}},
                                       limits=limits, redis=cluster.policy())
    weir.wait_for_redis()
    slot = slot_of("{descriptor:edge/user=x}")
    with Caller(listener) as caller:
        assert caller.code("edge", {"user": "x"}) == envoy.OK
        source, to = cluster.owner(slot), next(m for m in cluster.masters if m is not cluster.owner(slot))
        cluster.begin_move(slot, to)
        moved = next(key for key in source.command("CLUSTER", "GETKEYSINSLOT", slot, 10) if key.endswith(":l:a"))
        source.command("MIGRATE", *to.address, moved, 0, 5000)
        assert [caller.code("edge", {"user": "x"}) for _ in range(3)] == [envoy.OK, envoy.OVER_LIMIT, envoy.OVER_LIMIT]
        cluster.end_move(source, to, slot)
    rows = json.loads(get(weir.admin, "/api/v1/clients/descriptor:edge%2Fuser=x").body)["limits"]
    assert {row["limit"]: row["remaining"] for row in rows} == {"a": 6, "b": 0, "c": 6}, rows
    for limit in "ac":
        weir.counts(4, "weir_limit_decisions_total", limit=limit, decision="allowed")
    weir.counts(2, "weir_limit_decisions_total", limit="b", decision="limited")


def test_charges_of_this_process_are_returned_if_a_call_is_over(rig):
    """A node is down, so this process counts a part of the descriptors."""
    cluster = Cluster(rig, replicas=False)
    for node in cluster.masters:
        node.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    weirs = [weir_with_service(rig, domains(3, 5, quota_mode=quota), redis=cluster.policy(timeout="2s", on_failure="local")) for quota in (False, True)]
    for weir, _ in weirs:
        weir.expect_errors("[Rr]edis")
        weir.wait_for_redis()
    with Caller(weirs[0][1]) as caller:
        assert caller.code("edge", {"group": "full"}, {"user": "x"}, hits_addend=3) == envoy.OK
        assert caller.code("edge", {"group": "full"}, hits_addend=2) == envoy.OK
    owners = {key: cluster.owner(slot_of(key)) for key in cluster.keys()}
    group = next(node for key, node in owners.items() if "group" in key)
    user = next(f"u{i}" for i in range(100) if cluster.owner(slot_of("{descriptor:edge/user=u%d}" % i)) is not group)
    cluster.owner(slot_of("{descriptor:edge/user=%s}" % user)).kill()
    for weir, listener in weirs:
        eventually(lambda w=weir: w.metric("weir_redis_ready_workers") == 0)
        with Caller(listener) as caller:
            for _ in range(10):
                assert caller.code("edge", {"user": user}, {"group": "full"}) == envoy.OVER_LIMIT
            assert caller.code("edge", {"user": user}, hits_addend=3) == envoy.OK
            assert caller.code("edge", {"user": user}) == envoy.OVER_LIMIT


def test_no_call_is_lost_by_a_failover(rig):
    """The master is killed under load. Each call is answered; afterwards, the new master decides."""
    sentinels = Sentinels(rig)
    weir, _ = weir_with_service(rig, domains(1000000000, 1000000000), redis=sentinels.policy(timeout="200ms", on_failure="local"))
    weir.expect_errors("[Rr]edis")
    weir.wait_for_redis()
    message = envoy.request("edge", {"user": "a"}, {"group": "all"}).SerializeToString().hex()
    client = begin(listener_of(weir), "rate_limit_load", message, "0")
    client.stdout.readline()

    def calls():
        return weir.metric("weir_rate_limit_service_requests_total", domain="edge", code="OK") or 0

    eventually(lambda: calls() > 200)
    sentinels.master.kill()
    master, _ = sentinels.new_master()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 2, 10, "connections to the new master")
    before = calls()
    eventually(lambda: calls() > before + 200)
    results = json.loads(client.communicate("\n", timeout=60)[0])["results"]
    assert set(results) == {"OK"} and results["OK"] > 400, results
    weir.counts(results["OK"], "weir_rate_limit_service_requests_total", domain="edge", code="OK")
    assert len(master.command("KEYS", "*")) == 2, "the new master counts both descriptors"
