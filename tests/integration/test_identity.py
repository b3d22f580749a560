"""The identity of clients: headers, addresses, trusted proxies."""

import json
import re

from wire import Connection, get, request_bytes

LIMIT = {"each": dict(script="gcra", limit=2, period="1d")}


def charged_identity(weir, headers=None, **more):
    """The identity that was charged, from the field that the upstream received."""
    response = get(weir.address, "/echo", headers=headers, **more)
    assert response.status == 200, response
    identities = [value for name, value in json.loads(response.body)["fields"] if name.lower() == "x-weir-client"]
    assert len(identities) == 1, identities
    return identities[0]


def weir_behind_proxies(rig, **identity):
    return rig.weir(limits={"each": dict(script="gcra", limit=1000, period="1d")},
                    identity={"from": ["header:X-Client-Id", "ip"], **identity})


def test_the_header_has_precedence_over_the_address(rig):
    weir = weir_behind_proxies(rig)
    assert charged_identity(weir, {"X-Client-Id": "client-2"}) == "id:client-2"
    assert charged_identity(weir) == "ip:127.0.0.1"
    assert charged_identity(weir, {"X-Client-Id": ""}) == "ip:127.0.0.1", "an empty id is ignored"


def test_the_default_identity_is_the_address(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=100, period="1d")}, identity={})
    assert charged_identity(weir, {"X-Client-Id": "made-up"}) == "ip:127.0.0.1"


def test_a_forged_weir_client_field_is_removed(rig):
    weir = weir_behind_proxies(rig)
    assert charged_identity(weir, {"X-Weir-Client": "id:boss"}) == "ip:127.0.0.1"
    assert charged_identity(weir, {"X-Weir-Client": "id:boss", "Connection": "X-Weir-Client"}) == "ip:127.0.0.1"


def test_an_id_never_collides_with_an_address(rig):
    weir = rig.weir(limits=LIMIT)
    assert charged_identity(weir, {"X-Client-Id": "ip:127.0.0.1"}) == "id:ip:127.0.0.1"
    assert [get(weir.address).status for _ in range(3)] == [200, 200, 429]
    assert get(weir.address, headers={"X-Client-Id": "127.0.0.1"}).status == 200


def test_whitespace_around_an_id_is_ignored(rig):
    weir = rig.weir(limits=LIMIT)
    statuses = []
    for value in ("id", "\tid", " id \t ", "id"):
        with Connection(weir.address) as connection:
            connection.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client-Id:" + value.encode() + b"\r\n\r\n")
            statuses.append(connection.response().status)
    assert statuses == [200, 200, 429, 429]


def test_repeated_ids_and_control_bytes_are_refused_and_long_ids_are_hashed(rig):
    weir = weir_behind_proxies(rig)
    twice = [("X-Client-Id", "a"), ("x-client-id", "a")]
    assert get(weir.address, headers=twice).status == 400
    assert re.fullmatch("id:h:[0-9a-f]{32}", charged_identity(weir, {"X-Client-Id": "x" * 257}))
    assert charged_identity(weir, {"X-Client-Id": "x" * 256}) == "id:" + "x" * 256
    assert get(weir.address, headers={"X-Client-Id": "a\tb"}).status == 400
    assert get(weir.address, headers={"X-Client-Id": "a\x01b"}).status == 400


def test_content_of_a_refused_request_is_not_parsed_as_a_request(rig):
    weir = weir_behind_proxies(rig)
    with Connection(weir.address) as connection:
        connection.send(request_bytes(method="POST", headers={"X-Client-Id": "x\ty"}, body=b"GET /no HTTP/1.1\r\n\r\n"))
        assert connection.response().status == 400
        try:
            response = connection.request("/echo")
        except Exception:
            return  # closed: also correct
        assert json.loads(response.body)["target"] == "/echo"


def test_the_last_untrusted_address_in_forwarded_for_is_the_client(rig):
    weir = weir_behind_proxies(rig, trusted_proxies=["127.0.0.1", "10.0.0.0/8"])
    for field, client in (("203.0.113.7", "203.0.113.7"),
                          ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
                          ("198.51.100.1, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
                          ("203.0.113.7,10.1.2.3 ,\t10.9.9.9", "203.0.113.7"),
                          ("nonsense, 203.0.113.7", "203.0.113.7"),
                          ("10.1.1.1, 10.2.2.2", "10.1.1.1")):
        assert charged_identity(weir, {"X-Forwarded-For": field}) == "ip:" + client, field
    several = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "203.0.113.7, 10.1.1.1")]
    assert charged_identity(weir, several) == "ip:203.0.113.7"


