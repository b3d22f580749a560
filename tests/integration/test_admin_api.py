"""The admin API compared with docs/admin-api.yaml, top clients, and events."""

import json
import os
import socket

import jsonschema
import yaml

from envoy_calls import Caller, refusal, weir_with_service
from rig import eventually, top
from wire import Connection, flood, get, request_bytes

HOUR = {"script": "gcra", "limit": 3, "period": "1h"}
with open(os.path.join(top, "docs/admin-api.yaml"), encoding="utf-8") as described:
    API = yaml.safe_load(described)


def check(value, schema):
    jsonschema.Draft202012Validator({**schema, "components": API["components"]}).validate(value)


def deref(part):
    """Resolves a reference such as #/components/responses/Forbidden."""
    if "$ref" in part:
        found = API
        for name in part["$ref"].split("/")[1:]:
            found = found[name]
        return found
    return part


def validated_response(weir, path, method="GET", target=None, host="127.0.0.1", **more):
    """Sends the request and validates the response against the schema for its status and content
    type."""
    answer = get(weir.admin, target or path, method=method, host=host, **more)
    responses = API["paths"][path][method.lower()]["responses"]
    content = deref(responses[str(answer.status)])["content"]
    kind = answer["Content-Type"].split(";")[0]
    assert kind in content, (target, kind)
    value = answer.body.decode() if "json" not in kind else json.loads(answer.body)
    check(value, content[kind]["schema"])
    return answer.status, value


def listed(text):
    """The paths that the text of a 404 lists, as docs/admin-api.yaml writes them."""
    return [path.replace("CLIENT", "{client}") for path in text.strip().partition("the paths are ")[2].split(", ")]


def test_the_404_lists_all_paths(rig):
    weir = rig.weir(rules=[])
    everything = listed(get(weir.admin, "/api").body.decode())
    of_api = listed(json.loads(get(weir.admin, "/api/v1").body)["detail"])
    assert sorted(set(everything) - {"/", "/dashboard.js", "/dashboard.css"}) == sorted(API["paths"])
    assert of_api == [path for path in everything if path.startswith("/api/")]
    for path in everything: # POST, since the content of a GET of events does not end
        answer = get(weir.admin, path.replace("{client}", "ip:127.0.0.1"), method="POST")
        assert (answer.status, "GET, HEAD" in answer["Allow"]) == (405, True), path


def events(weir, count, **more):
    """The first `count` snapshots for a new listener."""
    found = []
    with Connection(weir.admin, timeout=10) as connection:
        connection.send(request_bytes("/api/v1/events", host="127.0.0.1", **more))
        data = b""
        while len(found) < count:
            assert connection.fill(), data
            data, connection.buffer = data + connection.buffer, b""
            found = [json.loads(line[6:]) for line in data.split(b"\n")[:-1] if line.startswith(b"data: ")]
    assert b"\nContent-Type: text/event-stream\r\n" in data and b"retry: 2000\n" in data, data[:500]
    for snapshot in found:
        check(snapshot, API["components"]["schemas"]["Snapshot"])
    return found[:count]


def test_the_history_begins_before_anybody_looks(rig):
    weir = rig.weir(limits={"each": HOUR}).wait_for_redis()
    for _ in range(5):
        get(weir.address, headers={"X-Client-Id": "a"})

    def seen():
        status, history = validated_response(weir, "/api/v1/history")
        assert status == 200
        samples = history["samples"]
        timed = [sample for sample in samples if sample[3] is not None]
        # no requests, no percentile
        return sum(sample[2] for sample in samples) > 0 and timed and samples[-1][1] == 0 and samples[-1][3] is None and (samples, timed)
    samples, timed = eventually(seen, what="a second with requests, and one without")
    assert all(0 < sample[3] <= sample[4] for sample in timed), timed
    assert [sample[0] for sample in samples] == sorted(sample[0] for sample in samples)


