"""An HTTP/2 upstream whose response depends on the target of the request; see upstream.py.

    HOW: length, pieces, hints, trailers; refused, going_away: once, then as length; bad: cut, reset, silent, bad_length, malformed
"""

from urllib.parse import parse_qs, urlsplit

from http2_server import Http2Peer
from upstream import Upstream, content_of

GOOD = ["length", "pieces", "hints", "trailers", "refused", "going_away"]
BAD = ["cut", "reset", "silent", "bad_length", "malformed"]
REFUSED_STREAM, INTERNAL_ERROR = 7, 2


class Http2Upstream(Upstream):
    def __init__(self, silence):
        self.turned_away = set()  # markers of the requests that were refused once
        super().__init__(silence)

    def respond(self, peer):
        """Serves a connection. Returns False at its end."""
        connection = Http2Peer(peer)
        while (request := connection.next_request()) is not None and self.one(connection, request):
            pass
        return False

    def one(self, connection, request):
        """Returns True if another request can follow."""
        fields = dict(request.fields)
        path = urlsplit(fields[":path"])
        asked = {name: values[0] for name, values in parse_qs(path.query).items()}
        how, marker = asked.get("how", "length"), asked.get("m", "none")
        if how in ("refused", "going_away") and marker not in self.turned_away:
            self.turned_away.add(marker)
            if how == "refused":
                request.rst(REFUSED_STREAM)
                return True
            connection.go_away(request.stream - 2)
            return False
        request.read_all()
        if request.reset is not None or connection.closed:
            return not connection.closed
        self.note(fields[":method"], path.path.split("/")[1], fields, bool(request.body))
        content = content_of(marker, int(asked.get("size", 10)))
        size, content = len(content), b"" if fields[":method"] == "HEAD" else content
        return getattr(self, how if how in GOOD[1:4] + BAD else "length")(connection, request, content, size)

    def send(self, connection, request, content, step, end=True):
        """Sends as much as the windows permit. Stops if weir resets the stream or closes."""
        if not content:
            request.data(b"", end)
        at = 0
        while at < len(content) and request.reset is None and not connection.closed:
            n = min(step, len(content) - at, connection.window, connection.windows[request.stream])
            if n <= 0:
                connection.read_frame()
                continue
            request.data(content[at:at + n], end and at + n == len(content))
            connection.window -= n
            connection.windows[request.stream] -= n
            at += n
        return not connection.closed

    # ---- valid responses

    def length(self, connection, request, content, size):
        request.head(fields=[("content-length", str(size))])
        return self.send(connection, request, content, 16384)

    def pieces(self, connection, request, content, _size):
        request.head()
        return self.send(connection, request, content, 1000)

    def hints(self, connection, request, content, size):
        for _ in range(3):
            request.head(103, [("link", "</a>; rel=preload")])
        return self.length(connection, request, content, size)

    def trailers(self, connection, request, content, _size):
        request.head()
        if self.send(connection, request, content, 16384, end=False) and request.reset is None:
            request.raw_head([("x-trailer", "t")], end=True)
        return not connection.closed

    # ---- invalid responses

    def cut(self, connection, request, content, size):
        """The connection ends within the content."""
        request.head(fields=[("content-length", str(size + 100))])
        return self.send(connection, request, content, 16384, end=False) and False

    def reset(self, connection, request, content, size):
        request.head(fields=[("content-length", str(size + 100))])
        if self.send(connection, request, content, 16384, end=False) and request.reset is None:
            request.rst(INTERNAL_ERROR)
        return not connection.closed

    def silent(self, connection, request, _content, _size):
        """Sends nothing until weir resets the stream."""
        connection.read_until(lambda: request.reset is not None)
        return not connection.closed

    def bad_length(self, connection, request, content, size):
        request.head(fields=[("content-length", str(size + 1))])
        return self.send(connection, request, content, 16384)

    def malformed(self, _connection, request, _content, _size):
        request.raw_head([(":status", "200"), ("connection", "close")], end=True)
        return True
