"""Who may say who a client is: identity headers from strangers, through the PROXY protocol, and on unix sockets."""

import json
import os

from echoes import echo, fields_of
from proxy_header import SIGNATURE, V1, v2
from wire import Connection, get

EACH = {"each": dict(script="gcra", limit=1000, period="1d")}
TWO = {"each": dict(script="gcra", limit=2, period="1d")}
FROM = ["header:X-Client-Id", "header:X-Api-Key", "ip"]


def behind(rig, trusted, limits=EACH, **more):
    identity = {"from": FROM, "trusted_proxies": trusted, **more.pop("identity", {})}
    return rig.weir(limits=limits, identity=identity, **more)


def client_of(told):
    clients = fields_of(told, "X-Weir-Client")
    assert len(clients) == 1, told
    return clients[0]


def test_a_strangers_identity_header_is_neither_believed_nor_forwarded(rig):
    """It was believed from anyone, whoever trusted_proxies named."""
    weir = behind(rig, ["10.0.0.0/8"])
    for headers in ({"X-Client-Id": "victim"}, {"X-Api-Key": "victim"}, {"X-Client-Id": "", "x-api-key": "victim"},
                    {"X-Client-Id": " \tvictim \t"}, {"X_Client_Id": "victim", "X.Api.Key": "victim"}):
        told = echo(weir.address, headers=headers)
        assert client_of(told) == "ip:127.0.0.1", headers
        assert b"victim" not in json.dumps(told["fields"]).encode(), headers


def test_made_up_ids_of_a_stranger_share_the_limit_of_its_address(rig):
    weir = behind(rig, ["10.0.0.0/8"], TWO)
    assert [get(weir.address, headers={"X-Client-Id": f"made-up-{n}"}).status for n in range(4)] == [200, 200, 429, 429]


def test_a_trusted_proxys_identity_header_is_believed_and_forwarded(rig):
    weir = behind(rig, ["127.0.0.1"])
    told = echo(weir.address, headers={"X-Client-Id": "alice", "X-Forwarded-For": "203.0.113.7"})
    assert client_of(told) == "id:alice" and fields_of(told, "X-Client-Id") == ["alice"]
    assert client_of(echo(weir.address, headers={"X-Forwarded-For": "203.0.113.7"})) == "ip:203.0.113.7"


def test_what_is_refused_of_a_trusted_proxy_is_dropped_of_a_stranger(rig):
    """Two ids and ids that are too long were answered with 400; of a stranger they are no ids."""
    weir = behind(rig, ["10.0.0.0/8"])
    for headers in ([("X-Client-Id", "a"), ("x-client-id", "b")], [("X-Client-Id", "x" * 300)], [("X-Client-Id", "a\tb")],
                    [("X-Client-Id", "a"), ("Connection", "X-Client-Id")]):
        told = echo(weir.address, headers=headers)
        assert client_of(told) == "ip:127.0.0.1" and not fields_of(told, "X-Client-Id")


def test_anyone_may_be_believed_where_the_policy_says_so(rig):
    for trusted, identity in (["10.0.0.0/8"], {"headers_from": "anyone"}), ([], {}), ([], {"headers_from": "trusted"}):
        weir = behind(rig, trusted, identity=identity)
        told = echo(weir.address, headers={"X-Api-Key": "alice"})
        assert client_of(told) == "id:alice" and fields_of(told, "X-Api-Key") == ["alice"]


def test_a_header_that_is_not_believed_counts_as_none_in_limits(rig):
    """What the server does not see must not choose a limit."""
    limits = {"each": dict(script="gcra", limit=2, period="1d", per="header:X-Client-Id"),
              "repeats": dict(script="fixed_window", limit=3, period="1d", dedup="X-Api-Key")}
    weir = behind(rig, ["10.0.0.0/8"], limits)
    seen = [get(weir.address, headers={"X-Client-Id": f"{n}", "X-Api-Key": "repeat"}).status for n in range(4)]
    assert seen == [200, 200, 429, 429]


def test_known_clients_cannot_be_borrowed_by_strangers(rig):
    weir = behind(rig, ["10.0.0.0/8"], TWO, clients={"partner": {"quota": "unlimited"}}, identity={"known_clients_only": True})
    assert [get(weir.address, headers={"X-Client-Id": "partner"}).status for _ in range(3)] == [200, 200, 429]


def test_an_id_written_as_an_address_is_no_address(rig):
    """`X-Client-Id: ip:...` must neither be charged as that address nor meet what the policy says of it."""
    clients = {"ip:203.0.113.7": {"quota": "unlimited"}, "ip:127.0.0.1": {"quota": 1}}
    weir = behind(rig, ["127.0.0.1"], TWO, clients=clients)
    for made_up in "ip:203.0.113.7", "ip:203.0.113.7/32", "ip:unix":
        assert [get(weir.address, headers={"X-Client-Id": made_up}).status for _ in range(3)] == [200, 200, 429], made_up
    assert [get(weir.address).status for _ in range(2)] == [200, 429], "nobody has charged the address"
    assert client_of(echo(weir.address, headers={"X-Client-Id": "id:alice"})) == "id:id:alice"


