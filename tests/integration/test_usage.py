"""Costs that belong to a limit: reserved before the response, and settled by what its header or content states."""

import gzip
import json
import random
import re
import signal
import threading

from http2_wire import Http2
from rig import eventually, free_port
from scripted import Scripted
from wire import Connection, get, request_bytes

REQUESTS = dict(script="fixed_window", limit=100000, period="1d")


def tokens(usage="openai", limit=1000, reserve=10, **cost):
    return dict(script="token_bucket", limit=limit, period="36500s", cost={"reserve": reserve, "usage": usage, **cost})


def remaining(response):
    return {name: int(r) for name, r in re.findall(r'"([^"]+)";r=(\d+)', response["RateLimit"])}


def document(content, kind=b"application/json", status=b"200 OK", fields=b""):
    return (b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n" % (status, kind, len(content), fields)) + content


def openai(total):
    return json.dumps({"id": "a", "choices": [{"message": {"content": "usage"}}],
                       "usage": {"prompt_tokens": 1, "completion_tokens": total - 1, "total_tokens": total}}).encode()


def chunks(*parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def events(*documents):
    return b"".join(b"data: %s\n\n" % json.dumps(d).encode() for d in documents)


def stream_of(total, pieces=3):
    """A stream of chat completions, cut at random places."""
    whole = events(*[{"choices": [{"delta": {"content": "x" * 50}}], "usage": None}] * 5,
                   {"choices": [], "usage": {"total_tokens": total}}) + b"data: [DONE]\n\n"
    cuts = [0] + sorted(random.sample(range(1, len(whole)), pieces)) + [len(whole)]
    return [whole[a:b] for a, b in zip(cuts, cuts[1:])]


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


class Model:
    """A server whose responses are given by the target; remembers the heads of requests."""

    def __init__(self, rig, responses):
        self.heads, self.responses = [], responses
        self.server = Scripted(rig, self.script)
        self.upstreams = {"api": {"servers": [self.server.text]}}

    def script(self, peer, _number):
        while (request := peer.read_request()) is not None:
            self.heads.append(request[0])
            target = request[0].split(b" ")[1].decode()
            response = self.responses[target] if target in self.responses else document(openai(int(target[1:])))
            if response is None:
                return
            if isinstance(response, tuple):
                peer.send(response[0])
                return
            peer.send(response)


def settles(rig, weir, target, cost, limit="tokens", status=200):
    """Asserts what a request of a new client costs. With one worker, the charge is settled before the next decision."""
    client = {"X-Client-Id": "c%d" % random.getrandbits(40)}
    assert get(weir.address, target, headers=client).status == status, target
    left = remaining(get(weir.address, "/1", headers=client))[limit]
    assert left == 1000 - cost - 10, (target, "costs", 1000 - 10 - left, "expected", cost)


def weir_with(rig, model, limits, rules=None, **keys):
    return rig.weir(workers=1, limits=limits, upstreams=model.upstreams,
                    rules=rules or [{"limits": list(limits)}], **keys)


def test_json_and_streams_settle_the_charge(rig):
    model = Model(rig, {
        "/stream": STREAM_HEAD + chunks(*stream_of(77)) + b"0\r\n\r\n",
        "/responses": document(json.dumps({"response": {"usage": {"total_tokens": 42}}}).encode()),
        "/zero": document(openai(1).replace(b'"total_tokens": 1', b'"total_tokens": 0')),
        "/twice": STREAM_HEAD + chunks(*[events({"usage": {"total_tokens": 5}}, {"usage": {"total_tokens": 9}})]) + b"0\r\n\r\n",
        "/problem": document(openai(33), kind=b"application/problem+json", status=b"400 Bad Request"),
        "/bom": document(b"\xef\xbb\xbf" + openai(21)),
    })
    weir = weir_with(rig, model, {"requests": REQUESTS, "tokens": tokens()})
    for target, cost in [("/300", 300), ("/stream", 77), ("/responses", 42), ("/zero", 0), ("/twice", 9), ("/bom", 21)]:
        settles(rig, weir, target, cost)
    settles(rig, weir, "/problem", 33, status=400)
    weir.counts(14, "weir_content_inspected_total", direction="response", result="read")
    assert b"accept-encoding: identity" in model.heads[0].lower()


def test_a_response_that_names_no_usage_costs_its_reserve(rig):
    model = Model(rig, {
        "/none": document(b'{"choices": []}'),
        "/text": document(openai(5), kind=b"text/plain"),
        "/two-types": document(openai(5), fields=b"Content-Type: application/json\r\n"),
        "/invalid": document(b"{," + openai(50)[1:]),
        "/named-then-invalid": document(openai(500)[:-1] + b"}]"),
        "/too-large": document(openai(5).replace(b"5", b"9999999999999999")),
        "/compressed": document(gzip.compress(openai(50)), fields=b"Content-Encoding: gzip\r\n"),
        "/fraction": document(b'{"usage": {"total_tokens": 5.0}}'),
        "/empty": b"HTTP/1.1 204 No Content\r\n\r\n",
    })
    weir = weir_with(rig, model, {"tokens": tokens()})
    for target in ("/none", "/text", "/two-types", "/invalid", "/too-large", "/compressed", "/fraction"):
        settles(rig, weir, target, 10)
    settles(rig, weir, "/empty", 10, status=204)
    settles(rig, weir, "/named-then-invalid", 500)
    results = {name: weir.metric("weir_content_inspected_total", direction="response", result=name)
               for name in ("none", "invalid", "compressed")}
    assert results == {"none": 5, "invalid": 3, "compressed": 1}, results


def test_errors_without_usage_are_refunded_unless_kept(rig):
    model = Model(rig, {"/400": document(b"{}", status=b"400 Bad Request"), "/503": document(b"", status=b"503 No", kind=b"text/html")})
    away = {"servers": [f"127.0.0.1:{free_port()}"]}
    limits = {"tokens": tokens(), "kept": tokens(on_error="keep")}
    weir = rig.weir(workers=1, limits=limits, upstreams={**model.upstreams, "away": away},
                    rules=[{"match": {"path": "/away"}, "limits": list(limits), "upstream": "away"}, {"limits": list(limits)}])
    weir.expect_errors("upstream away")
    for target, status in (("/400", 400), ("/503", 503)):
        settles(rig, weir, target, 0, status=status)
        settles(rig, weir, target, 10, limit="kept", status=status)
    settles(rig, weir, "/away", 0, status=502)


def test_formats_and_paths(rig):
    anthropic = {"usage": {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 8}}
    model = Model(rig, {
        "/anthropic": document(json.dumps(anthropic).encode()),
        "/anthropic-stream": STREAM_HEAD + chunks(
            b"event: message_start\n" + events({"message": {"usage": {"input_tokens": 30, "output_tokens": 1}}}),
            b"event: message_delta\n" + events({"usage": {"output_tokens": 12}}),
            b"event: message_delta\n" + events({"usage": {"output_tokens": 20}})) + b"0\r\n\r\n",
        "/gemini": document(json.dumps([{"usageMetadata": {"totalTokenCount": 4}}, {"usageMetadata": {"totalTokenCount": 44}}]).encode()),
        "/own": document(json.dumps({"meta": {"a.b": 3, "rows": 10}}).encode()),
    })
    limits = {"anthropic": tokens("anthropic"),
              "priced": tokens("anthropic", weights={"output": 5, "cache_read": 0.1, "cache_write": 1.25}),
              "gemini": tokens("gemini"), "paths": tokens(["meta.rows", 'meta."a.b"']),
              "weighted": tokens({"meta.rows": 0.25, 'meta."a.b"': 2})}
    weir = weir_with(rig, model, limits)
    settles(rig, weir, "/anthropic", 107, limit="anthropic")
    settles(rig, weir, "/anthropic", 100 + 35 + 5 + 10, limit="priced")
    settles(rig, weir, "/anthropic-stream", 50, limit="anthropic")
    settles(rig, weir, "/gemini", 44, limit="gemini")
    settles(rig, weir, "/own", 13, limit="paths")
    settles(rig, weir, "/own", 9, limit="weighted")
    settles(rig, weir, "/own", 10, limit="anthropic")


def test_a_cost_of_a_limit_is_not_that_of_its_rule(rig):
    model = Model(rig, {"/stated": document(b"x", kind=b"text/plain", fields=b"X-Rows: 70\r\n"), "/free/x": document(openai(1))})
    limits = {"requests": dict(script="token_bucket", limit=1000, period="36500s"), "tokens": tokens(),
              "rows": tokens(usage=["a"], response_header="X-Rows"),
              "asked": dict(script="token_bucket", limit=1000, period="36500s", cost={"reserve": 2, "request_header": "X-Units", "max": 50})}
    weir = weir_with(rig, model, limits, rules=[{"match": {"path": "/free/**"}, "limits": list(limits), "cost": 0},
                                                {"limits": list(limits), "cost": 3}],
                     identity={"from": ["header:X-Client-Id"], "trusted_proxies": ["127.0.0.1"]})
    assert remaining(get(weir.address, "/1", headers={"X-Client-Id": "a"})) == {"requests": 997, "tokens": 990, "rows": 990, "asked": 998}
    free = get(weir.address, "/free/x", headers={"X-Client-Id": "free"})
    assert remaining(free) == {"requests": 1000, "tokens": 990, "rows": 990, "asked": 998}, "cost 0 takes nothing, except where the limit has a map"
    statuses = [get(weir.address, "/free/x", headers={"X-Client-Id": "free", "X-Units": "50"}).status for _ in range(20)]
    assert statuses == [200] * 19 + [429], "and such a limit rejects"
    settles(rig, weir, "/stated", 70, limit="rows")
    assert remaining(get(weir.address, "/1", headers={"X-Client-Id": "b", "X-Units": "7"}))["asked"] == 993
    assert remaining(get(weir.address, "/1", headers={"X-Client-Id": "d", "X-Units": "700"}))["asked"] == 950
    assert get(weir.address, "/1", headers={"X-Client-Id": "d", "X-Units": "x"}).status == 400


def test_a_cut_response_costs_its_reserve_or_what_it_had_named(rig):
    early = events({"message": {"usage": {"input_tokens": 300, "output_tokens": 1}}})
    model = Model(rig, {"/cut-early": (STREAM_HEAD + chunks(events({"x": 1})),), "/cut-late": (STREAM_HEAD + chunks(early),),
                        "/cut-json": (document(openai(50) + b" " * 9)[:-5],), "/closed": None})
    weir = weir_with(rig, model, {"tokens": tokens({"message.usage.input_tokens": 1, "usage.total_tokens": 1})})
    weir.expect_errors("upstream api")
    for target, cost in (("/cut-early", 10), ("/cut-late", 300), ("/cut-json", 50)):
        connection = Connection(weir.address)
        connection.send(request_bytes(target, headers={"X-Client-Id": target[1:]}))
        while connection.fill():
            pass
        eventually(lambda: weir.metric("weir_requests_active") == 0)
        left = remaining(get(weir.address, "/1", headers={"X-Client-Id": target[1:]}))["tokens"]
        assert left == 990 - cost, (target, left)
    settles(rig, weir, "/closed", 0, status=502)
    assert weir.metric("weir_content_inspected_total", direction="response", result="incomplete") == 3


def test_a_client_that_leaves_pays_for_what_was_named(rig):
    release = threading.Event()

    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            if b" /slow " not in request[0]:
                peer.send(document(openai(1)))
                continue
            peer.send(STREAM_HEAD + chunks(events({"usage": {"total_tokens": 250}})))
            release.wait(20)
            return
    api = Scripted(rig, script)
    weir = rig.weir(workers=1, limits={"tokens": tokens()}, upstreams={"api": {"servers": [api.text]}}, rules=[{"limits": ["tokens"]}])
    connection = Connection(weir.address)
    connection.send(request_bytes("/slow", headers={"X-Client-Id": "c"}))
    connection.read_until(b"250", "the usage")
    connection.close()
    eventually(lambda: weir.metric("weir_requests_active") == 0)
    release.set()
    assert remaining(get(weir.address, "/1", headers={"X-Client-Id": "c"}))["tokens"] == 1000 - 250 - 10


def test_concurrent_streams_over_two_weirs_settle_exactly(rig):
    """The sum is exact, and what is overspent is at most what the requests in flight cost above their reserve."""
    model = Model(rig, {"/stream": STREAM_HEAD + chunks(*stream_of(37, 6)) + b"0\r\n\r\n"})
    limits = {"tokens": tokens(limit=1000, reserve=20)}
    weirs = [rig.weir(limits=limits, upstreams=model.upstreams, rules=[{"limits": ["tokens"]}]) for _ in range(2)]
    statuses = []

    def client(number):
        for _ in range(4):
            statuses.append(get(weirs[number % 2].address, "/stream", headers={"X-Client-Id": "one"}).status)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    admitted = statuses.count(200)
    assert admitted + statuses.count(429) == 256

    def settled():
        return sum(weir.metric("weir_limit_units_total", limit="tokens") for weir in weirs)
    eventually(lambda: settled() >= 37 * admitted, what="the last charges to be counted")
    assert settled() == 37 * admitted
    assert 1000 - 20 < settled() <= 1000 + 64 * 17, (admitted, settled())


def access_lines(weir, count):
    """The lines of the requests that the test sends first."""
    def lines():
        return [json.loads(line) for line in weir.output().splitlines() if line.startswith('{"time"') and '"target"' in line]
    eventually(lambda: len(lines()) >= count, what="the access lines")
    return lines()[:count]


def cost_of_clients(weir):
    clients = json.loads(get(weir.admin, "/api/v1/top?by=cost&n=100", host="127.0.0.1").body)["clients"]
    return {client["client"]: client["at_least"] for client in clients}


def test_access_line_and_top_clients_show_what_was_charged(rig):
    model = Model(rig, {"/400": document(b"{}", status=b"400 Bad Request"), "/bad": b"nonsense\r\n\r\n"})
    limits = {"requests": REQUESTS, "tokens": tokens(reserve=500, limit=2000), "tried": {**tokens(reserve=500, limit=600), "shadow": True},
              "asked": dict(REQUESTS, cost={"request_header": "X-Ask", "max": 10000})}
    weir = weir_with(rig, model, limits, clients={"boss": {"quota": "unlimited"}}, log={"access": "json"},
                     rules=[{"match": {"path": "/asked"}, "limits": ["asked"]},
                            {"limits": ["requests", "tokens", "tried"]}], identity={"from": ["header:X-Client-Id"], "trusted_proxies": ["127.0.0.0/8"]})
    for target, client, status in (("/20", "a", 200), ("/400", "b", 400), ("/bad", "c", 502), ("/300", "boss", 200),
                                   ("/550", "d", 200), ("/1", "d", 200), ("/asked", "e", 502)):
        assert get(weir.address, target, headers={"X-Client-Id": client, "X-Ask": "7000"}).status == status, target
    assert [(line.get("reserve"), line.get("cost")) for line in access_lines(weir, 7)] == [
        ({"tokens": 500, "tried": 500}, {"tokens": 20, "tried": 20}), ({"tokens": 500, "tried": 500}, {"tokens": 0, "tried": 0}),
        ({"tokens": 500, "tried": 500}, {"tokens": 0, "tried": 0}), (None, None),
        ({"tokens": 500, "tried": 500}, {"tokens": 550, "tried": 550}), ({"tokens": 500, "tried": 0}, {"tokens": 1, "tried": 0}),
        ({"asked": 7000}, {"asked": 7000})]
    assert cost_of_clients(weir) == {"id:a": 20, "id:b": 1, "id:c": 1, "id:boss": 1, "id:d": 550 + 1, "id:e": 7000}


def test_what_on_failure_admits_is_charged_nothing(rig):
    weir = weir_with(rig, Model(rig, {}), {"requests": REQUESTS, "tokens": tokens(reserve=500)}, log={"access": "json"},
                     redis={"on_failure": "allow", "timeout": "200ms"})
    weir.expect_errors("redis", "Redis")
    rig.redis().kill()
    weir.counts(0, "weir_redis_ready_workers")
    assert get(weir.address, "/20", headers={"X-Client-Id": "a"}).status == 200
    line, = access_lines(weir, 1)
    assert (line["decision"], line.get("reserve"), line.get("cost")) == ("failed_open", None, None), line
    assert cost_of_clients(weir) == {"id:a": 1}


def test_a_cost_that_is_learnt_while_redis_is_away_is_not_counted(rig):
    begun, rest = threading.Event(), threading.Event()

    def script(peer, _number):
        peer.read_request()
        begun.set()
        rest.wait(30)
        peer.send(document(openai(300)))
    weir = rig.weir(workers=1, limits={"tokens": tokens(reserve=50)}, upstreams={"api": {"servers": [Scripted(rig, script).text]}},
                    rules=[{"limits": ["tokens"]}], log={"access": "json"})
    weir.wait_for_redis().expect_errors("redis", "Redis")
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/"))
        assert begun.wait(20)
        rig.redis().kill()
        weir.counts(0, "weir_redis_ready_workers")
        rest.set()
        assert connection.response("GET").status == 200
    line, = access_lines(weir, 1)
    assert (line["reserve"], line["cost"]) == ({"tokens": 50}, {"tokens": 50}), line
    weir.counts(50, "weir_limit_units_total", limit="tokens")


def test_a_response_that_weir_cannot_forward_is_refunded(rig):
    """weir has read its header before its own 502 replaces it."""
    head = b"HTTP/1.1 200 OK\r\nX-Cost: 9\r\nTransfer-Encoding: chunked\r\n"
    model = Model(rig, {"/plain": head + b"\r\nzz\r\n", "/json": head + b"Content-Type: application/json\r\n\r\nzz\r\n"})
    weir = weir_with(rig, model, {
        "tokens": tokens(), "stated": dict(REQUESTS, cost={"reserve": 5, "response_header": "X-Cost"}),
        "counted": dict(REQUESTS, count=["2xx"])})
    for target in ("/plain", "/json"):
        assert get(weir.address, target, headers={"X-Client-Id": target}).status == 502, target
        left = remaining(get(weir.address, "/1", headers={"X-Client-Id": target}))
        assert left == {"tokens": 990, "stated": 100000 - 5, "counted": 100000 - 1}, (target, left)


def test_without_redis_the_reserve_counts(rig):
    model = Model(rig, {})
    weir = weir_with(rig, model, {"tokens": tokens(limit=100)}, redis={"on_failure": "local", "timeout": "200ms"})
    weir.expect_errors("redis", "Redis")
    rig.redis().kill()
    eventually(lambda: get(weir.admin, "/readyz", host="127.0.0.1").body.count(b"edis") > 0)
    assert [get(weir.address, "/90", headers={"X-Client-Id": "c"}).status for _ in range(11)] == [200] * 10 + [429]


ADDED = '"stream_options":{"include_usage":true},'


class Chat:
    """An OpenAI-compatible server: it sends the usage of a stream only to requests that ask for it."""

    def __init__(self, rig, head=STREAM_HEAD):
        self.bodies, self.head = [], head
        self.upstreams = {"api": {"servers": [Scripted(rig, self.script).text]}}

    def script(self, peer, _number):
        while (request := peer.read_request()) is not None:
            self.bodies.append(request[1])
            asks = json.loads(request[1]).get("stream_options", {}).get("include_usage")
            whole = events({"choices": [{"delta": {"content": "x"}}]}, *[{"choices": [], "usage": {"total_tokens": 200}}] * bool(asks)) + b"data: [DONE]\n\n"
            at = random.randrange(1, len(whole))
            if self.head is STREAM_HEAD:
                peer.send(self.head + chunks(whole[:at], whole[at:]) + b"0\r\n\r\n")
            else:
                peer.send(self.head % len(whole) + whole)


def chat(weir, body, client=None, **headers):
    """The content of the response, and what the client has left afterwards."""
    client = client or "c%d" % random.getrandbits(40)
    response = get(weir.address, "/", method="POST", body=body, headers={"X-Client-Id": client, **headers})
    assert response.status == 200, response
    return response.body, 1000 - remaining(get(weir.address, "/", method="POST", body=b"{}", headers={"X-Client-Id": client}))["tokens"] - 10


def test_stream_options_are_added(rig):
    api = Chat(rig)
    weir = rig.weir(workers=1, limits={"tokens": tokens(include_usage="add")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}])
    plain = events({"choices": [{"delta": {"content": "x"}}]}) + b"data: [DONE]\n\n"
    for _ in range(20):  # the stream is cut at random places
        got = chat(weir, b' {"model": "m", "stream": true}')
        assert got == (plain, 200), (got, api.bodies)
    assert api.bodies[0].decode() == ' {' + ADDED + '"model": "m", "stream": true}'
    for body in (b'{"stream": false}', b'{"stream": true, "stream_options": {}}', b'{"stream": true, "Stream_Options": {"include_usage": true}}'):
        del api.bodies[:]
        assert chat(weir, body) == (plain, 10) and api.bodies[0] == body, "left as it is"
    answer, cost = chat(weir, b'{"stream": true, "stream_options": {"include_usage": true}}')
    assert b"total_tokens" in answer and cost == 200, "a client that asks gets it"
    assert chat(weir, b'{"stream": true}', **{"Content-Digest": "sha-256=:x:"}) == (plain, 10)


def test_a_stream_that_hides_its_usage_reserves_the_most(rig):
    """The client opts out of the usage, so that the server states none."""
    api = Chat(rig)

    def costs(body, reserve=10, limit=1000, **headers):
        client = {"X-Client-Id": "c%d" % random.getrandbits(40)}
        assert get(weirs[reserve, limit].address, "/", method="POST", body=body, headers={**client, **headers}).status == 200
        left = get(weirs[reserve, limit].address, "/", method="POST", body=b'{"max_tokens": 1}', headers=client)
        return limit - remaining(left)["tokens"] - (1 if reserve == 10 else 5)
    weirs = {(reserve, limit): rig.weir(workers=1, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}], limits={
        "tokens": tokens(reserve=reserve, limit=limit, include_usage="add", request_json="max_tokens", max=300)}) for reserve, limit in [(10, 1000), ("auto", 1000), (10, 200)]}
    hidden = [b'{"stream": true, "stream_options": {"include_usage": false}}', b'{"stream": true, "stream_options": {}}', b'{"stream": 1}',
              b'{"stream": true, "stream_options": {"include_usage": false}, "stream_options": {}}', b'{"stream": true, "Stream": false}']
    for body in hidden:
        assert (costs(body), costs(body, "auto"), costs(body, limit=200)) == (300, 300, 199), body
    padded = b" " * 66000 + b'{"stream": true}'
    assert costs(padded) == 300 and costs(b'{"stream": true}', **{"Content-Digest": "sha-256=:x:"}) == 300
    assert costs(b'{"stream": true}', **{"Content-Type": "application/json; charset=utf-7"}) == 300
    assert costs(b'{"stream": true, "stream_options": {}, "max_tokens": 50}') == 50, "the server sends no more"
    assert costs(b'{"stream": true, "max_tokens": 50}', **{"Content-Type": "application/json; charset=utf-7"}) == 300, "or another number"
    assert costs(b'{"stream": false, "stream_options": {}}') == 10 and costs(b'{"x": "y"}', **{"Content-Digest": "sha-256=:x:"}) == 10
    assert costs(b'{"stream": true}') == 200 and costs(b'{"stream": true, "stream_options": {"include_usage": true}}') == 200, "stated by the server"


