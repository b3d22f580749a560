"""Redis is down, restarted, flushed, killed, frozen, or sends invalid replies: every decision meets
redis.timeout and follows on_failure."""

import os
import threading
import time

from redis_failures import WakeupDelay
from rig import eventually, free_port, time_scale, timeout
from scripted import Scripted, redis_commands
from wire import Connection, count, flood, get

FEW = {"few": dict(script="token_bucket", limit=20, period="10d")}
REDIS_LINES = "[Rr]edis"


def weir_with(rig, on_failure, limits=None, **redis):
    weir = rig.weir(redis={"on_failure": on_failure, "timeout": "100ms", **redis}, limits=limits or FEW)
    weir.expect_errors(REDIS_LINES)
    return weir


def is_limited_by_redis(weir):
    return get(weir.address).names() >= {"x-ratelimit-limit"}


# --- absent, and back --------------------------------------------------------------------------------------------------

def test_redis_is_down_at_start_with_allow(rig):
    redis = rig.redis(start=False)
    weir = weir_with(rig, "allow")
    response = get(weir.address)
    assert response.status == 200
    assert not [name for name in response.names() if "rate" in name], "fields in a decision without Redis"
    assert get(weir.admin, "/readyz").status == 200
    redis.start()
    eventually(lambda: is_limited_by_redis(weir), 15, "a decision by the started Redis")


def test_redis_is_down_at_start_with_deny(rig):
    redis = rig.redis(start=False)
    weir = weir_with(rig, "deny")
    response = get(weir.address)
    assert response.status == 503 and response.number("Retry-After") >= 1
    assert response["Content-Type"] == "application/problem+json"
    ready = get(weir.admin, "/readyz")
    assert ready.status == 503 and b"edis" in ready.body
    redis.start()
    eventually(lambda: get(weir.address).status == 200, 15, "a decision by the started Redis")
    eventually(lambda: get(weir.admin, "/readyz").status == 200)


def test_redis_is_down_at_start_with_local(rig):
    rig.redis(start=False)
    weir = weir_with(rig, "local")
    counts = count(flood(weir.address, 200, connections=32))
    assert counts == {200: 20, 429: 180}, "all workers together enforce the limit"
    response = get(weir.address)
    assert response.status == 429 and response["X-RateLimit-Limit"] == "20" and response["Retry-After"]


def test_the_local_fallback_charges_all_limits_or_none(rig):
    rig.redis(start=False)
    weir = weir_with(rig, "local", limits={"each": dict(script="gcra", limit=10, period="10d"),
                                           "all": dict(script="fixed_window", limit=25, period="10d", per="all")})
    totals = [count(flood(weir.address, 20, connections=8, headers={"X-Client-Id": c})).get(200, 0) for c in "abcd"]
    assert totals == [10, 10, 5, 0], totals


def test_the_local_fallback_enforces_a_share_with_redis_instances(rig):
    weir = rig.weir(redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "local", "instances": 4},
                    limits={"window": dict(script="fixed_window", limit=22, period="1d"),
                            "bucket": dict(script="gcra", limit=3, period="1d")},
                    rules=[{"match": {"path": "/bucket"}, "limits": ["bucket"]}, {"limits": ["window"]}])
    weir.expect_errors("[Rr]edis")
    answers = flood(weir.address, 30)
    assert count(answers) == {200: 5, 429: 25}
    assert {a.number("X-RateLimit-Limit") for a in answers} == {5}
    assert [get(weir.address, "/bucket").status for _ in range(3)] == [200, 429, 429], "at least one"


