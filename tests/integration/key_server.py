"""An issuer's server of JWK sets, over TLS with the certificates of tests/tls.

    server = KeyServer(rig, issuer.jwks)
    server.url                  # https://127.0.0.1:PORT/jwks.json
    server.content = other      # what it responds with from now on
    server.fields = ["Cache-Control: max-age=300"]
    server.gate = Event()       # waits for it before it responds
    server.act = function       # takes over: function(peer, head) writes the response itself
"""

import time

from tls_server import CA, TlsServer


class KeyServer(TlsServer):
    def __init__(self, rig, content, **more):
        self.content, self.status, self.fields, self.act, self.gate, self.fetches = content, "200 OK", [], None, None, []
        super().__init__(rig, self.respond, **more)
        self.url = "https://%s/jwks.json" % self.text

    def fail(self):
        """Closes connections without a response. The port stays this server's: another test could get it."""
        self.act = lambda *_: None

    def respond(self, peer, _number):
        request = peer.read_request()
        if request is None:
            return
        self.fetches.append(time.monotonic())
        if self.act:
            self.act(peer, request[0])
            return
        if self.gate:
            self.gate.wait(60)
        content = self.content.encode()
        head = [f"HTTP/1.1 {self.status}", f"Content-Length: {len(content)}", *self.fields, "", ""]
        peer.send("\r\n".join(head).encode() + content)


def settings(*servers, **more):
    """identity.jwt for these servers."""
    urls = [server.url for server in servers]
    return {"keys": urls[0] if len(urls) == 1 else urls, "ca": CA, "audience": "api", **more}
