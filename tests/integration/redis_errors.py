"""Error replies of Redis and what clients then get."""

from rig import eventually
from wire import get

FEW = {"few": dict(script="gcra", limit=20, period="10d")}


def weir_before(rig, address, limits=FEW, **redis):
    weir = rig.weir(redis={"on_failure": "allow", "timeout": "100ms", "address": address, **redis}, limits=limits,
                    wait="listening")
    weir.expect_errors("redis ")
    return weir


def complaints(weir, remedy):
    return [m for level, m in weir.log() if level == "error" and remedy in m]


def assert_refused(weir, cause, remedy):
    """Requests pass without fields, as on_failure has it; they are counted by cause, and the log says what to do."""
    def seen():
        response = get(weir.address)
        assert response.status == 200, response
        assert not [n for n in response.names() if "rate" in n], "decided without Redis: no fields"
        return weir.metric("weir_redis_errors_total", cause=cause) and complaints(weir, remedy)
    eventually(seen, what=f"a decision without Redis by {cause}: {weir.output()[-600:]}")
    assert len(complaints(weir, remedy)) == 1, f"one line, whatever the number of workers: {complaints(weir, remedy)}"


def assert_well(weir):
    eventually(lambda: "x-ratelimit-limit" in get(weir.address).names(), 15, "a decision by Redis")