def test_stream_options_with_every_framing(rig):
    """With Content-Length or chunks from the client, over HTTP/2, and to servers that send a length: then nothing is removed."""
    api = Chat(rig)
    weir = rig.weir(workers=1, limits={"tokens": tokens(include_usage="add")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}])
    plain = events({"choices": [{"delta": {"content": "x"}}]}) + b"data: [DONE]\n\n"
    with Connection(weir.address) as connection:
        for _ in range(3):
            connection.send(request_bytes("/", "POST", headers={"Transfer-Encoding": "chunked"}) + b"8\r\n{\"stream\r\n8\r\n\": true}\r\n0\r\n\r\n")
            assert connection.response("POST").body == plain
    with Http2(weir.address) as client:
        stream = client.start("/", "POST", [("content-length", "16")], end=False)
        client.send_within_windows(stream, b'{"stream": true}')
        assert client.response(stream).body == plain
    assert set(api.bodies) == {b"{" + ADDED.encode() + b'"stream": true}'}, api.bodies
    fixed = Chat(rig, head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n")
    other = rig.weir(workers=1, limits={"tokens": tokens(include_usage="add")}, upstreams=fixed.upstreams, rules=[{"limits": ["tokens"]}])
    answer, cost = chat(other, b'{"stream": true}')
    assert b"total_tokens" in answer and cost == 200, "its length cannot be changed"


def test_the_usage_is_removed_from_a_long_stream_that_was_not_charged(rig):
    """A stream that ends with its connection, for a client of HTTP/1.0: such content is else moved within the kernel."""
    plain = events({"choices": [{"delta": {"content": "x" * 1000}}]}) * 1000 + b"data: [DONE]\n\n"

    def script(peer, _number):
        assert ADDED.encode() in peer.read_request()[1]
        usage = events({"choices": [], "usage": {"total_tokens": 200}})
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + plain[:-14] + usage + plain[-14:])
    weir = rig.weir(workers=1, limits={"tokens": tokens(include_usage="add")}, rules=[{"limits": ["tokens"]}],
                    upstreams={"api": {"servers": [Scripted(rig, script).text]}}, redis={"on_failure": "allow", "timeout": "200ms"})
    weir.expect_errors("redis", "Redis")
    rig.redis().kill()
    eventually(lambda: get(weir.admin, "/readyz", host="127.0.0.1").body.count(b"edis") > 0)
    response = get(weir.address, "/", method="POST", body=b'{"stream": true}', version="HTTP/1.0")
    assert response.status == 200 and response.body == plain, (len(response.body), len(plain), response.body[-100:])


