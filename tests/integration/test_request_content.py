"""Costs in the content of requests: read before the decision, forwarded as it came."""

import gzip
import hashlib
import json
import random
import re

from http2_server import Http2Server
from http2_wire import Http2
from rig import eventually
from scripted import Scripted
from wire import Connection, chunked, get, request_bytes

ASKED = {"reserve": 10, "request_json": ["max_completion_tokens", "options.max_tokens"], "max": 200}


def limit_with(cost, limit=1000):
    return {"tokens": dict(script="token_bucket", limit=limit, period="36500s", cost=cost)}


def echo(rig):
    """A server that answers with the digest of the content."""
    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            digest = hashlib.sha256(request[1]).hexdigest().encode()
            expects = b"expect:" in request[0].lower()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\nX-Expects: %d\r\n\r\n%s" % (expects, digest))
    return {"api": {"servers": [Scripted(rig, script).text]}}


def weir_for(rig, cost, limit=1000, **keys):
    return rig.weir(workers=1, limits=limit_with(cost, limit), upstreams=echo(rig), rules=[{"limits": ["tokens"]}], **keys)


def charged(weir, body, limit=1000, **headers):
    """What a request with this content is charged. The digest of its response must be that of the content."""
    with Connection(weir.address) as connection:
        response = connection.request("/", "POST", headers={"X-Client-Id": "c%d" % random.getrandbits(40), **headers}, body=body)
    assert response.status == 200, (response, response.body)
    assert response.body == hashlib.sha256(body).hexdigest().encode(), body[:80]
    return limit - int(re.search(r';r=(\d+)', response["RateLimit"])[1])


def test_the_first_path_that_is_there_is_reserved(rig):
    weir = weir_for(rig, ASKED)
    for content, cost in [
            ({"max_completion_tokens": 50, "options": {"max_tokens": 60}}, 50),
            ({"options": {"max_tokens": 60}}, 60), ({"max_completion_tokens": None, "options": {"max_tokens": 7}}, 7),
            ({"max_completion_tokens": 100000}, 200), ({"max_completion_tokens": 10 ** 30}, 200),
            ({"max_completion_tokens": 0}, 1), ({"messages": "x" * 60000, "max_completion_tokens": 9}, 9),
            ({}, 10), ({"max_completion_tokens": "50"}, 10), ({"max_completion_tokens": 5.0}, 10), ({"max_completion_tokens": -5}, 10),
            ([{"max_completion_tokens": 50}], 10)]:
        assert charged(weir, json.dumps(content).encode()) == cost, str(content)[:90]
    assert charged(weir, b'{"max_completion\\u005ftokens": 50}') == 50, "an escaped name is the same name"


def test_content_that_is_not_certain_counts_as_absent(rig):
    weir = weir_for(rig, ASKED)
    whole = b'{"max_completion_tokens": 50}'
    for content, headers in [
            (whole[:-1], {}), (whole + b"}", {}), (b"max_completion_tokens=50", {}), (b"\xff" + whole, {}),
            (b'{"max_completion_tokens": 50, "max_completion_tokens": 1}', {}),
            (b'{"max_completion_tokens": 50, "Max_Completion_Tokens": 1}', {}),
            (b'{"options": {"max_tokens": 50}, "options": {}}', {}),
            (gzip.compress(whole), {"Content-Encoding": "gzip"}), (b" " * 70000 + whole, {})]:
        assert charged(weir, content, **headers) == 10, content[:60]
    results = {name: weir.metric("weir_content_inspected_total", direction="request", result=name) for name in ("invalid", "compressed", "too_large")}
    assert results == {"invalid": 4, "compressed": 1, "too_large": 1}, results