def test_a_cost_above_the_share_of_an_instance_waits_for_redis(rig):
    """Only a cost above the whole limit is never admitted."""
    kinds = ("fixed_window", "gcra")
    weir = rig.weir(redis={"address": f"127.0.0.1:{free_port()}", "on_failure": "local", "instances": 4},
                    identity={"from": ["ip"], "trusted_proxies": ["127.0.0.1"]},
                    limits={kind: dict(script=kind, limit=20, period="1d") for kind in kinds},
                    rules=[{"match": {"path": f"/{kind}"}, "limits": [kind], "cost": {"request_header": "X-Cost", "max": 30}} for kind in kinds])
    weir.expect_errors("[Rr]edis")
    for kind in kinds:
        part, whole = (get(weir.address, f"/{kind}", headers={"X-Cost": cost}) for cost in ("6", "21"))
        assert (part.status, part.all("Retry-After"), whole.status, whole.all("Retry-After")) == (429, ["1"], 429, []), kind
        assert b"Try again in 1 second." in part.body and b"ever allows" in whole.body, kind


def test_on_failure_of_a_limit_overrides_that_of_redis(rig):
    rig.redis(start=False)
    weir = weir_with(rig, "allow", limits={"few": dict(script="gcra", limit=3, period="1d", on_failure="local")})
    assert [get(weir.address).status for _ in range(5)] == [200, 200, 200, 429, 429]


# --- scripts -----------------------------------------------------------------------------------------------------------

def test_script_flush_under_load_is_not_noticeable(rig):
    weir = rig.weir(limits={"many": dict(script="fixed_window", limit=100000, period="10d", lease="off")})
    done = threading.Event()

    def flush():
        while not done.wait(0.02):
            rig.redis().command("SCRIPT", "FLUSH")
    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        responses = flood(weir.address, 2000, connections=32)
    finally:
        done.set()
        flusher.join()
    assert count(responses) == {200: 2000}, "on_failure is deny, so a lost decision would be a 503"
    left = sorted(r.number("X-RateLimit-Remaining") for r in responses)
    assert left == list(range(98000, 100000)), "each request was counted exactly once"


def test_flushall_resets_all_limits(rig):
    weir = rig.weir(limits=FEW)
    assert count(flood(weir.address, 30)) == {200: 20, 429: 10}
    rig.redis().command("FLUSHALL")
    eventually(lambda: get(weir.address).status == 200, what="an admitted request after FLUSHALL")


def test_many_requests_share_one_call(rig):
    weir = rig.weir(workers=1, limits={"many": dict(script="gcra", limit=100000, period="10d", lease="off")})
    flood(weir.address, 2000, connections=64)
    calls = rig.redis().calls("evalsha")
    assert 0 < calls < 2000, f"{calls} calls for 2000 requests"


# --- restarts, kills and freezes under load
# --------------------------------------------------------------------------------

def run_under_load(rig, weir, fault, seconds=3):
    """Runs `fault()` under load from 16 connections. Returns (status, duration in seconds) of every
    request, and the maximum wake-up delay of the machine. The pauses leave the processor to the
    other tests."""
    stop, answers = time.monotonic() + seconds, []

    def client():
        with Connection(weir.address) as connection:
            while time.monotonic() < stop:
                start = time.monotonic()
                status = connection.request().status
                answers.append((status, time.monotonic() - start))
                time.sleep(0.01)
    threads = [threading.Thread(target=client) for _ in range(16)]
    with WakeupDelay() as delay:
        for thread in threads:
            thread.start()
        eventually(lambda: len(answers) > 50)
        fault()
        for thread in threads:
            thread.join()
    return answers, delay.max_us / 1e6


MANY = {"many": dict(script="gcra", limit=10000000, period="10d", lease="off")}


def assert_all_in_time(rig, weir, fault, statuses, end):
    """`end()`: ends the fault. A bug delays decisions every time, a busy machine seldom. Returns the
    answers."""
    for _ in range(3):
        answers, lag = run_under_load(rig, weir, fault)
        assert {status for status, _ in answers} <= statuses
        slowest = max(took for _, took in answers)
        if slowest < 1.0 * time_scale + 3 * lag:
            return answers
        end()
        weir.wait_for_redis()
    raise AssertionError(f"a decision took {slowest:.2f} s with redis.timeout 100 ms and a lag of {lag:.2f}")


