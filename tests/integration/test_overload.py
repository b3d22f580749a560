"""More clients than connections: waiting clients are served late, no request is lost, and the admin
listener still responds."""

import threading
import time

from rig import eventually, time_scale, sanitized, timeout
from wire import Connection, IncompleteResponse, get, request_bytes

CONNECTIONS_MAX, CLIENTS, SECONDS = 8, 40, 4
IDLE_S = 0.2  # an idle connection older than this can be closed for a new one


class Requester(Connection):
    """Sends requests in a loop. None instead of a response: weir has closed the connection, which
    it may do because this client was late with its request (clients must expect this, RFC 9112
    section 9.3.1)."""

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
    """Clients that send requests as fast as they get responses, on connections that they keep open
    as long as weir does."""

    def __init__(self, weir, path="/"):
        self.weir, self.path, self.over = weir, path, threading.Event()
        self.responses, self.failures = [0] * CLIENTS, []
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(CLIENTS)]

    def client(self, n):
        while not self.over.is_set():
            try:
                with Requester(self.weir.address, timeout=20 * time_scale) as connection:
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


def weir_with_few_connections(rig, **more):
    return rig.weir(workers=1, size_limits={"connections": CONNECTIONS_MAX, "connections_per_ip": 0}, **more)


def watch(weir, seconds):
    """Reads health, metrics and memory about twenty times a second. Returns the times of /healthz,
    memory at first and at most, and the maximum number of connections."""
    took, most, memory, never = [], 0, [], threading.Event()
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        start = time.monotonic()
        assert get(weir.admin, "/healthz").status == 200
        took.append(time.monotonic() - start)
        most = max(most, weir.metric("weir_connections"))
        memory.append(weir.resident_kib())
        never.wait(0.05)
    return took, memory[0], max(memory), most


@timeout(120)
def test_more_clients_than_connections(rig):
    weir = weir_with_few_connections(rig, limits={"many": dict(script="gcra", limit=100_000_000, period="1h")})
    with Crowd(weir) as crowd:
        took, before, most_kib, most = watch(weir, SECONDS)
        # A connection is kept for a second while others wait: forty clients are served within about
        # five.
        eventually(lambda: crowd.failures or all(crowd.responses), 30, "a response for every client, even if late")
    assert not crowd.failures, crowd.failures[:3]
    assert most <= CONNECTIONS_MAX
    # A busy machine may delay two.
    assert sorted(took)[-3] < 2 * time_scale and max(took) < 5 * time_scale, f"/healthz took {sorted(took)[-3:]} s"
    # AddressSanitizer keeps freed memory.
    assert sanitized or most_kib < before + 4096, f"{before} to {most_kib} KiB"


def test_a_connection_is_closed_after_a_response_and_not_within_its_first_second(rig):
    weir = weir_with_few_connections(rig)
    evicted = 0

    def one_round():
        """False: the machine was so slow that a connection was closed because it was idle."""
        nonlocal evicted
        opened = time.monotonic()
        requesters = [Requester(weir.address) for _ in range(CONNECTIONS_MAX)]
        late, closed_count = None, 0
        while late is None or not closed_count and requesters:
            for requester in list(requesters):
                response = requester.request()
                if response:
                    assert response.status == 200
                if response and response["Connection"] == "close":
                    assert time.monotonic() - opened > 0.9, "the connection was open for a second"
                    closed_count += 1
                if not response or response["Connection"] == "close":
                    evicted += response is None
                    requesters.remove(requester)
                    requester.close()
            if late is None:
                late = Connection(weir.address).send(request_bytes())
            assert time.monotonic() - opened < 20 * time_scale
        assert late.response().status == 200
        evicted += sum(requester.request() is None for requester in requesters)
        for connection in [*requesters, late]:
            connection.close()
        return closed_count
    eventually(one_round, 30, "a response after which the connection is closed")
    assert weir.metric("weir_connections_evicted_total") <= evicted