def test_the_policy_as_json_has_the_types_of_its_options(rig):
    """A text is a JSON string even if it looks like a number, a boolean or null; YAML readers agree."""
    looks = ["1", "007", "0x10", "1e3", "1.5", "true", "False", "null", "~", "12345678901234567890", "plain"]
    api = {"servers": [rig.upstream().text]}
    weir = rig.weir(
        limits={"1e3": {"script": "gcra", "limit": 999999999999999, "period": "1h", "burst": 5}, "2": HOUR,
                "tokens": {**HOUR, "cost": {"usage": {"a": 0.125, "b": 2}}}},
        upstreams={"502": api, "true": api}, plans={"123": {"priority": "1"}}, clients={"42": {"plan": "123"}},
        priorities={"1": "100%", "2": "50%"},
        rules=[{"match": {"path": "/a", "header": {"X-N": looks}, "json": {"n": [5, "5", True, "true"]}},
                "limits": ["1e3", "2"], "upstream": "502", "priority": "2"}, {"upstream": "true", "limits": ["tokens"]}],
        rejection={"headers": {"X-Code": "007"}}, redis={"address": rig.redis().text, "key_prefix": "10"})
    policy = json.loads(get(weir.admin, "/api/v1/policy", headers={"Accept": "application/json"}).body)
    rule = policy["rules"][0]
    assert rule["match"]["header"]["X-N"] == looks and rule["match"]["json"]["n"] == [5, "5", True, "true"], rule
    assert (rule["limits"], rule["upstream"], rule["priority"]) == (["1e3", "2"], "502", "2"), rule
    assert policy["clients"]["42"]["plan"] == "123" and policy["plans"]["123"]["priority"] == "1", policy
    assert (policy["redis"]["password"], policy["redis"]["key_prefix"]) == (None, "10"), policy
    assert policy["limits"]["1e3"]["limit"] == 999999999999999 and policy["limits"]["1e3"]["headers"] is True, policy
    assert policy["limits"]["tokens"]["cost"]["usage"] == {"a": 0.125, "b": 2}, policy
    assert policy["rejection"]["headers"]["X-Code"] == "007", policy
    read = yaml.safe_load(get(weir.admin, "/api/v1/policy").body)
    for section in "plans", "clients", "rules", "rejection":
        assert read[section] == policy[section], section


def test_responses_match_their_description(rig):
    weir = rig.weir(limits={"each": HOUR, "flying": {"script": "concurrency", "limit": 9}, "unused": {**HOUR, "per": ["client", "route"]}},
                    rules=[{"match": {"path": "/unused"}, "limits": ["unused"]}, {"limits": ["each", "flying"]}],
                    upstreams={"api": {"servers": [rig.upstream().text, "localhost:1"], "health": {"path": "/"}}}).wait_for_redis()
    weir.expect_errors("localhost")
    for _ in range(5):
        get(weir.address, headers={"X-Client-Id": "a"})
    client = "/api/v1/clients/{client}"
    for path in "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/policy", "/api/v1/top":
        assert validated_response(weir, path)[0] == 200, path
        assert validated_response(weir, path, host="weir.example")[0] == 403, path
    status, policy = validated_response(weir, "/api/v1/policy", headers={"Accept": "application/json"})
    assert status == 200 and policy["limits"]["each"]["limit"] == 3 and policy["rules"][1]["limits"] == ["each", "flying"], policy
    assert yaml.safe_load(validated_response(weir, "/api/v1/policy")[1])["limits"].keys() == policy["limits"].keys()
    assert validated_response(weir, client, target="/api/v1/clients/a")[1]["limits"][0]["remaining"] == 0
    for body, expected in ((b'{"quota": 9, "for": "1h"}', 200), (b'{"quota": null}', 200), (b'{"quota": 9}', 400), (b"[]", 400)):
        assert validated_response(weir, client, "PUT", "/api/v1/clients/a", body=body)[0] == expected, body
    assert validated_response(weir, client, "DELETE", "/api/v1/clients/a")[1]["removed"] >= 1
    assert validated_response(weir, client, target="/api/v1/clients/%zz")[0] == 400
    for query in "by=nobody", "n=0", "n=101", "n=1x", "n=-1", "by=cost&n=":
        assert validated_response(weir, "/api/v1/top", target="/api/v1/top?" + query)[0] == 400, query
    for path, methods in API["paths"].items():
        for method in "GET", "PUT", "DELETE", "POST":
            if method.lower() not in methods:
                answer = get(weir.admin, path.replace("{client}", "a"), method=method, host="127.0.0.1")
                assert answer.status == 405 and answer["Allow"], (path, method)


