"""Tests how weir handles error replies of Redis."""

from rig import eventually
from wire import get

FEW = {"few": dict(script="gcra", limit=20, period="10d")}


def weir_before(rig, address, limits=FEW, options=None, **redis):
    weir = rig.weir(**(options or {}), redis={"on_failure": "allow", "timeout": "100ms", "address": address, **redis}, limits=limits,
                    wait="listening")
    weir.expect_errors("redis ")
    return weir


def error_lines(weir, remedy):
    return [m for level, m in weir.log() if level == "error" and remedy in m]


def assert_refused(weir, cause, remedy):
    """Requests pass without rate limit fields, as on_failure: allow specifies. They are counted by
    cause, and the log names the remedy."""
    def is_counted_and_logged():
        response = get(weir.address)
        assert response.status == 200, response
        assert not [n for n in response.names() if "rate" in n], "fields in a decision without Redis"
        return weir.metric("weir_redis_errors_total", cause=cause) and error_lines(weir, remedy)
    eventually(is_counted_and_logged, what=f"a decision without Redis because of {cause}: {weir.output()[-600:]}")
    assert len(error_lines(weir, remedy)) == 1, f"expected one line for all workers: {error_lines(weir, remedy)}"


def assert_decided_by_redis(weir):
    eventually(lambda: "x-ratelimit-limit" in get(weir.address).names(), 15, "a decision by Redis")