def test_behind_the_proxy_protocol_the_named_address_is_asked(rig):
    listen = [{"address": "127.0.0.1:0", "proxy_protocol": True}]
    weir = behind(rig, ["127.0.0.1", "10.0.0.0/8", "unix:"], listen=listen)
    victim = {"X-Client-Id": "victim", "X-Forwarded-For": "198.51.100.9"}

    def told(preface):
        with Connection(weir.address) as connection:
            response = connection.send(preface).request("/echo", headers=victim)
            assert response.status == 200, response
            return json.loads(response.body)
    for stranger in V1, v2(), b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n":
        echoed = told(stranger)
        assert client_of(echoed).startswith(("ip:203.0.113.7", "ip:2001:db8::")) and not fields_of(echoed, "X-Client-Id")
    assert client_of(told(v2("10.1.2.3"))) == "id:victim", "a trusted proxy behind the load balancer"
    assert client_of(told(SIGNATURE + b"\x20\0\0\0")) == "id:victim", "LOCAL: the proxy speaks for itself"


def test_a_client_that_the_proxy_protocol_does_not_name_is_a_stranger(rig):
    """UNKNOWN and UNSPEC: the connection is relayed for somebody of whom the proxy does not know the address."""
    listen = [{"address": "127.0.0.1:0", "proxy_protocol": True}]
    weir = behind(rig, ["127.0.0.1"], listen=listen)
    forged = {"X-Client-Id": "victim", "X-Forwarded-For": "198.51.100.9", "X-Real-IP": "198.51.100.9", "X-Forwarded-Proto": "https"}
    for preface in b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN 203.0.113.7 192.0.2.1 1 2\r\n", SIGNATURE + b"\x21\0\0\0":
        with Connection(weir.address) as connection:
            echoed = json.loads(connection.send(preface).request("/echo", headers=forged).body)
        assert client_of(echoed) == "ip:127.0.0.1", preface
        assert not fields_of(echoed, "X-Client-Id") and not fields_of(echoed, "X-Real-IP")
        assert fields_of(echoed, "X-Forwarded-Proto") == ["http"]
        assert fields_of(echoed, "X-Forwarded-For") == ["198.51.100.9, 127.0.0.1"]


def test_unix_peers_are_believed_where_they_are_named(rig):
    for trusted, client in (["unix:"], "id:alice"), (["127.0.0.1"], "ip:unix"):
        path = os.path.join(rig.directory, f"weir-{client[:2]}.sock")
        weir = behind(rig, trusted, listen=[f"unix:{path}"])
        told = echo(path, headers={"X-Client-Id": "alice"})
        assert client_of(told) == client
        assert fields_of(told, "X-Client-Id") == (["alice"] if client == "id:alice" else [])


def test_a_limit_per_address_bounds_made_up_ids_and_their_keys(rig):
    """The remedy of `weir check`'s warning: neither more requests, nor more keys in Redis, than that limit admits."""
    limits = {"client": dict(script="gcra", limit=5, period="1h"), "address": dict(script="fixed_window", limit=10, period="1h", per="ip")}
    weir = behind(rig, [], limits, identity={"headers_from": "anyone"})
    statuses = [get(weir.address, headers={"X-Client-Id": f"made-up-{n}"}).status for n in range(40)]
    assert statuses == [200] * 10 + [429] * 30
    assert len([key for key in rig.redis().command("KEYS", "*:l:*")]) == 11, rig.redis().command("KEYS", "*")


def test_an_address_among_the_clients_is_not_met_with_an_id(rig):
    """As `weir check` warns; and its remedies work."""
    clients = {"ip:127.0.0.1": {"quota": 0}}
    with_id = {"X-Client-Id": "made-up"}
    weir = behind(rig, [], clients=clients)
    assert get(weir.address).status == 429 and get(weir.address, headers=with_id).status == 200
    weir = behind(rig, [], clients=clients, identity={"known_clients_only": True})
    assert get(weir.address, headers=with_id).status == 429
    weir = behind(rig, [], addresses={"block": [rig.write("blocked.txt", "127.0.0.1\n")]})
    assert get(weir.address, headers=with_id).status == 403
    weir = behind(rig, [], TWO, addresses={"allow": [rig.write("allowed.txt", "\ufeff127.0.0.1\n")]})
    assert [get(weir.address, headers=with_id).status for _ in range(4)] == [200] * 4


def test_a_reload_changes_whom_weir_believes(rig):
    weir = behind(rig, ["127.0.0.1"])
    assert client_of(echo(weir.address, headers={"X-Client-Id": "alice"})) == "id:alice"
    weir.reload(identity={"from": FROM, "trusted_proxies": ["10.0.0.0/8"]})
    assert client_of(echo(weir.address, headers={"X-Client-Id": "alice"})) == "ip:127.0.0.1"
