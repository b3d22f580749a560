"""Redis Cluster: real nodes, three masters with replicas. Slots move and masters fail under
load."""

import json
import os
import re
import threading
import time

from gate import Gate, send_request
from queues import reset
from resets import assert_reset_applies_at_once
from rig import eventually, free_port, time_scale, timeout, top
from scripted import Scripted
from topology import LATE_NODE, LONG_MS, Cluster, Load, charged_twice, slot_of, slot_of_client
from wire import Connection, count, flood, get, request_bytes


def weirs_with(rig, redis, number=1, **keys):
    weirs = [rig.weir(redis=redis, **keys) for _ in range(number)]
    for weir in weirs:
        weir.expect_errors(LATE_NODE)
        weir.wait_for_redis()
    return weirs


def client(name):
    return {"X-Client-Id": name}


def test_the_limit_is_exact_over_two_weirs(rig):
    cluster = Cluster(rig)
    cluster.fail_after_ms(LONG_MS)
    limits = {"each": dict(script="sliding_window_log", limit=20, period="10d")}
    weirs = [weirs_with(rig, cluster.policy(node), limits=limits)[0] for node in (cluster.masters[2], cluster.replicas[0])]
    addresses = [weir.address for weir in weirs]
    names = [f"client-{i}" for i in range(30)]
    assert len({cluster.owner(slot_of_client(name)) for name in names}) == 3
    for name in names:
        assert count(flood(addresses, 30, connections=8, headers=client(name))) == {200: 20, 429: 10}, name
    assert len(cluster.keys()) == 30
    weirs[0].counts(3, "weir_redis_cluster_masters")
    weirs[0].counts(16384, "weir_redis_cluster_slots")
    assert '"topology":"cluster"' in get(weirs[0].admin, "/api/v1/status").body.decode()


def test_costs_of_limits_in_several_slots_are_settled(rig):
    received, go = threading.Event(), threading.Event()
    rig.add_cleanup(go.set)

    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            if b"/held" in request[0]:
                received.set()
                go.wait()
            content = b'{"usage": {"total_tokens": 70}, "rows": 3}'
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
    cluster = Cluster(rig, replicas=False)
    limits = {"requests": dict(script="fixed_window", limit=1000, period="10d"),
              "tokens": dict(script="gcra", limit=1000, period="36500s", per="all", cost={"reserve": 20, "usage": "openai"}),
              "rows": dict(script="token_bucket", limit=1000, period="36500s", per="ip", cost={"reserve": 5, "usage": ["rows"]})}
    weir = weirs_with(rig, cluster.policy(), limits=limits, workers=1, upstreams={"api": {"servers": [Scripted(rig, script).text]}})[0]
    assert len({slot_of("{all}"), slot_of_client("a"), slot_of("{ip:127.0.0.1}")}) == 3

    def left():
        return dict(re.findall(r'"([^"]+)";r=(\d+)', get(weir.address, headers=client("a"))["RateLimit"]))
    first = left()
    assert first == {"requests": "999", "tokens": "980", "rows": "995"}
    eventually(lambda: weir.metric("weir_limit_units_total", limit="tokens") == 70)
    assert left() == {"requests": "998", "tokens": "910", "rows": "992"}
    weir.counts(140, "weir_limit_units_total", limit="tokens")
    with Connection(weir.address) as held:
        held.send(request_bytes("/held", headers=client("a")))
        received.wait()
        weir.expect_errors("[Rr]edis")
        cluster.owner(slot_of("{all}")).kill()
        weir.counts(0, "weir_redis_ready_workers")
        go.set()
        assert held.response().status == 200
    weir.counts(140 + 20, "weir_limit_units_total", limit="tokens")  # its node is gone: the reserve stays charged


def test_limits_in_several_slots_are_charged_all_or_none(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="fixed_window", limit=15, period="10d"),
              "all": dict(script="sliding_window_log", limit=40, period="10d", per="all")}
    weirs = weirs_with(rig, cluster.policy(), 2, limits=limits,
                       rules=[{"match": {"path": "/each"}, "limits": ["each"]}, {"limits": ["each", "all"]}])
    addresses = [weir.address for weir in weirs]
    assert slot_of("{all}") != slot_of_client("a")
    answers = flood(addresses, 60, connections=16, headers=client("a"))
    assert count(answers) == {200: 15, 429: 45}
    assert {a["X-Rate-Limit-Policy"] for a in answers if a.status == 429} == {"each"}
    admitted = sum(count(flood(addresses, 40, connections=8, headers=client(c))).get(200, 0) for c in "bcdef")
    assert admitted == 25, "40 for all clients, 15 of them used by client a"
    rejected = get(addresses[0], headers=client("fresh"))
    assert rejected.status == 429 and rejected["X-Rate-Limit-Policy"] == "all"

    def left():
        return {row["limit"]: row["remaining"] for row in json.loads(get(weirs[1].admin, "/api/v1/clients/fresh").body)["limits"]}
    eventually(lambda: left()["each"] == 15, what="charges before the rejection to be returned")
    assert get(addresses[1], "/each", headers=client("fresh")).number("X-RateLimit-Remaining") == 14
    assert sum(weir.metric("weir_limit_decisions_total", limit="all", decision="allowed") for weir in weirs) == 25 + 15
    assert sum(weir.metric("weir_limit_decisions_total", limit="each", decision="not_charged") or 0 for weir in weirs) >= 100