def test_values_in_the_content_have_counts_of_their_own(rig):
    limits = {"by-model": dict(script="fixed_window", limit=100, period="366d", per=["client", "json:model"])}
    weir = rig.weir(workers=1, limits=limits, upstreams=echo(rig), rules=[{"limits": ["by-model"]}])

    def left(content, body=True):
        response = get(weir.address, "/", method="POST", headers={"X-Client-Id": "c"}, **({"body": content} if body else {}))
        return int(re.search(r";r=(\d+)", response["RateLimit"])[1])
    first = [b'{"model": "a"}', b'{"model": "5"}', b'{"model": 5}', b'{"model": "=5"}', b'{"model": true}', b'{"model": "true"}', b'{"model": "}{%"}']
    assert [left(content) for content in first] == [99] * len(first)
    assert left(b' {"x": [{"model": "b"}], "m\\u006fdel":"\\u0061"}') == 98, "the same name and value"
    empty = [b'{}', b'{"model": null}', b'{"model": ["a"]}', b'{"model": 5.0}', b'{"model": "a", "Model": "b"}', b'{"model": "a"', b'["model"]', b'{"model": ""}']
    assert [left(content) for content in empty] == list(range(99, 99 - len(empty), -1)), "all of these count as the empty value"
    assert left(b"", body=False) == 99 - len(empty)
    long = [b'{"model": "%s"}' % (b"x" * size) for size in (300, 400)]
    assert [left(content) for content in long] == [99, 98], "longer values are cut"


MODELS = [{"match": {"json": {"model": ["gpt-4*", "o1"]}}, "limits": ["strict"], "name": "large"},
          {"match": {"json": {"n": 5}}, "limits": ["strict"], "name": "integer"},
          {"match": {"json": {"n": "5"}}, "limits": ["strict"], "name": "text"},
          {"match": {"json": {"params.stream": True}}, "limits": ["strict"], "name": "stream"},
          {"match": {"path": "/any", "json": {"x": "*"}}, "limits": ["strict"], "name": "any"},
          {"limits": ["lax"], "name": "other"}]


def matching_weir(rig, **keys):
    """Rules by content; the limit in the response tells which kind of rule was chosen."""
    limits = {name: dict(script="fixed_window", limit=1000000, period="1d") for name in ("strict", "lax")}
    return rig.weir(limits=limits, upstreams=echo(rig), rules=MODELS, **keys)


def chosen(weir, body, path="/"):
    response = get(weir.address, path, method="POST", body=body)
    assert response.status in (200, 400, 413), response
    if response.status != 200:
        return response.status
    return "strict" if '"strict"' in response["RateLimit"] else "lax"


def test_rules_match_on_the_content(rig):
    weir = matching_weir(rig)
    for content, expected in [
            ({"model": "gpt-4o"}, "strict"), ({"model": "o1"}, "strict"), ({"model": "o1-mini"}, "lax"), ({"model": None}, "lax"),
            ({}, "lax"), ({"n": 5}, "strict"), ({"n": "5"}, "strict"), ({"n": 5.0}, "lax"), ({"n": 6}, "lax"), ({"n": True}, "lax"),
            ({"params": {"stream": True}}, "strict"), ({"params": {"stream": "true"}}, "lax"), ({"params": [{"stream": True}]}, "lax")]:
        assert chosen(weir, json.dumps(content).encode()) == expected, content
    assert chosen(weir, b'{"m\\u006fdel": "gpt\\u002d4"}') == "strict"
    assert [chosen(weir, b'{"x": %s}' % value, "/any") for value in (b'""', b"7", b"false", b"null", b"{}")] == ["strict"] * 3 + ["lax"] * 2
    assert get(weir.address, "/").status == 200, "a request without content has no values"


