"""Changes to limits keep the used units, also with two versions of weir on one Redis."""

import os
import time

from rig import eventually, top
from shipped_limiters import ALL, BUCKETS
from wire import count, flood, get

# the driver that stores states without a version
EARLIER = {"WEIR_LUA_DIR": os.path.join(top, "tests", "lua", "format-1")}


def policy(**numbers):
    """One limit per script, all with these numbers and each with its own path."""
    buckets = {name: dict(script=name, lease="off", **numbers) for name in BUCKETS}
    windows = {name: dict(script=name, **{key: value for key, value in numbers.items() if key != "burst"}) for name in ALL if name not in BUCKETS}
    limits = {**buckets, **windows}
    return dict(limits=limits, rules=[{"match": {"path": f"/{name}"}, "limits": [name]} for name in limits])


def admitted(weir, name, requests):
    return count(flood(weir.address, requests, connections=8, target=f"/{name}", headers={"X-Client-Id": "c"})).get(200, 0)


def edit(weir, **numbers):
    def policy_field():
        return get(weir.address, "/gcra", headers={"X-Client-Id": "other"})["RateLimit-Policy"]
    before = policy_field()
    weir.reload(**policy(**numbers))
    eventually(lambda: policy_field() not in (None, before), what="the edited policy to be in effect")


def test_after_tightening_a_limit_used_units_stay_used(rig):
    weir = rig.weir(workers=1, **policy(limit=1000, period="1h"))
    since = time.monotonic()
    for name in ALL:
        assert admitted(weir, name, 1100) in range(1000, 1010), name
    edit(weir, limit=1000, period="1d")
    regained = (time.monotonic() - since) * 1000 / 3600
    for name in ALL:
        assert admitted(weir, name, 200) <= 1 + regained, f"{name}: the limit is exhausted"


def test_after_loosening_a_limit_clients_do_not_wait_longer_than_needed(rig):
    weir = rig.weir(workers=1, **policy(limit=1000, period="1d"))
    for name in ALL:
        assert admitted(weir, name, 1010) in range(1000, 1003), name
    edit(weir, limit=1000, period="1h")
    for name in ALL:
        answer = get(weir.address, f"/{name}", headers={"X-Client-Id": "c"})
        if answer.status == 200:
            assert name in BUCKETS or name.endswith("log"), f"{name}: the limit is exhausted"
            continue
        assert answer.number("Retry-After") <= (5 if name in BUCKETS else 7200), (name, answer)


def test_after_lowering_the_burst_clients_wait_for_one_unit_only(rig):
    weir = rig.weir(workers=1, **policy(limit=60, burst=600, period="60s"))
    for name in BUCKETS:
        assert admitted(weir, name, 660) in range(600, 640), name
    edit(weir, limit=60, burst=10, period="60s")
    for name in BUCKETS:
        eventually(lambda name=name: admitted(weir, name, 1) == 1, 10, f"{name} admits again")
        assert admitted(weir, name, 30) <= 5, name


def test_two_versions_on_one_redis_share_the_limit(rig):
    numbers = dict(limit=100, period="10d")
    weirs = [rig.weir(workers=1, environment=environment, **policy(**numbers)) for environment in (EARLIER, None)]
    addresses = [weir.address for weir in weirs]
    for name in ALL:
        answers = flood(addresses, 160, connections=8, target=f"/{name}", headers={"X-Client-Id": "c"})
        assert count(answers) == {200: 100, 429: 60}, (name, count(answers))


def test_states_of_an_earlier_version_are_read(rig):
    numbers = dict(limit=50, period="10d")
    earlier = rig.weir(workers=1, environment=EARLIER, **policy(**numbers))
    used = {name: admitted(earlier, name, 30) for name in ALL}
    earlier.finish()
    weir = rig.weir(workers=1, **policy(**numbers))
    for name in ALL:
        assert used[name] == 30 and admitted(weir, name, 40) == 20, name
