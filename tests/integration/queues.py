"""Limits that hold requests in a queue."""

import socket
import struct


def queue(limit=10, period="1s", max_delay="30s", burst=1000, **more):
    return dict(script="leaky_bucket", limit=limit, period=period, max_delay=max_delay, burst=burst, **more)


def reset(connection):
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
