"""weir with few file descriptors left."""

import resource

from wire import Connection

PARTIAL = b"GET / HTTP/1.1\r\n"  # a head that has begun: its client is not idle
GONE = r"descriptors: all (\d+) allowed descriptors are in use"


def exhaust(rig, weir, free=4):
    """Leaves `free` descriptors and takes all of them with clients that are not idle."""
    limit = weir.descriptors() + free
    weir.expect_errors(GONE)
    resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(weir.pid, resource.RLIMIT_NOFILE)[1]))
    held = [Connection(weir.address).send(PARTIAL) for _ in range(free + 4)]
    for connection in held:
        rig.close_with(connection.close)
    assert weir.announced(GONE) == [str(limit)]
    return held