def test_content_that_decides_must_be_certain(rig):
    weir = matching_weir(rig)
    whole = b'{"model": "gpt-4"}'
    for body in (whole[:-1], b"model=gpt-4", whole + whole, b'{"model": "gpt-4", "model": "x"}', b'{"model": "x", "MODEL": "gpt-4"}',
                 b'["model"]', b"", b'{"params": {"stream": false}, "params": {"stream": true}}'):
        expected = "lax" if body == b"" else 400
        assert chosen(weir, body) == expected, body
    assert get(weir.address, "/", method="POST", body=gzip.compress(whole), headers={"Content-Encoding": "gzip"}).status == 400
    twice = [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")]
    assert get(weir.address, "/", method="POST", body=whole, headers=twice).status == 400
    assert chosen(weir, b" " * 70000 + whole) == 413
    assert chosen(weir, b'{"x": "%s", "model": "gpt-4"}' % (b"y" * 65000)) == "strict"


def test_content_that_decides_must_be_certain_where_other_readings_are_allowed(rig):
    """paths.ambiguous: allow takes the first rule that may match, but not by what the content may be."""
    weir = matching_weir(rig, paths={"ambiguous": "allow"})
    assert chosen(weir, b'{"model": "x"}') == "lax" and chosen(weir, b'{"model": "o1"}') == "strict"
    for body in (b'{"model": "x"', b'{"model": "x", "Model": "y"}', b"model=x"):
        assert chosen(weir, body) == 400, body
    assert chosen(weir, b'{"model": "x"}' + b" " * 70000) == 413
    assert get(weir.address, "/", method="POST", body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}).status == 400


def test_content_is_not_read_for_a_rule_that_another_condition_excludes(rig):
    rules = [{"match": {"client": "partner", "json": {"stream": True}}, "limits": ["strict"]},
             {"match": {"path": "/a/b"}, "limits": ["strict"]}, {"limits": ["lax"]}]
    limits = {name: dict(script="fixed_window", limit=1000000, period="1d") for name in ("strict", "lax")}
    weir = rig.weir(limits=limits, upstreams=echo(rig), rules=rules)
    for client, inspected in ("other", 0), ("partner", 1):
        body = b'{"stream": true}'
        response = get(weir.address, method="POST", body=body, headers={"X-Client-Id": client})
        assert f'"{"strict" if inspected else "lax"}"' in response["RateLimit"], response
        assert (weir.metric("weir_content_inspected_total", direction="request", result="read") or 0) == inspected, client
    assert chosen(weir, b" " * 70000) == "lax", "its size does not matter"
    assert chosen(weir, b" " * 70000, "/a//b") == 400, "nor is it blamed"


PATTERNS = [{"match": {"json": {"query": ["*mutation*", "ad*min", "exact"]}}, "limits": ["strict"]},
            {"match": {"json": {"start": ["gpt-4*", "5"]}}, "limits": ["strict"]},
            {"match": {"json": {"any": ["x", "*"]}}, "limits": ["strict"]},
            {"limits": ["lax"]}]


def test_padding_before_a_word_chooses_no_laxer_rule(rig):
    """Only the first bytes of a value are kept for patterns."""
    limits = {name: dict(script="fixed_window", limit=1000000, period="1d") for name in ("strict", "lax")}
    weir = rig.weir(limits=limits, upstreams=echo(rig), rules=PATTERNS)
    for size, long in [(200, "strict"), (259, 400), (260, 400), (300, 400), (60000, 400)]:
        value = b" " * size + b"mutation{x}"
        assert chosen(weir, b'{"query": "%s"}' % value) == long, size
    assert chosen(weir, b'{"query": "ad%sminor"}' % (b"x" * 254)) == 400, "the first 259 bytes match"
    assert chosen(weir, b'{"query": "mutation%s"}' % (b"x" * 300)) == 400, "nor is a longer value"
    for value, expected in [(b"gpt-4" + b"o" * 300, "strict"), (b"gpt-3" + b"o" * 300, "lax"), (b"5" * 300, "lax")]:
        assert chosen(weir, b'{"start": "%s"}' % value) == expected, value[:8]
    assert chosen(weir, b'{"start": %s}' % (b"5" * 300)) == "lax"
    assert chosen(weir, b'{"any": "%s"}' % (b"y" * 300)) == "strict"
    assert chosen(weir, b'{"start": "gpt-4\\u0000"}') == 400, "for C strings it is gpt-4"


