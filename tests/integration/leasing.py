"""Helpers for tests of leases: a load that keeps keys busy even if the test is slow, and checks of
the units that workers hold."""

import threading

from rig import eventually
from wire import Connection, count, next_one, request_bytes, run_in_threads

ONE = {"X-Client-Id": "one"}


def send_pipelined(weirs, total, connections=6, depth=25, headers=None, target="/"):
    """Sends `total` requests, `depth` at a time on each connection, so that weir always has a next
    request to read. Returns the responses."""
    todo = iter(range(total // depth))
    lock, responses = threading.Lock(), []
    bytes_of_all = request_bytes(target, headers=ONE if headers is None else headers) * depth

    def client(number):
        with Connection(weirs[number % len(weirs)].address) as connection:
            while next_one(todo, lock):
                connection.send(bytes_of_all)
                responses.extend([connection.response() for _ in range(depth)])

    run_in_threads(client, connections)
    return responses


def admitted(responses):
    counts = count(responses)
    assert set(counts) <= {200, 429}, counts
    return counts.get(200, 0)


def units(weirs, result):
    """`result`: used, returned or lost."""
    return sum(weir.metric("weir_lease_units_total", result=result) for weir in weirs)


def no_units_are_held(weirs):
    eventually(lambda: sum(weir.metric("weir_lease_units_held") for weir in weirs) == 0, what="the end of all leases")


def use_the_rest(weirs, already, limit, headers=None):
    """Checks that held units were returned: exactly `limit` requests are admitted in total."""
    total = already

    def ten_for_each_weir():
        return admitted(send_pipelined(weirs, 10 * len(weirs), connections=len(weirs), depth=10, headers=headers))

    def at_limit():
        nonlocal total
        total += ten_for_each_weir()
        assert total <= limit, total
        return total == limit
    if total < limit:
        eventually(at_limit, what=f"{limit} admitted, not {already}")
    assert ten_for_each_weir() == 0
