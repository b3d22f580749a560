"""The PROXY protocol on listeners: whom it names, who may say so, and what a bad header does."""

import json

from proxy_header import SIGNATURE, V1, v2
from rig import eventually
from wire import Connection, get, request_bytes


def behind_proxy(rig, trusted=("127.0.0.1",), listen=None, **more):
    return rig.weir(limits={"each": dict(script="gcra", limit=1000, period="1d")},
                    listen=listen or [{"address": "127.0.0.1:0", "proxy_protocol": True}],
                    identity={"trusted_proxies": list(trusted)}, **more)


def told(response):
    """The fields that the upstream got, by lower-case name."""
    assert response.status == 200, response
    return {name.lower(): value for name, value in json.loads(response.body)["fields"]}


def fields_after(weir, preface, headers=None):
    with Connection(weir.address) as connection:
        connection.send(preface)
        return told(connection.request("/echo", headers=headers))


def refused(weir, data, count):
    with Connection(weir.address) as connection:
        connection.send(data)
        assert connection.is_closed()
    eventually(lambda: weir.metric("weir_proxy_header_errors_total") == count, what="the connection is counted")


def test_the_named_address_is_the_client(rig):
    weir = behind_proxy(rig)
    for preface in V1, v2(), v2(more=b"\x04\0\x03abc"):
        fields = fields_after(weir, preface)
        assert fields["x-weir-client"] == "ip:203.0.113.7"
        assert fields["x-forwarded-for"] == "203.0.113.7"
    v6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n"
    assert fields_after(weir, v6)["x-weir-client"] == "ip:2001:db8::/64"


def test_without_a_name_it_is_the_proxy(rig):
    weir = behind_proxy(rig)
    for preface in b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0", v2(command=0x20):
        assert fields_after(weir, preface)["x-weir-client"] == "ip:127.0.0.1"


def test_whether_a_forwarded_for_is_believed_is_judged_by_the_named_address(rig):
    weir = behind_proxy(rig, trusted=["127.0.0.1", "10.0.0.0/8"])
    forged = {"X-Forwarded-For": "198.51.100.9"}
    assert fields_after(weir, V1, forged)["x-weir-client"] == "ip:203.0.113.7"
    assert fields_after(weir, v2("10.1.2.3"), forged)["x-weir-client"] == "ip:198.51.100.9"


def test_cut_at_every_byte_and_in_one_piece_with_requests(rig):
    weir = behind_proxy(rig)
    for preface in V1, v2():
        for cut in range(1, len(preface) + 1):
            with Connection(weir.address) as connection:
                connection.send(preface[:cut]).send(preface[cut:] + request_bytes("/echo"))
                assert told(connection.response())["x-weir-client"] == "ip:203.0.113.7"
        with Connection(weir.address) as connection:
            connection.send(preface + request_bytes("/echo") * 3)
            assert [connection.response().status for _ in range(3)] == [200] * 3


def test_a_bad_header_closes_the_connection(rig):
    weir = behind_proxy(rig)
    bad = [request_bytes("/"), b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\n" + request_bytes("/"),
           V1.replace(b"203.0.113.7", b"203.0.113.777"), b"PROXY UNKNOWN " + b"x" * 100,
           SIGNATURE + b"\x21\x11\xff\xff", v2(more=b"\x03\0\x04abcd"), b"\x16\x03\x01\x02\x00\x01"]
    for count, data in enumerate(bad, 1):
        refused(weir, data, count)
    with Connection(weir.address) as connection:
        connection.send(V1 + V1 + request_bytes("/"))
        assert connection.response().status == 400, "a second header is a malformed request"


def test_a_peer_that_is_not_trusted_is_closed(rig):
    weir = behind_proxy(rig, trusted=["10.0.0.0/8"])
    refused(weir, V1, 1)
    weir.counts(1, "weir_connections_accepted_total")


def test_one_deadline_for_header_and_head(rig):
    weir = behind_proxy(rig, timeouts={"request_header": "600ms"})
    with Connection(weir.address) as silent, Connection(weir.address) as half, Connection(weir.address) as headless:
        half.send(V1[:20])
        headless.send(V1 + b"GET / HT")
        assert silent.is_closed() and half.is_closed()
        assert headless.response().status == 408
    eventually(lambda: weir.metric("weir_proxy_header_errors_total") == 2)


def test_connections_are_counted_for_the_named_address(rig):
    weir = behind_proxy(rig, size_limits={"connections_per_ip": 2})
    with Connection(weir.address) as one, Connection(weir.address) as two, Connection(weir.address) as three, \
            Connection(weir.address) as other:
        assert one.send(V1).request("/").status == 200
        assert two.send(V1).request("/").status == 200
        assert three.send(V1).is_closed(), "the third of one client"
        assert other.send(v2("203.0.113.8")).request("/").status == 200
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as again:
        assert again.send(V1).request("/").status == 200


def test_connections_that_end_before_their_header_leave_nothing(rig):
    weir = behind_proxy(rig, size_limits={"connections_per_ip": 2})
    for _ in range(20):
        with Connection(weir.address) as connection:
            connection.send(V1[:10])
        Connection(weir.address).close()
    eventually(lambda: weir.metric("weir_connections") == 0)
    with Connection(weir.address) as one, Connection(weir.address) as two:
        assert one.send(V1).request("/").status == two.send(V1).request("/").status == 200


def test_other_listeners_go_without_and_reloads_keep_it(rig):
    weir = behind_proxy(rig, listen=["127.0.0.1:0", {"address": "127.0.0.1:0", "proxy_protocol": True}])
    plain, proxied = weir.addresses
    for _ in range(2):
        assert told(get(plain, "/echo"))["x-weir-client"] == "ip:127.0.0.1"
        assert get(plain).status == 200
        with Connection(proxied) as connection:
            assert told(connection.send(V1).request("/echo"))["x-weir-client"] == "ip:203.0.113.7"
        with Connection(plain) as connection:
            connection.send(V1 + request_bytes("/"))
            assert connection.response().status == 400
        weir.signal(1)
        weir.wait_for_output(r"info +(reload: .* is in effect)")


def test_on_a_unix_socket(rig):
    path = rig.directory + "/weir.sock"
    weir = behind_proxy(rig, trusted=["unix:"], listen=[{"address": "unix:" + path, "proxy_protocol": True}])
    with Connection(path) as connection:
        fields = told(connection.send(V1).request("/echo", headers={"X-Forwarded-For": "198.51.100.9"}))
        assert fields["x-weir-client"] == "ip:203.0.113.7"


def test_the_log_names_the_client(rig):
    weir = behind_proxy(rig, log={"access": "json"})
    with Connection(weir.address) as connection:
        connection.send(V1).request("/")
    weir.wait_for_output(r'"peer":"(203\.0\.113\.7)')
