"""What counts as an outage of Redis, what /readyz says about it, and who notices it."""

import time

from http2_wire import Http2
from rig import eventually, timeout
from scripted import Scripted, redis_commands
from wire import Connection, get

EACH = {"each": dict(script="fixed_window", limit=1000000, period="1d", lease="off")}


def raw_reply(source):
    """One reply of Redis, as bytes."""
    line = source.read_until(b"\r\n", "a reply")
    line += b"" if line.endswith(b"\r\n") else b"\r\n"
    if line[:1] == b"$" and line[1:2] != b"-":
        return line + source.read_exactly(int(line[1:]) + 2, "a text")
    if line[:1] == b"*" and line[1:2] != b"-":
        return line + b"".join(raw_reply(source) for _ in range(int(line[1:])))
    return line


def slow_redis(rig, seconds):
    """A Redis that takes this time for each script call, one after the other."""
    redis = rig.redis()

    def script(peer, _number):
        with Connection(redis.address) as server:
            for words in redis_commands(peer):
                if words[0].upper() in (b"EVALSHA", b"EVAL"):
                    time.sleep(seconds)
                server.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
                peer.send(raw_reply(server))
    return Scripted(rig, script)


@timeout(120)
def test_own_queueing_is_no_outage_of_redis(rig):
    """10,000 requests at once at a Redis that makes 64 decisions in 120 ms: the last ones wait for
    longer than redis.timeout in weir, and no call waits as long for Redis."""
    redis = slow_redis(rig, 0.12)
    weir = rig.weir(workers=1, redis={"address": redis.text, "timeout": "10s", "on_failure": "deny"}, limits=EACH,
                    size_limits={"requests_per_client": 0}).wait_for_redis()
    clients = [Http2(weir.address) for _ in range(100)]
    for client in clients:
        for _ in range(100):
            client.put_request()
    for client in clients:
        client.flush()

    def decided():
        by_redis = weir.metric("weir_limit_decisions_total", limit="each", decision="allowed") or 0
        assert weir.metric("weir_redis_errors_total", cause="timeout") in (0, None)
        return by_redis + (weir.metric("weir_redis_errors_total", cause="busy") or 0) == 10000
    eventually(decided, 60, "10,000 decisions")
    assert weir.metric("weir_redis_errors_total", cause="busy") > 0, "the load was too small for the test"
    assert "no reply within" not in weir.output()
    assert get(weir.address).status == 200
    for client in clients:
        client.socket.close()


def test_readyz_while_redis_answers_errors(rig):
    for on_failure, ready in (("deny", (503, "on_failure is deny")), ("allow", (200, "ready; Redis answers calls with errors"))):
        redis = rig.redis(arguments=["--maxmemory-policy", "noeviction"])
        weir = rig.weir(redis={"address": redis.text, "on_failure": on_failure, "timeout": "5s"}, limits=EACH).wait_for_redis()
        weir.expect_errors("redis ")
        assert get(weir.admin, "/readyz", host="127.0.0.1").body == b"ready\n"
        redis.command("CONFIG", "SET", "maxmemory", "1")
        assert get(weir.address).status == (503 if on_failure == "deny" else 200)
        answer = get(weir.admin, "/readyz", host="127.0.0.1")
        assert answer.status == ready[0] and ready[1] in answer.body.decode(), answer.body
        redis.command("CONFIG", "SET", "maxmemory", "0")

        def recovered(weir=weir):
            return get(weir.address).status == 200 and get(weir.admin, "/readyz", host="127.0.0.1").body == b"ready\n"
        eventually(recovered, 30, "the end of the errors")


def test_limits_that_reject_nothing_do_not_make_weir_unready(rig):
    """on_failure: deny of a shadow limit rejects no request."""
    redis = rig.redis()
    limits = {name: {**limit, "shadow": True} for name, limit in EACH.items()}
    weir = rig.weir(redis={"address": redis.text, "on_failure": "deny"}, limits=limits).wait_for_redis()
    weir.expect_errors("redis ")
    redis.kill()
    weir.wait_for_output("error +redis .*limits follow on_failure")
    assert get(weir.address).status == 200
    assert get(weir.admin, "/readyz", host="127.0.0.1").status == 200


def test_workers_without_traffic_notice_a_dead_redis(rig):
    redis = rig.redis()
    weir = rig.weir(redis={"address": redis.text, "on_failure": "deny", "timeout": "100ms"}, limits=EACH).wait_for_redis()
    weir.expect_errors("redis ")
    redis.freeze()
    weir.wait_for_output("error +redis .*limits follow on_failure")
    eventually(lambda: get(weir.admin, "/readyz", host="127.0.0.1").status == 503, what="503 without a request")
    redis.thaw()
    eventually(lambda: get(weir.admin, "/readyz", host="127.0.0.1").status == 200, what="200 without a request")
