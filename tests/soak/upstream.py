"""An upstream whose response depends on the target of the request. It counts the received requests and can be shut and opened.

    /PATH?m=MARKER&how=HOW&size=N     HOW: one of GOOD or BAD below; the response content starts with MARKER

Its memory is bounded by the number of requests that the soak test sends.
"""

import collections
import os
import socket
import sys
import threading
import time
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from scripted import Peer  # noqa: E402

GOOD = ["length", "chunked", "until_close", "hints", "trickle", "closing", "early"]
BAD = ["garbage", "both_lengths", "bad_chunk", "cut_length", "cut_chunked", "cut_head", "reset", "silent", "extra"]
POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
PATTERN = b"abcdefghijklmnopqrstuvwxyz" * 40


def content_of(marker, size):
    return marker.encode() + b":" + (PATTERN * (size // len(PATTERN) + 1))[:size]


class Upstream:
    def __init__(self, silence):
        self.silence = silence
        self.lock = threading.Lock()
        self.seen = {}                                # X-Request-Id -> number of arrivals
        self.arrivals = collections.defaultdict(list) # (limited path, client) -> first arrival of each request
        self.twice_unsafe = []                        # non-idempotent requests that arrived twice
        self.peers, self.address, self.listener = set(), ("127.0.0.1", 0), None
        self.changed_at = 0.0                         # when it was last shut or opened
        self.open()

    def open(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self.address)
        listener.listen(128)
        self.address, self.listener = listener.getsockname(), listener
        self.changed_at = time.monotonic()
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def shut(self):
        """Refuses new connections and resets the open ones."""
        self.changed_at = time.monotonic()
        listener, self.listener = self.listener, None
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.drop_connections()
        self.changed_at = time.monotonic()

    def is_open(self):
        return self.listener is not None

    def drop_connections(self):
        with self.lock:
            peers = list(self.peers)
        for peer in peers:
            try:
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                peer.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self, listener):
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            peer = Peer(accepted)
            accepted.settimeout(120)
            with self.lock:
                self.peers.add(peer)
            if self.listener is not listener:  # shut since accept()
                peer.close()
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        try:
            while self.respond(peer):
                pass
        except (OSError, AssertionError, ValueError, Exception):  # weir may close at any byte
            pass
        finally:
            with self.lock:
                self.peers.discard(peer)
            peer.close()

    def note(self, method, path, fields):
        name = fields.get("x-request-id")
        with self.lock:
            times = self.seen[name] = self.seen.get(name, 0) + 1
            if times == 1:
                self.arrivals[path, fields.get("x-client-id")].append(time.monotonic())
            elif method not in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
                self.twice_unsafe.append((name, method, path))

    def respond(self, peer):
        """Serves one request. Returns True if another can follow."""
        head = peer.read_until(b"\r\n\r\n", "a request").decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        asked = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        has_content = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
        self.note(method, urlsplit(target).path.split("/")[1], fields)
        how = asked.get("how", "length")
        if how != "early":  # an early response is sent before the content is read
            if "transfer-encoding" in fields:
                peer.read_chunks()
            elif has_content:
                peer.read_exactly(int(fields["content-length"]), "content")
        if fields.get("upgrade") == "echo":
            return self.tunnel(peer)
        if how == "early":
            how = "length_close" if has_content else "length"
        content = content_of(asked.get("m", "none"), int(asked.get("size", 10)))
        return getattr(self, how)(peer, b"" if method == "HEAD" else content, len(content))

    def tunnel(self, peer):
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        while peer.buffer or peer.fill():
            peer.send(peer.take(len(peer.buffer)))
        return False

    # ---- valid responses

    def length(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, content))
        return True

    def length_close(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (size, content))
        peer.socket.shutdown(socket.SHUT_WR)
        while peer.fill():
            peer.buffer = b""
        return False

    def chunked(self, peer, content, size):
        pieces = [content[i:i + 5000] for i in range(0, len(content), 5000)]
        body = b"".join(b"%x;e=1\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\nX-Trailer: t\r\n\r\n" if content else b""
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        return True

    def until_close(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + content)
        return False

    def hints(self, peer, content, size):
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n" * 3)
        return self.length(peer, content, size)

    def trickle(self, peer, content, size):
        data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, content)
        step = max(1, len(data) // 5)
        for i in range(0, len(data), step):
            peer.send(data[i:i + step])
            time.sleep(0.01)
        return True

    def closing(self, peer, content, size):
        """Closes without Connection: close, so the connection is closed while idle in weir's
        pool."""
        self.length(peer, content, size)
        return False

    # ---- invalid responses

    def garbage(self, peer, content, size):
        peer.send(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        return False

    def both_lengths(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + POISON)
        return True

    def bad_chunk(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n-1\r\n" + POISON)
        return False

    def cut_length(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size + 100, content))
        return False

    def cut_chunked(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        return False

    def cut_head(self, peer, content, size):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        return False

    def reset(self, peer, content, size):
        peer.reset()
        return False

    def silent(self, peer, content, size):
        time.sleep(self.silence)
        return False

    def extra(self, peer, content, size):
        """A complete response and unexpected bytes, which must not reach any client."""
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, content) + POISON)
        return True
