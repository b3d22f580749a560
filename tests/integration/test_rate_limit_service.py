"""The listener of Envoy's rate limit service: gRPC, JSON, health. test_descriptors.py has the limits."""

import json
import re
import signal
import socket
import ssl
import struct
import threading
import time
from urllib.parse import quote

import envoy_messages as envoy
from certificates import Authority
from certificates import listener as tls_listener
from envoy_calls import TE, TYPE, Caller, check_client, frame, listener_of, message_of, post_json, refusal, weir_with_service
from grpc_programs import begin, run
from http2_wire import Http2
from rig import eventually, text_of
from tls_client import TlsConnection, client, pair
from wire import Connection, chunked, get, request_bytes, run_in_threads

MINUTE = {"unit": "minute", "requests_per_unit": 3}
DOMAINS = {"edge": {"descriptors": [{"key": "user", "rate_limit": MINUTE}, {"key": "free"}]}}
USER = {"user": "alice"}
OK, OVER = envoy.OK, envoy.OVER_LIMIT
INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 4, 5, 7, 12, 13, 14


def body(*request, **more):
    return frame(envoy.request(*request, **more).SerializeToString())


# --- messages and their statuses ---


def test_malformed_calls_have_their_status(rig):
    weir, listener = weir_with_service(rig, DOMAINS)
    good = envoy.request("edge", {"free": "1"}).SerializeToString()
    many = [{"k": "v"}] * 65
    invalid = {
        "no message": b"",
        "cut prefix": b"\0\0\0\0",
        "too short": frame(good)[:-1],
        "two messages": frame(good) * 2,
        "unknown flag": b"\2" + frame(good)[1:],
        "not protobuf": frame(b"\xff\xff\xff"),
        "no domain": body("", {"k": "v"}),
        "no descriptors": body("edge"),
        "no entries": body("edge", {}),
        "no key": body("edge", {"": "v"}),
        "65 descriptors": body("edge", *many),
        "33 entries": body("edge", [("k", "v")] * 33),
        "not UTF-8": frame(b"\x0a\x04edge\x12\x07\x0a\x05\x0a\x03k\xff\xff"),
        "64 KiB": body("edge", {"k": "v" * 65536}),
        "much more": body("edge", {"k": "v" * 300000}),
        "memory": frame(b"\x0a\x04edge\x12\xe0\xd4\x03" + b"\x0a\x00" * 30000),
    }
    with Caller(listener) as caller:
        for name, content in invalid.items():
            assert refusal(caller.raw, content) == INVALID_ARGUMENT, name
        override = envoy.request("edge", USER)
        override.descriptors[0].limit.requests_per_unit = 1
        assert refusal(caller.call, override) == INVALID_ARGUMENT, "a unit of 0"
        assert caller.code("edge", *many[:64]) == OK
        assert caller.code("edge", [("k", "v")] * 32) == OK
        assert caller.code("edge", {"k": "v" * 65000}) == OK, "just below 64 KiB"
        assert caller.call("edge", {"k": "a\0b"}, {"k": ""}).overall_code == OK
    weir.counts(len(invalid) + 1, "weir_rate_limit_service_requests_total", domain="(unknown)", code="INVALID_ARGUMENT")
    weir.counts(4, "weir_rate_limit_service_requests_total", domain="edge", code="OK")


def test_calls_that_weir_does_not_implement(rig):
    _, listener = weir_with_service(rig, DOMAINS)
    good = body("edge", {"free": "1"})
    with Caller(listener) as caller:
        assert refusal(caller.raw, b"\1" + good[1:]) == UNIMPLEMENTED, "compressed"
        for path in "/envoy.service.ratelimit.v3.RateLimitService/Other", "/grpc.health.v1.Health/List", "/x.Y/Z":
            assert refusal(caller.raw, good, path) == UNIMPLEMENTED
        for kind in "application/grpc+json", "application/grpc+thrift":
            assert refusal(caller.raw, good, fields=[("content-type", kind)]) == UNIMPLEMENTED, kind
        for kind in "application/grpc+proto", "application/grpc;x=y", "Application/gRPC":
            assert caller.raw(good, fields=[("content-type", kind)]).overall_code == OK, kind
        assert caller.raw(good, fields=[TYPE, TE, ("grpc-encoding", "gzip")]).overall_code == OK, "not compressed all the same"
        for kind in "application/json", "application/grpc-web", "text/plain":
            stream = caller.begin(envoy.SHOULD_RATE_LIMIT, good, [("content-type", kind)])
            assert caller.http2.response(stream).status == 415, kind
        assert caller.http2.get(envoy.SHOULD_RATE_LIMIT).status == 405
        assert caller.http2.get("/other").status == 404