def test_a_content_type_spares_no_cost(rig):
    weir = weir_for(rig, ASKED)
    for kind in "application/json", "application/json; charset=x", "multipart/x", "application/x-www-form-urlencoded":
        assert charged(weir, b'{"max_completion_tokens": 50, "x": "&"}', **{"Content-Type": kind}) == 50, kind
    assert charged(weir, b'{"max_completion_tokens": 5}', **{"Content-Type": "application/json"}) == 5
    assert charged(weir, b'{"max_completion_tokens": 5}', **{"Content-Type": "application/json; charset=utf-7"}) == 10, "the reserve"


def test_a_content_type_cannot_hide_names(rig):
    """Servers that decode UTF-7, or read a form, find `model` in content that is JSON without it."""
    weir = matching_weir(rig)

    def chosen_as(body, *types):
        response = get(weir.address, "/", method="POST", body=body, headers=[("Content-Type", value) for value in types])
        return response.status if response.status != 200 else "strict" if '"strict"' in response["RateLimit"] else "lax"
    utf7 = b'{"+AG0AbwBkAGUAbA-":"gpt-4"}'
    for name in ("utf-7", '"UTF-7"', "utf-16", "latin1", "utf-8x", "'utf-8'", ""):
        assert chosen_as(utf7, "application/json; charset=" + name) == 400, name
    for types in (["application/json; Charset=utf-8; charset=utf-7"], ["application/json; charset*=utf-8''utf-7"], ["application/json;charset =utf-7"],
                  ["application/json", "application/json; charset=utf-7"]):
        assert chosen_as(utf7, *types) == 400, types
    for name in ("utf-8", "UTF-8", '"utf-8"', "utf8", "us-ascii", "utf-8; x=y"):
        assert chosen_as(b'{"model": "gpt-4"}', "application/json; charset=" + name) == "strict", name
    assert chosen_as('{"x": "¢model"}'.encode(), "application/json; charset=us-ascii") == 400, "servers may drop a bit of each byte"
    assert chosen_as('{"x": "¢model"}'.encode(), "application/json; charset=utf-8") == "lax"
    form, curl = b'{"x":"&model=gpt-4&y="}', b'{"x": "y", "model": "gpt-4"}'
    for types in (["application/x-www-form-urlencoded"], ["Application/X-WWW-Form-Urlencoded; charset=utf-8"],
                  ["application/json", "application/x-www-form-urlencoded"], [""], []):
        assert [chosen_as(body, *types) for body in (form, form.replace(b"&", b";"), curl)] == [400, 400, "strict"], types
    assert chosen_as(form, "application/json") == "lax" and chosen_as(form, "text/plain") == "lax"
    assert chosen_as(curl, "multipart/form-data; boundary=x") == 400


def test_the_content_of_a_grpc_call_is_not_read(rig):
    """Its client may wait for a response to its first message."""
    weir = matching_weir(rig)
    fields = [("content-type", "application/grpc"), ("te", "trailers")]
    with Http2(weir.address) as client:
        stream = client.start("/a.B/C", "POST", fields, end=False)
        client.send_body(stream, b'{"model": "gpt-4"}', end=False)
        response = client.response(stream)
        assert response.status == 200 and response["grpc-status"] == "13", "400: a rule would match on the content"
    limited = weir_for(rig, ASKED)
    with Http2(limited.address) as client:
        stream = client.start("/a.B/C", "POST", [*fields, ("x-client-id", "c")], end=False)
        client.send_body(stream, b'{"max_completion_tokens": 50}')
        assert re.search(r";r=(\d+)", client.response(stream)["ratelimit"])[1] == "990", "the reserve"


def test_chunks_without_content_are_no_content(rig):
    weir = matching_weir(rig)
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", headers={"Transfer-Encoding": "chunked"}) + b"0\r\n\r\n")
        assert connection.response("POST").status == 200


def random_value(random, depth=0):
    kind = random.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [random_value(random, depth + 1) for _ in range(random.randrange(3))]
    if kind == 7:
        return random_object(random, depth + 1)
    return random.choice(["gpt-4", "gpt-4o", "o1", "x", 5, 6, "5", True, False, None, 5.0])