def test_redis_is_killed_under_load_with_allow(rig):
    weir = weir_with(rig, "allow", MANY)
    assert_all_in_time(rig, weir, rig.redis().kill, {200}, rig.redis().start)


def test_redis_is_killed_under_load_with_deny(rig):
    weir = weir_with(rig, "deny", MANY)
    answers = assert_all_in_time(rig, weir, rig.redis().kill, {200, 503}, rig.redis().start)
    assert answers[-1][0] == 503


def test_redis_is_killed_under_load_with_local(rig):
    weir = weir_with(rig, "local", MANY)
    assert_all_in_time(rig, weir, rig.redis().kill, {200}, rig.redis().start)


def test_redis_restarts_under_load(rig):
    weir = weir_with(rig, "allow", MANY)
    redis = rig.redis()

    def restart():
        redis.kill()
        redis.start()
    assert_all_in_time(rig, weir, restart, {200}, lambda: None)
    eventually(lambda: is_limited_by_redis(weir), 15, "decisions by the restarted Redis")


def test_redis_freezes_under_load(rig):
    weir = weir_with(rig, "allow", MANY)
    redis = rig.redis()
    try:
        assert_all_in_time(rig, weir, redis.freeze, {200}, redis.thaw)
    finally:
        redis.thaw()
    eventually(lambda: is_limited_by_redis(weir), 15, "decisions by the resumed Redis")


def test_weir_reconnects_after_client_kill(rig):
    weir = weir_with(rig, "allow", MANY)
    eventually(lambda: is_limited_by_redis(weir))
    for _ in range(3):
        rig.redis().command("CLIENT", "KILL", "TYPE", "normal")
        eventually(lambda: is_limited_by_redis(weir), 10)


def test_the_timeout_of_a_single_decision(rig):
    def took():
        weir = weir_with(rig, "allow", MANY)
        eventually(lambda: is_limited_by_redis(weir))
        weir.wait_for_redis()  # also the other worker: one that Redis did not answer in time decides at once
        rig.redis().freeze()
        try:
            start = time.monotonic()
            assert get(weir.address).status == 200
            return time.monotonic() - start
        finally:
            rig.redis().thaw()
    times = [took() for _ in range(3)]  # a bug exceeds the bound every time
    assert min(times) > 0.09 and min(times) < 0.6 * time_scale, times


# --- logins and databases ------------------------------------------------------------------------------------------------

def test_password_and_database(rig):
    redis = rig.redis(arguments=["--requirepass", "open sesame"])
    weir = rig.weir(limits=FEW, redis={"password": "open sesame", "database": 3})
    assert get(weir.address).number("X-RateLimit-Remaining") == 19
    assert redis.is_up()


def test_an_acl_user_with_its_password_in_a_file(rig):
    redis = rig.redis()
    redis.command("ACL", "SETUSER", "weir", "on", ">open sesame", "~weir:*", "&weir:*", "+@connection", "+@scripting", "+role",
              "+time", "+get", "+mget", "+set", "+setrange", "+del", "+scan", "+publish", "+subscribe", "+hget", "+hset", "+hdel",
              "+hgetall", "+exists", "+pttl", "+pexpire")
    redis.command("ACL", "SETUSER", "default", "off")
    os.chmod(rig.write("redis.password", "open sesame\n"), 0o600)
    weir = rig.weir(limits=FEW, redis={"username": "weir", "password_file": "redis.password"}, wait="listening")
    weir.wait_for_redis()
    assert get(weir.address, headers={"X-Client-Id": "a"}).number("X-RateLimit-Remaining") == 19
    assert get(weir.admin, "/api/v1/clients/a").status == 200
    assert b'"published":true' in get(weir.admin, "/api/v1/clients/a", method="DELETE").body
    printed = rig.command("check", "-c", weir.policy_file)
    assert printed.returncode == 0 and "open" not in printed.stdout and "password_file: redis.password" in printed.stdout


