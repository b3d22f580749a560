"""Resets of a client's limits: how soon they reach every weir. The limits admit two requests."""

import itertools
import time

from rig import eventually

DENIAL_SECONDS = 1  # how long weir caches a denial
numbers = itertools.count()


def status_of(connection, client):
    return connection.request(headers={"X-Client-Id": client}).status


def denied_then_reset(connections, client, reset):
    """Seconds between the denial on both weirs and, after a reset, the admission by both."""
    assert [status_of(connections[0], client) for _ in range(2)] == [200, 200]
    began = time.monotonic()
    for connection in connections:  # no denial is older than this
        assert status_of(connection, client) == 429
    reset(client)
    for connection in connections:
        eventually(lambda c=connection: status_of(c, client) == 200, what="the client to be admitted again")
    return time.monotonic() - began


def assert_reset_applies_at_once(connections, reset):
    """Without the reset message a denial is cached for its whole second. A slow machine can need
    several attempts."""
    times = [denied_then_reset(connections, f"reset-{next(numbers)}", reset)]
    while min(times) >= DENIAL_SECONDS and len(times) < 10:
        times.append(denied_then_reset(connections, f"reset-{next(numbers)}", reset))
    assert min(times) < DENIAL_SECONDS, f"the reset message was not applied: admitted after {times} s"