def test_shadow_limits_and_refunds_in_several_slots(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="fixed_window", limit=10, period="10d"),
              "seen": dict(script="fixed_window", limit=3, period="10d", per="all", shadow=True),
              "failures": dict(script="fixed_window", limit=4, period="10d", per="host", count=["5xx"])}
    weir, = weirs_with(rig, cluster.policy(), limits=limits)
    assert count([get(weir.address, "/status/200", headers=client("a")) for _ in range(5)]) == {200: 5}
    weir.counts(2, "weir_limit_decisions_total", limit="seen", decision="shadow")
    assert count([get(weir.address, "/status/500", headers=client("b")) for _ in range(4)]) == {500: 4}
    eventually(lambda: get(weir.address, "/status/200", headers=client("c")).status == 429, what="the failures to be counted")


def test_charges_in_every_slot_are_returned_if_no_server_received_the_request(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="fixed_window", limit=10, period="10d"),
              "all": dict(script="sliding_window_log", limit=10, period="10d", per="all")}
    upstreams = {"gone": {"servers": [f"127.0.0.1:{free_port()}"]}, "api": {"servers": [rig.upstream().text]}}
    weir, = weirs_with(rig, cluster.policy(), workers=1, limits=limits, upstreams=upstreams,
                       rules=[{"match": {"path": "/gone"}, "limits": ["each", "all"], "upstream": "gone"},
                              {"limits": ["each", "all"], "upstream": "api"}])
    assert count([get(weir.address, "/gone", headers=client("a")) for _ in range(15)]) == {502: 15}
    assert count(flood(weir.address, 20, connections=4, headers=client("a"))) == {200: 10, 429: 10}


def test_keys_of_one_script_call_wait_until_their_slot_has_moved(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="fixed_window", limit=10, period="10d", dedup="Idempotency-Key"),
              "all": dict(script="fixed_window", limit=1000, period="10d", per="all")}
    rules = [{"match": {"path": "/both"}, "limits": ["each", "all"]}, {"limits": ["each"]}]
    brief, patient = (weirs_with(rig, cluster.policy(timeout=within), limits=limits, rules=rules)[0] for within in ("2s", "10s"))
    slot = slot_of_client("a")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))
    named = {**client("a"), "Idempotency-Key": "x"}
    source = cluster.begin_move(slot, to)
    assert get(brief.address, headers=named).status == 503, "the charge and its deduplication record are one call"
    assert get(brief.address, "/both", headers=named).status == 503
    brief.counts(2, "weir_redis_errors_total", cause="moving")
    assert get(patient.address, headers=client("a")).status == 200
    with send_request(patient, headers=named) as waiting:
        eventually(lambda: patient.metric("weir_requests_active") == 1)
        cluster.end_move(source, to, slot)
        assert waiting.response().status == 200, "the slot has moved within redis.timeout"
    assert get(patient.address, headers=named).number("X-RateLimit-Remaining") == 8


@timeout(120)
def test_a_slot_moves_under_load(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="sliding_window_log", limit=3000, period="10d")}
    weirs = weirs_with(rig, cluster.policy(cluster.masters[0]), 2, limits=limits)
    slot, name = slot_of_client("mover"), "mover"
    source = cluster.owner(slot)
    to = next(m for m in cluster.masters if m is not source)
    load = Load([weir.address for weir in weirs], headers=client(name))
    eventually(lambda: len(load.responses) > 300)
    cluster.begin_move(slot, to)
    eventually(lambda: len(load.responses) > 600)
    cluster.move_keys(source, to, slot)
    responses_before = len(load.responses)
    eventually(lambda: len(load.responses) > responses_before + 300)
    cluster.end_move(source, to, slot)
    moved = len(load.responses)
    eventually(lambda: len(load.responses) > moved + 300)
    eventually(lambda: load.since(0, 429), 30)
    answers = load.stop()
    statuses = [status for _, status, _ in answers]
    assert set(statuses) == {200, 429}, "on_failure (deny) decided no request"
    assert statuses.count(200) == 3000
    assert sorted(r for _, s, r in answers if s == 200) == list(range(3000)), "each request was counted once"
    assert any(weir.metric("weir_redis_redirects_total", kind="ask") for weir in weirs)
    assert any(weir.metric("weir_redis_redirects_total", kind="moved") for weir in weirs)


