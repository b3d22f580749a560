"""SIGHUP: a new policy without lost requests, invalid policies, and counters that continue."""

import json
import signal
import threading

from proxy_header import V1
from rig import eventually
from scripted import OK, Scripted
from tls_client import pair
from tunnels import ASKED, SWITCH, echo_after, open_tunnel
from wire import Connection, get, request_bytes

HOUR = {"script": "gcra", "limit": 3, "period": "1h"}


def rules(*limits):
    return [{"limits": list(limits)}]


def test_a_new_policy_takes_effect_and_counters_continue(rig):
    weir = rig.weir(workers=2, limits={"each": HOUR}, rules=rules("each"))
    assert [get(weir.address).status for _ in range(4)] == [200, 200, 200, 429]
    weir.reload(limits={"each": {**HOUR, "limit": 5}, "more": HOUR}, rules=rules("each", "more"))
    eventually(lambda: "more" in (get(weir.address)["RateLimit-Policy"] or ""), what="the new policy in effect in every worker")
    eventually(lambda: weir.metric("weir_limit_decisions_total", limit="each", decision="allowed") >= 3)
    eventually(lambda: weir.metric("weir_limit_decisions_total", limit="each", decision="limited") >= 1)


def test_a_reload_logs_what_it_changes(rig):
    weir = rig.weir(limits={"each": HOUR, "gone": HOUR}, rules=[{"name": "a", "limits": ["each"]}, {"name": "b", "limits": ["each"]}],
                    clients={"alice": {"quota": 5}, "ip:10.0.0.0/8": {"quota": 7}})
    weir.reload(limits={"each": {**HOUR, "limit": 4}, "new": HOUR}, clients={"alice": {"quota": 6}, "ip:10.0.0.0/8": {"quota": 7}, "bob": {"quota": 1}})
    lines = [message for _, message in weir.log() if message.startswith("reload: ") and "in effect" not in message]
    assert lines == ["reload: limits: changed each; added new; removed gone", "reload: clients: changed alice; added bob"], lines
    weir.reload(rules=[{"name": "b", "limits": ["each"]}, {"name": "a", "limits": ["each"]}])
    weir.wait_for_output("reload: rules: another order$")
    weir.reload(rules=[{"name": "b", "limits": ["new"]}], timeouts={"drain": "1s"})
    weir.wait_for_output("reload: rules: changed b; removed a$")
    weir.wait_for_output("reload: timeouts: changed$")
    weir.reload(clients={f"client-{i}": {"quota": 1} for i in range(100)})
    weir.wait_for_output(r"reload: clients: added (client-\d+, ){7}client-\d+ and 92 more; removed alice, bob, ip:10.0.0.0/8$")
    before = len(weir.log())
    weir.reload()
    assert [message for _, message in weir.log()[before:] if "reload" in message] == [f"reload: {weir.policy_file} is in effect"]


def test_reloads_lose_no_request_and_no_decision(rig):
    """on_failure is deny, so a decision without Redis would be a 503."""
    weir = rig.weir(workers=2, limits={"each": {**HOUR, "limit": 1_000_000}}, rules=rules("each"))
    statuses, stop = [], threading.Event()

    def load():
        with Connection(weir.address) as connection:
            while not stop.is_set():
                statuses.append(connection.request().status)
    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(8):
        weir.reload(limits={"each": {**HOUR, "limit": 1_000_000 + number}})
        seen = len(statuses)
        eventually(lambda: len(statuses) >= seen + 20, what="further requests")
    stop.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_an_invalid_policy_changes_nothing_and_is_located(rig):
    weir = rig.weir(limits={"each": HOUR}, rules=rules("each"))
    weir.expect_errors("reload", "no limit is named", r"weir-\d+\.yaml:")
    before = weir.policy
    with open(weir.policy_file, "w", encoding="utf-8") as out:
        out.write("rules: [ { limits: [ nobody ] } ]\n")
    weir.signal(signal.SIGHUP)
    weir.wait_for_output("the current policy stays in effect")
    assert "yaml:1:" in weir.output()
    weir.policy = before
    assert [get(weir.address).status for _ in range(4)] == [200, 200, 200, 429]


