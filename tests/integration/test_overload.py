"""More clients than places: those who wait are served late, nobody loses a request, and weir itself stays answerable."""

import threading
import time

from rig import patience, sanitized, timeout
from wire import Connection, get

PLACES, CLIENTS, SECONDS = 8, 40, 4


class Crowd:
    """Clients that ask as fast as they are answered, on connections that they keep as long as weir does."""

    def __init__(self, weir, path="/"):
        self.weir, self.path, self.over = weir, path, threading.Event()
        self.answers, self.failures = [0] * CLIENTS, []
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(CLIENTS)]

    def client(self, n):
        while not self.over.is_set():
            try:
                with Connection(self.weir.address, timeout=20 * patience) as connection:
                    while not self.over.is_set():
                        response = connection.request(self.path)
                        assert response.status in (200, 429)
                        self.answers[n] += 1
                        if response["Connection"] == "close":
                            break
            except Exception as failure:
                self.failures.append(f"after {self.answers[n]} answers: {failure!r}")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def weir_with_few_places(rig, **more):
    return rig.weir(workers=1, size_limits={"connections": PLACES}, **more)


def watch(weir, seconds):
    """Health, metrics and memory while it lasts: (slowest answer, memory at first and at most, most connections)."""
    slowest, most, memory = 0, 0, []
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        start = time.monotonic()
        assert get(weir.admin, "/healthz").status == 200
        slowest = max(slowest, time.monotonic() - start)
        most = max(most, weir.metric("weir_connections"))
        memory.append(weir.resident_kib())
        time.sleep(0.05)
    return slowest, memory[0], max(memory), most


@timeout(120)
def test_more_clients_than_places(rig):
    weir = weir_with_few_places(rig, limits={"many": dict(script="gcra", limit=100_000_000, period="1h")})
    with Crowd(weir) as crowd:
        slowest, before, most_kib, most = watch(weir, SECONDS * patience)
        for _ in range(200 * patience):  # a place is had for a second while others wait: forty have had theirs after some five
            if all(crowd.answers):
                break
            time.sleep(0.1)
    assert not crowd.failures, crowd.failures[:3]
    assert all(crowd.answers), f"everybody is served, if late: {crowd.answers}"
    assert most <= PLACES
    assert slowest < 2 * patience, f"/healthz took {slowest:.2f} s"
    # Address sanitizer keeps what was freed.
    assert sanitized or most_kib < before + 4096, f"{before} to {most_kib} KiB"


def test_a_place_is_given_up_with_an_answer_and_no_sooner_than_after_a_second(rig):
    weir = weir_with_few_places(rig)
    keepers = [Connection(weir.address) for _ in range(PLACES)]
    opened = time.monotonic()
    late, said = None, 0
    while late is None or not said:
        for keeper in list(keepers):
            response = keeper.request()
            assert response.status == 200
            if response["Connection"] == "close":
                assert time.monotonic() - opened > 0.9, "it has had its turn"
                said += 1
                keepers.remove(keeper)
                keeper.close()
        if late is None:
            late = Connection(weir.address).send(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert time.monotonic() - opened < 20 * patience
    assert late.response().status == 200
    assert weir.metric("weir_connections_evicted_total") == 0
    for connection in [*keepers, late]:
        connection.close()