def top_of(weir, by):
    answer = json.loads(get(weir.admin, f"/api/v1/top?by={by}&n=5", host="127.0.0.1").body)
    assert answer["by"] == by and 0 < answer["seconds"] <= 70
    assert all(c["at_least"] <= c["at_most"] for c in answer["clients"])
    return [(c["client"], c["at_least"]) for c in answer["clients"]]


def test_top_clients(rig):
    api = rig.upstream()
    weir = rig.weir(workers=3, limits={"each": {**HOUR, "limit": 20}}, clients={"pest": {"quota": 0}},
                    identity={"from": ["header:X-Client-Id", "ip"], "headers_from": "anyone"},
                    rules=[{"name": "dear", "match": {"path": "/dear"}, "limits": ["each"], "cost": 4},
                           {"name": "open", "match": {"path": "/open"}, "limits": "none"}, {"name": "rest", "limits": ["each"]}],
                    upstreams={"api": {"servers": [api.text]}}).wait_for_redis()
    flood(weir.address, 30, connections=8, headers={"X-Client-Id": "busy"})
    flood(weir.address, 25, connections=4, headers={"X-Client-Id": "open"}, target="/open")
    flood(weir.address, 7, connections=4, headers={"X-Client-Id": "pest"})
    flood(weir.address, 4, connections=2, headers={"X-Client-Id": "dear"}, target="/dear")
    weir.counts(66, "weir_request_duration_seconds_count")
    assert top_of(weir, "allowed")[:3] == [("id:open", 25), ("id:busy", 20), ("id:dear", 4)]
    assert top_of(weir, "limited") == [("id:busy", 10), ("id:pest", 7)]
    assert top_of(weir, "cost")[:3] == [("id:open", 25), ("id:busy", 20), ("id:dear", 16)]


def test_the_busiest_of_ten_thousand_clients_is_found(rig):
    weir = rig.weir(limits={"each": HOUR}, rules=[{"name": "all", "limits": "none"}])
    with Connection(weir.address) as connection:
        for start in range(0, 10000, 50):  # pipelined
            batch = [request_bytes(headers={"X-Client-Id": f"client-{i}" if i % 50 else "busy"}) for i in range(start, start + 50)]
            connection.send(b"".join(batch))
            for _ in batch:
                connection.response("GET")
    weir.counts(10000, "weir_request_duration_seconds_count")
    clients = json.loads(get(weir.admin, "/api/v1/top?n=100", host="127.0.0.1").body)["clients"]
    assert clients[0]["client"] == "id:busy", clients[:3]
    assert clients[0]["at_least"] <= 200 <= clients[0]["at_most"] < 400, clients[0]
    assert len(clients) == 100