def test_new_clients_with_several_limits_while_their_slot_moves(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"one": dict(script="fixed_window", limit=12, period="10d"),
              "two": dict(script="sliding_window_log", limit=9, period="10d")}
    weirs = weirs_with(rig, cluster.policy(), 2, limits=limits)
    addresses, slot = [weir.address for weir in weirs], slot_of_client("new")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    assert count(flood(addresses, 40, connections=8, headers=client("new"))) == {200: 9, 429: 31}, "both keys must be created"
    cluster.end_move(source, to, slot)
    assert get(addresses[0], headers=client("new")).status == 429
    for master in cluster.masters:
        master.command("SCRIPT", "FLUSH")
    slot = slot_of_client("newer")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    assert count(flood(addresses, 30, connections=8, headers=client("newer"))) == {200: 9, 429: 21}
    cluster.end_move(source, to, slot)


def test_while_a_slot_moves_each_key_is_a_separate_call(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"one": dict(script="fixed_window", limit=12, period="10d", on_failure="deny"),
              "two": dict(script="sliding_window_log", limit=9, period="10d", on_failure="deny"),
              "all": dict(script="gcra", limit=100, period="10d", per="all", on_failure="deny")}
    order = [["one", "two", "all"], ["all", "one", "two"]]
    weir, = weirs_with(rig, cluster.policy(), limits=limits,
                       rules=[{"match": {"path": "/first"}, "limits": order[0]}, {"limits": order[1]}])
    for path, name in (("/first", "new"), ("/last", "newer")):
        slot = slot_of_client(name)
        to = next(m for m in cluster.masters if m is not cluster.owner(slot))
        get(weir.address, path, headers=client(name))
        source = cluster.begin_move(slot, to)
        key = next(key for key in source.command("CLUSTER", "GETKEYSINSLOT", slot, 10) if key.endswith(":l:one"))
        source.command("MIGRATE", *to.address, key, 0, 5000)
        answers = flood([weir.address], 40, connections=8, headers=client(name), target=path)
        assert count(answers) == {200: 8, 429: 32}, "the two keys are on different nodes"
        cluster.end_move(source, to, slot)
        assert get(weir.address, path, headers=client(name)).status == 429


def test_slots_of_two_concurrency_limits_are_freed_while_their_keys_are_on_two_nodes(rig):
    cluster, gate = Cluster(rig, replicas=False), Gate(rig)
    limits = {"one": dict(script="concurrency", limit=9, lease="1h"), "two": dict(script="concurrency", limit=9, lease="1h")}
    weir, = weirs_with(rig, cluster.policy(), workers=1, limits=limits, upstreams=gate.upstreams)
    waiting = [send_request(weir, headers=client("a")) for _ in range(3)]
    eventually(lambda: gate.total == 3)
    slot = slot_of_client("a")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    moved = next(key for key in source.command("CLUSTER", "GETKEYSINSLOT", slot, 10) if key.endswith(":l:two"))
    source.command("MIGRATE", *to.address, moved, 0, 5000)
    gate.open.set()
    assert [c.response().status for c in waiting] == [200] * 3
    eventually(lambda: source.command("KEYS", "*") == to.command("KEYS", "*") == [], what="no unit of either limit in use")
    assert get(weir.address, headers=client("a")).status == 200
    eventually(lambda: source.command("KEYS", "*") == to.command("KEYS", "*") == [])
    cluster.end_move(source, to, slot)


def test_charges_are_settled_while_their_keys_are_on_two_nodes(rig):
    """A cost in the response, and a refund. The key of one limit has moved meanwhile, that of the other has not."""
    cluster = Cluster(rig, replicas=False)
    received, go = threading.Semaphore(0), threading.Event()
    rig.add_cleanup(go.set)

    def script(peer, _number):
        while request := peer.read_request():
            received.release()
            go.wait()
            status = request[0].split(b" ")[1][1:]
            peer.send(b"HTTP/1.1 %s X\r\nContent-Length: 0\r\nX-Cost: 5\r\n\r\n" % status)
    limits = {"minute": dict(script="fixed_window", limit=20, period="10d"), "day": dict(script="token_bucket", limit=100, period="10d"),
              "failures": dict(script="sliding_window_log", limit=10, period="10d", count=[404])}
    weir, = weirs_with(rig, cluster.policy(), limits=limits, upstreams={"api": {"servers": [Scripted(rig, script).text]}},
                       rules=[{"limits": list(limits), "cost": {"reserve": 2, "response_header": "X-Cost"}}])
    with Connection(weir.address) as kept, Connection(weir.address) as refunded:
        kept.send(request_bytes("/404", headers=client("a")))
        refunded.send(request_bytes("/200", headers=client("a")))
        received.acquire(), received.acquire()
        slot = slot_of_client("a")
        to = next(m for m in cluster.masters if m is not cluster.owner(slot))
        source = cluster.begin_move(slot, to)
        key = next(key for key in source.command("CLUSTER", "GETKEYSINSLOT", slot, 10) if key.endswith(":l:day"))
        source.command("MIGRATE", *to.address, key, 0, 5000)
        go.set()
        assert [c.response().status for c in (kept, refunded)] == [404, 200]
    eventually(lambda: (weir.metric("weir_redis_redirects_total", kind="ask") or 0) >= 2, what="adjustments of the limit that has moved")
    cluster.end_move(source, to, slot)

    def left():
        return {row["limit"]: row["remaining"] for row in json.loads(get(weir.admin, "/api/v1/clients/a").body)["limits"]}
    eventually(lambda: left() == {"minute": 10, "day": 90, "failures": 5})


