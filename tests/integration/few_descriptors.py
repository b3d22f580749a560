"""Runs weir with few free file descriptors."""

import resource

from wire import Connection

PARTIAL = b"GET / HTTP/1.1\r\n"  # an incomplete head, so the client is not idle
GONE = r"descriptors: all (\d+) allowed descriptors are in use"


def exhaust(rig, weir, free=4):
    """Leaves `free` descriptors, then uses all of them for clients that are not idle."""
    limit = weir.descriptors() + free
    weir.expect_errors(GONE)
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(weir.pid, resource.RLIMIT_NOFILE)[1]))
    held = [Connection(weir.address).send(PARTIAL) for _ in range(free + 4)]
    for connection in held:
        rig.add_cleanup(connection.close)
    assert weir.wait_for_output(GONE) == [str(limit)]
    return held
