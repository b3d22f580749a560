"""Whether a port accepts connections."""

import socket


def accepts(address):
    """False once every listener at the address is closed: the kernel refuses the connection."""
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # it was queued at one listener when that closed; another may still be open
        pass
    return True