@timeout(120)
def test_a_master_is_killed_and_its_replica_promoted(rig):
    cluster = Cluster(rig)
    cluster.fail_after_ms(LONG_MS)
    limits = {"each": dict(script="fixed_window", limit=1000000, period="10d", lease="off")}
    weirs = weirs_with(rig, cluster.policy(timeout="5s"), 2, limits=limits)
    for weir in weirs:
        weir.expect_errors("[Rr]edis")
    victim = cluster.owner(slot_of_client("one"))
    other = next(f"c{i}" for i in range(100) if cluster.owner(slot_of_client(f"c{i}")) is not victim)
    addresses = [weir.address for weir in weirs]
    load = Load(addresses, headers=client("one"))
    beside = Load(addresses, connections=2, headers=client(other))
    eventually(lambda: len(load.responses) > 500)
    victim.kill()
    killed = time.monotonic()
    cluster.fail_after_ms(1000)
    alive = [n for n in cluster.nodes if n is not victim]
    eventually(lambda: all("cluster_state:ok" in n.command("CLUSTER", "INFO") and cluster.owner(slot_of_client("one")) is not victim
                           for n in alive), 20, "a promoted replica")
    cluster.fail_after_ms(LONG_MS)
    promoted = time.monotonic()
    eventually(lambda: load.since(promoted), 5, "decisions by the promoted replica")
    eventually(lambda: all(weir.metric("weir_redis_ready_workers") == 2 for weir in weirs), 5)
    soon = time.monotonic() + 1.0 * time_scale
    eventually(lambda: sum(t > soon for t, *_ in list(load.responses)) > 100)
    answers, others = load.stop(), beside.stop()
    assert {s for _, s, _ in answers} <= {200, 503}
    assert {s for t, s, _ in answers if t > soon} == {200}, "every worker of every weir uses the new master"
    assert {s for t, s, _ in others if t < killed} == {200} and others[-1][1] == 200
    charged_twice(answers, promoted)


def test_a_clusterdown_error_is_cached_for_a_short_time_only(rig):
    cluster = Cluster(rig, replicas=False)
    for master in cluster.masters:
        master.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    limits = {"each": dict(script="gcra", limit=3, period="10d", on_failure="deny")}
    weir, = weirs_with(rig, cluster.policy(), limits=limits)
    weir.expect_errors("the cluster does not serve the key")
    assert get(weir.address, headers=client("a")).status == 200
    slot = slot_of_client("a")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))

    def is_unassigned():  # a delayed message of the previous owner can assign the slot again
        having = [m for m in cluster.masters if "cluster_slots_assigned:16384" in m.command("CLUSTER", "INFO")]
        for master in having:
            master.command("CLUSTER", "DELSLOTS", slot)
        return not having
    eventually(is_unassigned)
    eventually(lambda: get(weir.address, headers=client("a")).status == 503)
    eventually(lambda: is_unassigned() and get(weir.address, headers=client("a")).status == 503 and
               weir.metric("weir_redis_cluster_slots") == 16383, 5, "the error triggers a new slot map at once")
    to.command("CLUSTER", "ADDSLOTS", slot)
    eventually(lambda: get(weir.address, headers=client("a")).status == 200, 5)


def test_a_late_redirection_is_no_error_of_the_cluster(rig):
    """A planned failover pauses writes. Then the old master answers the calls with MOVED."""
    cluster = Cluster(rig, replicas=False)
    weir, = weirs_with(rig, cluster.policy(timeout="300ms", on_failure="allow"), limits={"each": dict(script="gcra", limit=100, period="10d")})
    slot = slot_of_client("late")
    owner = cluster.owner(slot)
    other = next(master for master in cluster.masters if master is not owner)
    owner.command("CLIENT", "PAUSE", "600000", "WRITE")
    assert get(weir.address, headers=client("late"))["RateLimit"] is None, "nobody has decided it"
    cluster.end_move(cluster.begin_move(slot, other), other, slot)
    owner.command("CLIENT", "UNPAUSE")
    eventually(lambda: get(weir.address, headers=client("late"))["RateLimit"], what="a decision of the new owner")
    assert weir.metric("weir_redis_errors_total", cause="timeout") > 0
    assert not weir.metric("weir_redis_errors_total", cause="cluster")
    assert "does not serve the key" not in weir.output()