def test_a_call_is_read_in_pieces(rig):
    _, listener = weir_with_service(rig, DOMAINS)
    content = body("edge", {"free": "1" * 500})
    with Http2(listener) as client:
        stream = client.start(envoy.SHOULD_RATE_LIMIT, "POST", [TYPE, TE], end=False)
        for at in range(len(content)):
            client.send(0, 1 if at == len(content) - 1 else 0, stream, content[at:at + 1])
        response = client.response(stream)
        assert envoy.RateLimitResponse.FromString(message_of(response.body)).overall_code == OK
    with Http2(listener) as client:
        stream = client.start(envoy.SHOULD_RATE_LIMIT, "POST", [TYPE, TE], end=False)
        client.send_body(stream, content, end=False)
        client.send(0, 1, stream, b"")
        assert client.response(stream).trailers


def test_a_call_that_never_ends_is_ended(rig):
    _, listener = weir_with_service(rig, DOMAINS, timeouts={"request_body": "200ms"})
    with Caller(listener) as caller:
        stream = caller.begin(envoy.SHOULD_RATE_LIMIT, body("edge", USER)[:4], end=False)
        assert refusal(caller.result, stream, None) == DEADLINE_EXCEEDED
        stream = caller.begin(envoy.SHOULD_RATE_LIMIT, body("edge", USER)[:4], [TYPE, TE, ("grpc-timeout", "50m")], end=False)
        assert refusal(caller.result, stream, None) == DEADLINE_EXCEEDED
    weir, listener = weir_with_service(rig, DOMAINS)
    with Caller(listener) as caller:
        stream = caller.begin(envoy.SHOULD_RATE_LIMIT, body("edge", USER)[:4], end=False)
        caller.http2.send(3, 0, stream, struct.pack(">I", 8))  # RST_STREAM
    weir.counts(1, "weir_rate_limit_service_requests_total", domain="(unknown)", code="CANCELLED")


def test_a_malformed_deadline_is_refused(rig):
    """With INTERNAL, as servers of grpc-go do: such a call would have no deadline."""
    weir, listener = weir_with_service(rig, DOMAINS)
    good = body("edge", {"free": "1"})
    malformed = "", "5", "S", "1s", "-1S", "+1S", "1.5S", "1 S", "123456789S"
    with Caller(listener) as caller:
        for timeout in malformed:
            assert refusal(caller.raw, good, fields=[TYPE, TE, ("grpc-timeout", timeout)]) == INTERNAL, timeout
        health = frame(envoy.HealthCheckRequest().SerializeToString())
        assert refusal(caller.raw, health, envoy.HEALTH_CHECK, [TYPE, TE, ("grpc-timeout", "5")]) == INTERNAL
        for timeout in "1H", "99999999M", "00000009S", "99999999m":
            assert caller.raw(good, fields=[TYPE, TE, ("grpc-timeout", timeout)]).overall_code == OK, timeout
    weir.counts(len(malformed), "weir_rate_limit_service_requests_total", code="INTERNAL")


# --- JSON ---


def json_call(domain="edge", **entries):
    return {"domain": domain, "descriptors": [{"entries": [{"key": key, "value": value} for key, value in entries.items()]}]}


def test_json_over_http_1_and_2(rig):
    weir, listener = weir_with_service(rig, DOMAINS)
    status, response = post_json(listener, json_call(free="1"))
    assert (status, response) == (200, {"overallCode": "OK", "statuses": [{"code": "OK"}]}), (status, response)
    assert post_json(listener, json_call("other", user="x"))[0] == 200
    with Http2(listener) as client:
        stream = client.start("/json", "POST", end=False)
        client.send_body(stream, json.dumps(json_call(free="1")).encode())
        response = client.response(stream)
        assert response.status == 200 and json.loads(response.body)["overallCode"] == "OK"
    with Connection(listener) as connection:
        content = json.dumps(json_call(free="1")).encode()
        connection.send(request_bytes("/json", "POST", {"Transfer-Encoding": "chunked"}, chunked(content, 7)))
        assert connection.response().status == 200
        connection.send(request_bytes("/json", "POST", {"Expect": "100-continue", "Content-Length": len(content)}))
        assert connection.read_head().status == 100
        connection.send(content)
        assert connection.response().status == 200, "the connection is kept"
    for content in b"", b"{", b"[]", b"\xff", b"{}", json_call(""), json_call(), {**json_call(free="1"), "x": 1}, \
            {**json_call(free="1"), "hitsAddend": 1, "hits_addend": 1}, json_call(free="x" * 70000):
        assert post_json(listener, content)[0] == 400, content
    assert post_json(listener, json_call(free="1"), {"Content-Encoding": "gzip"})[0] == 400
    assert post_json(listener, json_call(free="1"), method="PUT")[0] == 405
    assert get(listener, "/json").status == 405 and get(listener, "/json")["Allow"] == "POST"
    assert get(listener, "/").status == 404
    weir.counts(4, "weir_rate_limit_service_requests_total", domain="edge", code="OK")
    weir.counts(1, "weir_rate_limit_service_requests_total", domain="(unknown)", code="OK")


