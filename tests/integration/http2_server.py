"""Scripted HTTP/2 servers: the test sends every frame itself. SETTINGS and PING are acknowledged,
and windows are extended as content arrives."""

import queue
import struct

from http2_wire import (ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, RST_STREAM, SETTINGS,
                        WINDOW_UPDATE, Decoder, Encoder, frame, window_updates)
from scripted import Scripted


class Request:
    """A request on its stream. `fields`: pairs in order; `reset`: the error code of RST_STREAM."""

    def __init__(self, peer, stream, fields):
        self.peer, self.stream, self.fields = peer, stream, fields
        self.body, self.ended, self.reset, self.trailers = b"", False, None, None

    def __getitem__(self, name):
        return dict(self.fields).get(name)

    def respond(self, body=b"ok", status=200, fields=(), end=True):
        self.head(status, fields, end=end and not body)
        if body:
            self.data(body, end)

    def head(self, status=200, fields=(), end=False):
        self.raw_head([(":status", str(status)), *fields], end)

    def raw_head(self, fields, end=False):
        self.peer.put(HEADERS, END_HEADERS | (END_STREAM if end else 0), self.stream, self.peer.encoder.encode(fields))

    def data(self, body, end=False):
        """Sends content without checking the windows."""
        for at in range(0, max(len(body), 1), 16384):
            piece = body[at:at + 16384]
            self.peer.put(DATA, END_STREAM if end and at + 16384 >= len(body) else 0, self.stream, piece)

    def rst(self, code):
        self.peer.put(RST_STREAM, 0, self.stream, struct.pack(">I", code))

    def read_all(self):
        self.peer.read_until(lambda: self.ended or self.reset is not None)
        return self.body


class Http2Peer:
    """The server's side of one connection."""

    def __init__(self, peer, settings=(), hold=False):
        self.peer, self.hold = peer, hold
        self.encoder, self.decoder = Encoder(), Decoder()
        self.requests, self.new = {}, []
        self.window, self.windows, self.initial = 65535, {}, 65535
        self.goaway, self.closed, self.pings = None, False, 0
        assert peer.read_exactly(len(PREFACE), "the preface") == PREFACE
        self.put(SETTINGS, payload=b"".join(struct.pack(">HI", *s) for s in settings))

    def put(self, *args, **more):
        self.peer.socket.sendall(frame(*args, **more))

    def read_frame(self):
        """Reads and applies a frame, or HEADERS with their CONTINUATION frames. Returns False at the
        end of the connection."""
        try:
            kind, flags, stream, payload = self.take_frame()
            while kind == HEADERS and not flags & END_HEADERS:
                _, more_flags, _, more = self.take_frame()
                flags, payload = flags | more_flags, payload + more
        except Exception:
            self.closed = True
            return False
        self.apply(kind, flags, stream, payload)
        return True

    def take_frame(self):
        header = self.peer.read_exactly(9, "a frame")
        payload = self.peer.read_exactly(int.from_bytes(header[:3], "big"), "its payload")
        return header[3], header[4], int.from_bytes(header[5:], "big"), payload

    def apply(self, kind, flags, stream, payload):
        request = self.requests.get(stream)
        if kind == HEADERS and request:
            request.trailers = self.decoder.decode(payload)
        elif kind == HEADERS:
            request = self.requests[stream] = Request(self, stream, self.decoder.decode(payload))
            self.windows[stream] = self.initial
            self.new.append(request)
        elif kind == DATA:
            request.body += payload
            if payload and not self.hold:
                self.put(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload)))
                if not flags & END_STREAM:
                    self.put(WINDOW_UPDATE, 0, stream, struct.pack(">I", len(payload)))
        elif kind == RST_STREAM:
            request.reset = struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">II", payload[:8])
        elif kind == PING and not flags & ACK:
            self.pings += 1
            self.put(PING, ACK, 0, payload)
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    self.initial = value
            self.put(SETTINGS, ACK)
        elif kind == WINDOW_UPDATE and stream:
            self.windows[stream] += struct.unpack(">I", payload)[0]
        elif kind == WINDOW_UPDATE:
            self.window += struct.unpack(">I", payload)[0]
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            request.ended = True

    def release(self):
        """Ends `hold`: extends the windows by the content that has arrived."""
        self.hold = False
        self.peer.socket.sendall(window_updates({number: len(request.body) for number, request in self.requests.items()}))

    def read_until(self, condition):
        while not condition() and self.read_frame():
            pass
        return condition()

    def next_request(self):
        """The next request; its content can follow. None at the end of the connection."""
        return self.new.pop(0) if self.read_until(lambda: self.new) else None

    def go_away(self, last, code=0):
        self.put(GOAWAY, 0, 0, struct.pack(">II", last, code))

    def send_as_windows_permit(self, request, size):
        """Sends up to `size` bytes of content. Returns how many bytes the windows permitted."""
        n = min(size, self.window, self.windows[request.stream])
        request.data(b"x" * n)
        self.window -= n
        self.windows[request.stream] -= n
        return n


class Http2Server(Scripted):
    """Runs `script(connection, number)` for each connection. `recorded`: a queue of items that a
    script passes to its test with record()."""

    def __init__(self, rig, script, settings=(), hold=False, **more):
        self.recorded = queue.Queue()

        def serve(peer, number):
            script(Http2Peer(peer, settings, hold), number)
        super().__init__(rig, serve, **more)

    def record(self, item):
        self.recorded.put(item)

    def next_recorded(self):
        return self.recorded.get(timeout=20)


def respond_to_requests(connection, _number):
    """A script that responds to each request when it is complete."""
    while (request := connection.next_request()) is not None:
        request.read_all()
        request.respond()