def random_object(random, depth=0):
    """A list of names and values, in which names may stand twice."""
    names = ["model", "Model", "n", "params", "PARAMS", "stream", "x"]
    return Members((random.choice(names), random_value(random, depth)) for _ in range(random.randrange(4)))


class Members(list):
    pass


def written(random, value):
    if isinstance(value, Members):
        return "{" + ",".join(f"{written(random, n)}:{written(random, v)}" for n, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(random, v) for v in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04x}" if random.random() < 0.2 else c for c in value) + '"'
    return random.choice(["", " ", "\n"]) + json.dumps(value)


def readings(value):
    """All objects that readers may see: of names that are alike, the first, the last, or any letter case."""
    if not isinstance(value, Members):
        return [value]
    found = [{}]
    for name in dict.fromkeys(n.lower() for n, _ in value):
        choices = [(name, r) for n, v in value if n.lower() == name for r in readings(v)]
        if not any(n == name for n, _ in value):
            choices = choices + [None]
        found = [{**f, **({choice[0]: choice[1]} if choice else {})} for f in found for choice in choices][:200]
    return found


def rule_of(document):
    def is_text(value, *starts):
        return isinstance(value, str) and any(value == s or s.endswith("*") and value.startswith(s[:-1]) for s in starts)
    params = document.get("params")
    if is_text(document.get("model"), "gpt-4*", "o1") or isinstance(params, dict) and params.get("stream") is True:
        return "strict"
    n = document.get("n")
    return "strict" if n == "5" or isinstance(n, int) and n is not True and n == 5 else "lax"


def test_no_reading_of_the_content_chooses_a_laxer_rule(rig):
    weir = matching_weir(rig)
    generator = random.Random(23)
    counts = {"strict": 0, "lax": 0, 400: 0}
    for _ in range(1500):
        members = random_object(generator)
        if any(isinstance(v, float) for _, v in members):
            continue
        got = chosen(weir, written(generator, members).encode())
        counts[got] += 1
        possible = {rule_of(document) for document in readings(members)}
        assert got == 400 or got == "strict" or possible == {"lax"}, (members, possible, got)
        if len({name.lower() for name, _ in members}) == len(members) and all(n.islower() for n, _ in members) and not any(isinstance(v, Members) for _, v in members):
            assert {got} == possible, (members, possible, got)
    assert min(counts.values()) > 50, counts


def test_an_automatic_reserve_is_a_quarter_of_the_bytes(rig):
    weir = weir_for(rig, {"reserve": "auto", "max": 500, "request_json": "max_tokens"})
    assert charged(weir, b"x" * 400) == 100
    assert charged(weir, b"x") == 1
    assert charged(weir, b"x" * 90000) == 500
    content = b'{"max_tokens": 30, "x": "%s"}' % (b"y" * 375)
    assert charged(weir, content) == len(content) // 4 + 30
    low = weir_for(rig, {"reserve": "auto", "max": 500}, limit=40)
    assert charged(low, b"x" * 400, limit=40) == 40, "at most what the client can use"
    assert low.metric("weir_content_inspected_total", direction="request") == 0, "the length alone is needed"


def test_content_of_any_size_is_forwarded_as_it_came(rig):
    weir = weir_for(rig, {"reserve": "auto", "request_json": "max_tokens", "max": 900}, limit=1000000)
    connection = Connection(weir.address)
    for size in (0, 1, 1000, 65535, 65536, 65537, 100000, 131072, 131073, 300000):
        body = random.Random(size).randbytes(size)
        digest = hashlib.sha256(body).hexdigest().encode()
        assert connection.request("/", "POST", body=body).body == digest, size
        for step in (100, 16384, 70000):
            connection.send(request_bytes("/", "POST", headers={"Transfer-Encoding": "chunked"}) + chunked(body, step))
            assert connection.response("POST").body == digest, (size, step)
    connection.close()
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="the end of the requests")


