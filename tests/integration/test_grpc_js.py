"""gRPC clients and servers of Node.js (@grpc/grpc-js) with weir in between. tests/grpc-js/run
installs the package and runs this area."""

import json
import os

from envoy_calls import check_client
from grpc_programs import NODE_MODULES, GrpcServer, begin, run
from rig import eventually

MISSING = None if os.path.isdir(NODE_MODULES) else "@grpc/grpc-js is not installed: run tests/grpc-js/run"


def weir_before_grpc(rig, language="js", **more):
    server = GrpcServer(rig, language)
    return rig.weir(workers=1, upstreams={"api": {"servers": [server.text], "protocol": "http2"}}, **more), server


def assert_calls(weir, server, language):
    got = run(weir.address, "calls", language=language)
    assert got["unary"] == ["hi!", {"x-trailer": "1", "x-bin": "0001"}]
    assert got["large"] == 1000001
    assert got["server stream"] == ["0", "1", "2", "3", "4"]
    assert got["client stream"] == "6"
    assert got["both"] == ["M0", "M1", "M2"]
    assert got["Fail"][:2] == ["NOT_FOUND", "none: 100 % \u00e4"], "a Trailers-Only response of the server"
    assert got["Wait"][0] == "DEADLINE_EXCEEDED"
    assert got["None"][0] == "UNIMPLEMENTED"
    eventually(lambda: "cancelled" in server.output(), what="the server's call to be cancelled at its deadline")


def test_all_kinds_of_calls(rig):
    weir, server = weir_before_grpc(rig)
    assert_calls(weir, server, "js")


def test_calls_to_a_python_server(rig):
    weir, server = weir_before_grpc(rig, "python")
    assert_calls(weir, server, "js")


def test_calls_from_a_python_client(rig):
    weir, server = weir_before_grpc(rig)
    assert_calls(weir, server, "python")


def test_a_cancelled_call_reaches_the_server(rig):
    weir, server = weir_before_grpc(rig)
    client = begin(weir.address, "cancel", language="js")
    eventually(lambda: "waiting" in server.output())
    out, _ = client.communicate("\n", timeout=30)
    assert json.loads(out) == {"cancelled": True}
    eventually(lambda: "cancelled" in server.output())


def test_a_rejected_call_is_resource_exhausted(rig):
    weir, _ = weir_before_grpc(rig, limits={"few": dict(script="token_bucket", limit=1, period="1h")})
    weir.wait_for_redis()
    admitted, rejected = run(weir.address, "limits", language="js")["calls"]
    assert admitted[0] == "hi!"
    assert rejected[:2] == ["RESOURCE_EXHAUSTED", "rate limit exceeded: few"]
    assert int(rejected[2]["grpc-retry-pushback-ms"]) > 1000000 and "ratelimit" in rejected[2]


def test_a_client_retries_after_the_pushback_time(rig):
    weir, _ = weir_before_grpc(rig, limits={"each": dict(script="token_bucket", limit=1, period="3s")})
    weir.wait_for_redis()
    got = run(weir.address, "retries", language="js")
    assert [reply for reply, _ in got["calls"]] == ["hi!", "hi!"], "the second call succeeds after the pushback time"
    assert got["took"] > 2.9
    weir.counts(1, "weir_responses_total", **{"class": "4xx"})


def test_rate_limit_service(rig):
    check_client(rig, "js")