def test_check_tries_to_write_on_every_master(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="gcra", limit=3, period="10d")}
    rig.write("checked.yaml", json.dumps(rig.policy(redis=cluster.policy(), limits=limits)))

    def refused():
        done = rig.checked("checked.yaml")
        assert done.returncode == 0, done
        return [line.partition(": warning: redis ")[2] for line in done.stderr.splitlines() if "on_failure" in line]
    slot = next(slot for slot in range(16384) if cluster.owner(slot) is cluster.masters[1])
    source = cluster.begin_move(slot, cluster.masters[2])
    assert refused() == [] and cluster.keys() == [], "also while the slot of the trial moves"
    cluster.end_move(source, cluster.masters[2], slot)
    for master in cluster.masters[:2]:
        master.command("ACL", "SETUSER", "default", "-setrange")
    lines = refused()
    assert len(lines) == 2 and all("may not run a command" in line for line in lines), lines
    assert {line.partition(": ")[0] for line in lines} == {master.text for master in cluster.masters[:2]}, lines
    for master in cluster.masters[:2]:
        master.command("ACL", "SETUSER", "default", "+@all")
    assert refused() == [] and cluster.keys() == []
    for master in cluster.masters[:2]:
        master.kill()
    lines = [line for line in refused() if "Connection refused (tried now" in line]
    assert len(lines) == 2 and all(f"node {master.text}: " in "".join(lines) for master in cluster.masters[:2]), lines


def test_inspect_and_reset_search_all_masters(rig):
    cluster = Cluster(rig, replicas=False)
    limits = {"each": dict(script="gcra", limit=3, period="10d"),
              "writes": dict(script="fixed_window", limit=2, period="10d", per=["client", "method"])}
    weirs = weirs_with(rig, cluster.policy(), 2, limits=limits)
    for i in range(6):
        name = f"c{i}"
        assert [get(weirs[0].address, headers=client(name)).status for _ in range(3)] == [200, 200, 429]
        shown = rig.command("inspect", "-c", weirs[0].policy_file, name)
        assert "0 of 2" in shown.stdout and "1 of 3" in shown.stdout, shown
        assert b'"remaining":0' in get(weirs[0].admin, f"/api/v1/clients/{name}").body
        assert get(weirs[1].address, headers=client(name)).status == 429
        if i % 2:
            assert rig.command("reset", "-c", weirs[0].policy_file, name).returncode == 0
        else:
            assert get(weirs[0].admin, f"/api/v1/clients/{name}", method="DELETE").status == 200
        eventually(lambda n=name: get(weirs[1].address, headers=client(n)).status == 200, what="the reset message to be applied")
    connections = [Connection(weir.address) for weir in weirs]
    assert_reset_applies_at_once(connections, lambda name: rig.command("reset", "-c", weirs[0].policy_file, name))
    assert_reset_applies_at_once(connections, lambda name: get(weirs[0].admin, f"/api/v1/clients/{name}", method="DELETE"))


def test_resets_arrive_while_the_configured_node_is_down(rig):
    """weir also subscribes at the other nodes of the slot map."""
    cluster = Cluster(rig, replicas=False)
    named, *others = cluster.masters
    weir = weirs_with(rig, cluster.policy(named), limits={"each": dict(script="gcra", limit=3, period="10d")})[0]
    weir.expect_errors("redis ")

    def subscribers(node):
        return node.command("PUBSUB", "NUMSUB", "weir:resets")[1]
    eventually(lambda: subscribers(named) == 1, what="the subscription")
    named.kill()
    eventually(lambda: sum(subscribers(node) for node in others) == 1, 15, "the subscription at another node")


def test_a_reload_from_one_server_to_a_cluster_and_back(rig):
    cluster = Cluster(rig, replicas=False)
    weir = rig.weir(workers=1, limits={"each": dict(script="gcra", limit=2, period="10d")})
    weir.expect_errors(LATE_NODE)
    names = [f"c{i}" for i in range(8)]

    def assert_statuses(statuses):
        for name in names:
            assert [get(weir.address, headers=client(name)).status for _ in statuses] == statuses, name
    single = weir.policy["redis"]
    assert_statuses([200, 200, 429])
    weir.reload(redis=cluster.policy(timeout="5s", on_failure="deny")).wait_for_redis()
    eventually(lambda: get(weir.address, headers=client("c0")).status == 200, what="the new policy to be in effect")
    names = names[1:]
    assert_statuses([200, 200, 429])
    assert len(cluster.keys()) == 8
    weir.reload(redis=single)
    eventually(lambda: get(weir.address, headers=client("c0")).status == 429, what="the first policy to be in effect again")
    assert_statuses([429])


