"""When and to where weir connects to Redis: only where something is limited."""

import json

from rig import eventually, free_port
from scripted import Scripted
from wire import get

LIMITED = {"day": dict(script="fixed_window", limit=2, period="10d")}


def test_without_limits_redis_is_not_needed(rig):
    """Nothing listens there: nobody is told, since nobody minds."""
    weir = rig.weir(redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "deny"}, limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200
    ready = get(weir.admin, "/readyz")
    assert (ready.status, ready.body) == (200, b"ready\n")
    assert json.loads(get(weir.admin, "/api/v1/status").body)["redis"] is None
    assert weir.metric("weir_redis_ready_workers") is None and weir.metric("weir_redis_breaker_workers") is None
    assert not [message for _, message in weir.log() if "redis" in message.lower()]


def test_without_limits_nobody_connects_to_redis(rig):
    """Until a reload adds one, and again when the last has gone."""
    seen = []
    silent = Scripted(rig, lambda peer, number: seen.append(number) or peer.socket.recv(1))
    weir = rig.weir(wait="listening", redis={"address": silent.text}, limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200 and not seen
    redis = rig.redis()
    weir.reload(redis={"address": redis.text}, limits=LIMITED, rules=[{"limits": ["day"]}])
    weir.wait_for_redis()
    assert [get(weir.address).status for _ in range(3)] == [200, 200, 429] and not seen
    weir.reload(limits={}, rules=[{"limits": []}])
    assert get(weir.address).status == 200
    eventually(lambda: "name=weir" not in redis.ask("CLIENT", "LIST") and redis.ask("CLIENT", "LIST").count("\n") == 1,
               what="the end of every connection to Redis")


def test_check_says_that_redis_is_not_needed(rig):
    policy = rig.write("none.yaml", json.dumps({**rig.policy(limits={}), "rules": [{"limits": []}]}))
    done = rig.command("check", "-c", policy)
    assert done.returncode == 0 and "there are no limits: weir does not connect to Redis" in done.stderr, done.stderr


def hearing(answers_ping, seen):
    """A Redis that knows nothing but AUTH-free subscriptions; `seen` notes what each of their connections was asked."""
    def script(peer, number):
        asked = b""
        while True:
            data = peer.socket.recv(65536)
            if not data:
                return
            asked += data
            if b"SUBSCRIBE" in data:
                seen.append(number)
                peer.socket.sendall(b"*3\r\n$9\r\nsubscribe\r\n$11\r\nweir:resets\r\n:1\r\n")
            elif b"PING" in data and b"SUBSCRIBE" in asked and answers_ping:
                seen.append("pong")
                peer.socket.sendall(answers_ping)
    return script


def test_a_subscription_that_is_half_dead_is_made_anew(rig):
    """It is asked now and then whether it is there; who may not ask has an answer all the same."""
    seen = {"dead": [], "alive": [], "not allowed": []}
    answers = {"dead": None, "alive": b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", "not allowed": b"-NOPERM no PING for you\r\n"}
    for name, answer in answers.items():
        server = Scripted(rig, hearing(answer, seen[name]))
        rig.weir(wait="listening", redis={"address": server.text}, limits=LIMITED).expect_errors("redis ")
    eventually(lambda: len([n for n in seen["dead"] if n != "pong"]) >= 2, 15, "a second subscription")
    for name in "alive", "not allowed":
        eventually(lambda n=name: seen[n].count("pong") >= 2, 15, "a second PING")
        assert len([n for n in seen[name] if n != "pong"]) == 1, seen[name]
