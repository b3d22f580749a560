"""size_limits.requests_per_client: requests under way of one client address."""

import threading

from http2_wire import Http2
from rig import eventually
from scripted import OK, Scripted
from wire import Connection, get, request_bytes


class Held:
    """A server that responds only after `release` is set. `requests` counts them."""

    def __init__(self, rig):
        self.requests, self.release, self.lock = 0, threading.Event(), threading.Lock()
        self.upstreams = {"api": {"servers": [Scripted(rig, self.serve).text]}}

    def serve(self, peer, _number):
        while peer.read_request() is not None:
            with self.lock:
                self.requests += 1
            self.release.wait(60)
            peer.send(OK)


def weir_before(rig, held, most, **more):
    return rig.weir(**{"upstreams": held.upstreams, "rules": [{"limits": "none"}], "size_limits": {"requests_per_client": most}, **more})


def rejected(weir, count):
    weir.counts(count, "weir_errors_total", cause="client_requests")


def test_http2_streams_of_one_address(rig):
    """On 10 connections, which two workers share."""
    held = Held(rig)
    weir = weir_before(rig, held, 10)
    clients = [Http2(weir.address) for _ in range(10)]
    for client in clients:
        for _ in range(20):
            client.put_request()
        client.flush()
    rejected(weir, 190)
    eventually(lambda: held.requests == 10, what="ten requests at the server")
    with Connection(weir.address) as connection:
        answer = connection.request()
        assert (answer.status, answer["Retry-After"], answer["Content-Type"]) == (429, "1", "application/problem+json"), answer
        assert b"too many requests under way" in answer.body
    other = Connection(weir.address, source="127.0.0.2")
    other.send(request_bytes())
    eventually(lambda: held.requests == 11, what="another address's request at the server")
    held.release.set()
    assert other.response().status == 200
    eventually(lambda: get(weir.address).status == 200, what="room after the end of requests")
    for client in clients:
        client.socket.close()


def test_connections_that_are_cut_off_make_room(rig):
    held = Held(rig)
    weir = weir_before(rig, held, 4)
    for round_number in range(3):
        connections = [Connection(weir.address) for _ in range(6)]
        for connection in connections:
            connection.send(request_bytes())
        rejected(weir, 2 * (round_number + 1))
        for connection in connections:
            connection.close()
        weir.counts(0, "weir_requests_active")
    held.release.set()
    assert get(weir.address).status == 200


def test_behind_a_trusted_proxy_the_forwarded_address_counts(rig):
    held = Held(rig)
    weir = weir_before(rig, held, 2, identity={"from": ["ip"], "trusted_proxies": ["127.0.0.1"]})
    fields = [{"X-Forwarded-For": f"203.0.113.{n}"} for n in (7, 8)] + [{}]
    connections = [Connection(weir.address) for _ in range(12)]
    for number, connection in enumerate(connections):
        connection.send(request_bytes(headers=fields[number % 3]))
    rejected(weir, 4)
    eventually(lambda: held.requests == 8, what="two requests of each address, and all of the proxy itself")
    held.release.set()
    statuses = [connection.response().status for connection in connections]
    assert [sorted(statuses[n::3]) for n in range(3)] == [[200, 200, 429, 429]] * 2 + [[200] * 4]
    for connection in connections:
        connection.close()


def test_addresses_on_the_allow_list_and_0(rig):
    for more in ({"addresses": {"allow": [rig.write("allow.txt", "127.0.0.1\n")]}}, {"size_limits": {"requests_per_client": 0}}):
        held = Held(rig)
        weir = weir_before(rig, held, 1, **more)
        connections = [Connection(weir.address) for _ in range(5)]
        for connection in connections:
            connection.send(request_bytes())
        eventually(lambda held=held: held.requests == 5, what="all requests at the server")
        held.release.set()
        assert [connection.response().status for connection in connections] == [200] * 5
        for connection in connections:
            connection.close()