def test_forwarded_for_from_an_untrusted_peer_is_ignored(rig):
    weir = weir_behind_proxies(rig, trusted_proxies=["10.0.0.0/8"])
    assert charged_identity(weir, {"X-Forwarded-For": "203.0.113.7"}) == "ip:127.0.0.1"
    echo = json.loads(get(weir.address, "/echo", headers={"X-Forwarded-For": "203.0.113.7"}).body)
    forwarded = [v for n, v in echo["fields"] if n.lower() == "x-forwarded-for"]
    assert forwarded == ["203.0.113.7, 127.0.0.1"], "the last address is the peer of weir"


def test_ipv6_addresses_are_grouped_and_mapped_addresses_are_ipv4(rig):
    weir = weir_behind_proxies(rig, trusted_proxies=["127.0.0.1"])
    assert charged_identity(weir, {"X-Forwarded-For": "2001:db8:1:2:3:4:5:6"}) == "ip:2001:db8:1:2::/64"
    assert charged_identity(weir, {"X-Forwarded-For": "2001:0DB8:1:2::1"}) == "ip:2001:db8:1:2::/64"
    assert charged_identity(weir, {"X-Forwarded-For": "::ffff:203.0.113.7"}) == "ip:203.0.113.7"
    weir = weir_behind_proxies(rig, trusted_proxies=["127.0.0.1"], ipv6_prefix=56)
    assert charged_identity(weir, {"X-Forwarded-For": "2001:db8:1:2ff::1"}) == "ip:2001:db8:1:200::/56"


def test_addresses_and_ranges_as_clients(rig):
    weir = rig.weir(limits=LIMIT, identity={"trusted_proxies": ["127.0.0.1"]},
                    clients={"ip:203.0.113.7": {"quota": 0}, "ip:10.0.0.0/8": {"quota": "unlimited"},
                             "ip:10.66.0.0/16": {"quota": 1}})

    def statuses(address):
        return [get(weir.address, headers={"X-Forwarded-For": address}).status for _ in range(3)]
    assert statuses("203.0.113.7") == [429, 429, 429]
    assert statuses("10.1.2.3") == [200, 200, 200]
    assert statuses("10.66.0.1") == [200, 429, 429], "the longest prefix applies"
    assert statuses("198.51.100.1") == [200, 200, 429]


def test_a_plan_applies_to_its_clients_with_separate_counters(rig):
    weir = rig.weir(limits=LIMIT, plans={"gold": {"limits": {name: {"limit": 4} for name in LIMIT}}},
                    clients={"partner": {"plan": "gold"}, "shop": {"plan": "gold"}, "small": {"plan": "gold", "quota": 1}})

    def statuses(client, count=5):
        return [get(weir.address, headers={"X-Client-Id": client}).status for _ in range(count)]
    assert statuses("partner") == [200] * 4 + [429]
    assert statuses("shop") == [200] * 4 + [429]
    assert statuses("small") == [200] + [429] * 4, "the client's own settings override the plan"
    assert statuses("gold", 3) == [200, 200, 429], "the name of a plan is not a client"


def test_known_clients_only_ignores_unknown_ids(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=100, period="1d")},
                    clients={"known": {"quota": 3}, "empty": {}, "ip:10.0.0.1": {"quota": 5}},
                    identity={"from": ["header:X-Client-Id", "header:X-Api-Key", "ip"], "known_clients_only": True})
    assert charged_identity(weir, {"X-Client-Id": "known"}) == "id:known"
    assert charged_identity(weir, {"X-Client-Id": "empty"}) == "id:empty", "an empty entry is enough"
    assert charged_identity(weir, {"X-Client-Id": "made-up"}) == "ip:127.0.0.1"
    assert charged_identity(weir, {"X-Client-Id": "made-up", "X-Api-Key": "known"}) == "id:known"
    assert charged_identity(weir, {"X-Client-Id": "ip:10.0.0.1"}) == "ip:127.0.0.1", "an id is not an address"
    assert charged_identity(weir, {"X-Client-Id": "KNOWN"}) == "ip:127.0.0.1"


def test_with_known_clients_only_made_up_ids_share_the_limit_of_their_address(rig):
    weir = rig.weir(limits=LIMIT, clients={"known": {}},
                    identity={"from": ["header:X-Client-Id", "ip"], "known_clients_only": True})
    statuses = [get(weir.address, headers={"X-Client-Id": f"made-up-{i}"}).status for i in range(4)]
    assert statuses == [200, 200, 429, 429]
    assert get(weir.address, headers={"X-Client-Id": "known"}).status == 200
