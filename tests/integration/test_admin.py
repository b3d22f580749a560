"""The admin listener: health, readiness, and metrics that are consistent with the traffic."""

import re
import socket
import time

from rig import eventually, free_port
from wire import Connection, flood, get, request_bytes


def test_health_and_readiness(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=3, period="1h")})
    assert get(weir.admin, "/healthz").status == 200
    assert get(weir.admin, "/readyz").status == 200
    assert get(weir.admin, "/nothing-here").status == 404
    assert b"weir_build_info" in get(weir.admin, "/metrics").body
    assert b"weir_build_info" not in get(weir.address, "/metrics").body, "the proxy does not serve the admin interface"


def test_metrics_are_well_formed(rig):
    weir = rig.weir(limits={"each": dict(script="gcra", limit=3, period="1h")})
    get(weir.address)
    response = get(weir.admin, "/metrics")
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    helped, typed, seen = set(), {}, set()
    for line in response.body.decode().splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split()[2])
        elif line.startswith("# TYPE "):
            typed[line.split()[2]] = line.split()[3]
        else:
            sample = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*\})? -?[0-9.e+Inf]+', line)
            assert sample, line
            assert line.rpartition(" ")[0] not in seen, f"duplicate sample: {line}"
            seen.add(line.rpartition(" ")[0])
            family = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            assert sample[1] in typed or typed.get(family) == "histogram", f"no TYPE for {line}"
    assert helped == set(typed)
    assert {"weir_requests_total", "weir_limit_decisions_total", "weir_redis_latency_seconds",
            "weir_upstream_latency_seconds", "weir_connections", "weir_build_info"} <= helped


def test_metrics_are_consistent_with_the_requests_sent(rig):
    weir = rig.weir(workers=3, limits={"each": dict(script="gcra", limit=30, period="10d")},
                    clients={"boss": {"quota": "unlimited"}, "pest": {"quota": 0}},
                    rules=[{"name": "free", "match": {"path": "/free"}, "limits": []},
                           {"name": "rest", "limits": ["each"]}])
    flood(weir.address, 100, connections=16)
    flood(weir.address, 20, connections=4, headers={"X-Client-Id": "boss"})
    flood(weir.address, 10, connections=4, headers={"X-Client-Id": "pest"})
    flood(weir.address, 15, connections=4, target="/free")
    weir.counts(145, "weir_requests_total")
    for number, decision in (30, "allowed"), (70, "limited"), (20, "unlimited"), (10, "prohibited"):
        weir.counts(number, "weir_limit_decisions_total", limit="each", decision=decision)
    weir.counts(15, "weir_requests_total", rule="free")
    weir.counts(130, "weir_requests_total", rule="rest")
    weir.counts(70, "weir_requests_total", rule="rest", decision="limited")
    weir.counts(30, "weir_requests_total", rule="rest", decision="allowed")
    weir.counts(65, "weir_upstream_latency_seconds_count")
    redis_calls = weir.metric("weir_redis_latency_seconds_count")
    assert 30 <= redis_calls <= 100, "every admission calls Redis; a denial can be cached"
    assert redis_calls == weir.metric("weir_redis_latency_seconds_bucket", le="+Inf")
    assert redis_calls == weir.metric("weir_redis_decisions_total")


def test_open_connections_are_counted(rig):
    weir = rig.weir()
    assert weir.metric("weir_connections") == 0
    with Connection(weir.address) as connection:
        connection.request()
        weir.counts(1, "weir_connections")
    weir.counts(0, "weir_connections")


def test_a_failing_upstream_is_counted_by_cause(rig):
    weir = rig.weir(upstreams={"api": {"servers": [f"127.0.0.1:{free_port()}"]}})
    weir.expect_errors("upstream|server|api")
    for _ in range(3):
        get(weir.address)

    def counted():  # after the response was sent
        return re.search(r'weir_\w*(errors|failures)\w*_total\{[^}]*"\} 3(\.0)?$', get(weir.admin, "/metrics").body.decode(), re.M)
    eventually(counted, what="three failures with one cause")


def test_a_policy_without_admin_starts_no_admin_listener(rig):
    policy = rig.policy()
    del policy["admin"]
    import json
    weir = rig.weir(text=json.dumps(policy))
    assert get(weir.address).status == 200


def test_the_admin_listener_survives_malformed_requests(rig):
    weir = rig.weir()
    for data in b"\r\n\r\n", b"GET\r\n\r\n", b"\x00" * 1000, b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n":
        with Connection(weir.admin, timeout=2) as connection:
            try:
                connection.send(data)
                connection.fill()
            except OSError:
                pass
    assert get(weir.admin, "/healthz").status == 200


def test_responses_on_kept_connections_do_not_wait_for_acknowledgements(rig):
    """A client that delays them does so for at least 40 ms."""
    weir = rig.weir()
    with Connection(weir.admin) as connection:
        def is_quick():
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            began = time.monotonic()
            assert connection.send(request_bytes("/metrics")).response().status == 200
            return time.monotonic() - began < 0.035
        for _ in range(8):  # the kernel acknowledges the first ones at once
            is_quick()
        eventually(is_quick)


def test_idle_admin_connections_are_bounded_and_do_not_lock_operators_out(rig):
    weir = rig.weir()
    used = Connection(weir.admin)
    used.send(request_bytes("/healthz"))
    assert used.response().status == 200
    before = weir.descriptors()
    idle = [Connection(weir.admin) for _ in range(300)]
    assert get(weir.admin, "/healthz").status == 200
    eventually(lambda: weir.descriptors() <= before + 256)
    assert idle[0].is_closed() and used.is_closed(), "the oldest ones"
    idle[-1].send(request_bytes("/healthz"))
    assert idle[-1].response().status == 200
    for connection in [used, *idle]:
        connection.close()
    eventually(lambda: weir.descriptors() < before)


def assert_is_disconnected(connection, data):
    """The buffers of the kernel take some of it."""
    try:
        for _ in range((12 << 20) // len(data)):
            connection.send(data)
    except ConnectionError:
        return
    raise AssertionError("weir reads without a bound")


def test_clients_that_send_and_do_not_read_are_disconnected(rig):
    weir = rig.weir()
    request = request_bytes("/metrics", headers={"X-Pad": "x" * 4000})
    with Connection(weir.admin) as honest:
        honest.send(request * 10)
        for _ in range(10):
            assert honest.response().status == 200
    with Connection(weir.admin) as connection:
        assert_is_disconnected(connection, request * 250)
    assert get(weir.admin, "/healthz").status == 200


def test_a_chunk_line_without_an_end_is_not_buffered(rig):
    weir = rig.weir()
    with Connection(weir.admin) as connection:
        connection.send(b"PUT /api/v1/clients/c HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n1;")
        assert_is_disconnected(connection, b"x" * (1 << 20))
    assert get(weir.admin, "/healthz").status == 200


def test_a_request_that_arrives_byte_by_byte_has_ten_seconds(rig):
    weir = rig.weir()
    with Connection(weir.admin) as connection:
        head, sent = request_bytes("/healthz", headers={"X-Long": "x" * 2000}), []

        def send_a_byte():
            try:
                connection.socket.sendall(head[len(sent):len(sent) + 1])
            except ConnectionError:
                return True
            sent.append(1)
            return False
        eventually(send_a_byte, 20, "the end of the connection")
    assert len(sent) < len(head)
