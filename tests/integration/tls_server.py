"""TLS servers (upstreams)."""

import os
import ssl

from rig import top
from scripted import Scripted

FILES = os.path.join(top, "tests/tls")
CA = os.path.join(FILES, "ca.pem")


def file(name):
    return os.path.join(FILES, name)


def context(certificate="server.pem", key="server.key", version=None, client_ca=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(file(certificate), file(key))
    made.set_alpn_protocols(["http/1.1"])
    if version:
        made.minimum_version = made.maximum_version = version
    if client_ca:
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(client_ca)
    return made


class TlsServer(Scripted):
    """A scripted TLS server. `chosen(number)` returns the SSLContext for a connection."""

    def __init__(self, rig, script, chosen=None, **more):
        fixed = context()
        self.chosen, self.handshakes, self.resumed = chosen or (lambda number: fixed), 0, 0
        super().__init__(rig, script, **more)

    def serve(self, peer, number):
        try:
            peer.socket = self.chosen(number).wrap_socket(peer.socket, server_side=True)
        except (ssl.SSLError, OSError) as failure:
            self.failures.append(failure)
            peer.close()
            return
        self.handshakes += 1
        self.resumed += peer.socket.session_reused
        super().serve(peer, number)
