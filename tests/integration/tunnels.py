"""Upgraded connections: clients and servers that echo through a tunnel."""

import socket

from scripted import Scripted
from wire import request_bytes

ASKED = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"}
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n"


def echo_after(switch):
    """Responds to the upgrade with `switch`, then echoes every byte until the client sends FIN."""
    def script(peer, number):
        peer.head, _ = peer.read_request()
        peer.socket.sendall(switch)
        if peer.buffer:
            peer.socket.sendall(peer.buffer)
        while True:
            piece = peer.socket.recv(65536)
            if not piece:
                break
            peer.socket.sendall(piece)
        peer.socket.sendall(b"goodbye")
        peer.socket.shutdown(socket.SHUT_WR)
    return script


def tunnel(rig, switch=SWITCH, **settings):
    api = Scripted(rig, echo_after(switch))
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, **settings)
    return api, weir


def open_tunnel(connection, early=b""):
    connection.send(request_bytes(headers=ASKED))
    if early:
        connection.socket.sendall(early)
    response = connection.read_head()
    assert (response.status, response["Upgrade"], response["Connection"].lower()) == (101, "websocket", "upgrade")
    assert response["Sec-WebSocket-Accept"] == "y"
    return response
