"""gRPC calls: weir's own responses, and deadlines. test_grpc_calls.py uses real clients and
servers."""

import json
import os

from http2_wire import Http2
from rig import eventually
from scripted import Scripted
from wire import Connection, request_bytes

TYPE = ("content-type", "application/grpc")
TE = ("te", "trailers")
FRAME = b"\0\0\0\0\2hi"
FEW = {"few": dict(script="token_bucket", limit=1, period="1h")}


def call(client, fields=(TYPE, TE), path="/echo.Echo/Say", body=FRAME):
    stream = client.put_request(path, method="POST", fields=fields, end=False)
    client.send_body(stream, body)
    return client.response(stream)


def outcome(response):
    """The grpc-status and grpc-message of a Trailers-Only response."""
    assert (response.status, response.body, response["content-type"]) == (200, b"", "application/grpc"), response.fields
    assert response["content-length"] is None and response["x-request-id"]
    return int(response["grpc-status"]), response["grpc-message"]


def access_lines(weir, count):
    lines = [line for line in weir.output().splitlines() if line.startswith("{")]
    return lines if len(lines) == count else None


def test_a_rejected_call_is_resource_exhausted(rig):
    weir = rig.weir(workers=1, limits=FEW, log={"access": "json"}, headers=["ietf", "x-ratelimit"]).wait_for_redis()
    with Http2(weir.address) as client:
        assert call(client, path="/status/200").status == 200
        rejected = call(client)
        assert outcome(rejected) == (8, "rate limit exceeded: few")
        assert int(rejected["grpc-retry-pushback-ms"]) == int(rejected["retry-after"]) * 1000 > 0
        assert "few" in rejected["ratelimit"] and rejected["x-ratelimit-limit"] == "1"
        assert outcome(call(client, [("content-type", "application/grpc+proto")]))[0] == 8
        for other in [("content-type", "application/grpc-web")], [("content-type", "application/json")], []:
            assert call(client, other).status == 429
        assert client.get("/", fields=[TYPE]).status == 429, "a GET is not a gRPC call"
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", {"Content-Type": "application/grpc"}, FRAME))
        assert connection.response().status == 429, "nor is HTTP/1.1"
    lines = [json.loads(line) for line in eventually(lambda: access_lines(weir, 8))]
    assert [line["status"] for line in lines] == [200] + [429] * 7
    assert [line.get("grpc_status") for line in lines] == [None, 8, 8] + [None] * 5
    weir.counts(7, "weir_responses_total", **{"class": "4xx"})


def test_errors_of_weir_are_grpc_statuses(rig):
    weir = rig.weir(upstreams={"api": {"servers": ["127.0.0.1:1"]}}, size_limits={"request_body": "10"})
    weir.expect_errors("upstream|server|api")
    with Http2(weir.address) as client:
        assert outcome(call(client)) == (14, "no server of the upstream could be reached")
        status, message = outcome(call(client, body=FRAME + b"x" * 20))
        assert status in (8, 14), message
    listed = os.path.join(rig.directory, "blocked")
    with open(listed, "w") as file:
        file.write("127.0.0.1\n")
    blocked = rig.weir(addresses={"block": [listed]})
    with Http2(blocked.address) as client:
        assert outcome(call(client)) == (7, "this address is blocked")


def test_weir_enforces_grpc_deadlines(rig):
    heads = []

    def script(peer, _number):
        while request := peer.read_request():
            heads.append(request[0])
            if b"now" in request[0]:
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    api = Scripted(rig, script)
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}})
    with Http2(weir.address) as client:
        for timeout in "50m", "60000u", "70000000n":
            late = call(client, [TYPE, ("grpc-timeout", timeout)])
            assert outcome(late) == (4, "the deadline of the gRPC call (grpc-timeout) has passed")
            assert late["grpc-retry-pushback-ms"] is None
            eventually(lambda: any(b"\r\ngrpc-timeout: " + timeout.encode() in head for head in heads))
        for other in "1H", "99999999S", "x", "", "-1m", "123456789m", "5":
            assert call(client, [TYPE, ("grpc-timeout", other)], path="/now").status == 200
    weir.counts(3, "weir_errors_total", cause="grpc_timeout")


def test_a_deadline_is_no_refund(rig):
    """Calls that end before weir can forward them are charged, so that a deadline is no way around the limits."""
    weir = rig.weir(workers=1, limits={"few": dict(script="token_bucket", limit=3, period="1h")})
    with Http2(weir.address) as client:
        outcomes = [outcome(call(client, [TYPE, ("grpc-timeout", "1n")]))[0] for _ in range(10)]
    assert outcomes.count(8) == 7, outcomes
