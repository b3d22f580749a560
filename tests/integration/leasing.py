"""What tests of leases share: a load that keeps keys busy however slow the test itself is, and what workers hold."""

import threading

from rig import eventually
from wire import Connection, count, get, next_one, request_bytes, together

ONE = {"X-Client-Id": "one"}


def pour(weirs, total, connections=6, depth=25, headers=None, target="/"):
    """`total` requests, on each connection so many sent at once: weir finds the next one without waiting for us. The responses."""
    todo = iter(range(total // depth))
    lock, responses = threading.Lock(), []
    bytes_of_all = request_bytes(target, headers=ONE if headers is None else headers) * depth

    def client(number):
        with Connection(weirs[number % len(weirs)].address) as connection:
            while next_one(todo, lock):
                connection.send(bytes_of_all)
                responses.extend([connection.response() for _ in range(depth)])

    together(client, connections)
    return responses


def admitted(responses):
    counts = count(responses)
    assert set(counts) <= {200, 429}, counts
    return counts.get(200, 0)


def units(weirs, result):
    """used, returned or lost."""
    return sum(weir.metric("weir_lease_units_total", result=result) for weir in weirs)


def nothing_is_held(weirs):
    eventually(lambda: sum(weir.metric("weir_lease_units_held") for weir in weirs) == 0, what="the end of all leases")


def take_the_rest(weirs, already, limit, headers=None):
    """What was held is given back: in the end exactly the limit has been admitted, and no more."""
    total = already

    def all_taken():
        nonlocal total
        total += sum(get(weir.address, headers=ONE if headers is None else headers).status == 200 for weir in weirs)
        assert total <= limit, total
        return total == limit
    if total < limit:
        eventually(all_taken, what=f"{limit} admitted, not {already}")
    assert admitted(pour(weirs, 10 * len(weirs), connections=len(weirs), depth=10, headers=headers)) == 0
