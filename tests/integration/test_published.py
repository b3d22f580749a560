"""Tests that earlier rate limiters were published with, under their names (S1 to S8)."""

import time

from rig import eventually, timeout
from wire import Connection, count, flood, get


def send_requests(weir, seconds, client="a", least=0):
    """Sends requests one after the other, for this time after the first response, until `least` are
    admitted and one is rejected. Returns [(sent, answered, status)]."""
    requests, passed = [], 0
    with Connection(weir.address) as connection:
        while not requests or requests[-1][1] < requests[0][1] + seconds or passed < least or requests[-1][2] == 200:
            sent = time.monotonic()
            status = connection.request(headers={"X-Client-Id": client}).status
            requests.append((sent, time.monotonic(), status))
            passed += status == 200
    return requests


def assert_limit_holds(requests, limit, period, at_most=None):
    """Never more than `limit` requests were admitted within a period, and none was rejected while
    fewer counted. Each counts for a period, or at most for `at_most`."""
    passed = [(sent, answered) for sent, answered, status in requests if status == 200]
    for (sent, _), (_, answered) in zip(passed, passed[limit:]):
        assert answered - sent >= period, f"{limit + 1} within one period"
    for rejected, _, status in requests:
        counted = sum(answered <= rejected < answered + (at_most or period) for _, answered in passed)
        assert status == 200 or counted >= limit, f"rejected while {counted} counted"
    return passed


def test_S1_apachebench_1200_requests_at_limit_1000_exactly_1000_pass(rig):
    weir = rig.weir(limits={"tokens": dict(script="token_bucket", limit=1000, period="1d", lease="off")})
    responses = flood(weir.address, 1200, connections=64)
    assert count(responses) == {200: 1000, 429: 200}, count(responses)
    for response in responses:
        assert response.number("X-RateLimit-Limit") == 1000
        assert (response.number("X-RateLimit-Remaining") == 0) or response.status == 200
    left = sorted(r.number("X-RateLimit-Remaining") for r in responses if r.status == 200)
    assert left == list(range(1000)), "every admitted request has its own value of remaining"


def test_S1_a_request_may_cost_more_than_one_token(rig):
    weir = rig.weir(limits={"tokens": dict(script="token_bucket", limit=10, period="1d")},
                    rules=[{"match": {"path": "/batch"}, "limits": ["tokens"], "cost": 4}, {"limits": ["tokens"]}])
    batches = [get(weir.address, "/batch").status for _ in range(3)]
    assert batches == [200, 200, 429], batches
    assert [get(weir.address, "/one").status for _ in range(3)] == [200, 200, 429], "a rejected batch is not charged"


def test_S2_a_client_above_the_rate_still_gets_its_tokens(rig):
    """Capacity 10, one token every 2 s; here ten times as fast. Rejected requests must not reset
    the refill clock."""
    weir = rig.weir(limits={"tokens": dict(script="token_bucket", limit=10, period="2s")})
    requests = send_requests(weir, 3)
    passed, took = sum(status == 200 for *_, status in requests), requests[-1][1] - requests[0][0]
    # from the first rejection, when the bucket was empty, to the last one
    least = max(0, requests[-1][0] - next(answered for _, answered, status in requests if status == 429))
    assert 10 + int(least / 0.2) <= passed <= 10 + took / 0.2 + 1, f"{passed} passed in {least} to {took} s"
    assert len(requests) > passed + 14, "requests that were rejected in between"


def test_S2_under_contention_no_request_runs_out_of_retries(rig):
    weir = rig.weir(limits={"tokens": dict(script="token_bucket", limit=10, period="20h")})
    assert count(flood(weir.address, 200, connections=64)) == {200: 10, 429: 190}


def test_S3_two_hosts_share_one_window_of_redis_time(rig):
    limits = {"window": dict(script="fixed_window", limit=50, period="20d", align="clock")}
    first, second = rig.weir(limits=limits), rig.weir(limits=limits)
    assert count(flood([first.address, second.address], 200)) == {200: 50, 429: 150}


