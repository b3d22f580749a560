"""The table of rate limit fields in README.md and the manual page: every script sends the fields
that it says, with the values that it says."""

import os

from gate import Gate
from rate_limit_fields import documented, items, parameters
from rig import eventually, top
from shipped_limiters import ALL, BUCKETS
from wire import Connection, get

LIMIT, BURST, HOURS = 5, 3, 10
PERIOD = HOURS * 3600
SLACK = 300   # seconds that a slow machine may need for a test
WINDOWS = [*(name for name in ALL if name not in BUCKETS), "lockout"]


class Expected:
    """The values of the table's texts for one response. All units were used at once, just now."""

    def __init__(self, script, capacity, used):
        slides = script == "sliding_window_counter"
        self.script, self.numbers = script, {
            "burst": BURST, "limit": LIMIT, "1": 1,
            "units left": capacity - used,
            "Quota minus units left": used,
        }
        self.seconds = {
            "seconds until the bucket is full": used * PERIOD // LIMIT,
            "seconds until no unit counts": PERIOD * 2 if slides else PERIOD,
            "seconds to fill the empty bucket": BURST * PERIOD // LIMIT,
            "seconds of the period": PERIOD,
            "seconds until the next unit": PERIOD // LIMIT,
            # The weight of the counter's units falls in the window after this one.
            "seconds until its end or, if it slides, until its oldest unit leaves": PERIOD + PERIOD // used if slides else PERIOD,
            "seconds until enough units are left": PERIOD // LIMIT if script in BUCKETS else PERIOD + PERIOD // used if slides else PERIOD,
        }

    def check(self, field, text, value):
        what = f"{self.script}: {field} ({text}) is {value!r}"
        if text == "absent":
            assert value is None, what
        elif text == "label":
            assert value == f"Label {self.script}", what
        elif text == "concurrent-requests":
            assert value == f'"{text}"', what
        elif text in self.numbers:
            assert int(value) == self.numbers[text], what
        else:
            assert self.seconds[text] - SLACK <= int(value) <= self.seconds[text], what

    def check_all(self, response, kind):
        for field, cells in documented().items():
            if field in ("RateLimit", "RateLimit-Policy"):
                of_limit = items(response[field])[self.script]
                expected = parameters(cells[kind])
                assert of_limit.keys() == expected.keys(), response
                for name, text in expected.items():
                    self.check(f"{field} {name}", text, of_limit[name])
            elif field != "Retry-After" or response.status == 429:
                self.check(field, cells[kind], response[field])
            else:
                assert response[field] is None, response


def policy(names, **numbers):
    limits = {name: dict(script=name, limit=LIMIT, label=f"Label {name}", **numbers) for name in names}
    return dict(limits=limits, rules=[{"match": {"path": f"/{name}"}, "limits": [name]} for name in limits])


def check_until_rejected(weir, script, kind, capacity):
    for used in range(1, capacity + 1):
        response = get(weir.address, f"/{script}")
        assert response.status == 200, response
        Expected(script, capacity, used).check_all(response, kind)
    for _ in range(3):      # from Redis, then from the cache of denials
        response = get(weir.address, f"/{script}")
        assert response.status == 429, response
        Expected(script, capacity, capacity).check_all(response, kind)


def test_fields_of_buckets(rig):
    weir = rig.weir(**policy(BUCKETS, burst=BURST, period=f"{HOURS}h"))
    for script in BUCKETS:
        check_until_rejected(weir, script, "bucket", BURST)


def test_fields_of_windows(rig):
    weir = rig.weir(**policy(WINDOWS, period=f"{HOURS}h"))
    for script in WINDOWS:
        check_until_rejected(weir, script, "window", LIMIT)


def test_fields_of_a_custom_script(rig):
    with open(os.path.join(top, "lua", "gcra.lua"), encoding="utf-8") as gcra:
        own = rig.write("own.lua", gcra.read())
    weir = rig.weir(limits={"own": dict(script=own, limit=LIMIT, burst=BURST, period=f"{HOURS}h")})
    for used in 1, 2, 3, 3:
        response = get(weir.address)
        assert response.number("X-RateLimit-Limit") == response.number("X-Rate-Limit-Quota") == BURST, response
        assert response.number("X-Rate-Limit-Used") == used and response.number("X-RateLimit-Remaining") == BURST - used
        state = items(response["RateLimit"])["own"]
        assert state == {"r": BURST - used, "t": int(response["Retry-After"] or response["X-RateLimit-Reset"])}, response
    assert response.status == 429


def test_fields_of_concurrency(rig):
    gate = Gate(rig)
    weir = rig.weir(workers=1, upstreams=gate.upstreams, **policy(["concurrency"]))
    waiting = []
    for number in range(1, LIMIT + 1):
        waiting.append(Connection(weir.address))
        waiting[-1].send(b"GET /concurrency HTTP/1.1\r\nHost: api.test\r\n\r\n")
        eventually(lambda number=number: gate.now == number, what="the request")
    response = get(weir.address, "/concurrency")
    assert response.status == 429
    Expected("concurrency", LIMIT, LIMIT).check_all(response, "concurrency")
    gate.open.set()
    for number, connection in enumerate(waiting, 1):
        response = connection.response()
        assert response.status == 200
        Expected("concurrency", LIMIT, number).check_all(response, "concurrency")


def test_clients_with_quota_0_and_without_a_limit(rig):
    weir = rig.weir(limits={"gcra": dict(script="gcra", limit=LIMIT, period="1h", label="Label gcra")},
                    identity={"from": ["header:X-Client-Id"], "trusted_proxies": ["127.0.0.0/8"]},
                    clients={"none": {"quota": 0}, "all": {"quota": "unlimited"}})

    def fields(client):
        response = get(weir.address, headers={"X-Client-Id": client})
        return response.status, {name: response[name] for name in documented() if response[name] is not None}
    assert fields("none") == (429, {"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-Rate-Limit-Policy": "Label gcra",
                                    "X-Rate-Limit-Quota": "0"})
    assert fields("all") == (200, {"X-Rate-Limit-Policy": "Label gcra", "X-Rate-Limit-Quota": "-1"})


def test_a_negative_offset_is_the_rest_of_the_day(rig):
    def day(offset, **more):
        return dict(script="fixed_window", limit=100, period="1d", align="clock", offset=offset, **more)
    limits = {"before": day("-8h"), "after": day("16h"), "before-here": day("-8h", time_zone="Europe/Berlin"),
              "after-here": day("16h", time_zone="Europe/Berlin"), "month": dict(script="fixed_window", limit=100, period="month", offset="-8h"),
              "month-start": dict(script="fixed_window", limit=100, period="month")}
    weir = rig.weir(limits=limits, redis={"on_failure": "local"})

    def check():
        shown = {name: state["t"] for name, state in items(get(weir.address)["RateLimit"]).items()}
        assert shown["before"] == shown["after"] and shown["before-here"] == shown["after-here"], shown
        hours = (shown["month-start"] - shown["month"]) / 3600
        # In the last 8 hours of a month the month by the offset has started already.
        assert hours == 8 or hours < -27 * 24, shown
    check()
    weir.expect_errors("^redis ")
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    check()
