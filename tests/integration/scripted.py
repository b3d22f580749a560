"""Scripted servers: an upstream or a Redis that sends exactly the bytes of the test."""

import socket
import threading

from rig import eventually
from wire import Connection


def kernel_queues(local_port, remote_port):
    """The bytes in the send and in the receive queue of a TCP socket (IPv4 only); None: there is no
    such socket."""
    ports = f"{local_port:04X}", f"{remote_port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as sockets:
        for words in map(str.split, sockets):
            if (words[1][-4:], words[2][-4:]) == ports:
                return [int(queue, 16) for queue in words[4].split(":")]
    return None


class Peer(Connection):
    """The server's side of one connection."""

    def __init__(self, accepted):
        self.socket, self.buffer = accepted, b""
        accepted.settimeout(20)

    def read_request(self):
        """The head and content of the next request, as bytes. None if the client has closed."""
        try:
            head = self.read_until(b"\r\n\r\n", "a request")
        except Exception:
            return None
        lower = head.lower()
        if b"\r\ntransfer-encoding:" in lower:
            return head, self.read_chunks()
        length = [line.split(b":")[1] for line in lower.split(b"\r\n") if line.startswith(b"content-length:")]
        return head, self.read_exactly(int(length[0]), "a request's content") if length else b""

    def send_in_pieces(self, data, size):
        """Sends the first `size` bytes, and the others when the client has read those."""
        self.send(data[:size])
        eventually(self.is_read, what="the client to read the first piece")
        return self.send(data[size:])

    def is_read(self):
        """Whether the client's socket holds no unread bytes (IPv4 only)."""
        queues = kernel_queues(self.socket.getpeername()[1], self.socket.getsockname()[1])
        return queues is not None and queues[1] == 0

    def reset(self):
        """Closes the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class Scripted:
    """Listens on a free port and runs `script(peer, number)` in a thread for each connection,
    numbered from 0."""

    def __init__(self, rig, script, address=None):
        self.script, self.accepted, self.failures = script, 0, []
        if isinstance(address, str):
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(address)
            self.address = address
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(address or ("127.0.0.1", 0))
            self.address = self.listener.getsockname()
        self.listener.listen(128)
        self.text = "unix:" + address if isinstance(address, str) else "%s:%d" % self.address
        self.peers = []
        threading.Thread(target=self.accept, daemon=True).start()
        rig.add_cleanup(self.close)

    def accept(self):
        while True:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return
            peer = Peer(accepted)
            self.peers.append(peer)
            self.accepted += 1
            threading.Thread(target=self.serve, args=(peer, self.accepted - 1), daemon=True).start()

    def serve(self, peer, number):
        try:
            self.script(peer, number)
        except Exception as failure:
            self.failures.append(failure)
        finally:
            peer.close()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for peer in self.peers:
            peer.close()


def respond_with(*answers):
    """A script that responds to the requests of a connection with these bytes in turn, and then
    closes."""
    def script(peer, _number):
        for answer in answers:
            if peer.read_request() is None:
                return
            peer.send(answer)
    return script


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def respond_to_all(answer=OK):
    """A script that sends the same response to every request and keeps the connection open."""
    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(answer)
    return script


def redis_commands(peer):
    """The commands that weir sends to a scripted Redis, each as a list of words."""
    while True:
        line = peer.read_until(b"\r\n", "a command")
        words = []
        for _ in range(int(line[1:])):
            size = int(peer.read_until(b"\r\n", "a word")[1:])
            words.append(peer.read_exactly(size + 2, "a word")[:-2])
        yield words
