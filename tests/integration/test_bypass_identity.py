"""Who sets the identity of a client: identity headers from untrusted peers, over the PROXY
protocol, and on Unix sockets."""

import json
import os

from echoes import echo, fields_of
from proxy_header import SIGNATURE, V1, v2
from wire import Connection, get

EACH = {"each": dict(script="gcra", limit=1000, period="1d")}
TWO = {"each": dict(script="gcra", limit=2, period="1d")}
FROM = ["header:X-Client-Id", "header:X-Api-Key", "ip"]


def weir_behind_proxy(rig, trusted, limits=EACH, **more):
    identity = {"from": FROM, "trusted_proxies": trusted, **more.pop("identity", {})}
    return rig.weir(limits=limits, identity=identity, **more)


def client_of(seen_by_server):
    clients = fields_of(seen_by_server, "X-Weir-Client")
    assert len(clients) == 1, seen_by_server
    return clients[0]


def test_an_identity_header_from_an_untrusted_peer_is_dropped(rig):
    """Identity headers were accepted from every peer, regardless of trusted_proxies."""
    weir = weir_behind_proxy(rig, ["10.0.0.0/8"])
    for headers in ({"X-Client-Id": "victim"}, {"X-Api-Key": "victim"}, {"X-Client-Id": "", "x-api-key": "victim"},
                    {"X-Client-Id": " \tvictim \t"}, {"X_Client_Id": "victim", "X.Api.Key": "victim"}):
        seen_by_server = echo(weir.address, headers=headers)
        assert client_of(seen_by_server) == "ip:127.0.0.1", headers
        assert b"victim" not in json.dumps(seen_by_server["fields"]).encode(), headers


def test_made_up_ids_from_an_untrusted_peer_share_the_limit_of_its_address(rig):
    weir = weir_behind_proxy(rig, ["10.0.0.0/8"], TWO)
    assert [get(weir.address, headers={"X-Client-Id": f"made-up-{n}"}).status for n in range(4)] == [200, 200, 429, 429]


def test_an_identity_header_from_a_trusted_proxy_is_used_and_forwarded(rig):
    weir = weir_behind_proxy(rig, ["127.0.0.1"])
    seen_by_server = echo(weir.address, headers={"X-Client-Id": "alice", "X-Forwarded-For": "203.0.113.7"})
    assert client_of(seen_by_server) == "id:alice" and fields_of(seen_by_server, "X-Client-Id") == ["alice"]
    assert client_of(echo(weir.address, headers={"X-Forwarded-For": "203.0.113.7"})) == "ip:203.0.113.7"


def test_invalid_ids_are_refused_from_a_trusted_proxy_and_dropped_from_others(rig):
    """Two ids or an overlong id are refused with 400. From an untrusted peer they are dropped."""
    weir = weir_behind_proxy(rig, ["10.0.0.0/8"])
    for headers in ([("X-Client-Id", "a"), ("x-client-id", "b")], [("X-Client-Id", "x" * 300)], [("X-Client-Id", "a\tb")],
                    [("X-Client-Id", "a"), ("Connection", "X-Client-Id")]):
        seen_by_server = echo(weir.address, headers=headers)
        assert client_of(seen_by_server) == "ip:127.0.0.1" and not fields_of(seen_by_server, "X-Client-Id")


def test_headers_from_anyone_accepts_every_peer(rig):
    for trusted, identity in (["10.0.0.0/8"], {"headers_from": "anyone"}), ([], {}), ([], {"headers_from": "trusted"}):
        weir = weir_behind_proxy(rig, trusted, identity=identity)
        seen_by_server = echo(weir.address, headers={"X-Api-Key": "alice"})
        assert client_of(seen_by_server) == "id:alice" and fields_of(seen_by_server, "X-Api-Key") == ["alice"]


def test_limits_ignore_an_identity_header_from_an_untrusted_peer(rig):
    """A field that the server does not see must not select a limit."""
    limits = {"each": dict(script="gcra", limit=2, period="1d", per="header:X-Client-Id"),
              "repeats": dict(script="fixed_window", limit=3, period="1d", dedup="X-Api-Key")}
    weir = weir_behind_proxy(rig, ["10.0.0.0/8"], limits)
    seen = [get(weir.address, headers={"X-Client-Id": f"{n}", "X-Api-Key": "repeat"}).status for n in range(4)]
    assert seen == [200, 200, 429, 429]


def test_untrusted_peers_cannot_use_the_ids_of_known_clients(rig):
    weir = weir_behind_proxy(rig, ["10.0.0.0/8"], TWO, clients={"partner": {"quota": "unlimited"}}, identity={"known_clients_only": True})
    assert [get(weir.address, headers={"X-Client-Id": "partner"}).status for _ in range(3)] == [200, 200, 429]


def test_an_id_that_looks_like_an_address_is_not_an_address(rig):
    """`X-Client-Id: ip:...` must neither be charged to that address nor get the limits that the
    policy sets for it."""
    clients = {"ip:203.0.113.7": {"quota": "unlimited"}, "ip:127.0.0.1": {"quota": 1}}
    weir = weir_behind_proxy(rig, ["127.0.0.1"], TWO, clients=clients)
    for made_up in "ip:203.0.113.7", "ip:203.0.113.7/32", "ip:unix":
        assert [get(weir.address, headers={"X-Client-Id": made_up}).status for _ in range(3)] == [200, 200, 429], made_up
    assert [get(weir.address).status for _ in range(2)] == [200, 429], "the address was not charged"
    assert client_of(echo(weir.address, headers={"X-Client-Id": "id:alice"})) == "id:id:alice"


