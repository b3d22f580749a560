"""More clients than places: those who wait are served late, nobody loses a request, and weir itself stays answerable."""

import threading
import time

from rig import eventually, time_scale, sanitized, timeout
from wire import Connection, IncompleteResponse, get, request_bytes

PLACES, CLIENTS, SECONDS = 8, 40, 4
IDLE_S = 0.2  # idle for so long, a connection that was served may be closed for a newcomer


class Asker(Connection):
    """Asks again and again. None instead of a response: weir closed the connection, and may, for this client was late with its request
    (RFC 9112 section 9.3.1: whoever keeps connections must reckon with it)."""

    began = None

    def request(self, path="/"):
        last, self.began = self.began, time.monotonic()
        try:
            try:
                self.send(request_bytes(path))
            finally:
                sent = time.monotonic()
            return self.response()
        except (IncompleteResponse, ConnectionError) as cut:
            if last and sent - last >= IDLE_S and not getattr(cut, "received", b""):
                return None
            raise


class Crowd:
    """Clients that ask as fast as they are answered, on connections that they keep as long as weir does."""

    def __init__(self, weir, path="/"):
        self.weir, self.path, self.over = weir, path, threading.Event()
        self.responses, self.failures = [0] * CLIENTS, []
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(CLIENTS)]

    def client(self, n):
        while not self.over.is_set():
            try:
                with Asker(self.weir.address, timeout=20 * time_scale) as connection:
                    while not self.over.is_set():
                        response = connection.request(self.path)
                        if not response:
                            break
                        assert response.status in (200, 429)
                        self.responses[n] += 1
                        if response["Connection"] == "close":
                            break
            except Exception as failure:
                self.failures.append(f"after {self.responses[n]} answers: {failure!r}")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def weir_with_few_places(rig, **more):
    return rig.weir(workers=1, size_limits={"connections": PLACES, "connections_per_ip": 0}, **more)


def watch(weir, seconds):
    """Health, metrics and memory, some twenty times a second while it lasts: (slowest answer, memory at first and at most, most
    connections)."""
    slowest, most, memory, never = 0, 0, [], threading.Event()
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        start = time.monotonic()
        assert get(weir.admin, "/healthz").status == 200
        slowest = max(slowest, time.monotonic() - start)
        most = max(most, weir.metric("weir_connections"))
        memory.append(weir.resident_kib())
        never.wait(0.05)
    return slowest, memory[0], max(memory), most


@timeout(120)
def test_more_clients_than_places(rig):
    weir = weir_with_few_places(rig, limits={"many": dict(script="gcra", limit=100_000_000, period="1h")})
    with Crowd(weir) as crowd:
        slowest, before, most_kib, most = watch(weir, SECONDS)
        # A place is had for a second while others wait: forty have had theirs after some five.
        eventually(lambda: crowd.failures or all(crowd.responses), 30, "an answer for everybody, if late")
    assert not crowd.failures, crowd.failures[:3]
    assert most <= PLACES
    assert slowest < 2 * time_scale, f"/healthz took {slowest:.2f} s"
    # Address sanitizer keeps what was freed.
    assert sanitized or most_kib < before + 4096, f"{before} to {most_kib} KiB"


def test_a_place_is_given_up_with_an_answer_and_no_sooner_than_after_a_second(rig):
    weir = weir_with_few_places(rig)
    evicted = 0

    def a_turn():
        """False: this machine was so slow that a place became free because nothing was asked on its connection."""
        nonlocal evicted
        opened = time.monotonic()
        keepers = [Asker(weir.address) for _ in range(PLACES)]
        late, said = None, 0
        while late is None or not said and keepers:
            for keeper in list(keepers):
                response = keeper.request()
                if response:
                    assert response.status == 200
                if response and response["Connection"] == "close":
                    assert time.monotonic() - opened > 0.9, "it has had its turn"
                    said += 1
                if not response or response["Connection"] == "close":
                    evicted += response is None
                    keepers.remove(keeper)
                    keeper.close()
            if late is None:
                late = Connection(weir.address).send(request_bytes())
            assert time.monotonic() - opened < 20 * time_scale
        assert late.response().status == 200
        evicted += sum(keeper.request() is None for keeper in keepers)
        for connection in [*keepers, late]:
            connection.close()
        return said
    eventually(a_turn, 30, "an answer that ends a turn")
    assert weir.metric("weir_connections_evicted_total") <= evicted