def test_a_wrong_password_is_logged(rig):
    rig.redis(arguments=["--requirepass", "open sesame"])
    weir = rig.weir(limits=FEW, redis={"password": "wrong", "timeout": "100ms"}, wait="listening")
    weir.expect_errors(REDIS_LINES)
    assert get(weir.address).status == 503
    eventually(lambda: any("password" in m.lower() or "login" in m.lower() for _, m in weir.log()),
               what="a log line about the password")


def test_a_key_prefix_over_tcp(rig):
    redis = rig.redis(tcp=True)
    weir = rig.weir(limits=FEW, redis={"key_prefix": "production:shop"})
    assert get(weir.address, headers={"X-Client-Id": "c{}1"}).status == 200
    keys = redis.command("KEYS", "*")
    assert len(keys) == 1 and keys[0].startswith("production:shop:{id:c") and keys[0].endswith("}:l:few"), keys
    assert keys[0].count("{") == 1 and redis.command("PTTL", keys[0]) > 0


# --- invalid replies
# -------------------------------------------------------------------------------------------------------

def invalid_redis(answer):
    """Behaves correctly while weir connects, then replies to each decision with these bytes."""
    def script(peer, _number):
        for words in redis_commands(peer):
            name = words[0].upper()
            if name in (b"EVALSHA", b"EVAL"):
                if answer is None:
                    return
                peer.send(answer)
            elif name == b"SCRIPT":
                peer.send(b"$40\r\n" + b"0" * 40 + b"\r\n")
            elif name == b"PING":
                peer.send(b"+PONG\r\n")
            else:
                peer.send(b"+OK\r\n")
    return script


REPLIES = {
    "an error": b"-ERR no\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "readonly": b"-READONLY You can't write against a read only replica.\r\n",
    "out of memory": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "NOSCRIPT for every call": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "moved": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "nil": b"$-1\r\n",
    "a status": b"+OK\r\n",
    "a number": b":1\r\n",
    "an empty array": b"*0\r\n",
    "an array with wrong types": b"*1\r\n*1\r\n$1\r\nx\r\n",
    "too many replies": b"*9\r\n" + b":1\r\n" * 9,
    "the largest integers": b"*1\r\n*8\r\n" + b":9223372036854775807\r\n" * 8,
    "an unexpected reply": b"*0\r\n*0\r\n",
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "closed without a reply": None,
}


def timed(weir, *statuses):
    start = time.monotonic()
    assert get(weir.address).status in statuses
    return time.monotonic() - start


def assert_within_the_timeout(rig, redis, what, *statuses):
    """Of three requests, a busy machine may delay one, and rarely two; a bug delays those of each weir."""
    for _ in range(3):
        weir = weir_with(rig, "allow", address=redis.text)
        times = [timed(weir, *statuses) for _ in range(3)]
        weir.finish()
        if sorted(times)[1] < 0.7 * time_scale and max(times) < 3 * time_scale:
            return
    raise AssertionError((what, times))


@timeout(120)
def test_invalid_replies_are_handled_within_the_timeout(rig):
    for name, answer in REPLIES.items():
        assert_within_the_timeout(rig, Scripted(rig, invalid_redis(answer)), name, 200, 429)


def test_a_redis_that_never_replies(rig):
    redis = Scripted(rig, lambda peer, _number: peer.fill() and peer.read_until(b"never", "silence"))
    assert_within_the_timeout(rig, redis, "no replies", 200)


ENDLESS = {"a text": (b"$500000000\r\n", b"x" * 65536), "an array of texts": (b"*60000\r\n", b"$65536\r\n" + b"x" * 65536 + b"\r\n")}
ENDLESS_MAX = 48 << 20


