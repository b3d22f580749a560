"""A name server that says what a test wants it to say."""

import ipaddress
import socket
import struct
import threading

TYPES = {"A": 1, "CNAME": 5, "AAAA": 28}


class Nameserver:
    """UDP on a free port. records[name] = list of addresses, or of "=name" for an alias; a name that is not there does not exist.
    `ttl`: of all, or by type; `silent`: no answers; `code`: this response code to everything; `truncated`: answers that do not fit. asked: (name, type)s."""

    def __init__(self, rig, ttl=0, **records):
        self.records, self.ttl, self.silent, self.code, self.truncated, self.asked = records, ttl, False, 0, False, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.text = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        rig.close_with(self.close)

    def close(self):
        self.silent = True
        self.socket.close()

    def serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
                answer = self.answer(question)
                if answer and not self.silent:
                    self.socket.sendto(answer, peer)
            except OSError:
                return

    def answer(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        self.asked.append((name, kind))
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
