"""Reads slowly, as a slow client does."""

import hashlib
import socket
import threading


def read_slowly(connection, size, look=lambda: None):
    """Reads `size` bytes with short pauses. Returns their MD5 digest."""
    pause, digest = threading.Event(), hashlib.md5()
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    digest.update(connection.buffer)
    size -= len(connection.buffer)
    step = 0
    while size > 0:
        data = connection.socket.recv(min(65536, size))
        assert data, f"cut {size} bytes before the end"
        digest.update(data)
        size -= len(data)
        step += 1
        if step % 64 == 0:
            pause.wait(0.01)
            look()
    return digest.hexdigest()