def test_pages_of_other_sites_cannot_call(rig):
    _, listener = weir_with_service(rig, DOMAINS)
    call = json_call(free="1")
    for headers in {"Origin": "http://evil.test"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, \
            [("Origin", "http://api.test"), ("Origin", "http://evil.test")]:
        assert post_json(listener, call, headers)[0] == 403, headers
    assert post_json(listener, call, {"Origin": "http://api.test", "Sec-Fetch-Site": "same-origin"})[0] == 200


# --- who may ask ---


def test_only_trusted_peers_may_ask(rig):
    weir, listener = weir_with_service(rig, DOMAINS, {"trusted": ["192.0.2.0/24"]})
    with Caller(listener) as caller:
        assert refusal(caller.call, "edge", USER) == PERMISSION_DENIED
        assert refusal(caller.raw, b"", "/x.Y/Z") == PERMISSION_DENIED
        assert caller.health() == envoy.SERVING["SERVING"]
    status, problem = post_json(listener, json_call(free="1"))
    assert status == 403 and "rate_limit_service.trusted" in problem["detail"]
    assert get(listener, "/").status == 403
    assert get(listener, "/healthcheck").status == 200
    weir.counts(4, "weir_errors_total", cause="service_untrusted")
    weir.counts(2, "weir_rate_limit_service_requests_total", domain="(unknown)", code="PERMISSION_DENIED")


def test_tls_with_client_certificates(rig):
    """With grpcio and with JSON: a certificate of client_ca, one of another authority, and none."""
    ca, other = Authority(rig.directory), Authority(rig.directory, "Others")
    alice, foreign = ca.issue("alice"), other.issue("alice")
    weir, required = weir_with_service(rig, DOMAINS, {"listen": [tls_listener(ca.file)]})
    _, optional = weir_with_service(rig, DOMAINS, {"listen": [tls_listener(ca.file, client_certificate="optional")]})
    message = envoy.request("edge", {"free": "1"}).SerializeToString().hex()
    server = pair("one")["certificate"]

    def codes(address, *files):
        return [envoy.RateLimitResponse.FromString(bytes.fromhex(reply)).overall_code if isinstance(reply, str) else reply[0]
                for reply in run(address, "rate_limits", message, tls=(server, *files))["calls"]]
    assert codes(required, alice.key_file, alice.file) == [OK]
    assert codes(optional, alice.key_file, alice.file) == codes(optional) == [OK]
    assert codes(required, foreign.key_file, foreign.file) == codes(required) == ["UNAVAILABLE"]
    assert codes(optional, foreign.key_file, foreign.file) == ["UNAVAILABLE"], "a wrong certificate is not the same as none"
    body = json.dumps(json_call(free="1")).encode()
    for address, context in (required, alice.context()), (optional, alice.context()), (optional, client("one")):
        with TlsConnection(address, context=context) as connection:
            connection.send(request_bytes("/json", "POST", {}, body))
            assert connection.response().status == 200
    for context in foreign.context(), client("one"):
        try:
            with TlsConnection(required, context=context) as connection:
                connection.send(request_bytes("/json", "POST", {}, body))
                raise AssertionError(f"{connection.response().status} in place of a refusal")
        except ssl.SSLError as error:
            assert "ALERT" in str(error).upper(), error
    text = "%s:%d" % required
    for reason in "unknown_ca", "no_certificate":
        eventually(lambda r=reason: (weir.metric("weir_tls_handshake_failures_total", reason=r, listener=text) or 0) >= 2)


# --- health ---


class Watch:
    """A call of Watch. `statuses`: those received so far."""

    def __init__(self, client, service=""):
        self.client = client
        message = envoy.HealthCheckRequest(service=service).SerializeToString()
        self.stream = client.put_request(envoy.HEALTH_WATCH, "POST", [TYPE, TE], end=False)
        client.send_body(self.stream, frame(message))
        self.state = client.streams[self.stream]

    def statuses(self):
        data, found = self.state.body, []
        while data:
            size = struct.unpack(">I", data[1:5])[0]
            found.append(envoy.HealthCheckResponse.FromString(data[5:5 + size]).status)
            data = data[5 + size:]
        return found

    def wait_for(self, *statuses):
        wanted = [envoy.SERVING[status] for status in statuses]
        self.client.read_until(lambda: len(self.statuses()) >= len(wanted) or self.state.over())
        assert self.statuses() == wanted


def test_health(rig):
    _, listener = weir_with_service(rig, DOMAINS)
    with Caller(listener) as caller:
        for service in "", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService":
            assert caller.health(service) == envoy.SERVING["SERVING"]
        assert refusal(caller.health, "other") == NOT_FOUND
        content = b"\0\0\0\0\2\x0a\xff"
        assert refusal(caller.raw, content, envoy.HEALTH_CHECK) == INVALID_ARGUMENT
    answer = get(listener, "/healthcheck")
    assert (answer.status, answer.body) == (200, b"OK\n")
    assert get(listener, "/healthcheck", method="HEAD").status == 200
    assert get(listener, "/healthcheck", method="POST").status == 405


def test_watch_sees_changes_and_a_drain(rig):
    weir, listener = weir_with_service(rig, DOMAINS, timeouts={"drain": "1h", "exchange": "300ms"})
    with Http2(listener) as client:
        known, unknown = Watch(client, "ratelimit"), Watch(client, "other")
        known.wait_for("SERVING")
        unknown.wait_for("SERVICE_UNKNOWN")
        weir.reload(log={"access": "json"})
        assert client.responds_to_ping()
        weir.signal(signal.SIGTERM)
        known.wait_for("SERVING", "NOT_SERVING")
        with Caller(listener) as caller:
            assert caller.health() == envoy.SERVING["NOT_SERVING"], "a new connection during the drain"
        assert get(listener, "/healthcheck").status == 503
        weir.signal(signal.SIGTERM)  # a second signal ends the drain
        client.read_until(known.state.over)
        assert dict(known.state.trailers) == {"grpc-status": "14"} and known.state.ended
        client.read_until(unknown.state.over)
        unknown.wait_for("SERVICE_UNKNOWN")
    weir.wait()


def test_all_messages_of_a_watch_are_in_its_access_line(rig):
    weir, listener = weir_with_service(rig, DOMAINS, log={"access": "json"})
    with Http2(listener) as client:
        watch = Watch(client)
        watch.wait_for("SERVING")
        weir.signal(signal.SIGTERM)
        client.read_until(watch.state.over)
        watch.wait_for("SERVING", "NOT_SERVING")
    weir.wait()
    weir.wait_for_output(f'"bytes":{len(watch.state.body)},')


def test_watch_sees_redis(rig):
    """As /readyz: with on_failure: deny, weir is not ready without Redis."""
    weir, listener = weir_with_service(rig, DOMAINS, redis={"timeout": "200ms"})
    weir.expect_errors("Redis", "redis")
    eventually(lambda: get(listener, "/healthcheck").status == 200, what="readiness, which is published every second")
    with Http2(listener) as client:
        watch = Watch(client)
        watch.wait_for("SERVING")
        rig.the_redis.kill()
        watch.wait_for("SERVING", "NOT_SERVING")
        assert get(listener, "/healthcheck").status == 503
        rig.the_redis.start()
        watch.wait_for("SERVING", "NOT_SERVING", "SERVING")


def test_watches_are_bounded(rig):
    _, listener = weir_with_service(rig, DOMAINS, workers=1)
    with Http2(listener) as client, Caller(listener) as other:
        watches = [Watch(client) for _ in range(64)]
        for watch in watches:
            watch.wait_for("SERVING")
        content = frame(b"")
        assert refusal(other.raw, content, envoy.HEALTH_WATCH) == 8
        client.send(3, 0, watches[0].stream, struct.pack(">I", 8))
        eventually(lambda: client.responds_to_ping())
        again = Watch(other.http2)
        again.wait_for("SERVING")


def test_peers_that_are_not_trusted_leave_watches_to_others(rig):
    _, listener = weir_with_service(rig, DOMAINS, {"trusted": ["127.0.0.2"]}, workers=1)
    with Http2(listener) as client, Http2(listener, source="127.0.0.2") as trusted:
        watches = [Watch(client) for _ in range(32)]
        for watch in watches:
            watch.wait_for("SERVING")
        with Caller(listener) as other:
            assert refusal(other.raw, frame(b""), envoy.HEALTH_WATCH) == 8
        Watch(trusted).wait_for("SERVING")
        client.send(3, 0, watches[0].stream, struct.pack(">I", 8))
        eventually(lambda: client.responds_to_ping())
        Watch(client).wait_for("SERVING")


# --- operation ---


def test_one_access_line_per_call(rig):
    weir, listener = weir_with_service(rig, DOMAINS, log={"access": "json"})
    with Caller(listener) as caller:
        caller.call("edge", {"free": "1"}, {"user": "a b"})
        refusal(caller.call, "", USER)
        caller.health()
    lines = eventually(lambda: lines_of(weir, 3))
    assert lines[0]["client"] == "descriptor:edge/user=a%20b"
    assert [line["status"] for line in lines] == [200, 400, 200]
    assert [line["grpc_status"] for line in lines] == [0, 3, 0]
    assert lines[1]["error"] == "bad_call" and lines[1]["detail"] == "the domain is empty"
    assert all(line["target"].startswith("/") and line["method"] == "POST" for line in lines)


def test_top_and_the_api_count_calls(rig):
    weir, listener = weir_with_service(rig, DOMAINS)
    stop = threading.Event()

    def run():
        with Caller(listener) as caller:
            while not stop.is_set():
                caller.call("edge", {"free": "1"})
                caller.call("edge", USER)
                refusal(caller.call, "", USER)
    thread = threading.Thread(target=run)
    thread.start()

    def busy():  # the calls come from this process
        screen = rig.command("top", "--once", text_of(weir.admin)).stdout
        found = re.search(r"^Calls +([0-9.]+)/s +([0-9.]+) % over limit +decided p50 .*, p99 .*; ([0-9.]+) errors/s$", screen, re.M)
        return found and float(found[1]) > 0 and 20 < float(found[2]) < 45 and float(found[3]) > 0 and screen
    try:
        screen = eventually(busy, what="a second of calls")
        history = eventually(lambda: [sample for sample in json.loads(get(weir.admin, "/api/v1/history", host="127.0.0.1").body)["samples"] if sample[8]])
    finally:
        stop.set()
        thread.join()
    assert re.search("^Requests +0/s", screen, re.M), screen
    assert history[0][1] == 0 and history[0][7] > history[0][8] > 0, history[0]
    other = rig.weir()
    assert "Calls" not in rig.command("top", "--once", text_of(other.admin)).stdout


def lines_of(weir, count):
    lines = [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")]
    return lines if len(lines) == count else None


def test_no_call_is_lost_by_reloads(rig):
    weir, listener = weir_with_service(rig, DOMAINS)
    stop, results = threading.Event(), []

    def run():
        with Caller(listener) as caller:
            while not stop.is_set():
                results.append(caller.code("edge", {"free": "1"}))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5):
        weir.reload(log={"access": "off", "level": "debug" if number % 2 else "info"})
    stop.set()
    for thread in threads:
        thread.join()
    assert len(results) > 20 and set(results) == {OK}


def test_a_client_that_leaves_ends_its_call(rig):
    """Its decision is under way: Redis does not answer."""
    weir, listener = weir_with_service(rig, DOMAINS)
    weir.expect_errors("Redis", "redis")
    rig.the_redis.freeze()
    with Caller(listener) as caller:
        caller.begin(envoy.SHOULD_RATE_LIMIT, body("edge", USER))
        eventually(lambda: weir.metric("weir_requests_active") == 1)
    eventually(lambda: weir.metric("weir_requests_active") == 0)
    rig.the_redis.thaw()
    with Caller(listener) as caller:
        assert caller.code("edge", {"free": "1"}) == OK


def test_grpcio(rig):
    check_client(rig, "python")


def test_64_clients_and_two_weirs_are_counted_exactly(rig):
    domains = {"edge": {"descriptors": [{"key": "user", "rate_limit": {"unit": "year", "requests_per_unit": 500}}]}}
    listeners = [weir_with_service(rig, domains)[1] for _ in range(2)]
    message = envoy.request("edge", USER).SerializeToString().hex()
    addresses = ",".join("%s:%d" % listener for listener in listeners)
    results = run((addresses.rpartition(":")[0], listeners[1][1]), "rate_limit_load", message, "1280")["results"]
    assert results == {"OK": 500, "OVER_LIMIT": 780}


def await_calls(weir):
    name = "weir_rate_limit_service_requests_total"
    eventually(lambda: (weir.metric(name, domain="edge", code="OK") or 0) > 200)


def test_no_call_is_lost_by_restarts(rig):
    """Through a socket of systemd, with calls of grpcio under way all the time."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    service = {"listen": [text_of(listening.getsockname())]}
    keys = {"sockets": [("weir.socket", listening)], "timeouts": {"drain": "300ms"}}
    weir, listener = weir_with_service(rig, DOMAINS, service, **keys)
    message = envoy.request("edge", {"free": "1"}).SerializeToString().hex()
    client = begin(listener, "rate_limit_load", message, "0")
    client.stdout.readline()
    for _ in range(2):
        await_calls(weir)
        weir.signal(signal.SIGTERM)
        assert weir.wait() == 0
        weir, _ = weir_with_service(rig, DOMAINS, service, **keys)
    await_calls(weir)
    out, _ = client.communicate("\n", timeout=60)
    results = json.loads(out)["results"]
    assert set(results) == {"OK"} and results["OK"] > 500, results


def test_every_call_is_answered_while_redis_fails(rig):
    """Redis is killed, stopped, slow and full. Calls end by redis.timeout, as on_failure says."""
    weir, listener = weir_with_service(rig, DOMAINS, redis={"timeout": "100ms", "on_failure": "deny"})
    weir.expect_errors("redis", "Redis")
    redis = rig.the_redis

    def call():
        with Caller(listener) as caller:
            began = time.monotonic()
            try:
                code = caller.code("edge", {"user": "u%d" % time.monotonic_ns()})
            except Exception as failure:  # noqa: BLE001
                code = failure.args[0]
            return code, time.monotonic() - began
    eventually(lambda: call()[0] == OK)
    redis.freeze()
    times = [call() for _ in range(5)]
    assert {code for code, _ in times} == {UNAVAILABLE} and min(took for _, took in times) < 1
    redis.thaw()
    eventually(lambda: call()[0] == OK)
    redis.command("CONFIG", "SET", "maxmemory", "1")
    eventually(lambda: call()[0] == UNAVAILABLE)
    redis.command("CONFIG", "SET", "maxmemory", "0")
    eventually(lambda: call()[0] == OK)
    redis.kill()
    eventually(lambda: call()[0] == UNAVAILABLE)
    assert post_json(listener, json_call(user="x"))[0] == 503
    redis.start()
    eventually(lambda: call()[0] == OK)
    weir.reload(redis={**weir.policy["redis"], "on_failure": "local"})
    redis.kill()
    with Caller(listener) as caller:
        assert [caller.code("edge", {"user": "local"}) for _ in range(8)].count(OVER) >= 2, "two workers count 3 each"
    weir.reload(redis={**weir.policy["redis"], "on_failure": "allow"})
    with Caller(listener) as caller:
        assert {caller.code("edge", {"user": "local"}) for _ in range(8)} == {OK}


# --- operators: descriptors as clients ---

TENANTS = {"payments": {"descriptors": [
    {"key": "tenant", "value": "007", "rate_limit": {"unit": "year", "requests_per_unit": 2}},
    {"key": "tenant", "rate_limit": {"unit": "year", "requests_per_unit": 5}, "descriptors": [
        {"key": "path", "limits": ["each", "spare"]}]},
    {"key": "user", "value": "a*", "share_threshold": True, "rate_limit": {"unit": "year", "requests_per_unit": 3}},
    {"key": "trial", "rate_limit": {"unit": "year", "requests_per_unit": 1}, "shadow_mode": True},
    {"key": "guest", "rate_limit": {"unlimited": True}},
    {"key": "bare"}]}}
LIMITS = {"each": {"script": "gcra", "limit": 4, "period": "1d"},
          "spare": {"script": "fixed_window", "limit": 9, "period": "1d", "per": ["client", "route"]}}
BOND = "descriptor:payments/tenant=007"


def tenants(rig, count=1):
    pairs = [weir_with_service(rig, TENANTS, limits=LIMITS, rules=[{"limits": ["each"]}]) for _ in range(count)]
    eventually(lambda: rig.redis().command("PUBSUB", "NUMSUB", "weir:resets") == ["weir:resets", count], what="subscriptions")
    return pairs


def code(listener, *descriptors, domain="payments", **more):
    with Caller(listener) as caller:
        return caller.code(domain, *descriptors, **more)


def codes(listener, times, entries):
    return [code(listener, entries) for _ in range(times)]


def client_api(weir, name, method="GET", body=None, status=200):
    target = "/api/v1/clients/" + quote(name, safe="")
    response = get(weir.admin, target, method=method, **({} if body is None else {"body": json.dumps(body).encode()}))
    assert response.status == status, (response.status, response.body)
    return json.loads(response.body)


def command(rig, weir, word, *arguments, status=0):
    done = rig.command(word, "-c", weir.policy_file, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert "no such ids" not in done.stderr
    return done.stdout + done.stderr


def left(weir, name):
    """The limits of a descriptor, and what is left of them."""
    return {row["limit"]: row["remaining"] for row in client_api(weir, name)["limits"]}


def test_inspect_shows_the_limits_of_descriptors(rig):
    [(weir, listener)] = tenants(rig)
    assert codes(listener, 1, {"tenant": "007"}) == [OK]
    look = client_api(weir, BOND)
    assert look["client"] == BOND and look["client_limits"] == "default" and look["database"] is None, look
    [row] = look["limits"]
    assert (row["limit"], row["quota"], row["remaining"], row["admits"]) == ("payments.tenant_007", 2, 1, True), row
    assert row["per"] == ["descriptor"] and row["key"] == "weir:{descriptor:payments%2Ftenant=007}:l:unit:year".replace("%2F", "/")
    assert re.search(r"^payments\.tenant_007 +descriptor +2 in \S+ +1 of 2 +\S", command(rig, weir, "inspect", BOND), re.M)

    nested = [("tenant", "a b/%"), ("path", "/x=y{1}")]
    assert codes(listener, 3, nested) == [OK] * 3
    name = "descriptor:payments/tenant=a%20b%2F%25/path=%2Fx=y%7B1%7D"
    assert left(weir, name) == {"each": 1, "spare": 6}
    assert left(weir, "descriptor:payments/tenant=a b%2F%25/path=%2fx%3dy{1}") == {"each": 1, "spare": 6}, "another spelling"
    assert re.search(r"^each +descriptor +4 in .* 1 of 4 .*\nspare +descriptor +9 in .* 6 of 9 ", command(rig, weir, "inspect", name), re.M)

    long = "x" * 300
    codes(listener, 2, {"tenant": long})
    look = client_api(weir, "descriptor:payments/tenant=" + long)
    assert re.fullmatch("descriptor:payments/h:[0-9a-f]{32}", look["client"]) and look["limits"][0]["remaining"] == 3
    codes(listener, 1, {"user": "alice"})
    codes(listener, 1, {"user": "adam"})
    assert left(weir, "descriptor:payments/user=bob") == {} and left(weir, "descriptor:payments/user=abe") == {"payments.user_a*": 1}
    codes(listener, 2, {"trial": "t"})
    [row] = client_api(weir, "descriptor:payments/trial=t")["limits"]
    assert not row["enforced"] and row["remaining"] == 0

    for name, why in {"descriptor:payments/other=1": "no entry", "descriptor:payments/tenant=1/other=2": "no entry",
                      "descriptor:x/tenant=1": "no such domain", "descriptor:payments/bare=1": "has no limit",
                      "descriptor:payments/guest=1": "unlimited", look["client"]: "hash"}.items():
        assert why in command(rig, weir, "inspect", name), name
        assert client_api(weir, name)["limits"] == []
    for name in "descriptor:", "descriptor:payments", "descriptor:payments/x", "descriptor:payments/=1":
        assert "is not a client" in command(rig, weir, "inspect", name, status=2)
        client_api(weir, name, status=400)
    assert client_api(weir, "id:" + BOND)["limits"][0]["per"] == ["client"], "an id of a header"


def test_a_reset_of_a_descriptor_applies_to_every_weir(rig):
    (one, first), (_, second) = tenants(rig, 2)
    james, long = {"tenant": "007"}, {"tenant": "y" * 300}
    assert codes(first, 3, james) == [OK, OK, OVER] and codes(second, 1, james) == [OVER]
    assert command(rig, one, "reset", BOND) == f"{BOND}: 1 key removed\n"
    assert left(one, BOND) == {"payments.tenant_007": 2}
    eventually(lambda: code(second, james) == OK, what="the cached denial to be dropped")
    assert codes(first, 2, james) == [OK, OVER]
    assert client_api(one, BOND, "DELETE")["removed"] == 1
    assert codes(first, 1, james) == [OK], "at once in this weir"
    eventually(lambda: code(second, james) == OK, what="the message")

    assert codes(first, 6, long) == [OK] * 5 + [OVER]
    hashed = client_api(one, "descriptor:payments/tenant=" + long["tenant"])["client"]
    assert client_api(one, hashed, "DELETE")["removed"] == 1 and codes(first, 1, long) == [OK]
    nested = [("tenant", "1"), ("path", "/")]
    assert codes(first, 5, nested) == [OK] * 4 + [OVER]
    assert "2 keys removed" in command(rig, one, "reset", "descriptor:payments/tenant=1/path=%2F")
    eventually(lambda: code(first, nested) == OK, what="the reset")


def test_a_reset_of_a_descriptor_ends_its_leases_on_every_weir(rig):
    limits = {"w": {"script": "fixed_window", "limit": 5000, "period": "1d", "lease": 50}}
    domains = {"edge": {"descriptors": [{"key": "user", "limits": ["w"]}]}}
    (one, first), (two, second) = [weir_with_service(rig, domains, limits=limits, workers=1) for _ in range(2)]
    call = request_bytes("/json", "POST", {}, json.dumps(json_call(user="v")).encode())

    def busy(number):
        with Connection((first, second)[number % 2]) as connection:
            for _ in range(8):
                connection.send(call * 25)
                assert [connection.response().status for _ in range(25)] == [200] * 25

    def ended_on_the_other_weir():
        run_in_threads(busy, 6)
        client_api(one, "descriptor:edge/user=v", "DELETE")
        with Connection(first) as connection:
            status = json.loads(connection.send(call).response().body)["statuses"][0]
        assert status["limitRemaining"] == 4999, "no unit of the old lease"
        eventually(lambda: two.metric("weir_lease_units_held") == 0, what="the end of all leases")
        return two.metric("weir_lease_units_total", result="lost")
    eventually(ended_on_the_other_weir, 30, "the other weir to end a lease because of the reset")


def test_a_grant_for_a_descriptor_applies_to_every_weir(rig):
    (one, first), (two, second) = tenants(rig, 2)
    james = {"tenant": "007"}
    assert codes(first, 3, james) == [OK, OK, OVER] and codes(second, 1, james) == [OVER]
    assert f"{BOND}: a quota of 100 for 1m\n" in command(rig, one, "grant", BOND, "100", "1m")
    for listener in first, second:
        eventually(lambda listener=listener: code(listener, james) == OK, what="the grant")
    look = client_api(two, BOND)
    assert look["grant"]["quota"] == 100 and look["client_limits"] == "quota"
    assert (look["limits"][0]["quota"], look["limits"][0]["remaining"]) == (100, 96)
    text = command(rig, one, "inspect", BOND)
    assert "grant   a quota of 100" in text and re.search(r"^payments\.tenant_007 .* 96 of 100 ", text, re.M), text
    assert client_api(two, BOND, "PUT", {"quota": 0, "for": "1h"})["published"]
    assert code(second, james) == OVER, "at once in this weir"
    eventually(lambda: code(first, james) == OVER, what="the second grant")
    assert code(first, {"tenant": "006"}) == OK
    client_api(two, BOND, "PUT", {"quota": "unlimited", "for": "1h"})
    assert codes(second, 5, james) == [OK] * 5 and client_api(two, BOND)["limits"] == []
    command(rig, one, "grant", BOND, "none")
    eventually(lambda: code(second, james) == OVER, what="the end of the grant")
    assert "no such domain" in command(rig, one, "grant", "descriptor:x/tenant=007", "5", "1m")


def test_top_and_the_dashboard_list_the_busiest_rate_limits(rig):
    many = [{"key": "k", "value": str(i), "rate_limit": {"unit": "year", "requests_per_unit": 2}} for i in range(2000)]
    weir, listener = weir_with_service(rig, {"edge": {"descriptors": many}}, limits={"each": LIMITS["each"]}, rules=[{"limits": ["each"]}])
    with Caller(listener) as caller:
        for i in range(30):
            caller.code("edge", {"k": str(i)})
        assert [caller.code("edge", {"k": "1999"}) for _ in range(5)] == [OK] * 2 + [OVER] * 3
    screen = rig.command("top", "--once", text_of(weir.admin)).stdout
    table = re.search(r"^LIMITS .*\n((?:\S.*\n)+)", screen, re.M)[1].splitlines()
    names = [line.split()[0] for line in table]
    assert names[:2] == ["each", "edge.k_1999"] and len(names) == 21 and len(set(names)) == 21, screen
    assert table[1].split()[-1] == "5", table[1]
    assert "descriptor:edge/k=1999" in screen
    with Connection(weir.admin) as connection:
        connection.send(request_bytes("/api/v1/events"))
        connection.read_head()
        event = connection.read_until(b"}\n\n", "an event") + b"}"
    limits = json.loads(event[event.index(b"data: ") + 6:])["limits"]
    assert len(limits) == 21 and limits[1]["name"] == "edge.k_1999" and limits[1]["decisions"]["limited"]["total"] == 3, limits[:3]