def test_S3_a_request_with_a_cost_and_the_delay_until_the_window_ends(rig):
    weir = rig.weir(limits={"window": dict(script="fixed_window", limit=7, period="20d", align="clock", cost=3)})
    assert [get(weir.address).number("X-RateLimit-Remaining") for _ in range(2)] == [4, 1]

    def left():
        seconds, microseconds = map(int, rig.redis().command("TIME"))
        return 20 * 86400 - (seconds % (20 * 86400) + microseconds / 1e6)
    most, rejected, least = left(), get(weir.address), left()
    assert rejected.status == 429
    assert least - 2 <= rejected.number("Retry-After") <= most + 2, (rejected, least, most)
    assert rejected.number("X-RateLimit-Remaining") == 1


def test_S3_a_local_limiter_takes_over_when_redis_does_not_answer(rig):
    weir = rig.weir(redis={"on_failure": "local", "timeout": "100ms"},
                    limits={"window": dict(script="fixed_window", limit=20, period="1d")})
    assert get(weir.address).status == 200
    rig.redis().kill()
    weir.expect_errors("[Rr]edis")
    counts = count(flood(weir.address, 100, connections=16))
    assert counts == {200: counts.get(200), 429: counts.get(429)} and 15 <= counts[200] <= 20, counts


def test_S4_an_amount_is_requested_and_the_remaining_units_are_granted(rig):
    """The window starts at the first request. best_effort grants the remaining units. The response
    shows the time to the end of the window."""
    weir = rig.weir(limits={"quota": dict(script="fixed_window", limit=10, period="1d", cost=4, best_effort=True)})
    answers = [get(weir.address) for _ in range(4)]
    assert [a.status for a in answers] == [200, 200, 200, 429]
    assert [a.number("X-RateLimit-Remaining") for a in answers] == [6, 2, 0, 0]
    assert all(86400 - 30 <= a.number("X-RateLimit-Reset") <= 86400 for a in answers), answers


def test_S4_a_repeat_with_its_deduplication_id_is_free_and_shows_the_first_numbers(rig):
    limits = {"quota": dict(script="fixed_window", limit=3, period="1d", dedup="Idempotency-Key")}
    weir, other = rig.weir(limits=limits), rig.weir(limits=limits)

    def fetch(at, key):
        answer = get(at.address, headers={"Idempotency-Key": key})
        return answer.status, answer.number("X-RateLimit-Remaining")
    assert [fetch(weir, key) for key in "abab"] == [(200, 2), (200, 1), (200, 2), (200, 1)]
    assert fetch(other, "a") == (200, 2), "also at another weir"
    assert [fetch(weir, key) for key in "cdab"] == [(200, 0), (429, 0), (200, 2), (200, 1)], "also if the limit is exhausted"


def test_S5_a_rolling_window_never_exceeds_its_limit_in_any_period(rig):
    """Requests without a pause for nearly three periods. A unit counts for at least the period and
    at most one bucket longer."""
    weir = rig.weir(limits={"rolling": dict(script="rolling_window", limit=20, period="1s", buckets=10)})
    assert_limit_holds(send_requests(weir, 2.8, least=41), 20, 1.0, at_most=1.1)