def test_a_request_finishes_with_the_policy_it_started_with(rig):
    gate = threading.Event()

    def script(peer, number):
        while peer.read_request():
            if number == 0:
                gate.wait(20)
            peer.socket.sendall(OK)
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, limits={"old": {**HOUR, "limit": 1000}},
                    rules=rules("old"))
    with Connection(weir.address) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: weir.metric("weir_requests_active") == 1)
        weir.reload(upstreams={"api": {"servers": [rig.upstream().text]}}, limits={"new": HOUR}, rules=rules("new"))
        eventually(lambda: '"new"' in (get(weir.address)["RateLimit-Policy"] or ""))
        gate.set()
        assert '"old"' in connection.response()["RateLimit-Policy"]
        assert '"new"' in connection.request()["RateLimit-Policy"]


def test_settings_that_require_a_restart_are_reported(rig):
    weir = rig.weir(workers=1)
    weir.reload(workers=2, listen=["127.0.0.1:1"])
    weir.wait_for_output("changed workers takes effect after a restart")
    weir.wait_for_output("changed listen takes effect after a restart")
    assert "changed decisions.listen" not in weir.output() and "ipv6_prefix" not in weir.output()
    weir.reload(decisions={"listen": "127.0.0.1:2"}, rate_limit_service={"listen": ["127.0.0.1:3"], "domains": {}})
    weir.wait_for_output("changed decisions.listen takes effect after a restart")
    weir.wait_for_output("changed rate_limit_service.listen takes effect after a restart")
    weir.reload(identity={"ipv6_prefix": 48})
    weir.wait_for_output("for size_limits.connections_per_ip, a changed identity.ipv4_prefix or ipv6_prefix takes effect after a restart")
    assert get(weir.address).status == 200


def without_upstreams(rig, **keys):
    policy = {**rig.policy(workers=1, rate_limit_service={"listen": "127.0.0.1:0", "domains": {}}), **keys}
    return {key: policy[key] for key in policy if key not in ("upstreams", "listen")}


def test_a_policy_without_upstreams_is_refused_while_listeners_need_them(rig):
    weir = rig.weir(workers=1)
    weir.expect_errors("upstreams is missing", "the current policy stays in effect")
    rig.write(weir.policy_file, json.dumps(without_upstreams(rig)))
    weir.signal(signal.SIGHUP)
    weir.wait_for_output("upstreams is missing, and listeners of listen stay open until a restart")
    weir.wait_for_output("the current policy stays in effect")
    assert get(weir.address).status == 200


def test_a_policy_without_what_an_open_listener_needs_is_refused(rig):
    proxies = {"trusted_proxies": ["127.0.0.1"]}
    weir = rig.weir(workers=1, listen=["127.0.0.1:0", {"address": "127.0.0.1:0", "proxy_protocol": True}], identity=proxies,
                    rate_limit_service={"listen": "127.0.0.1:0", "domains": {}})
    weir.expect_errors("is missing, and listeners", "the current policy stays in effect")
    for key, removed in ("identity", "identity.trusted_proxies"), ("rate_limit_service", "rate_limit_service"):
        policy = {**weir.policy, "listen": ["127.0.0.1:0"]}
        del policy[key]
        rig.write(weir.policy_file, json.dumps(policy))
        weir.signal(signal.SIGHUP)
        weir.wait_for_output(f"{removed} is missing, and listeners of ")
        weir.wait_for_output("the current policy stays in effect")
    with Connection(weir.addresses[1]) as connection:
        connection.send(V1)
        assert connection.request().status == 200


def test_rules_without_upstreams_are_logged_and_shown(rig):
    weir = rig.weir(json.dumps(without_upstreams(rig)))
    weir.policy = without_upstreams(rig)
    weir.reload(rules=[{"limits": "none"}])
    rule, = json.loads(get(weir.admin, "/api/v1/policy", headers={"Accept": "application/json"}).body)["rules"]
    assert rule["name"] == "*" and "upstream" not in rule, rule


def test_a_sighup_during_the_shutdown_is_harmless(rig):
    weir = rig.weir(workers=1)
    weir.signal(signal.SIGTERM)
    weir.signal(signal.SIGHUP)
    while weir.alive():  # also at the very end
        weir.signal(signal.SIGHUP)
        weir.signal(signal.SIGUSR1)
    weir.wait()


def test_the_policy_of_the_api_is_the_one_in_force_after_a_reload(rig):
    """Of options that require a restart, it has the values with which weir was started."""
    listen = [{"address": "127.0.0.1:0", "tls": [pair("one"), pair("two")]}]
    weir = rig.weir(workers=2, listen=listen, limits={"each": HOUR}, rules=rules("each"))

    def policy():
        return json.loads(get(weir.admin, "/api/v1/policy", headers={"Accept": "application/json"}).body)
    before = policy()
    assert len(before["listen"][0]["tls"]) == 2, before["listen"]
    weir.reload(limits={"each": {**HOUR, "limit": 5}})
    assert policy() == {**before, "limits": {"each": {**before["limits"]["each"], "limit": 5, "burst": 5}}}
    weir.expect_errors("takes effect after a restart")
    weir.reload(workers=3, listen=["127.0.0.1:0"])
    assert policy()["workers"] == 2 and policy()["listen"] == before["listen"]