def test_endless_replies_are_not_stored(rig):
    """Not on the connections of the main thread either."""
    for name, (start, more) in ENDLESS.items():
        sent = {}

        def script(peer, number, start=start, more=more, sent=sent):
            next(redis_commands(peer))
            sent[number] = 0
            try:
                peer.send(start)
                while sent[number] <= ENDLESS_MAX:
                    peer.send(more)
                    sent[number] += len(more)
            except ConnectionError:
                pass
        weir = rig.weir(redis={"on_failure": "allow", "address": Scripted(rig, script).text}, limits=FEW, workers=1)
        weir.expect_errors(REDIS_LINES)
        eventually(lambda: len(sent) > 8 or max([0, *sent.values()]) > ENDLESS_MAX, 20, "connections that ended")
        assert max(sent.values()) <= ENDLESS_MAX, name
        weir.finish()


# --- the maximum for a client during outages
# -------------------------------------------------------------------------------

def admitted(weir, requests=60):
    return count(flood(weir.address, requests, connections=8)).get(200, 0)


def wait_until_down(weir):
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0, what="weir to notice that Redis is down")


def test_during_outages_a_client_gets_at_most_twice_its_limit(rig):
    """As documented in docs/backends.md: once in Redis and once locally. The local limit does not
    start again with every outage."""
    redis = rig.redis(arguments=["--appendonly", "yes", "--appendfsync", "always"])
    weir = weir_with(rig, "local", timeout="5s")  # a write to a busy disk takes longer than 100 ms
    assert admitted(weir) == 20
    for outage in range(3):
        redis.kill()
        wait_until_down(weir)
        assert admitted(weir) == (20 if outage == 0 else 0)
        redis.start()
        weir.wait_for_redis()
        assert admitted(weir) == 0, "the counters in Redis apply again"


def test_a_frozen_redis_admits_no_more_than_a_stopped_one(rig):
    redis = rig.redis()
    weir = weir_with(rig, "local", instances=2)
    assert admitted(weir, 10) == 10
    redis.freeze()
    try:
        assert admitted(weir) <= 10 + 1, "this weir's half"
    finally:
        redis.thaw()
    weir.wait_for_redis()
    assert admitted(weir) <= 10, "the other half, minus the requests during the freeze"


def test_workers_reconnect_at_different_times(rig):
    """A restarted Redis is not overloaded: pauses have jitter, and each worker starts with one
    call."""
    redis = rig.redis()
    weirs = [rig.weir(workers=4, limits=MANY, redis={"on_failure": "allow", "timeout": "100ms"}) for _ in range(2)]
    for weir in weirs:
        weir.expect_errors(REDIS_LINES)

    def ready():
        return sum(int(weir.metric("weir_redis_ready_workers")) for weir in weirs)

    def spread():
        """The time between the first and the last worker's reconnection, at least."""
        redis.kill()
        for weir in weirs:
            wait_until_down(weir)
            assert b'"breaker":{"closed":0,"half_open":0,"open":4}' in get(weir.admin, "/api/v1/status").body
        os.unlink(redis.address)
        refusing = Scripted(rig, lambda *_: None, redis.address)
        eventually(lambda: refusing.accepted > 40, what="several attempts of every worker, so that the pauses have increased")
        refusing.close()
        redis.start()
        started = last = time.monotonic()
        first = None
        while (are_ready := ready()) < 8:
            first = first or are_ready and time.monotonic()
            last = time.monotonic()
            assert all(weir.metric("weir_redis_breaker_workers", state="closed") == 0 for weir in weirs), "half open until calls get replies"
            assert last < started + 10 * time_scale, "every worker is connected again"
        return last - first if first else 0
    eventually(lambda: spread() > 0.02, 30, "reconnections at different times")
    assert b"Redis is available again" in get(weirs[0].admin, "/readyz").body
    assert b'"half_open":4' in get(weirs[0].admin, "/api/v1/status").body
    for weir in weirs:
        assert count(flood(weir.address, 1000, connections=32)) == {200: 1000}
        eventually(lambda weir=weir: count(flood(weir.address, 100, connections=16)) and
                   weir.metric("weir_redis_breaker_workers", state="closed") == 4, 15, "successful calls of every worker")