def test_S6_windows_aligned_to_the_clock_of_redis_with_an_offset(rig):
    """A day that starts at another hour, here in some hours. Two weirs agree, because Redis reads
    the clock."""
    start = (int(rig.redis().command("TIME")[0]) // 3600 + 5) % 24
    limits = {"daily": dict(script="fixed_window", limit=5, period="1d", align="clock", offset=f"{start}h")}
    first, second = rig.weir(limits=limits), rig.weir(limits=limits)

    def left():
        return 86400 - (int(rig.redis().command("TIME")[0]) - start * 3600) % 86400
    most, answers, least = left(), [get((first, second)[i % 2].address) for i in range(7)], left()
    assert [a.status for a in answers] == [200] * 5 + [429] * 2
    assert least - 2 <= answers[-1].number("X-RateLimit-Reset") <= most + 2, (answers[-1], least, most)
    assert answers[-1].number("Retry-After") == answers[-1].number("X-RateLimit-Reset")


WINDOW = {"quota": dict(script="fixed_window", limit=60, period="1m", label="Window")}
CLIENTS = {"client-0": {"quota": 0}, "client-1": {"quota": "unlimited"}, "client-2": {"quota": 3}}
FAMILY = {"x-rate-limit-policy", "x-rate-limit-quota", "x-rate-limit-used", "x-rate-limit-reset"}


def fetch_as(weir, client):
    response = get(weir.address, headers={"X-Client-Id": client})
    return response, {name: response[name] for name in sorted(FAMILY & response.names())}


def test_S7_client_0_is_prohibited(rig):
    weir = rig.weir(limits=WINDOW, clients=CLIENTS)
    response, family = fetch_as(weir, "client-0")
    assert response.status == 429
    assert family == {"x-rate-limit-policy": "Window", "x-rate-limit-quota": "0"}
    assert response["Retry-After"] is None, "waiting does not help"
    assert (response["X-RateLimit-Limit"], response["X-RateLimit-Remaining"]) == ("0", "0")


def test_S7_client_1_is_unlimited(rig):
    weir = rig.weir(limits=WINDOW, clients=CLIENTS)
    for _ in range(100):
        response, family = fetch_as(weir, "client-1")
        assert response.status == 200
        assert family == {"x-rate-limit-policy": "Window", "x-rate-limit-quota": "-1"}
    assert not {"x-ratelimit-limit", "ratelimit", "ratelimit-policy"} & response.names()


def test_S7_client_2_has_a_quota_of_three(rig):
    weir = rig.weir(limits=WINDOW, clients=CLIENTS)
    for used in 1, 2, 3:
        response, family = fetch_as(weir, "client-2")
        reset = int(family.pop("x-rate-limit-reset"))
        assert response.status == 200
        assert family == {"x-rate-limit-policy": "Window", "x-rate-limit-quota": "3", "x-rate-limit-used": str(used)}
        assert 55 <= reset <= 60, reset

    def rejected():
        response, family = fetch_as(weir, "client-2")
        reset = int(family.pop("x-rate-limit-reset"))
        assert response.status == 429
        assert family == {"x-rate-limit-policy": "Window", "x-rate-limit-quota": "3", "x-rate-limit-used": "3"}
        assert response.number("Retry-After") == reset
        return reset
    first = rejected()
    eventually(lambda: rejected() < first, what="a falling Reset")


def test_S7_an_unknown_client_gets_the_default_limit(rig):
    weir = rig.weir(limits=WINDOW, clients=CLIENTS)
    response, family = fetch_as(weir, "somebody-else")
    assert response.status == 200
    assert (family["x-rate-limit-quota"], family["x-rate-limit-used"]) == ("60", "1")


def test_S8_two_per_four_seconds_in_a_tight_loop_for_ten_seconds_six_pass(rig):
    """Here in a quarter of that time: two at once, two after a second, and two after another
    second."""
    weir = rig.weir(limits={"log": dict(script="sliding_window_log", limit=2, period="1s")})

    clients = map(str, range(1000))

    def six_pass():  # fails if the machine stalls, because the loop is not tight then
        passed = assert_limit_holds(send_requests(weir, 2.5, next(clients)), 2, 1.0)
        return len(passed) == 6
    eventually(six_pass, 30, "six requests to be admitted")


@timeout(120)
def test_S8_requests_in_the_same_microsecond_are_each_counted(rig):
    weir = rig.weir(workers=4, limits={"log": dict(script="sliding_window_log", limit=100, period="1d")})
    assert count(flood(weir.address, 400, connections=64)) == {200: 100, 429: 300}
