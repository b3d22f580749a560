"""The parameter t of RateLimit: the time until more units are available, never later than
Retry-After (draft-ietf-httpapi-ratelimit-headers-11)."""

import time

from leasing import send_pipelined
from rate_limit_fields import items
from rig import eventually
from shipped_limiters import ALL, BUCKETS
from wire import get

HOUR = 3600
SLACK = 120   # seconds that a slow machine may need for a test


def by_script(names=ALL, **numbers):
    """A policy with one limit per script, each with its own path."""
    limits = {name: dict(script=name, lease="off", **numbers) if name in BUCKETS else dict(script=name, **numbers) for name in names}
    return dict(limits=limits, rules=[{"match": {"path": f"/{name}"}, "limits": [name]} for name in limits])


def t(response, name):
    return items(response["RateLimit"])[name]["t"]


def is_about(seconds, expected):
    return expected - SLACK <= seconds <= expected


def test_of_a_bucket_it_is_the_time_until_the_next_unit(rig):
    weir = rig.weir(**by_script(BUCKETS, limit=4, period="4h"))
    for name in BUCKETS:
        for used in range(1, 5):
            response = get(weir.address, f"/{name}")
            assert is_about(t(response, name), HOUR), (name, response)
            assert is_about(response.number("X-RateLimit-Reset"), used * HOUR), "until the limit has fully recovered"
        for _ in range(5):       # the first one comes from Redis, the others from the cache of denials
            response = get(weir.address, f"/{name}")
            assert response.status == 429 and is_about(t(response, name), HOUR), (name, response)
            assert t(response, name) == response.number("Retry-After"), (name, response)


def test_of_a_window_it_is_the_time_until_units_leave(rig):
    windows = [name for name in ALL if name not in BUCKETS] + ["lockout"]
    weir = rig.weir(**by_script(windows, limit=3, period="4h"))
    first = {name: (get(weir.address, f"/{name}"), time.monotonic()) for name in windows}
    time.sleep(3)                # of units that are charged now, the time differs by as much
    for name in windows:
        before = time.monotonic() - first[name][1]
        response = get(weir.address, f"/{name}")
        elapsed = time.monotonic() - first[name][1]
        for answer in response, get(weir.address, f"/{name}"), get(weir.address, f"/{name}"), get(weir.address, f"/{name}"):
            wait = answer["Retry-After"]
            assert wait is None or t(answer, name) <= int(wait), (name, answer)
        # Both units of the counter leave evenly in the next window. Both units of the rolling window
        # are in one bucket, which ends with the newer one.
        if name == "sliding_window_counter":
            assert is_about(t(response, name), 6 * HOUR), (name, response)
        elif name == "rolling_window":
            assert is_about(t(response, name), 4 * HOUR), (name, response)
        else:
            assert 4 * HOUR - elapsed - 2 <= t(response, name) <= 4 * HOUR - before + 1, (name, response)
        if name == "sliding_window_log":
            assert response.number("X-RateLimit-Reset") >= 4 * HOUR - 1, "until the newest unit leaves"


def test_it_is_never_later_than_retry_after_of_the_limit_that_rejects(rig):
    weir = rig.weir(**by_script((*ALL, "lockout"), limit=5, period="90s"))
    for name in (*ALL, "lockout"):
        for _ in range(12):
            response = get(weir.address, f"/{name}")
            if response.status == 429:
                assert t(response, name) <= response.number("Retry-After"), (name, response)


def test_of_an_unused_limit_it_is_0(rig):
    limits = by_script(limit=3, period="1h")["limits"]
    weir = rig.weir(limits={"gate": dict(script="fixed_window", limit=1, period="1h", per="all"), **limits},
                    rules=[{"limits": ["gate"], "match": {"path": "/gate"}}] +
                          [{"match": {"path": f"/{name}"}, "limits": ["gate", name]} for name in limits])
    assert get(weir.address, "/gate").status == 200
    for name in limits:
        response = get(weir.address, f"/{name}")
        assert response.status == 429 and items(response["RateLimit"])[name] == {"r": 3, "t": 0}, (name, response)


def test_it_is_the_same_without_redis(rig):
    weir = rig.weir(redis={"on_failure": "local", "timeout": "200ms"}, **by_script((*BUCKETS, "fixed_window"), limit=4, period="4h"))
    rig.redis().kill()
    weir.expect_errors("Redis")
    for name in BUCKETS:
        for _ in range(6):
            response = get(weir.address, f"/{name}")
            assert is_about(t(response, name), HOUR), (name, response)
            assert response["Retry-After"] in (None, str(t(response, name))), (name, response)
    assert is_about(t(get(weir.address, "/fixed_window"), "fixed_window"), 4 * HOUR)


def test_it_is_the_same_for_leased_units(rig):
    weir = rig.weir(workers=1, limits={"busy": dict(script="gcra", limit=5000, period="5000h", lease=100)})
    responses = []

    def leased():
        responses.extend(send_pipelined([weir], 500))
        return weir.metric("weir_lease_units_total", result="used") > 0 or len(responses) > 4000
    eventually(leased, seconds=30, what="leased units")
    assert weir.metric("weir_lease_units_total", result="used") > 0
    for response in responses:
        assert is_about(t(response, "busy"), HOUR), response