def test_tunnels_that_outlive_reloads_keep_no_connection_to_redis(rig):
    """Unless they hold a unit of a concurrency limit, which they return at their end."""
    limits = {"each": dict(script="gcra", limit=100, period="1h"), "open": dict(script="concurrency", limit=1)}
    api = Scripted(rig, echo_after(SWITCH))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, limits=limits,
                    rules=[{"match": {"host": "counted.test"}, "limits": ["each", "open"]}, {"limits": ["each"]}])

    def connections():
        return rig.the_redis.command("CLIENT", "LIST").count("\n") - 1
    before = eventually(connections)
    tunnels = [Connection(weir.address) for _ in range(3)]
    for n, tunnel in enumerate(tunnels):
        open_tunnel(tunnel)
        weir.reload(limits={**limits, "each": {**limits["each"], "limit": 200 + n}})
    eventually(lambda: weir.metric("weir_retired_policies") == 3 and connections() == before)
    for tunnel in tunnels:
        tunnel.socket.sendall(b"ping")
        assert tunnel.read_exactly(4, "the echo") == b"ping"
        tunnel.close()
    weir.counts(0, "weir_retired_policies")
    with Connection(weir.address) as counted:
        counted.send(request_bytes(headers=ASKED, host="counted.test"))
        assert counted.read_head().status == 101
        weir.reload(limits=limits)
        assert get(weir.address, host="counted.test").status == 429
        assert connections() > before
    weir.counts(0, "weir_retired_policies")
    eventually(lambda: connections() == before, what="no further connection to Redis")


def test_event_streams_that_outlive_reloads_keep_no_connection_to_redis(rig):
    """Not even if their charge was adjusted. More than 8 policies that requests use are a problem."""
    limits = {"each": dict(script="gcra", limit=100, period="1h", count="2xx")}
    end = threading.Event()

    def stream(peer, _number):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata:\n\n\r\n")
        end.wait(30)
        peer.send(b"0\r\n\r\n")
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [Scripted(rig, stream).text]}}, limits=limits, rules=rules("each"))

    def connections():
        return rig.the_redis.command("CLIENT", "LIST").count("\n") - 1
    before = eventually(connections)
    streams = [Connection(weir.address) for _ in range(9)]
    for number, connection in enumerate(streams):
        assert weir.metric("weir_problem", problem="retired_policies") == 0
        connection.send(request_bytes())
        assert connection.read_head().status == 200
        weir.reload(limits={"each": {**limits["each"], "limit": 200 + number}})
    weir.counts(9, "weir_retired_policies")
    eventually(lambda: connections() == before, what="no further connection to Redis")
    assert weir.metric("weir_problem", problem="retired_policies") == 1
    weir.wait_for_output("problem retired_policies: requests in progress use 9 policies from before a reload")
    end.set()
    weir.counts(0, "weir_retired_policies")
    weir.wait_for_output("the problem retired_policies has ended")


def test_metrics_forget_servers_and_limits_that_are_gone(rig):
    """Once no request is in progress on the server."""
    asked, answer = threading.Event(), threading.Event()

    def script(peer, _number):
        while peer.read_request() is not None:
            asked.set()
            answer.wait(20)
            peer.send(OK)
    old, new = Scripted(rig, script), Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [old.text]}}, limits={"first": HOUR}, rules=rules("first"))

    def responses(server):
        return weir.metric("weir_upstream_responses_total", server=server)
    with Connection(weir.address) as connection:
        connection.send(request_bytes())
        assert asked.wait(20)
        weir.reload(upstreams={"api": {"servers": [new.text]}}, limits={"second": HOUR}, rules=rules("second"))
        assert responses(old.text) == responses(new.text) == 0
        assert weir.metric("weir_limit_decisions_total", limit="first") is None
        assert weir.metric("weir_limit_decisions_total", limit="second") == 0
        answer.set()
        assert connection.response().status == 200
    eventually(lambda: responses(old.text) is None)
    weir.reload(upstreams={"api": {"servers": [old.text]}})
    assert responses(old.text) == 1 and responses(new.text) is None, "the counts go on"
