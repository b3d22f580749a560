"""Temporary quotas of single clients: PUT /api/v1/clients/ID and weir grant."""

import json
import re
import threading
import time
from urllib.parse import quote

from rig import eventually
from shifted_clock import ShiftedClock
from wire import Connection, get


def daily(limit, **more):
    return dict(script="fixed_window", limit=limit, period="1d", **more)


def fetch(weir, client, times=1, **more):
    return [get(weir.address, headers={"X-Client-Id": client}, **more).status for _ in range(times)]


def put(weir, client, body, status=200, headers=None):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = get(weir.admin, "/api/v1/clients/" + quote(client, safe=""), method="PUT", body=body, headers=headers or {})
    assert response.status == status, (response.status, response.body)
    return json.loads(response.body)


def look(weir, client):
    return json.loads(get(weir.admin, "/api/v1/clients/" + quote(client, safe="")).body)


def grant(rig, weir, *arguments, status=0):
    done = rig.command("grant", "-c", weir.policy_file, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def two_weirs(rig, **more):
    weirs = [rig.weir(workers=2, limits={"day": daily(2), "everyone": daily(1000, per="all")}, **more) for _ in range(2)]
    eventually(lambda: rig.redis().command("PUBSUB", "NUMSUB", "weir:resets") == ["weir:resets", 2], what="both subscriptions")
    return weirs


def wait_for_grants(weir, count=1):
    """A read that Redis does not answer in time is repeated after 5 s."""
    eventually(lambda: weir.metric("weir_grants") == count, 30, f"{count} grants to be loaded")


def test_a_grant_replaces_the_quota_at_once_on_every_weir(rig):
    weirs = two_weirs(rig)
    assert fetch(weirs[0], "a", 3) == [200, 200, 429] and fetch(weirs[1], "a") == [429]
    assert put(weirs[1], "a", {"quota": 4, "for": "1h"})["published"] is True
    for weir in weirs:
        wait_for_grants(weir)
    # The used units stay charged: two of four are left.
    assert fetch(weirs[0], "a", 2) == [200, 200] and fetch(weirs[1], "a", 2) == [429, 429]
    assert fetch(weirs[0], "b", 3) == [200, 200, 429]
    response = get(weirs[0].address, headers={"X-Client-Id": "a"})
    assert response.status == 429 and response["X-RateLimit-Limit"] == "4"
    put(weirs[0], "a", {"quota": 1, "for": "1h"})
    put(weirs[0], "a", {"quota": 5, "for": "1h"})  # the later grant applies
    eventually(lambda: fetch(weirs[1], "a") == [200], what="the second grant to be applied")
    assert fetch(weirs[0], "a") == [429]


def test_a_grant_expires_and_can_be_revoked(rig):
    weirs = two_weirs(rig)
    began = time.monotonic()
    put(weirs[0], "short", {"quota": "unlimited", "for": "6s"})
    put(weirs[0], "long", {"quota": 0, "for": "30d"})
    for weir in weirs:
        wait_for_grants(weir, 2)
    loaded = time.monotonic()  # weir counts the rest of the 6 s from when it reads the reply of Redis
    assert fetch(weirs[1], "long") == [429] and fetch(weirs[0], "long") == [429]

    def has_ended(weir):
        nonlocal last
        sent_at = time.monotonic()
        if 429 in fetch(weir, "short", 3):
            return True
        last = sent_at
        return False
    for weir in weirs:  # each weir applies it on its own, without a message
        last = loaded
        eventually(lambda: has_ended(weir), what="the end of the grant")  # noqa: B023
        assert time.monotonic() - began >= 6, "the grant ended early"
        assert last < loaded + 7, f"a grant for 6 s went on for {last - loaded} s"
    put(weirs[1], "long", {"quota": None})
    eventually(lambda: fetch(weirs[0], "long") == [200], what="the grant to be revoked")
    weirs[0].counts(0, "weir_grants")


def test_a_grant_overrides_the_policy_and_is_shown(rig):
    weir = rig.weir(limits={"day": daily(5)}, clients={"pest": {"quota": 0}, "boss": {"quota": "unlimited"}})
    assert fetch(weir, "pest") == [429]
    assert look(weir, "pest")["grant"] is None and look(weir, "pest")["client_limits"] == "prohibited"
    answer = put(weir, "pest", {"quota": 2, "for": "90m"})
    assert answer["client"] == "id:pest" and answer["grant"]["quota"] == 2, answer
    wait_for_grants(weir)
    assert fetch(weir, "pest", 3) == [200, 200, 429]
    put(weir, "boss", {"quota": 1, "for": "1h"})
    wait_for_grants(weir, 2)
    assert fetch(weir, "boss", 2) == [200, 429]
    seen = look(weir, "pest")
    assert seen["client_limits"] == "quota" and seen["entry"] is None and seen["limits"][0]["capacity"] == 2, seen
    assert seen["limits"][0]["remaining"] == 0 and 5390 < seen["grant"]["ends_in_seconds"] <= 5400
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", seen["grant"]["until"])
    text = rig.command("inspect", "-c", weir.policy_file, "pest").stdout
    assert "grant   a quota of 2, for 89m" in text.replace("90m 00s", "89m 59s") and "limits  quota" in text, text
    # DELETE resets the client and keeps the grant.
    get(weir.admin, "/api/v1/clients/pest", method="DELETE")
    eventually(lambda: fetch(weir, "pest") == [200], what="the reset")
    assert look(weir, "pest")["grant"]["quota"] == 2


def test_a_grant_has_no_effect_on_a_blocked_client(rig):
    weir = rig.weir(limits={"day": daily(5)}, clients={"pest": {"blocked": True}})
    inspect = ["inspect", "-c", weir.policy_file, "pest"]
    assert fetch(weir, "pest") == [403]
    text = rig.command(*inspect).stdout
    assert "limits  blocked (clients: pest)" in text and "Every request gets 403." in text, text
    warning = "a blocked client: every request gets 403, and a grant has no effect"
    assert put(weir, "pest", {"quota": 500, "for": "1h"})["warnings"] == [warning]
    wait_for_grants(weir)
    assert fetch(weir, "pest") == [403]
    seen = look(weir, "pest")
    assert (seen["client_limits"], seen["entry"], seen["limits"]) == ("blocked", "pest", []), seen
    assert seen["grant"]["quota"] == 500 and seen["warnings"] == [warning], seen
    shown = rig.command(*inspect)
    assert "limits  blocked" in shown.stdout and warning in shown.stderr, shown
    assert warning in rig.command("grant", "-c", weir.policy_file, "pest", "500", "1h").stderr
    assert put(weir, "pest", {"quota": None})["warnings"] == []


def test_the_command_line_grants_and_revokes(rig):
    weir = rig.weir(limits={"day": daily(1)})
    assert grant(rig, weir, "a", "3", "1h") == "id:a: a quota of 3 for 1h\n"
    wait_for_grants(weir)
    assert fetch(weir, "a", 4) == [200, 200, 200, 429]
    assert grant(rig, weir, "a", "unlimited", "1d") == "id:a: unlimited for 1d\n"
    eventually(lambda: fetch(weir, "a") == [200], what="the grant")
    assert "grant   unlimited" in rig.command("inspect", "-c", weir.policy_file, "a").stdout
    assert grant(rig, weir, "a", "none") == "id:a: the grant is revoked\n"
    eventually(lambda: fetch(weir, "a") == [429], what="the grant to be revoked")
    for bad in (["a", "many", "1h"], ["a", "3"], ["a", "3", "0s"], ["a", "3", "31d"], ["a", "3", "1.5h"], ["a", "none", "1h"],
                ["a", "1000000000000000", "1h"], ["ip:10.0.0.0/8", "3", "1h"], ["", "3", "1h"]):
        assert grant(rig, weir, *bad, status=2).startswith("weir: "), bad
    assert "a range is not a client" in grant(rig, weir, "ip:10.0.0.0/8", "3", "1h", status=2)
    for count in (["a"], ["a", "3", "1h", "x"]):
        assert rig.command("grant", "-c", weir.policy_file, *count).returncode == 2
    assert rig.redis().command("HKEYS", "weir:grants") == ["version"]


def test_a_grant_without_effect_has_a_warning(rig):
    weir = rig.weir(limits={"day": daily(1)}, clients={"known": {}}, identity={"from": ["header:X-Client-Id", "ip"], "known_clients_only": True})
    hour = {"quota": 2, "for": "1h"}
    assert put(weir, "known", hour)["warnings"] == [] and look(weir, "known")["warnings"] == []
    for answer in put(weir, "made-up", hour), look(weir, "made-up"):
        assert "counted by address" in answer["warnings"][0], answer
    for command in ("grant", "made-up", "2", "1h"), ("inspect", "made-up"):
        done = rig.command(command[0], "-c", weir.policy_file, *command[1:])
        assert done.returncode == 0 and "counted by address" in done.stderr, done


def test_grants_for_all_kinds_of_client_names(rig):
    weir = rig.weir(identity={"from": ["header:X-Client-Id", "ip"], "trusted_proxies": ["127.0.0.1"], "ipv6_prefix": 56},
                    limits={"day": daily(1)})
    def count(**fields):
        return [get(weir.address, headers={k.replace("_", "-"): v for k, v in fields.items()}).status for _ in range(3)]
    odd = "v:{}%\\ \"x\u00e4"
    for name in "ip:203.0.113.7", "ip:2001:db8:1:2::9", "ip:" + "::ffff:203.0.113.8", odd, "id:ip:1.2.3.4", "version", "x" * 256:
        put(weir, name, {"quota": 2, "for": "1h"})
    wait_for_grants(weir, 7)
    assert count(X_Forwarded_For="203.0.113.7") == [200, 200, 429]
    assert count(X_Forwarded_For="2001:db8:1:ff::1") == [200, 200, 429]
    assert count(X_Forwarded_For="203.0.113.8") == [200, 200, 429]
    assert count(X_Forwarded_For="203.0.113.9") == [200, 429, 429]
    assert count(X_Client_Id=odd.encode().decode("latin-1")) == [200, 200, 429]
    assert count(X_Client_Id="ip:1.2.3.4") == [200, 200, 429]
    assert count(X_Client_Id="version") == [200, 200, 429]
    assert count(X_Client_Id="x" * 256) == [200, 200, 429]
    put(weir, "ip:10.0.0.0/8", {"quota": 1, "for": "1h"}, status=400)


def test_errors_in_bodies_are_described(rig):
    weir = rig.weir(limits={"day": daily(1)})
    for body, words in ((b"", "JSON object"), (b"[]", "JSON object"), (b"{}", "quota is missing"), (b'{"quota": 1}', "for is missing"),
                        (b'{"for": "1h"}', "quota is missing"), (b'{"quota": 1, "for": "1h"', "not a JSON object"),
                        (b'{"quota": 1, "for": "1h"} x', "not a JSON object"), (b'{"quota": 1, "quota": 1, "for": "1h"}', "twice"),
                        (b'{"quota": "1", "for": "1h"}', "quota:"), (b'{"quota": -2, "for": "1h"}', "quota:"),
                        (b'{"quota": 1.5, "for": "1h"}', "quota:"), (b'{"quota": unlimited, "for": "1h"}', "not a JSON object"),
                        (b'{"quota": 1, "for": 3600}', "for:"), (b'{"quota": 1, "for": "500ms"}', "for:"),
                        (b'{"quota": 1, "for": "721h"}', "for:"), (b'{"quota": 1, "for": "ever"}', "for:"),
                        (b'{"quota": null, "for": "1h"}', "takes no duration"), (b'{"qouta": 1}', 'unknown member "qouta"'),
                        (b'{"quota": {"a": 1}, "for": "1h"}', "quota:"), (b'{"quota": 1, "for": "1h",}', "not a JSON object"),
                        (b'{"quota": ' + b"1" * 100 + b', "for": "1h"}', "quota:"), (b"\0\xff{", "JSON object")):
        detail = put(weir, "a", body, status=400)["detail"]
        assert words in detail, (body, detail)
    put(weir, "a", {"quota": 1, "for": "1h"}, status=403, headers={"Origin": "http://evil.example"})
    assert get(weir.admin, "/api/v1/clients/a", method="POST", body=b"{}")["Allow"] == "GET, HEAD, PUT, DELETE"
    assert rig.redis().command("EXISTS", "weir:grants") == 0


def test_weir_loads_grants_at_start_and_periodically(rig):
    first = rig.weir(limits={"day": daily(1)})
    put(first, "a", {"quota": 3, "for": "1h"})
    second = rig.weir(limits={"day": daily(1)})
    wait_for_grants(second)
    assert fetch(second, "a", 4) == [200, 200, 200, 429]
    second.reload(limits={"day": daily(2)})
    wait_for_grants(second)
    # Another program adds a grant without a message; weir finds it at the next periodic read.
    rig.redis().command("HSET", "weir:grants", "id:b", "2:9007199254740000", "version", "other")
    for nonsense in "", "1", "1:", "x:1", "-3:9007199254740000", "1:9007199254740000 ", "1:" + "9" * 50:
        rig.redis().command("HSET", "weir:grants", "id:nonsense" + nonsense, nonsense)
    eventually(lambda: second.metric("weir_grants") == 2, 15, "the grant without a message")
    rig.redis().command("DEL", "weir:grants")
    rig.redis().command("PUBLISH", "weir:resets", "grant id:a")
    wait_for_grants(second, 0)


def test_grants_are_read_again_after_a_suspend(rig):
    """Then only the wall clock has advanced. A row whose version did not change shows the read."""
    clock = ShiftedClock(rig)
    weir = rig.weir(limits={"day": daily(1)}, environment=clock.environment)
    put(weir, "a", {"quota": 3, "for": "1h"})
    wait_for_grants(weir)
    rig.redis().command("HSET", "weir:grants", "id:b", "2:9007199254740000")
    clock.shift(3600)
    wait_for_grants(weir, 2)


def test_grants_stay_in_effect_without_redis(rig):
    weir = rig.weir(limits={"day": daily(1)}, redis={"on_failure": "local"})
    weir.expect_errors("redis")
    put(weir, "a", {"quota": "unlimited", "for": "1h"})
    put(weir, "b", {"quota": 0, "for": "1h"})
    wait_for_grants(weir, 2)
    rig.redis().kill()
    assert fetch(weir, "a", 5) == [200] * 5 and fetch(weir, "b") == [429]
    put(weir, "c", {"quota": 1, "for": "1h"}, status=503)
    rig.redis().start()  # with an empty database
    wait_for_grants(weir, 0)


def test_a_grant_that_redis_loses_before_it_is_read_ends(rig):
    """Without SUBSCRIBE, weir reads the grants every 5 s only."""
    rig.redis().command("ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all", "-subscribe")
    weir = rig.weir(limits={"day": daily(1)}, redis={"username": "weir", "password": "secret"})
    weir.wait_for_output("SUBSCRIBE")
    put(weir, "a", {"quota": "unlimited", "for": "1h"})
    assert weir.metric("weir_grants") == 1
    rig.redis().command("DEL", "weir:grants")
    wait_for_grants(weir, 0)


def test_a_user_without_permission_to_read_grants_is_reported_once(rig):
    rig.redis().command("ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all", "-hget", "-hgetall")
    weir = rig.weir(limits={"day": daily(2)}, redis={"username": "weir", "password": "secret"})
    weir.wait_for_output("the grants in weir:grants cannot be read")
    assert fetch(weir, "a", 3) == [200, 200, 429] and look(weir, "a")["limits"][0]["remaining"] == 0
    rig.redis().command("ACL", "SETUSER", "weir", "+hget", "+hgetall")
    weir.wait_for_output("the grants in weir:grants can be read again")
    assert len(re.findall("cannot be read", weir.output())) == 1


def test_a_grant_that_may_not_be_read_has_a_warning(rig):
    weir = rig.weir(limits={"day": daily(2)})
    put(weir, "a", {"quota": 50, "for": "1h"})
    assert look(weir, "a")["grant"]["quota"] == 50 and look(weir, "a")["warnings"] == []
    rig.redis().command("ACL", "SETUSER", "default", "-hget")
    unread = "Redis does not let its user read grants (allow HGET, see docs/backends.md): if the client has one, it is not shown"
    assert look(weir, "a")["grant"] is None and unread in look(weir, "a")["warnings"][0]
    for command in ["inspect", "-c", weir.policy_file, "a"], ["explain", "--state", "-c", weir.policy_file, "-H", "X-Client-Id: a", "/"]:
        done = rig.command(*command)
        assert done.returncode == 0 and done.stderr.count(unread) == 1, done


def test_an_error_of_redis_has_its_remedy(rig):
    weir = rig.weir(limits={"day": daily(2)})
    weir.expect_errors("redis ")
    redis, body = rig.redis(), {"quota": 50, "for": "1h"}
    redis.command("CONFIG", "SET", "maxmemory", "1")
    detail = put(weir, "a", body, status=503)["detail"]
    assert detail == "Redis could not be queried: Redis is out of memory (oom); raise maxmemory in Redis"
    redis.command("CONFIG", "SET", "maxmemory", "0")
    redis.command("REPLICAOF", "127.0.0.1", "1")
    for _ in range(2):  # the first one closes the connection
        detail = put(weir, "a", body, status=503)["detail"]
        assert "Redis is a read-only replica (readonly); point redis.address at the master" in detail, detail


def test_the_number_of_grants_is_limited(rig):
    weir = rig.weir(limits={"day": daily(1)})
    rig.redis().command("EVAL", "for i = 1, 2047 do redis.call('HSET', 'weir:grants', 'id:' .. i, '7:9007199254740000') end", 0)
    rig.redis().command("HSET", "weir:grants", "id:over", "7:1000")
    put(weir, "last", {"quota": 1, "for": "1h"})
    # the expired grant is removed
    assert rig.redis().command("HEXISTS", "weir:grants", "id:over") == 0
    assert "maximum number of grants" in put(weir, "more", {"quota": 1, "for": "1h"}, status=503)["detail"]
    assert "2048 grants" in grant(rig, weir, "more", "1", "1h", status=1)
    wait_for_grants(weir, 2048)
    assert fetch(weir, "last", 2) == [200, 429]
    put(weir, "last", {"quota": 2, "for": "1h"})
    eventually(lambda: fetch(weir, "last") == [200], what="the grant that replaced an expired one")
    assert fetch(weir, "last") == [429]
    put(weir, "last", {"quota": None})
    put(weir, "more", {"quota": 1, "for": "1h"})


def test_resets_and_grants_under_load_reach_two_weirs(rig):
    """A client sends requests to both weirs continuously. Each reset admits exactly its limit
    again, and each grant exactly the additional units."""
    weirs = two_weirs(rig)
    stop, admitted, lock = threading.Event(), [0], threading.Lock()

    def flood(weir):
        with Connection(weir.address) as connection:
            while not stop.is_set():
                if connection.request(headers={"X-Client-Id": "busy"}).status == 200:
                    with lock:
                        admitted[0] += 1

    threads = [threading.Thread(target=flood, args=(weir,)) for weir in weirs for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        expected = 2
        for i in range(12):
            eventually(lambda: admitted[0] >= expected, what=f"{expected} admitted")
            if i % 2:
                get(weirs[i // 2 % 2].admin, "/api/v1/clients/busy", method="DELETE")
                expected += 3 + i // 2  # the whole granted quota
            else:
                put(weirs[i % 2], "busy", {"quota": 3 + i // 2, "for": "1h"})
                expected += 1
    finally:
        eventually(lambda: admitted[0] >= expected, what=f"{expected} requests to be admitted")
        stop.set()
        for thread in threads:
            thread.join()
    assert admitted[0] == expected


def test_a_grant_is_in_effect_before_the_response(rig):
    """For every worker of the weir that was asked, and so is its end."""
    weir = rig.weir(limits={"day": daily(1)}, workers=2)
    for number in range(20):
        name = f"c{number}"
        assert [get(weir.address, headers={"X-Client-Id": name}).status for _ in range(3)] == [200, 429, 429]
        put(weir, name, {"quota": 5, "for": "1h"})
        assert [get(weir.address, headers={"X-Client-Id": name}).status for _ in range(4)] == [200] * 4, name
        put(weir, name, {"quota": None})
        assert get(weir.address, headers={"X-Client-Id": name}).status == 429, name
