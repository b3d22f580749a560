"""Checks which rule weir selects for a request."""

from scripted import Scripted


def echo_server(rig):
    """An upstream that returns the request line."""
    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            line = request[0].split(b"\r\n")[0]
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line))
    return Scripted(rig, script)


def weir_with(rig, *rules):
    names = sorted({name for rule in rules for name in rule["limits"]})
    return rig.weir(upstreams={"api": {"servers": [echo_server(rig).text]}}, rules=list(rules),
                    limits={name: dict(script="gcra", limit=1000, period="1d") for name in names})