def test_grants_reach_every_weir(rig):
    cluster = Cluster(rig, replicas=False)
    weirs = weirs_with(rig, cluster.policy(), 2, limits={"each": dict(script="fixed_window", limit=2, period="10d")})
    for i in range(4):
        name = f"c{i}"
        assert [get(weirs[0].address, headers=client(name)).status for _ in range(3)] == [200, 200, 429]
        assert rig.command("grant", "-c", weirs[0].policy_file, name, "5", "1h").returncode == 0
        eventually(lambda n=name: get(weirs[1].address, headers=client(n)).status == 200, 3, "the grant")
    eventually(lambda: all(weir.metric("weir_grants") == 4 for weir in weirs))


def test_an_acl_user_with_the_documented_permissions(rig):
    cluster = Cluster(rig, replicas=False)
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "weir", "on", ">sesame", "~weir:*", "&weir:*", "+@connection", "+@scripting", "+role",
                 "+time", "+get", "+mget", "+set", "+setrange", "+del", "+scan", "+publish", "+subscribe", "+cluster|slots", "+asking")
    policy = cluster.policy(cluster.masters[0], username="weir", password="sesame")
    weir, = weirs_with(rig, policy, limits={"each": dict(script="gcra", limit=3, period="10d")})
    slot = slot_of_client("a")
    to = next(m for m in cluster.masters if m is not cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    assert [get(weir.address, headers=client("a")).status for _ in range(4)] == [200, 200, 200, 429], "the calls are preceded by ASKING"
    cluster.end_move(source, to, slot)
    assert rig.command("reset", "-c", weir.policy_file, "a").returncode == 0


def test_a_server_that_is_no_cluster_node_is_reported(rig):
    redis = rig.redis(tcp=True)
    weir = rig.weir(redis={"cluster": [redis.text], "on_failure": "deny"}, wait="listening",
                    limits={"each": dict(script="gcra", limit=3, period="10d")})
    weir.expect_errors("it is not a cluster node; use redis.address", LATE_NODE)
    weir.wait_for_output("it is not a cluster node")
    assert get(weir.address).status == 503
    assert weir.metric("weir_redis_errors_total") == 1
    counts_rejected_as(weir, "cluster")
    cluster = Cluster(rig, replicas=False)
    weir = rig.weir(redis={"address": cluster.masters[0].text, "on_failure": "deny"}, wait="listening",
                    limits={"each": dict(script="gcra", limit=3, period="10d")})
    weir.expect_errors("the cluster does not serve the key.*redis.cluster")
    name = next(f"c{i}" for i in range(100) if cluster.owner(slot_of_client(f"c{i}")) is not cluster.masters[0])
    eventually(lambda: get(weir.address, headers=client(name)).status == 503)
    weir.wait_for_output("the cluster does not serve the key")


def counts_rejected_as(weir, cause):
    """Each thread reads the map for itself, and the first one logs the cause."""
    eventually(lambda: get(weir.address).status == 503 and weir.metric("weir_redis_errors_total", cause=cause),
               what=f"an error {cause}")


def test_each_cause_of_a_missing_slot_map_is_reported(rig):
    redis = rig.redis(tcp=True, start=False)
    weir = rig.weir(redis={"cluster": [redis.text], "on_failure": "deny"}, wait="listening",
                    limits={"each": dict(script="gcra", limit=3, period="10d")})
    weir.expect_errors("none of 1 nodes returns the slot map")
    weir.wait_for_output("none of 1 nodes returns the slot map \\(the last, .*Connection refused")
    counts_rejected_as(weir, "connect")
    redis.start()
    weir.wait_for_output("none of 1 nodes returns the slot map \\(the last, .*it is not a cluster node; use redis.address")
    counts_rejected_as(weir, "cluster")


def test_a_login_that_may_not_read_the_slot_map_is_reported(rig):
    redis = rig.redis(tcp=True)
    redis.command("ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all", "-cluster")
    for password, error, cause in (("secret", "NOPERM .*; allow this user the commands", "permission"),
                                   ("wrong", "WRONGPASS .*; check redis.username", "auth")):
        weir = rig.weir(redis={"cluster": [redis.text], "username": "weir", "password": password}, wait="listening",
                        limits={"each": dict(script="gcra", limit=3, period="10d")})
        weir.expect_errors("none of 1 nodes returns the slot map")
        weir.wait_for_output(f"none of 1 nodes returns the slot map \\(the last, {redis.text}: {error}")
        counts_rejected_as(weir, cause)
        done = rig.command("inspect", "-c", weir.policy_file, "a")
        assert done.returncode == 1 and error.split()[0] in done.stderr, done


def test_an_unavailable_node_affects_only_its_keys(rig):
    cluster = Cluster(rig, replicas=False)
    for master in cluster.masters:
        master.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    weir, = weirs_with(rig, cluster.policy(), limits={"each": dict(script="gcra", limit=100, period="10d")})
    weir.expect_errors("[Rr]edis")
    victim = cluster.masters[1]
    gone, there = (next(f"c{i}" for i in range(100) if (cluster.owner(slot_of_client(f"c{i}")) is victim) is is_gone)
                   for is_gone in (True, False))
    victim.kill()
    eventually(lambda: get(weir.address, headers=client(gone)).status == 503)
    assert count(flood(weir.address, 50, connections=8, headers=client(there))) == {200: 50}
    eventually(lambda: get(weir.address, headers=client(gone)).status == 503 and
               weir.metric("weir_redis_errors_total", cause="connect") > 0)
    assert weir.metric("weir_redis_errors_total", cause="down") == 0
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    ready = get(weir.admin, "/readyz")
    assert ready.status == 200 and b"a part of Redis is unavailable" in ready.body, ready
    assert get(weir.admin, f"/api/v1/clients/{there}").status in (200, 503), "a response in either case"


def test_nodes_lost_between_two_slots_are_named(rig):
    cluster = Cluster(rig, masters=1, replicas=False)
    limits = {name: dict(script="fixed_window", limit=10, period="10d", per=per, on_failure="allow")
              for name, per in (("each", "client"), ("all", "all"))}
    weir, = weirs_with(rig, cluster.policy(timeout="10s"), workers=1, limits=limits)
    weir.expect_errors("[Rr]edis")
    assert get(weir.address, headers=client("a")).status == 200
    cluster.masters[0].freeze()
    waiting = send_request(weir, headers=client("a"))
    weir.counts(1, "weir_requests_active")
    cluster.masters[0].kill()
    assert waiting.response().status == 200
    weir.counts(2, "weir_redis_errors_total")
    assert weir.metric("weir_redis_errors_total", cause="down") == 0


def test_a_failed_sub_operation_follows_its_own_on_failure(rig):
    cluster = Cluster(rig, replicas=False)
    for master in cluster.masters:
        master.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    victim = cluster.owner(slot_of("{all}"))
    name = next(f"c{i}" for i in range(100) if cluster.owner(slot_of_client(f"c{i}")) is not victim)
    there = cluster.owner(slot_of_client(name))
    limits = {"each": dict(script="fixed_window", limit=20, period="10d"),
              "open": dict(script="fixed_window", limit=1000, period="10d", per="all", on_failure="allow"),
              "shut": dict(script="fixed_window", limit=1000, period="10d", per="all", on_failure="deny"),
              "here": dict(script="fixed_window", limit=3, period="10d", per="all", on_failure="local")}
    rules = [{"match": {"path": f"/{key}"}, "limits": ["each", key]} for key in ("open", "shut", "here")]
    weir, = weirs_with(rig, cluster.policy(timeout="4s"), workers=1, limits=limits, rules=[*rules, {"limits": ["each"]}])
    weir.expect_errors("[Rr]edis")

    def fetch(path):
        return get(weir.address, path, headers=client(name))

    def used():
        return int(there.command("GET", "weir:{id:%s}:l:each" % name).split(":")[1])
    assert fetch("/open").status == fetch("/shut").status == 200 and fetch("/").number("X-RateLimit-Remaining") == 17
    victim.freeze()
    begun = time.monotonic()
    assert fetch("/shut").status == 503
    assert time.monotonic() - begun < 7.9, "the deadline applies to the whole decision"
    eventually(lambda: used() == 3, what="the charge of the first sub-operation to be returned")
    assert fetch("/open").status == 200 and used() == 4
    victim.thaw()
    victim.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    assert [fetch("/shut").status for _ in range(5)] == [503] * 5
    eventually(lambda: used() == 4, what="the charges of the first sub-operations to be returned")
    fetch("/here")
    assert 429 in [fetch("/here").status for _ in range(5)]


def test_limits_beside_a_failing_script_are_charged_once_in_several_slots(rig):
    """The limit whose script fails costs nothing, so Redis has charged the one beside it, in the same slot."""
    text = open(os.path.join(top, "lua", "fixed_window.lua"), encoding="utf-8").read()
    begin = "return function(state, now, limit, period, burst, cost, mode, offset)\n"
    assert begin in text
    script = rig.write("fails.lua", text.replace(begin, begin + "  if limit == 777 then error('broken on purpose') end\n"))
    cluster = Cluster(rig, replicas=False)
    for on_failure, status in ("allow", 200), ("local", 200), ("deny", 503):
        limits = {"own": dict(script=script, limit=10, period="10d", on_failure=on_failure),
                  "tokens": dict(script="token_bucket", limit=100, period="10d", cost={"reserve": 10, "response_header": "X-Cost"}),
                  "all": dict(script="fixed_window", limit=100, period="10d", per="all", cost={"reserve": 1, "response_header": "X-Cost"})}
        weir, = weirs_with(rig, cluster.policy(), limits=limits, clients={on_failure: {"limits": {"own": {"limit": 777}}}},
                           rules=[{"limits": list(limits), "cost": 0}])
        weir.expect_errors("its script fails")
        assert {get(weir.address, headers=client(on_failure)).status for _ in range(3)} == {status}, on_failure

        def used():
            rows = json.loads(get(weir.admin, "/api/v1/clients/" + on_failure).body)["limits"]  # noqa: B023
            common = cluster.owner(slot_of("{all}")).command("GET", "weir:{all}:l:all")
            return next(100 - row["remaining"] for row in rows if row["limit"] == "tokens"), int(common.split(":")[1])
        eventually(lambda: used() == {"allow": (30, 3), "local": (30, 6), "deny": (0, 6)}[on_failure], what=on_failure)  # noqa: B023


def test_charges_of_this_process_are_returned_if_a_later_slot_rejects(rig):
    cluster = Cluster(rig, replicas=False)
    for master in cluster.masters:
        master.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    victim = cluster.owner(slot_of("{all}"))
    full, free = [name for name in (f"c{i}" for i in range(100)) if cluster.owner(slot_of_client(name)) is not victim][:2]
    limits = {f"here-{script}": dict(script=script, limit=3, period="10d", per="all", on_failure="local") for script in ("gcra", "fixed_window")}
    limits["few"] = dict(script="fixed_window", limit=1, period="10d")
    weir, = weirs_with(rig, cluster.policy(), workers=1, limits=limits, rules=[
        {"match": {"path": "/few"}, "limits": ["few"]}, {"limits": [*limits]}])
    weir.expect_errors("[Rr]edis")
    assert get(weir.address, "/few", headers=client(full)).status == 200
    victim.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    for _ in range(10):
        rejected = get(weir.address, headers=client(full))
        assert rejected.status == 429 and b'"few";r=0' in rejected["RateLimit"].encode(), rejected
        assert '"here-gcra";r=3' in rejected["RateLimit"] and '"here-fixed_window";r=3' in rejected["RateLimit"], rejected
    admitted = get(weir.address, headers=client(free))
    assert admitted.status == 200 and '"here-gcra";r=2' in admitted["RateLimit"], admitted


def test_a_client_that_disconnects_between_two_slots_leaves_the_queue(rig):
    cluster = Cluster(rig, replicas=False)
    for master in cluster.masters:
        master.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    victim = cluster.owner(slot_of("{all}"))
    name = next(f"c{i}" for i in range(100) if cluster.owner(slot_of_client(f"c{i}")) is not victim)
    there = cluster.owner(slot_of_client(name))
    limits = {"queue": dict(script="leaky_bucket", limit=1, period="60s", burst=100, max_delay="90s"),
              "other": dict(script="leaky_bucket", limit=1, period="60s", burst=100, max_delay="90s"),
              "all": dict(script="fixed_window", limit=1000, period="10d", per="all")}
    rules = [{"name": "one", "match": {"path": "/one"}, "limits": ["queue", "all"]}, {"name": "two", "limits": list(limits)}]
    weir, = weirs_with(rig, cluster.policy(timeout="10s"), workers=1, limits=limits, rules=rules)
    assert get(weir.address, "/one", headers=client(name)).status == 200
    victim.freeze()
    key = next(key for key in there.command("KEYS", "*") if key.endswith(":l:queue"))
    before = there.command("PTTL", key)
    began = time.monotonic()
    gone = send_request(weir, "/", client(name))
    eventually(lambda: there.command("PTTL", key) > before + 30000, what="the request to be queued")
    reset(gone)
    eventually(lambda: there.command("PTTL", key) <= before, what="the request to leave the queue")
    assert there.command("PTTL", key.replace(":l:queue", ":l:other")) > 0, "the charge of a limit that did not delay it stays"
    assert time.monotonic() - began < 9, "it leaves the queue because of the client, not of redis.timeout"
    victim.thaw()


def test_concurrency_and_deduplication_in_several_slots(rig):
    cluster = Cluster(rig, replicas=False)
    gate = Gate(rig)
    limits = {"flight": dict(script="concurrency", limit=2, lease="10s", per="all"),
              "each": dict(script="fixed_window", limit=5, period="10d", dedup="Idempotency-Key")}
    weir, = weirs_with(rig, cluster.policy(), limits=limits, upstreams=gate.upstreams)
    first, second = (send_request(weir, headers=client("a")) for _ in range(2))
    eventually(lambda: gate.total == 2)
    rejected = get(weir.address, headers={**client("b"), "Idempotency-Key": "x"})
    assert rejected.status == 429 and rejected["X-Rate-Limit-Policy"] == "flight"
    gate.open.set()
    assert (first.response().status, second.response().status) == (200, 200)

    def left(**more):
        return get(weir.address, headers={**client("b"), **more})
    eventually(lambda: left(**{"Idempotency-Key": "x"}).status == 200, what="a free slot")
    repeats = [left(**{"Idempotency-Key": "x"}) for _ in range(6)]
    assert count(repeats) == {200: 6} and left().status == 200, "repeats are free"
    assert count([left() for _ in range(5)]) == {200: 3, 429: 2}
