"""Checks whether a port accepts connections."""

import socket


def accepts(address):
    """Returns False once all listeners at the address are closed, so that the kernel refuses the
    connection."""
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    # it was in the queue of a listener that closed; another listener can still be open
    except ConnectionResetError:
        pass
    return True