def test_an_expectation_is_answered(rig):
    weir = weir_for(rig, ASKED)
    body = b'{"max_completion_tokens": 50}'
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", headers={"Expect": "100-continue", "Content-Length": str(len(body))}))
        assert connection.read_until(b"\r\n\r\n", "100").startswith(b"HTTP/1.1 100 ")
        connection.send(body)
        response = connection.response("POST")
    assert response.body == hashlib.sha256(body).hexdigest().encode()
    assert response["X-Expects"] == "0", "weir has answered, so the server need not"


def test_a_rejected_request_leaves_its_connection_usable(rig):
    weir = weir_for(rig, ASKED, limit=60)
    with Connection(weir.address) as connection:
        for status in (200, 429, 429):
            assert connection.request("/", "POST", body=b'{"max_completion_tokens": 50}').status == status
        assert connection.request("/", "POST", body=b'{"max_completion_tokens": 5}').status == 200


def test_slow_and_broken_content_ends_the_request(rig):
    weir = weir_for(rig, ASKED, timeouts={"request_body": "300ms"})
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", headers={"Content-Length": "100"}) + b'{"a"')
        assert connection.response("POST").status == 408
    with Connection(weir.address) as connection:
        connection.send(request_bytes("/", "POST", headers={"Transfer-Encoding": "chunked"}) + b"zz\r\n")
        assert connection.response("POST").status == 400
    patient = weir_for(rig, ASKED)
    connection = Connection(patient.address)
    connection.send(request_bytes("/", "POST", headers={"Content-Length": "100"}) + b'{"a"')
    patient.counts(1, "weir_requests_active")
    connection.close()
    patient.counts(0, "weir_requests_active")
    large = weir_for(rig, ASKED, size_limits={"request_body": "1k"})
    with Connection(large.address) as connection:
        connection.send(request_bytes("/", "POST", headers={"Transfer-Encoding": "chunked"}) + chunked(b"x" * 2000, 500))
        assert connection.response("POST").status == 413


def test_a_client_that_leaves_before_its_rule_is_chosen_ends_the_request(rig):
    weir = matching_weir(rig)
    connection = Connection(weir.address)
    connection.send(request_bytes("/", "POST", headers={"Content-Length": "100"}) + b'{"a"')
    eventually(lambda: weir.metric("weir_requests_active") == 1)
    connection.close()
    eventually(lambda: weir.metric("weir_requests_active") == 0)
    weir.counts(1, "weir_errors_total", cause="client_gone")
    assert chosen(weir, b'{"n": 5}') == "strict"


def test_whole_content_is_sent_again_where_a_request_without_content_is(rig):
    """A server that closes without a response: the next one gets the request, if repeating it is safe."""
    def closing(peer, _number):
        peer.read_request()
    servers = [Scripted(rig, closing).text, echo(rig)["api"]["servers"][0]]
    weir = rig.weir(workers=1, limits=limit_with(ASKED), rules=[{"limits": ["tokens"]}],
                    upstreams={"api": {"servers": servers, "retry": {"on": ["reset"], "tries": 2}}})
    weir.expect_errors("upstream api", "server")
    body = b'{"max_completion_tokens": 5}'
    for _ in range(4):
        assert get(weir.address, "/", method="PUT", body=body).body == hashlib.sha256(body).hexdigest().encode()


def test_content_over_http2(rig):
    weir = weir_for(rig, ASKED)
    with Http2(weir.address) as client:
        for size, cost in ((10, 50), (70000, 10)):
            body = json.dumps({"max_completion_tokens": 50, "x": "y" * size}).encode()
            stream = client.start("/", "POST", [("x-client-id", f"size-{size}")], end=False)
            client.send_within_windows(stream, body)
            response = client.response(stream)
            assert response.body == hashlib.sha256(body).hexdigest().encode(), size
            assert re.search(r";r=(\d+)", response["ratelimit"])[1] == str(1000 - cost)


