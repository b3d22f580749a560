"""The PROXY protocol on listeners: which address it sets, which peers may send it, and what happens
after an invalid header."""

import json

from proxy_header import SIGNATURE, V1, v2
from rig import eventually
from wire import Connection, get, request_bytes


def weir_behind_proxy(rig, trusted=("127.0.0.1",), listen=None, **more):
    return rig.weir(limits={"each": dict(script="gcra", limit=1000, period="1d")},
                    listen=listen or [{"address": "127.0.0.1:0", "proxy_protocol": True}],
                    identity={"trusted_proxies": list(trusted)}, **more)


def fields_of_request(response):
    """The fields that the upstream received, by lower-case name."""
    assert response.status == 200, response
    return {name.lower(): value for name, value in json.loads(response.body)["fields"]}


def fields_with_header(weir, first_bytes, headers=None):
    with Connection(weir.address) as connection:
        connection.send(first_bytes)
        return fields_of_request(connection.request("/echo", headers=headers))


def assert_closed_and_counted(weir, data, count):
    with Connection(weir.address) as connection:
        connection.send(data)
        assert connection.is_closed()
    eventually(lambda: weir.metric("weir_proxy_header_errors_total") == count, what="the connection to be counted")


def test_the_address_in_the_header_is_the_client(rig):
    weir = weir_behind_proxy(rig)
    for first_bytes in V1, v2(), v2(more=b"\x04\0\x03abc"):
        fields = fields_with_header(weir, first_bytes)
        assert fields["x-weir-client"] == "ip:203.0.113.7"
        assert fields["x-forwarded-for"] == "203.0.113.7"
    v6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n"
    assert fields_with_header(weir, v6)["x-weir-client"] == "ip:2001:db8::/64"


def test_without_an_address_in_the_header_the_proxy_is_the_client(rig):
    weir = weir_behind_proxy(rig)
    for first_bytes in b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0", v2(command=0x20):
        assert fields_with_header(weir, first_bytes)["x-weir-client"] == "ip:127.0.0.1"


def test_forwarded_for_is_trusted_according_to_the_address_in_the_header(rig):
    weir = weir_behind_proxy(rig, trusted=["127.0.0.1", "10.0.0.0/8"])
    forged = {"X-Forwarded-For": "198.51.100.9"}
    assert fields_with_header(weir, V1, forged)["x-weir-client"] == "ip:203.0.113.7"
    assert fields_with_header(weir, v2("10.1.2.3"), forged)["x-weir-client"] == "ip:198.51.100.9"


def test_a_header_in_pieces_and_together_with_requests(rig):
    weir = weir_behind_proxy(rig)
    for first_bytes in V1, v2():
        for cut in range(1, len(first_bytes) + 1):
            with Connection(weir.address) as connection:
                connection.send(first_bytes[:cut]).send(first_bytes[cut:] + request_bytes("/echo"))
                assert fields_of_request(connection.response())["x-weir-client"] == "ip:203.0.113.7"
        with Connection(weir.address) as connection:
            connection.send(first_bytes + request_bytes("/echo") * 3)
            assert [connection.response().status for _ in range(3)] == [200] * 3


def test_an_invalid_header_closes_the_connection(rig):
    weir = weir_behind_proxy(rig)
    bad = [request_bytes("/"), b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\n" + request_bytes("/"),
           V1.replace(b"203.0.113.7", b"203.0.113.777"), b"PROXY UNKNOWN " + b"x" * 100,
           SIGNATURE + b"\x21\x11\xff\xff", v2(more=b"\x03\0\x04abcd"), b"\x16\x03\x01\x02\x00\x01"]
    for count, data in enumerate(bad, 1):
        assert_closed_and_counted(weir, data, count)
    with Connection(weir.address) as connection:
        connection.send(V1 + V1 + request_bytes("/"))
        assert connection.response().status == 400, "a second header is a malformed request"


def test_an_untrusted_peer_is_closed(rig):
    weir = weir_behind_proxy(rig, trusted=["10.0.0.0/8"])
    assert_closed_and_counted(weir, V1, 1)
    weir.counts(1, "weir_connections_accepted_total")


def test_header_and_request_head_share_a_timeout(rig):
    weir = weir_behind_proxy(rig, timeouts={"request_header": "4s"})
    with Connection(weir.address) as silent, Connection(weir.address) as half, Connection(weir.address) as headless:
        half.send(V1[:20])
        headless.send(V1 + b"GET / HT")
        assert silent.is_closed() and half.is_closed()
        assert headless.response().status == 408
    eventually(lambda: weir.metric("weir_proxy_header_errors_total") == 2)


def test_connections_are_counted_per_address_in_the_header(rig):
    weir = weir_behind_proxy(rig, size_limits={"connections_per_ip": 2})
    with Connection(weir.address) as one, Connection(weir.address) as two, Connection(weir.address) as three, \
            Connection(weir.address) as other:
        assert one.send(V1).request("/").status == 200
        assert two.send(V1).request("/").status == 200
        assert three.send(V1).is_closed(), "the third connection of one client"
        assert other.send(v2("203.0.113.8")).request("/").status == 200
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as again:
        assert again.send(V1).request("/").status == 200


def test_connections_that_close_before_their_header_are_not_counted(rig):
    weir = weir_behind_proxy(rig, size_limits={"connections_per_ip": 2})
    for _ in range(20):
        with Connection(weir.address) as connection:
            connection.send(V1[:10])
        Connection(weir.address).close()
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as one, Connection(weir.address) as two:
        assert one.send(V1).request("/").status == two.send(V1).request("/").status == 200


def test_the_setting_applies_per_listener_and_survives_reloads(rig):
    weir = weir_behind_proxy(rig, listen=["127.0.0.1:0", {"address": "127.0.0.1:0", "proxy_protocol": True}])
    plain, proxied = weir.addresses
    for number in range(2):
        assert fields_of_request(get(plain, "/echo"))["x-weir-client"] == "ip:127.0.0.1"
        assert get(plain).status == 200
        with Connection(proxied) as connection:
            assert fields_of_request(connection.send(V1).request("/echo"))["x-weir-client"] == "ip:203.0.113.7"
        with Connection(plain) as connection:
            connection.send(V1 + request_bytes("/"))
            assert connection.response().status == 400
        weir.signal(1)
        weir.wait_for_output(r"info +(reload: .* is in effect)", count=number + 1)
        weir.wait_for_redis()


def test_the_proxy_protocol_on_a_unix_socket(rig):
    path = rig.directory + "/weir.sock"
    weir = weir_behind_proxy(rig, trusted=["unix:"], listen=[{"address": "unix:" + path, "proxy_protocol": True}])
    with Connection(path) as connection:
        fields = fields_of_request(connection.send(V1).request("/echo", headers={"X-Forwarded-For": "198.51.100.9"}))
        assert fields["x-weir-client"] == "ip:203.0.113.7"


def test_the_access_log_contains_the_client(rig):
    weir = weir_behind_proxy(rig, log={"access": "json"})
    with Connection(weir.address) as connection:
        connection.send(V1).request("/")
    weir.wait_for_output(r'"peer":"(203\.0\.113\.7)')
