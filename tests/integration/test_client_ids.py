"""Unusual client ids are separate clients, and the error for a cost above every limit."""

import json
import re
from urllib.parse import quote

from wire import get

# Ids that careless key building could confuse: hash tags of Redis Cluster, percent escapes, parts
# of weir's keys.
IDS = ["a", "A", "a b", " a", "{a}", "%7Ba%7D", "%257Ba%257D", "a}", "a}:l:each", "a:l:each", "id:a", "ip:127.0.0.1", "unix", "é", "e\u0301", "%C3%A9",
       "日本", "{", "}", "{}", "%", "a/b", "a?b", "*", "a\\b", '"a"', "a,b", "a;b", "0", "-1", "unlimited", "a" * 256]


def test_unusual_ids_are_counted_separately(rig):
    limits = {"each": dict(script="fixed_window", limit=3, period="1h"),
              "both": dict(script="fixed_window", limit=3, period="1h", per=["client", "route"]),
              "header": dict(script="fixed_window", limit=3, period="1h", per="header:X-Client-Id")}
    weir = rig.weir(limits=limits)
    # leading and trailing whitespace is not part of a field value (RFC 9110, 5.5)
    ids = [i for i in IDS if i == i.strip()]
    for count in (2, 1, 0):
        for client in ids:
            answer = get(weir.address, headers=[("X-Client-Id", client.encode().decode("latin-1"))])
            assert answer.status == 200 and answer.number("X-RateLimit-Remaining") == count, (client, answer)
    keys = rig.redis().command("KEYS", "weir:*")
    assert len(keys) == len(set(keys)) == 3 * len(ids), len(keys)
    for client in ids:
        answer = get(weir.address, headers=[("X-Client-Id", client.encode().decode("latin-1"))])
        assert answer.status == 429, (client, answer)


def test_an_id_that_is_not_utf_8_has_one_name_everywhere(rig):
    weir = rig.weir(limits={"each": dict(script="fixed_window", limit=3, period="1h")}, log={"access": "json"})
    for client in "caf\xe9", "caf\xe9", "caf\xea", "\xef\xbf\xbde9":
        assert get(weir.address, headers=[("X-Client-Id", client)]).status == 200
    weir.wait_for_output('"target"', count=4)
    logged = [json.loads(line)["client"] for line in weir.output().splitlines() if '"target"' in line]
    top = [c["client"] for c in json.loads(get(weir.admin, "/api/v1/top").body)["clients"]]
    assert sorted(set(logged)) == sorted(top) == ["id:caf\ufffde9", "id:caf\ufffdea", "id:\ufffdef\ufffdbf\ufffdbde9"], (logged, top)
    for name, left in zip(sorted(top), (1, 2, 2)):
        seen = json.loads(get(weir.admin, "/api/v1/clients/" + quote(name, safe="")).body)
        assert (seen["client"], seen["limits"][0]["remaining"]) == (name, left), seen
        assert re.search(rf"^each .* {left} of 3 ", rig.command("inspect", "-c", weir.policy_file, name).stdout, re.M), name


def test_an_unlisted_id_gets_the_default_limits(rig):
    """Also an id that looks like the entry of another client."""
    weir = rig.weir(limits={"each": dict(script="fixed_window", limit=5, period="1h")},
                    clients={"gold": {"quota": 50}, "ip:127.0.0.9": {"quota": 0}, "{x}": {"quota": 7}, "é x": {"quota": 8}})
    seen = {client: get(weir.address, headers=[("X-Client-Id", client.encode().decode("latin-1"))])["X-RateLimit-Limit"]
            for client in ("gold", "Gold", "nobody", "ip:127.0.0.9", "{x}", "%7Bx%7D", "é x", "id:gold")}
    assert seen == {"gold": "50", "Gold": "5", "nobody": "5", "ip:127.0.0.9": "5", "{x}": "7", "%7Bx%7D": "5", "é x": "8", "id:gold": "5"}, seen


def test_with_two_entries_the_first_identity_source_applies(rig):
    """An id and an address are two names of a client: the first source in identity.from decides."""
    settings = {"clients": {"known": {"quota": 9}, "ip:127.0.0.1": {"quota": 4}}, "limits": {"each": dict(script="fixed_window", limit=5, period="1h")}}
    weir = rig.weir(**settings)
    assert get(weir.address, headers=[("X-Client-Id", "known")])["X-RateLimit-Limit"] == "9"
    assert get(weir.address)["X-RateLimit-Limit"] == "4"


def test_a_cost_above_every_limit_is_explained(rig):
    trusted = {"from": ["header:X-Client-Id", "ip"], "trusted_proxies": ["127.0.0.1"]}
    weir = rig.weir(identity=trusted, clients={"small": {"quota": 4}},
                    limits={"w": dict(script="fixed_window", limit=10, period="1h"), "b": dict(script="token_bucket", limit=20, period="1h", burst=12)},
                    rules=[{"match": {"path": "/asks"}, "limits": ["w", "b"], "cost": {"request_header": "X-Cost", "max": 100}},
                           {"limits": ["w"], "cost": 5}])
    for target, fields in ("/asks", [("X-Client-Id", "a"), ("X-Cost", "11")]), ("/asks", [("X-Client-Id", "a"), ("X-Cost", "50")]), \
            ("/", [("X-Client-Id", "small")]):
        answer = get(weir.address, target, headers=fields)
        assert answer.status == 429 and answer["Retry-After"] is None, (target, answer)
        problem = json.loads(answer.body)
        assert problem["detail"] == "The request costs more than its rate limit ever allows." and "w" in problem["violated-policies"], problem
    assert get(weir.address, "/asks", headers=[("X-Client-Id", "a"), ("X-Cost", "10")]).status == 200, "the rejected requests were not charged"
