"""Streams that weir asks for their usage: their content, and the reserve of those that hide it."""

import json
import re

from rig import eventually
from scripted import Scripted
from wire import Connection, get, request_bytes

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":20}}\n\n'
ASKS = b'{"stream":true}'


def chunk(part):
    return b"%x\r\n%s\r\n" % (len(part), part)


def weir_that_asks(rig, script, cost=(), **keys):
    cost = {"reserve": 10, "usage": "openai", "include_usage": "add", **dict(cost)}
    return rig.weir(workers=1, limits={"tokens": {"script": "fixed_window", "limit": 1000, "period": "1d", "cost": cost}},
                    upstreams={"api": {"servers": [Scripted(rig, script).text]}}, **keys)


def test_counts_of_content_are_those_of_the_client(rig):
    """Neither what weir adds to the request, nor what it removes from the response."""
    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            assert b"include_usage" in request[1]
            peer.send(HEAD + chunk(EVENT + USAGE) + b"0\r\n\r\n")
    weir = weir_that_asks(rig, script, log={"access": "json"})
    with Connection(weir.address) as client:
        assert client.request(method="POST", body=ASKS).body == EVENT
        client.send(request_bytes(method="POST", headers={"Transfer-Encoding": "chunked"}) + chunk(ASKS) + b"0\r\n\r\n")
        assert client.response("POST").body == EVENT
    weir.counts(2 * len(ASKS), "weir_received_content_bytes_total")
    weir.counts(2 * len(EVENT), "weir_sent_content_bytes_total")

    def lines():
        return [json.loads(line) for line in weir.output().splitlines() if line.startswith('{"time"')]
    eventually(lambda: len(lines()) == 2, what="the access lines")
    assert [(line["bytes_in"], line["bytes"], line["cost"]) for line in lines()] == [(len(ASKS), len(EVENT), {"tokens": 20})] * 2


def test_a_stream_that_hides_its_usage_reserves_what_its_client_can_use(rig):
    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(HEAD + chunk(EVENT) + b"0\r\n\r\n")
    weir = weir_that_asks(rig, script, {"max": 5000}, clients={"small": {"quota": 200}, "large": {"quota": 100000}}, headers=["ietf"])
    hides = b'{"stream":true,"stream_options":{"include_usage":false}}'

    def reserved(client):
        response = get(weir.address, method="POST", body=hides, headers={"X-Client-Id": client})
        assert response.status == 200, (client, response)
        return re.fullmatch(r'"tokens";r=(\d+);t=\d+', response["RateLimit"])[1]
    left = {client: int(reserved(client)) for client in ("small", "other", "large")}
    assert left == {"small": 0, "other": 0, "large": 100000 - 5000}, left


def test_an_automatic_reserve_is_at_most_the_share_of_an_instance_without_redis(rig):
    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    weir = weir_that_asks(rig, script, {"reserve": "auto", "request_json": "max_tokens", "max": 900}, headers=["ietf"], log={"access": "json"},
                          redis={"on_failure": "local", "timeout": "200ms", "instances": 4})
    weir.expect_errors("[Rr]edis")
    rig.redis().kill()
    weir.counts(0, "weir_redis_ready_workers")
    answers = [get(weir.address, method="POST", body=b'{"max_tokens":800}', headers={"X-Client-Id": "one"}) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429], "a quarter of 1000 units, and then the wait for the next window"
    assert answers[0]["RateLimit"].startswith('"tokens";r=0;') and answers[1]["Retry-After"], answers
    eventually(lambda: '"cost":{"tokens":250}' in weir.output(), what="the access line")