class Slow:
    """A server that sends the rest of its stream when the test lets it."""

    def __init__(self, rig, total=300):
        self.rest, self.begun, self.heads, self.total = threading.Event(), threading.Semaphore(0), 0, total
        rig.add_cleanup(self.rest.set)
        self.upstreams = {"api": {"servers": [Scripted(rig, self.script).text], "response_timeout": "20s"}}

    def script(self, peer, _number):
        while (request := peer.read_request()) is not None:
            late = request[0].startswith(b"GET /late")
            if request[0].startswith(b"GET /now"):
                peer.send(document(openai(1)))
                continue
            first, rest = events({"choices": [{"delta": {"content": "x"}}]}), events({"choices": [], "usage": {"total_tokens": self.total}})
            if not late:
                peer.send(STREAM_HEAD + chunks(first))
            self.heads += 1
            self.begun.release()
            self.rest.wait(20)
            peer.send((STREAM_HEAD if late else b"") + chunks(rest) + b"0\r\n\r\n")


def leave(weir, target, client):
    """Begins a request and closes the connection."""
    connection = Connection(weir.address)
    connection.send(request_bytes(target, headers={"X-Client-Id": client}))
    return connection


def test_a_response_to_a_client_that_has_left_is_read_on(rig):
    api = Slow(rig)
    weir = rig.weir(workers=1, limits={"tokens": tokens(on_disconnect="drain")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}],
                    log={"access": "json"})
    for target in ("/stream", "/late"):
        connection = leave(weir, target, target)
        api.begun.acquire(timeout=20)
        if target == "/stream":
            connection.read_until(b'"x"', "the first event")
        connection.close()
    eventually(lambda: weir.metric("weir_connections") == 0)
    assert weir.metric("weir_requests_active") == 2, "their responses are under way"
    api.rest.set()
    eventually(lambda: weir.metric("weir_requests_active") == 0)
    for target in ("/stream", "/late"):
        left = remaining(get(weir.address, "/now", headers={"X-Client-Id": target}))["tokens"]
        assert left == 1000 - 300 - 10, (target, left)

    def lines():
        return [json.loads(line) for line in weir.output().splitlines() if '"target":' in line and "/now" not in line]
    eventually(lambda: len(lines()) == 2, what="both access lines")
    assert [(line["cost"], line["error"]) for line in lines()] == [({"tokens": 300}, "client_gone")] * 2, lines()
    received = {line["target"]: (line["status"], line["bytes"]) for line in lines()}
    assert received["/late"] == (499, 0), "weir has sent nothing"
    assert received["/stream"][0] == 200 and received["/stream"][1] < 100, received
    assert weir.metric("weir_responses_total", **{"class": "none"}) == 1


