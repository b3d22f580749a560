"""Lists of addresses that are never limited or always blocked. A reload reads the files again."""

import json

from rig import eventually
from wire import get


def daily(limit, **more):
    return dict(script="fixed_window", limit=limit, period="1d", **more)


def fetch(weir, address=None, times=1, client=None):
    headers = {**({"X-Forwarded-For": address} if address else {}), **({"X-Client-Id": client} if client else {})}
    return [get(weir.address, headers=headers).status for _ in range(times)]


def weir_with_lists(rig, allow="", block="", **more):
    rig.write("allow.txt", allow)
    rig.write("block.txt", block)
    more = {"identity": {"from": ["header:X-Client-Id", "ip"], "trusted_proxies": ["127.0.0.1"]}, "limits": {"day": daily(1)}, **more}
    return rig.weir(addresses={"allow": ["allow.txt"], "block": ["block.txt"]}, **more)


def test_allowed_addresses_are_never_limited_or_blocked(rig):
    upstream = rig.upstream()
    weir = weir_with_lists(rig, "# friends\n10.1.0.0/16\n\n  192.0.2.7   # the office\r\n2001:db8:1::/48\n",
                  "10.0.0.0/8\n203.0.113.0/24\n2001:db8::/32\n10.1.2.3",
                  upstreams={"api": {"servers": [upstream.text]}}, log={"access": "json"})
    assert fetch(weir, "192.0.2.7", 3) == [200] * 3 and fetch(weir, "10.1.9.9", 3) == [200] * 3
    assert fetch(weir, "2001:db8:1:2::3", 3) == [200] * 3
    assert fetch(weir, "192.0.2.8", 2) == [200, 429]
    for blocked in "203.0.113.9", "10.1.2.3", "10.2.0.0", "2001:db8:2::", "::ffff:203.0.113.9", "::ffff:cb00:7109":
        assert fetch(weir, blocked) == [403], blocked
    # Also with any client id, and with an id that is otherwise rejected with 400.
    assert fetch(weir, "203.0.113.9", client="a") == [403] and fetch(weir, "203.0.113.9", client="x" * 300) == [403]
    assert fetch(weir, "192.0.2.7", 3, client="a") == [200] * 3
    answer = get(weir.address, headers={"X-Forwarded-For": "203.0.113.9"})
    assert answer["Content-Type"] == "application/problem+json" and json.loads(answer.body)["status"] == 403
    assert answer["X-RateLimit-Limit"] is None
    assert get(weir.address, headers={"X-Forwarded-For": "192.0.2.7"})["X-Rate-Limit-Quota"] == "-1"
    weir.counts(9, "weir_errors_total", cause="address_blocked")
    weir.counts(13, "weir_limit_decisions_total", limit="day", decision="unlimited")
    eventually(lambda: weir.output().count('"error":"address_blocked"') == 9, what="the access log lines")
    for name, words in ("ip:203.0.113.9", "blocked (addresses.block)"), ("ip:192.0.2.7", "never limited (addresses.allow)"):
        assert words in rig.command("inspect", "-c", weir.policy_file, name).stdout
    # No request reached Redis.
    assert rig.redis().command("KEYS", "weir:*") == ["weir:{ip:192.0.2.8}:l:day"]


def test_only_a_trusted_proxy_sets_the_client_address(rig):
    weir = weir_with_lists(rig, "198.51.100.1\n", "127.0.0.1\n", identity={"from": ["ip"], "trusted_proxies": ["127.0.0.2"]})
    assert fetch(weir) == [403] and fetch(weir, "198.51.100.1") == [403]
    weir = weir_with_lists(rig, "127.0.0.1\n", "198.51.100.1\n", identity={"from": ["ip"], "trusted_proxies": ["127.0.0.2"]})
    assert fetch(weir, "198.51.100.1", 3) == [200] * 3
    # Behind the proxy, the last address that is not a proxy's applies.
    weir = weir_with_lists(rig, "", "198.51.100.1\n")
    assert fetch(weir, "198.51.100.1, 192.0.2.1") == [200] and fetch(weir, "192.0.2.1, 198.51.100.1") == [403]


def test_a_reload_reads_the_lists_again_and_errors_keep_the_policy(rig):
    weir = weir_with_lists(rig, block="203.0.113.9\n")
    assert fetch(weir, "203.0.113.9") == [403]
    path = rig.write("block.txt", "203.0.113.10\n\n  nonsense # here\n203.0.113.11/24\n")
    weir.expect_errors("block.txt", "has errors")
    weir.signal(1)
    weir.wait_for_output("the current policy stays in effect")
    assert f'{path}:3:3: "nonsense": ' in weir.output() and f"{path}:4:1: " in weir.output(), weir.output()
    assert fetch(weir, "203.0.113.9") == [403] and fetch(weir, "203.0.113.10") == [200]
    rig.write("block.txt", "203.0.113.10\n")
    weir.reload().wait_for_redis()
    assert fetch(weir, "203.0.113.9") == [200] and fetch(weir, "203.0.113.10") == [403]
    done = rig.command("check", "-c", weir.policy_file)
    assert "addresses:\n  allow: [ allow.txt ]\n  block: [ block.txt ]\n" in done.stdout, done.stdout


def test_long_lists_are_fast(rig):
    lines = [f"{10 + i // 65536}.{i // 256 % 256}.{i % 256}.{i * 7 % 256}" for i in range(300000)]
    weir = weir_with_lists(rig, block="\n".join(lines))
    assert fetch(weir, lines[0]) == fetch(weir, lines[-1]) == fetch(weir, lines[123456]) == [403]
    assert fetch(weir, "9.255.255.255") == fetch(weir, "200.0.0.1") == [200]