def test_with_the_proxy_protocol_trust_depends_on_the_address_in_its_header(rig):
    listen = [{"address": "127.0.0.1:0", "proxy_protocol": True}]
    weir = weir_behind_proxy(rig, ["127.0.0.1", "10.0.0.0/8", "unix:"], listen=listen)
    victim = {"X-Client-Id": "victim", "X-Forwarded-For": "198.51.100.9"}

    def seen_by_server(first_bytes):
        with Connection(weir.address) as connection:
            response = connection.send(first_bytes).request("/echo", headers=victim)
            assert response.status == 200, response
            return json.loads(response.body)
    for stranger in V1, v2(), b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n":
        echoed = seen_by_server(stranger)
        assert client_of(echoed).startswith(("ip:203.0.113.7", "ip:2001:db8::")) and not fields_of(echoed, "X-Client-Id")
    assert client_of(seen_by_server(v2("10.1.2.3"))) == "id:victim", "the header contains the address of a trusted proxy"
    assert client_of(seen_by_server(SIGNATURE + b"\x20\0\0\0")) == "id:victim", "LOCAL: a connection of the proxy itself"


def test_a_proxy_header_without_an_address_makes_the_client_untrusted(rig):
    """UNKNOWN and UNSPEC: the proxy relays a connection for a client whose address it does not
    know."""
    listen = [{"address": "127.0.0.1:0", "proxy_protocol": True}]
    weir = weir_behind_proxy(rig, ["127.0.0.1"], listen=listen)
    forged = {"X-Client-Id": "victim", "X-Forwarded-For": "198.51.100.9", "X-Real-IP": "198.51.100.9", "X-Forwarded-Proto": "https"}
    for first_bytes in b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN 203.0.113.7 192.0.2.1 1 2\r\n", SIGNATURE + b"\x21\0\0\0":
        with Connection(weir.address) as connection:
            echoed = json.loads(connection.send(first_bytes).request("/echo", headers=forged).body)
        assert client_of(echoed) == "ip:127.0.0.1", first_bytes
        assert not fields_of(echoed, "X-Client-Id") and not fields_of(echoed, "X-Real-IP")
        assert fields_of(echoed, "X-Forwarded-Proto") == ["http"]
        assert fields_of(echoed, "X-Forwarded-For") == ["198.51.100.9, 127.0.0.1"]


def test_unix_peers_are_trusted_if_unix_is_listed(rig):
    for trusted, client in (["unix:"], "id:alice"), (["127.0.0.1"], "ip:unix"):
        path = os.path.join(rig.directory, f"weir-{client[:2]}.sock")
        weir = weir_behind_proxy(rig, trusted, listen=[f"unix:{path}"])
        seen_by_server = echo(path, headers={"X-Client-Id": "alice", "X-Forwarded-For": "203.0.113.7"})
        assert client_of(seen_by_server) == client
        assert fields_of(seen_by_server, "X-Client-Id") == (["alice"] if client == "id:alice" else [])
        assert fields_of(seen_by_server, "X-Forwarded-For") == (["203.0.113.7"] if client == "id:alice" else [])


def test_a_limit_per_address_bounds_requests_and_keys_of_made_up_ids(rig):
    """The remedy that `weir check` recommends: that limit bounds the requests and the keys in
    Redis."""
    limits = {"client": dict(script="gcra", limit=5, period="1h"), "address": dict(script="fixed_window", limit=10, period="1h", per="ip")}
    weir = weir_behind_proxy(rig, [], limits, identity={"headers_from": "anyone"})
    statuses = [get(weir.address, headers={"X-Client-Id": f"made-up-{n}"}).status for n in range(40)]
    assert statuses == [200] * 10 + [429] * 30
    assert len([key for key in rig.redis().command("KEYS", "*:l:*")]) == 11, rig.redis().command("KEYS", "*")


def test_limits_of_an_address_do_not_apply_to_requests_with_an_id(rig):
    """`weir check` warns about this; the recommended remedies work."""
    clients = {"ip:127.0.0.1": {"quota": 0}}
    with_id = {"X-Client-Id": "made-up"}
    weir = weir_behind_proxy(rig, [], clients=clients)
    assert get(weir.address).status == 429 and get(weir.address, headers=with_id).status == 200
    weir = weir_behind_proxy(rig, [], clients=clients, identity={"known_clients_only": True})
    assert get(weir.address, headers=with_id).status == 429
    weir = weir_behind_proxy(rig, [], addresses={"block": [rig.write("blocked.txt", "127.0.0.1\n")]})
    assert get(weir.address, headers=with_id).status == 403
    weir = weir_behind_proxy(rig, [], TWO, addresses={"allow": [rig.write("allowed.txt", "\ufeff127.0.0.1\n")]})
    assert [get(weir.address, headers=with_id).status for _ in range(4)] == [200] * 4


def test_a_reload_changes_trusted_proxies(rig):
    weir = weir_behind_proxy(rig, ["127.0.0.1"])
    assert client_of(echo(weir.address, headers={"X-Client-Id": "alice"})) == "id:alice"
    weir.reload(identity={"from": FROM, "trusted_proxies": ["10.0.0.0/8"]}).wait_for_redis()
    assert client_of(echo(weir.address, headers={"X-Client-Id": "alice"})) == "ip:127.0.0.1"