def test_drains_end_by_the_clock_and_are_64_at_most(rig):
    api = Slow(rig)
    api.upstreams["api"]["response_timeout"] = "2s"
    weir = rig.weir(workers=2, limits={"tokens": tokens(on_disconnect="drain")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}])
    connections = [leave(weir, "/stream", "c%d" % n) for n in range(70)]
    for connection in connections:
        connection.read_until(b'"x"', "the first event")
    for connection in connections:
        connection.close()
    eventually(lambda: weir.metric("weir_connections") == 0)
    assert weir.metric("weir_requests_active") <= 64
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="the drains to end after response_timeout")
    left = remaining(get(weir.address, "/now", headers={"X-Client-Id": "c1"}))["tokens"]
    assert left == 1000 - 20, "the reserve stays"


def test_a_stop_waits_for_drains(rig):
    api = Slow(rig)
    weir = rig.weir(workers=1, limits={"tokens": tokens(on_disconnect="drain")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}])
    connection = leave(weir, "/stream", "one")
    connection.read_until(b'"x"', "the first event")
    connection.close()
    eventually(lambda: weir.metric("weir_connections") == 0)
    weir.signal(signal.SIGTERM)
    api.rest.set()
    weir.wait()
    other = rig.weir(workers=1, limits={"tokens": tokens(on_disconnect="drain")}, upstreams=api.upstreams, rules=[{"limits": ["tokens"]}])
    assert remaining(get(other.address, "/now", headers={"X-Client-Id": "one"}))["tokens"] == 1000 - 300 - 10
