"""An upstream that holds requests until the test releases them."""

import threading
import time

from scripted import OK, Scripted
from wire import Connection, request_bytes


def concurrency(limit, lease="10s", **more):
    return dict(script="concurrency", limit=limit, lease=lease, **more)


class Gate:
    """An upstream that responds when the test sets `open`. `most`: the maximum number of concurrent
    requests."""

    def __init__(self, rig):
        self.lock, self.now, self.most, self.total = threading.Lock(), 0, 0, 0
        self.open = threading.Event()
        self.pause = None
        self.api = Scripted(rig, self.serve)
        rig.add_cleanup(self.open.set)
        self.upstreams = {"api": {"servers": [self.api.text]}}

    def serve(self, peer, _number):
        while peer.read_request() is not None:
            with self.lock:
                self.now, self.total = self.now + 1, self.total + 1
                self.most = max(self.most, self.now)
            if self.pause is None:
                self.open.wait()
            else:
                time.sleep(self.pause)
            with self.lock:
                self.now -= 1
            peer.send(OK)


def send_request(weir, target="/", headers=None):
    return Connection(weir.address).send(request_bytes(target, headers=headers))