def test_events_show_traffic(rig):
    weir = rig.weir(limits={"each": HOUR}).wait_for_redis()
    with Connection(weir.admin, timeout=10) as listener:
        listener.send(request_bytes("/api/v1/events", host="127.0.0.1"))
        while b"data: " not in listener.buffer:
            assert listener.fill()
        for _ in range(5):
            get(weir.address, headers={"X-Client-Id": "a"})
        seen = []

        def next_event():
            assert listener.fill()
            seen[:] = [json.loads(line[6:]) for line in listener.buffer.split(b"\n")[:-1] if line.startswith(b"data: ")]
            return seen and seen[-1]["decisions"]["limited"]["total"] == 2 and sum(s["latency"]["requests"]["count"] for s in seen) == 5
        eventually(next_event)
    first, last = seen[0], seen[-1]
    assert first["interval_seconds"] is None and first["decisions"]["limited"]["per_second"] is None
    assert last["decisions"]["allowed"]["total"] == 3 and last["rules"][0]["decisions"]["limited"]["total"] == 2
    sample = next(s for s in seen if s["latency"]["requests"]["count"])
    assert 0 < sample["latency"]["requests"]["p50_seconds"] <= sample["latency"]["requests"]["p99_seconds"] <= 30
    risen = next(s for s in seen if s["decisions"]["limited"]["total"])
    assert risen["decisions"]["limited"]["per_second"] > 0 and sum(s["latency"]["redis"]["count"] for s in seen) >= 3
    assert last["redis"]["ready"] and last["limits"][0]["name"] == "each" and len(last["workers"]) == 2
    assert last["top"]["limited"] == [{"client": "id:a", "at_least": 2, "at_most": 2}]
    assert last["upstreams"][0]["servers"][0]["state"] == "up"


def test_event_listeners_are_limited_and_slow_ones_are_dropped(rig):
    weir = rig.weir(rules=[{"name": f"rule-{i}", "match": {"path": f"/{i}"}, "limits": "none"} for i in range(250)])
    deaf = []
    for _ in range(16):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(weir.admin)
        s.sendall(request_bytes("/api/v1/events", host="127.0.0.1"))
        deaf.append(s)
    assert get(weir.admin, "/api/v1/events", host="127.0.0.1", method="HEAD").status == 200
    assert get(weir.admin, "/api/v1/events", host="127.0.0.1").status == 503, "16 listen"
    for s in deaf[1:]:
        s.close()

    def on_time():  # a late snapshot is soon followed by the next one
        first, second = events(weir, 2)
        assert len(first["rules"]) == 200, "closed listeners free their slots"
        return second["interval_seconds"] > 0.5
    eventually(on_time, what="a snapshot after a second")

    def dropped():
        with open(f"/proc/{weir.pid}/net/tcp", encoding="ascii") as table:
            mine = "0100007F:%04X 0100007F:%04X 01" % (weir.admin[1], deaf[0].getsockname()[1])
            return mine not in table.read()
    eventually(dropped, seconds=20, what="a listener that does not read to be dropped")
    deaf[0].close()


def test_snapshots_count_calls_of_the_rate_limit_service(rig):
    weir, listener = weir_with_service(rig, {"edge": {"descriptors": [{"key": "user", "rate_limit": {"unit": "year", "requests_per_unit": 2}}]}})
    with Caller(listener) as caller:
        for _ in range(3):
            caller.call("edge", {"user": "a"})
        refusal(caller.call, "edge")
    weir.counts(1, "weir_rate_limit_service_requests_total", domain="(unknown)", code="INVALID_ARGUMENT")
    first, second = events(weir, 2)
    service = second["rate_limit_service"]
    assert [service[name]["total"] for name in ("calls", "over_limit", "errors")] == [4, 1, 1], service
    assert first["rate_limit_service"]["calls"]["per_second"] is None and service["calls"]["per_second"] == 0
    assert events(rig.weir(), 1)[0]["rate_limit_service"] is None


def test_a_reload_disconnects_event_listeners(rig):
    weir = rig.weir(rules=[])
    with Connection(weir.admin, timeout=10) as listener:
        listener.send(request_bytes("/api/v1/events", host="127.0.0.1"))
        while b"data: " not in listener.buffer:
            assert listener.fill()
        weir.reload(rules=[{"name": "new", "limits": "none"}])
        while listener.fill():
            pass
    assert events(weir, 1)[0]["rules"][0]["name"] == "new"
