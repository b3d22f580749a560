"""A name server with replies that the test sets."""

import ipaddress
import socket
import struct
import threading

TYPES = {"A": 1, "CNAME": 5, "AAAA": 28}


class Nameserver:
    """Listens on a free UDP port. `records[name]`: a list of addresses, or of "=name" for an alias;
    other names do not exist (NXDOMAIN). `ttl`: one value, or by type; `silent`: sends no replies;
    `code`: this response code for every query; `truncated`: sets TC; `hold`: keeps replies until
    release(). `queries`: the received (name, type) pairs."""

    def __init__(self, rig, ttl=0, **records):
        self.records, self.ttl, self.silent, self.code, self.truncated, self.queries = records, ttl, False, 0, False, []
        self.hold, self.held, self.lock = False, [], threading.Lock()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.text = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        rig.add_cleanup(self.close)

    def close(self):
        self.silent = True
        self.socket.close()

    def serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
                reply = self.reply(question)
                with self.lock:
                    if reply and self.hold:
                        self.held.append((reply, peer))
                    elif reply and not self.silent:
                        self.socket.sendto(reply, peer)
            except OSError:
                return

    def release(self):
        with self.lock:
            self.hold = False
            for reply, peer in self.held:
                self.socket.sendto(reply, peer)

    def reply(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        self.queries.append((name, kind))
        found, code = [], self.code
        if name not in self.records:
            code = code or 3
        else:
            self.collect(name, kind, b"\xc0\x0c", found)
        flags = 0x8180 | code | (0x200 if self.truncated else 0)
        if code or self.truncated:
            found = []
        return question[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0) + question[12:at + 5] + b"".join(found)

    def collect(self, name, kind, owner, found):
        for value in self.records.get(name, []):
            if value.startswith("="):
                data = b"".join(bytes([len(label)]) + label.encode() for label in value[1:].split(".")) + b"\0"
                found.append(owner + struct.pack(">HHIH", TYPES["CNAME"], 1, self.ttl, len(data)) + data)
                self.collect(value[1:], kind, data, found)
            else:
                address = ipaddress.ip_address(value)
                if kind == TYPES["A" if address.version == 4 else "AAAA"]:
                    ttl = self.ttl[kind] if isinstance(self.ttl, dict) else self.ttl
                    found.append(owner + struct.pack(">HHIH", kind, 1, ttl, len(address.packed)) + address.packed)
