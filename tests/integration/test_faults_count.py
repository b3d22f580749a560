"""Limits with `count`: requests in parallel, refunds, and rejections that end at any time."""

import threading

from rig import eventually, free_port
from scripted import Scripted
from wire import Connection, get, request_bytes

LOGIN = {"script": "fixed_window", "limit": 5, "period": "1d", "count": [401]}


class Logins:
    """A server that responds to a request for /STATUS with this status, and to one for
    /STATUS/held only after `release` is set. `seen` has all targets."""

    def __init__(self, rig):
        self.seen, self.release = [], threading.Event()
        self.upstreams = {"api": {"servers": [Scripted(rig, self.serve).text], "retry": {"tries": 1}}}

    def serve(self, peer, _number):
        while (request := peer.read_request()) is not None:
            target = request[0].split(b" ")[1].decode()
            self.seen.append(target)
            if target.endswith("/held"):
                self.release.wait(60)
            if target.startswith("/close"):
                return
            peer.send(b"HTTP/1.1 %s X\r\nContent-Length: 0\r\n\r\n" % target[1:4].encode())


def weir_before(rig, logins, **more):
    """One worker: it sends a refund before the decision of the next request."""
    return rig.weir(**{"workers": 1, "upstreams": logins.upstreams, "redis": {"address": rig.redis().text, "timeout": "10s"},
                       "limits": {"failures": LOGIN}, **more}).wait_for_redis()


def status(weir, target):
    return get(weir.address, target).status


def begin(weir, target):
    connection = Connection(weir.address)
    connection.send(request_bytes(target))
    return connection


def end(connections):
    statuses = [connection.response().status for connection in connections]
    for connection in connections:
        connection.close()
    return statuses


def test_400_failed_logins_at_once_are_five(rig):
    logins = Logins(rig)
    weir = weir_before(rig, logins, workers=2)
    connections = [begin(weir, "/401/held") for _ in range(400)]
    eventually(lambda: weir.metric("weir_limit_decisions_total", limit="failures", decision="limited") == 395, what="395 rejections")
    logins.release.set()
    assert sorted(end(connections)) == [401] * 5 + [429] * 395
    assert len(logins.seen) == 5


def test_other_statuses_are_refunded(rig):
    logins = Logins(rig)
    weir = weir_before(rig, logins)
    assert [status(weir, target) for target in ["/200", "/401", "/503", "/404"] * 4] == [200, 401, 503, 404] * 4
    assert [status(weir, target) for target in ("/401", "/401", "/200")] == [401, 429, 429]


def test_buckets_that_refill_within_the_timeout_of_redis_are_refunded(rig):
    """The timeout is 10s. If the test is slow, the bucket is full again anyway."""
    logins = Logins(rig)
    for script in ("token_bucket", "gcra", "leaky_bucket"):
        weir = weir_before(rig, logins, limits={script: {"script": script, "limit": 1, "period": "9s", "count": [401]}})
        assert [status(weir, "/200") for _ in range(4)] == [200] * 4, script


def test_successful_logins_beyond_the_limit_in_parallel_are_rejected_until_some_end(rig):
    logins = Logins(rig)
    weir = weir_before(rig, logins)
    held = [begin(weir, "/200/held") for _ in range(5)]
    eventually(lambda: len(logins.seen) == 5, what="five requests at the server")
    assert [status(weir, "/200"), status(weir, "/200")] == [429, 429]
    logins.release.set()
    assert end(held) == [200] * 5
    assert status(weir, "/200") == 200, "the rejection was cached"
    assert weir.metric("weir_remembered_denials_total") in (0, None)


def test_refunds_end_the_rest_of_a_lockout_also_after_its_period(rig):
    logins = Logins(rig)
    lockout = {"script": "lockout", "limit": 5, "period": "3s", "options": {"rest": "1d"}, "count": [401]}
    weir = weir_before(rig, logins, limits={"failures": lockout})
    held = [begin(weir, f"/{code}/held") for code in (200, 200, 401, 200, 200)]
    eventually(lambda: status(weir, "/200") == 429, what="all units to be used")
    state = rig.redis().command("KEYS", "*")
    start = int(rig.redis().command("GET", state[0]).split(":")[0])

    def period_is_over():
        seconds, us = rig.redis().command("TIME")
        return int(seconds) * 1000000 + int(us) - start > 3100000
    eventually(period_is_over, what="the end of the period")
    logins.release.set()
    assert sorted(end(held)) == [200] * 4 + [401]
    assert status(weir, "/200") == 200


def test_a_failure_of_the_server_is_refunded(rig):
    """A login of which weir has no status: the limit charges no response of weir."""
    logins = Logins(rig)
    weir = weir_before(rig, logins)
    assert [status(weir, "/close") for _ in range(20)] == [502] * 20
    weir = weir_before(rig, logins, upstreams={"api": {"servers": [f"127.0.0.1:{free_port()}"]}})
    weir.expect_errors("upstream api")
    assert {status(weir, "/200") for _ in range(20)} <= {502, 503}


def test_a_client_that_leaves_before_the_response_stays_charged(rig):
    logins = Logins(rig)
    weir = weir_before(rig, logins)
    for number in range(5):
        connection = begin(weir, "/401/held")
        eventually(lambda n=number: len(logins.seen) == n + 1, what="the request at the server")
        connection.close()
        weir.counts(number + 1, "weir_errors_total", cause="client_gone")
    assert status(weir, "/200") == 429
    logins.release.set()
