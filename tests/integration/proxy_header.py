"""PROXY protocol headers, versions 1 and 2."""

import socket
import struct

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"


def v2(source="203.0.113.7", command=0x21, more=b""):
    addresses = socket.inet_aton(source) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 4711, 443)
    return SIGNATURE + bytes([command, 0x11]) + struct.pack(">H", len(addresses + more)) + addresses + more
