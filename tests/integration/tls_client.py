"""TLS clients, and weir with TLS listeners."""

import os
import ssl

from rig import top
from wire import Connection, connect

FILES = os.path.join(top, "tests/tls")
PAIRS = {"one": ("cert.pem", "key.pem"), "rsa": ("rsa.pem", "rsa.key"), "two": ("two.pem", "two.key"), "three": ("three.pem", "three.key")}


def pair(name):
    return dict(zip(("certificate", "key"), (os.path.join(FILES, file) for file in PAIRS[name])))


def weir_with_tls(rig, *names, extra=None, **more):
    tls = [pair(name) for name in names or ["one"]]
    return rig.weir(listen=[{"address": "127.0.0.1:0", "tls": tls if len(tls) > 1 else tls[0], **(extra or {})}], **more)


def client(*names, version=None, alpn=("http/1.1",)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in names or PAIRS:
        context.load_verify_locations(os.path.join(FILES, PAIRS[name][0]))
    if version:
        context.minimum_version = context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


class TlsConnection(Connection):
    """A client that verifies the certificate. `plain`: bytes to send before the handshake."""

    def __init__(self, address, host="one.test", context=None, plain=b"", timeout=20, session=None, source=None):
        raw = connect(address, timeout, source)
        if plain:
            raw.sendall(plain)
        self.socket = (context or client()).wrap_socket(raw, server_hostname=host, session=session)
        self.buffer = b""


class ManualTls:
    """A TLS client that sends each byte under control of the test."""

    def __init__(self, address, context=None):
        self.socket = connect(address)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or client()).wrap_bio(self.incoming, self.outgoing, server_hostname="one.test")

    def take(self):
        return self.outgoing.read()

    def try_to(self, what, *arguments):
        """Returns the result, or None if data must be received first."""
        try:
            return what(*arguments)
        except ssl.SSLWantReadError:
            return None

    def receive(self):
        data = self.socket.recv(65536)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def until(self, what, *arguments):
        while True:
            result = self.try_to(what, *arguments)
            self.socket.sendall(self.take())
            if result is not None:
                return result
            self.receive()

    def handshake(self, step=65536):
        while True:
            try:
                self.tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                finished = False
            data = self.take()
            for at in range(0, len(data), step):
                self.socket.sendall(data[at:at + step])
            if finished:
                return self
            self.receive()

    def read_all(self):
        received = b""
        while True:
            piece = self.until(self.tls.read, 65536)
            if not piece:
                return received
            received += piece
