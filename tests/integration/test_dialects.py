"""Rejections as the APIs of language models write them, and their rate limit fields."""

import json

from scripted import Scripted
from wire import Connection, get

LIMITS = {"requests": dict(script="fixed_window", limit=2, period="20s", align="clock")}


def rejected(weir, *more, path="/"):
    answers = (get(weir.address, path, headers={"X-Client-Id": "c"}) for _ in range(6))  # the window can end between them
    answer = next(answer for answer in answers if answer.status == 429)
    return answer, json.loads(answer.body)


def test_the_dialect_of_openai(rig):
    limits = {**LIMITS, "long": dict(script="token_bucket", limit=1, period="30d"),
              "tokens": dict(script="gcra", limit=1, period="20s", cost={"usage": "openai"})}
    weir = rig.weir(limits=limits, rejection={"dialect": "openai"}, clients={"nobody": {"quota": 0}},
                    rules=[{"match": {"path": "/long"}, "limits": ["long"]}, {"match": {"path": "/tokens"}, "limits": ["tokens"]},
                           {"match": {"path": "/plain"}, "limits": ["requests"], "rejection": {"dialect": "problem"}},
                           {"limits": ["requests"]}])
    answer, body = rejected(weir)
    wait = answer.number("Retry-After")
    assert body == {"error": {"message": f"Rate limit reached for requests. Please try again in {wait} second{'s' * (wait > 1)}.",
                              "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    assert answer["Content-Type"] == "application/json" and answer["x-should-retry"] == "true"
    assert wait * 1000 - 1000 <= answer.number("retry-after-ms") <= wait * 1000
    answer, body = rejected(weir, path="/long")
    assert body["error"]["code"] == body["error"]["type"] == "insufficient_quota" and answer["x-should-retry"] == "false"
    answer, body = rejected(weir, path="/tokens")
    assert body["error"]["type"] == "tokens"
    answer = get(weir.address, "/", headers={"X-Client-Id": "nobody"})
    assert answer.status == 429 and json.loads(answer.body)["error"]["code"] == "insufficient_quota"
    assert answer["x-should-retry"] == "false" and answer["retry-after-ms"] is None
    answer, body = rejected(weir, path="/plain")
    assert body["status"] == 429 and answer["x-should-retry"] is None


def test_the_dialect_of_anthropic(rig):
    weir = rig.weir(limits=LIMITS, rules=[{"limits": ["requests"], "rejection": {"dialect": "anthropic"}}])
    answer, body = rejected(weir)
    assert body["type"] == "error" and body["error"]["type"] == "rate_limit_error"
    assert body["error"]["message"].startswith("Rate limit reached for requests. Please try again in ")
    with Connection(weir.address) as connection:  # a response to HEAD has no content: the next response follows directly
        statuses = [connection.request(method=method, headers={"X-Client-Id": "c"}).status for method in ("HEAD", "GET") * 4]
    assert 429 in statuses[::2], statuses


def test_the_fields_of_openai_replace_those_of_the_server(rig):
    def script(peer, _number):
        while peer.read_request() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Limit-Requests: 9\r\nx-ratelimit-remaining-tokens: 9\r\n"
                      b"X-RateLimit-Limit: 9\r\n\r\n")
    limits = {"requests": dict(script="token_bucket", limit=100, period="100s"),
              "tokens": dict(script="token_bucket", limit=3600, period="2h", cost={"reserve": 180, "usage": "openai"})}
    weir = rig.weir(limits=limits, headers=["openai"], upstreams={"api": {"servers": [Scripted(rig, script).text]}})
    answer = get(weir.address, headers={"X-Client-Id": "c"})
    assert {name.lower(): value for name, value in answer.fields if "ratelimit" in name.lower()} == {
        "x-ratelimit-limit": "9", "x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "99", "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "3600", "x-ratelimit-remaining-tokens": "3420", "x-ratelimit-reset-tokens": "6m0s"}
