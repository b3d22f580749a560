"""Real gRPC clients and servers (python3-grpcio) with weir in between."""

import json
import signal

from grpc_programs import GrpcServer, begin, run
from rig import Process, eventually

# A server that stops gracefully: it responds to each call that it accepts, and refuses the others. A
# stopping server of grpcio answers some calls with CANCELLED, and a few never, also without weir.
RESTARTING_SERVER = """
const sessions = new Set();
const server = require('http2').createServer();
server.on('session', session => {
  sessions.add(session);
  session.on('close', () => sessions.delete(session));
});
server.on('stream', stream => {
  const parts = [];
  stream.on('data', part => parts.push(part));
  stream.on('end', () => {
    const message = Buffer.concat([...parts, Buffer.from('!')]);
    message.writeUInt32BE(message.length - 5, 1);
    stream.respond({':status': 200, 'content-type': 'application/grpc'}, {waitForTrailers: true});
    stream.on('wantTrailers', () => stream.sendTrailers({'grpc-status': '0'}));
    stream.end(message);
  });
});
process.on('SIGTERM', () => {
  server.close();
  setTimeout(() => {}, 200);  // or Node ends at once, before it has sent its output
  for (const session of sessions) session.goaway();  // weir closes it; close() of Node 18 resets new calls
});
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));
"""


def weir_before_grpc(rig, health=None, **more):
    server = GrpcServer(rig)
    upstream = {"servers": [server.text], "protocol": "http2", **({"health": health} if health else {})}
    return rig.weir(workers=1, upstreams={"api": upstream}, **more), server


def test_all_kinds_of_calls(rig):
    weir, server = weir_before_grpc(rig)
    got = run(weir.address, "calls")
    assert got["unary"] == ["hi!", {"x-trailer": "1", "x-bin": "0001"}]
    assert got["large"] == 1000001
    assert got["server stream"] == ["0", "1", "2", "3", "4"]
    assert got["client stream"] == "6"
    assert got["both"] == ["M0", "M1", "M2"]
    assert got["Fail"][:2] == ["NOT_FOUND", "none: 100 % \u00e4"], "a Trailers-Only response of the server"
    assert got["Wait"][0] == "DEADLINE_EXCEEDED"
    assert got["None"][0] == "UNIMPLEMENTED"
    eventually(lambda: "cancelled" in server.output(), what="the server's call to be cancelled at its deadline")


def test_grpc_status_in_the_access_log(rig):
    """grpc-status from the server's trailers and from its Trailers-Only responses."""
    weir, _ = weir_before_grpc(rig, log={"access": "json"})
    run(weir.address, "calls")

    def outcomes():
        lines = [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")]
        return {line["target"].rpartition("/")[2]: (line["status"], line.get("grpc_status")) for line in lines}
    expected = {"Say": (200, 0), "Fail": (200, 5), "None": (200, 12)}
    eventually(lambda: expected.items() <= outcomes().items(), what=f"{expected} in the access log")


def test_a_cancelled_call_reaches_the_server(rig):
    weir, server = weir_before_grpc(rig)
    client = begin(weir.address, "cancel")
    eventually(lambda: "waiting" in server.output())
    out, _ = client.communicate("\n", timeout=30)
    assert json.loads(out) == {"cancelled": True}
    eventually(lambda: "cancelled" in server.output())


def test_server_restarts_under_load_fail_no_call(rig):
    """Four of five servers stop gracefully in turn."""
    servers = [Process(rig, f"server-{n}", ["node", "-e", RESTARTING_SERVER]) for n in range(5)]
    ports = [server.wait_for_output(r"^port (\d+)$")[0] for server in servers]
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [f"127.0.0.1:{port}" for port in ports], "protocol": "http2"}})
    weir.expect_errors("upstream|server")
    client = begin(weir.address, "load")
    for server in servers[:4]:
        before_end = weir.metric("weir_requests_total")
        eventually(lambda: weir.metric("weir_requests_total") > before_end + 100, what="further calls")
        server.signal(signal.SIGTERM)
        assert server.wait(30) == 0
    out, _ = client.communicate("\n", timeout=60)
    result = json.loads(out)
    assert result["failed"] == [] and result["count"] > 400, result


def test_a_rejected_call_is_resource_exhausted(rig):
    weir, _ = weir_before_grpc(rig, limits={"few": dict(script="token_bucket", limit=1, period="1h")})
    weir.wait_for_redis()
    admitted, rejected = run(weir.address, "limits")["calls"]
    assert admitted[0] == "hi!"
    assert rejected[:2] == ["RESOURCE_EXHAUSTED", "rate limit exceeded: few"]
    assert int(rejected[2]["grpc-retry-pushback-ms"]) > 1000000 and "ratelimit" in rejected[2]


def test_a_client_retries_after_the_pushback_time(rig):
    weir, _ = weir_before_grpc(rig, limits={"each": dict(script="token_bucket", limit=1, period="3s")})
    weir.wait_for_redis()
    got = run(weir.address, "retries")
    assert [reply for reply, _ in got["calls"]] == ["hi!", "hi!"], "the second call succeeds after the pushback time"
    assert got["took"] > 2.9
    weir.counts(1, "weir_responses_total", **{"class": "4xx"})


def test_grpc_health_checks(rig):
    health = {"grpc": "echo", "interval": "50ms", "timeout": "20s", "unhealthy": 1, "healthy": 1}
    weir, server = weir_before_grpc(rig, health)
    host, port = server.text.split(":")
    direct = (host, int(port))
    assert run(weir.address, "limits")["calls"][0][0] == "hi!"
    run(direct, "health", "0802")
    eventually(lambda: "it reports NOT_SERVING" in weir.output())
    assert run(weir.address, "limits")["calls"][0][0] == "UNAVAILABLE"
    run(direct, "health", "0801")
    eventually(lambda: "passes its health checks again" in weir.output())
    assert run(weir.address, "limits")["calls"][0][0] == "hi!"
    weir.expect_errors("upstream|server|health")


def test_a_health_check_of_an_unknown_service_fails(rig):
    weir, _ = weir_before_grpc(rig, {"grpc": "other", "interval": "50ms", "timeout": "20s", "unhealthy": 1})
    eventually(lambda: "it does not know the service (grpc-status 5)" in weir.output())
    weir.expect_errors("upstream|server|health")