def identity_weir(rig, **keys):
    limits = {"each": dict(script="fixed_window", limit=1000, period="366d")}
    return rig.weir(limits=limits, rules=[{"limits": ["each"]}],
                    **{"identity": {"from": ["json:user.id", "header:X-Client-Id", "ip"]}, **keys})


def client_of(weir, body, **headers):
    """The identity that the server is told, or the status of a refusal."""
    response = get(weir.address, "/echo", method="POST", body=body, headers=headers)
    if response.status != 200:
        return response.status
    return next(value for name, value in json.loads(response.body)["fields"] if name.lower() == "x-weir-client")


def test_a_value_in_the_content_is_the_identity(rig):
    weir = identity_weir(rig)
    for body, identity in [(b'{"user": {"id": "alice"}}', "json:alice"), (b' {"a": [1], "us\\u0065r": {"id": "alice"}}', "json:alice"),
                           (b'{"user": {"id": 5}}', "json:5"), (b'{"user": {"id": "5"}}', "json:5"), (b'{"user": {"id": "=5"}}', "json:=5")]:
        assert client_of(weir, body) == identity, body
    falls_through = [b"", b"{}", b'{"user": "alice"}', b'{"user": {"id": null}}', b'{"user": {"id": ""}}', b'{"user": {"id": "alice"}', b'["user"]',
                     b'{"user": {"id": [1]}}', b" " * 70000 + b'{"user": {"id": "alice"}}']
    for body in falls_through:
        assert client_of(weir, body, **{"X-Client-Id": "c"}) == "id:c" and client_of(weir, body) == "ip:127.0.0.1", body[:40]
    compressed = gzip.compress(b'{"user": {"id": "alice"}}')
    assert client_of(weir, compressed, **{"Content-Encoding": "gzip"}) == "ip:127.0.0.1"
    for body in (b'{"user": {"id": "a", "id": "b"}}', b'{"user": {"id": "a"}, "User": {}}', b'{"user": {"id": "a\\u0000"}}', b'{"user": {"id": "a\\r\\nX: y"}}'):
        assert client_of(weir, body) == 400, body
    long = [client_of(weir, b'{"user": {"id": "%s%s"}}' % (b"x" * 300, end)) for end in (b"1", b"2")]
    assert all(name.startswith("json:h:") for name in long) and long[0] != long[1], "they differ behind what weir keeps of a value"
    assert long[0] in rig.command("inspect", "-c", weir.policy_file, "json:" + "x" * 300 + "1").stdout, "inspect finds the same client"
    assert client_of(weir, b'{"user": {"id": "%s\\n"}}' % (b"x" * 300)) == 400


def test_content_is_read_only_where_an_earlier_source_has_no_value(rig):
    weir = identity_weir(rig, identity={"from": ["header:X-Client-Id", "json:user", "ip"]})
    assert client_of(weir, b'{"user": "alice"}', **{"X-Client-Id": "c"}) == "id:c"
    assert client_of(weir, b'{"user": "alice"}') == "json:alice"
    assert weir.metric("weir_content_inspected_total", direction="request", result="read") == 1
    untrusted = identity_weir(rig, identity={"from": ["json:user", "ip"], "trusted_proxies": ["192.0.2.1"]})
    assert client_of(untrusted, b'{"user": "alice"}') == "ip:127.0.0.1", "believed like a header"


def test_a_blocked_address_does_not_block_the_clients_that_the_content_names(rig):
    blocked = {"ip:0.0.0.0/0": {"blocked": True}, "json:mallory": {"blocked": True}}
    weir = identity_weir(rig, identity={"from": ["json:user", "ip"]}, clients=blocked)
    answers = [(b'{"user": "alice"}', "json:alice"), (b'{"user": "mallory"}', 403), (b"{}", 403), (b'{"user"', 403), (b"", 403)]
    for body, answer in answers:
        assert client_of(weir, body) == answer, body


def test_clients_by_content_have_their_plans(rig):
    limits = {"each": dict(script="fixed_window", limit=3, period="366d")}
    weir = rig.weir(limits=limits, upstreams=echo(rig), identity={"from": ["json:user", "ip"]}, plans={"gold": {"limits": {"each": {"limit": 50}}}},
                    clients={"json:alice": {"plan": "gold"}, "json:mallory": {"blocked": True}},
                    rules=[{"match": {"client": "json:bob"}, "limits": "none"}, {"limits": ["each"]}])

    def post(user):
        return get(weir.address, "/", method="POST", body=b'{"user": "%s"}' % user)
    assert ";r=49" in post(b"alice")["RateLimit"] and ";r=2" in post(b"carol")["RateLimit"] and post(b"bob")["RateLimit"] is None
    assert post(b"mallory").status == 403


MIB = 1 << 20
LARGE = [65537, 300000, MIB - 1, MIB, MIB + 1, 1500000]


def named_at_the_end(size):
    """A document of this size; the cost stands behind everything else."""
    start, end = b'{"x": "', b'", "max_completion_tokens": 50}'
    return start + b"y" * (size - len(start) - len(end)) + end


def assert_large_content(weir):
    for size in LARGE:
        body = named_at_the_end(size)
        assert charged(weir, body) == (50 if size <= MIB else 10), size
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", "POST", headers={"X-Client-Id": str(size), "Transfer-Encoding": "chunked"}) + chunked(body, 50000))
            response = connection.response("POST")
        assert response.body == hashlib.sha256(body).hexdigest().encode() and ";r=%d" % (950 if size <= MIB else 990) in response["RateLimit"], size


def test_larger_content_is_read_within_the_option(rig):
    weir = weir_for(rig, ASKED, size_limits={"inspected_content": "1m"})
    assert_large_content(weir)
    eventually(lambda: weir.metric("weir_requests_active") == 0, what="the end of the requests")
    matching = matching_weir(rig, size_limits={"inspected_content": "300k"})
    assert chosen(matching, b'{"x": "%s", "model": "gpt-4o"}' % (b"y" * 200000)) == "strict"
    assert chosen(matching, b'{"x": "%s", "model": "gpt-4o"}' % (b"y" * 320000)) == 413


def test_larger_content_to_a_server_with_http2(rig):
    def digest(connection, _number):
        while (request := connection.next_request()) is not None:
            request.respond(hashlib.sha256(request.read_all()).hexdigest().encode())
    server = Http2Server(rig, digest)
    weir = rig.weir(workers=1, limits=limit_with(ASKED), rules=[{"limits": ["tokens"]}], size_limits={"inspected_content": "1m"},
                    upstreams={"api": {"servers": [server.text], "protocol": "http2"}})
    assert_large_content(weir)


def test_a_server_that_answers_before_it_reads_gets_all_content(rig):
    """The response begins while most of the content waits in weir."""
    seen = []

    def early(peer, _number):
        while True:  # until weir closes the connection
            head = peer.read_until(b"\r\n\r\n", "a head")
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            body = peer.read_exactly(length, "the content")
            seen.append(len(body))
            peer.send(hashlib.sha256(body).hexdigest().encode())
    weir = rig.weir(workers=1, limits=limit_with(ASKED), rules=[{"limits": ["tokens"]}], size_limits={"inspected_content": "1m"},
                    upstreams={"api": {"servers": [Scripted(rig, early).text]}})
    for _ in range(3):
        assert charged(weir, named_at_the_end(MIB)) == 50
    assert seen == [MIB] * 3


def test_a_client_that_leaves_before_a_rule_is_chosen(rig):
    weir = rig.weir(workers=1, limits={"few": dict(script="gcra", limit=5, period="1h")},
                    rules=[{"match": {"json": {"model": ["a"]}}, "limits": ["few"]}, {"limits": "none"}])
    for _ in range(2):
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/", "POST", {"Content-Length": "100"}) + b'{"model"')
            weir.counts(1, "weir_requests_active")
        weir.counts(0, "weir_requests_active")
    assert weir.alive()
