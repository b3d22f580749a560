"""weir inspect, weir reset and the admin API for clients."""

import json
import re
import socket

from resets import assert_reset_applies_at_once
from rig import eventually, free_port
from wire import Connection, get


def daily(limit, **more):
    return dict(script="fixed_window", limit=limit, period="1d", **more)


def fetch(weir, client, times=1, **more):
    return [get(weir.address, headers={"X-Client-Id": client}, **more).status for _ in range(times)]


def weir_command(rig, weir, name, client, status=0):
    done = rig.command(name, "-c", weir.policy_file, client)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def table(text):
    """The rows of the table of weir inspect, by their first two columns."""
    rows = [re.split(r"  +", line.strip()) for line in text.partition("\n\n")[2].splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if len(row) == 5 and row[0] != "LIMIT"}


# --- weir inspect -------------------------------------------------------------------------------------------------

def test_inspect_shows_every_limit_and_charges_nothing(rig):
    weir = rig.weir(limits={"day": daily(5), "bucket": dict(script="token_bucket", limit=60, period="1d", burst=3),
                            "log": dict(script="sliding_window_log", limit=4, period="1h"), "everyone": daily(100, per="all")},
                    clients={"small": {"quota": 3}})
    fetch(weir, "a", 2)
    fetch(weir, "small", 2)
    before = rig.redis().command("MGET", "weir:{id:a}:l:day", "weir:{id:a}:l:bucket", "weir:{id:a}:l:log")
    for _ in range(3):
        text = weir_command(rig, weir, "inspect", "a")
        rows = table(text)
        assert set(rows) == {("day", "client"), ("bucket", "client"), ("log", "client")}, text
        assert rows["day", "client"][:2] == ["5 in 1d", "3 of 5"], text
        assert rows["log", "client"][:2] == ["4 in 1h", "2 of 4"], text
        assert re.fullmatch(r"\d+h \d\dm", rows["day", "client"][2]), text
        assert text.startswith("client  id:a\nlimits  default\n")
    assert rig.redis().command("MGET", "weir:{id:a}:l:day", "weir:{id:a}:l:bucket", "weir:{id:a}:l:log") == before
    text = weir_command(rig, weir, "inspect", "id:small")
    assert "limits  quota (clients: small)" in text
    assert table(text)["day", "client"][:2] == ["3 in 1d", "1 of 3"]
    assert table(weir_command(rig, weir, "inspect", "never-seen"))["day", "client"] == ["5 in 1d", "5 of 5", "-"]


def test_inspect_finds_keys_per_list_of_sources(rig):
    weir = rig.weir(limits={"each": daily(9, per=["client", "route"]), "by-method": daily(5, per=["client", "method"])},
                    rules=[{"name": "*one?", "match": {"path": "/one"}, "limits": ["each"]},
                           {"match": {"path": "/two"}, "limits": ["each"]}, {"limits": ["by-method"]}])
    odd = "[a-z]*?{%}\\"
    fetch(weir, odd, 2, target="/one")
    fetch(weir, odd, 3, target="/two")
    fetch(weir, "a", 1, target="/one")
    for other in "each:{route:/two}:d:repeat", "by-method:d:repeat", "each:d:{}", "none:{route:x}":
        rig.redis().command("SET", "weir:{id:[a-z]*?%7B%25%7D\\}:l:" + other, "x")
    rows = table(weir_command(rig, weir, "inspect", odd))
    assert {key: row[1] for key, row in rows.items()} == {
        ("each", "client, route:*one?"): "7 of 9", ("each", "client, route:/two"): "6 of 9",
        ("by-method", "client, each method"): "5 of 5"}


def test_inspect_scans_a_large_redis(rig):
    weir = rig.weir(limits={"each": daily(9, per=["client", "route"])}, rules=[{"name": "all", "limits": ["each"]}])
    fetch(weir, "a")
    rig.redis().command("EVAL", "for i = 1, 20000 do redis.call('SET', 'other:' .. i, 'x') end", 0)
    for i in range(300):
        rig.redis().command("SET", f"weir:{{id:many}}:l:each:{{route:{i}}}", "x", "PX", 1000000)
    assert table(weir_command(rig, weir, "inspect", "a"))["each", "client, route:all"][1] == "8 of 9"
    assert weir_command(rig, weir, "reset", "many") == "id:many: 300 keys removed\n"
    assert rig.redis().command("DBSIZE") == 20001


def test_inspect_shows_prohibited_and_unlimited_clients(rig):
    weir = rig.weir(limits={"day": daily(5)},
                    clients={"pest": {"quota": 0}, "boss": {"quota": "unlimited"}, "vip": {"plan": "gold"}},
                    plans={"gold": {"limits": {"day": {"limit": 50}}}})
    assert "limits  prohibited (clients: pest)" in weir_command(rig, weir, "inspect", "pest")
    assert "limits  unlimited (clients: boss)" in weir_command(rig, weir, "inspect", "boss")
    text = weir_command(rig, weir, "inspect", "vip")
    assert "limits  plan gold (clients: vip)" in text and table(text)["day", "client"][0] == "50 in 1d"


def test_addresses_are_grouped_as_in_the_proxy(rig):
    weir = rig.weir(identity={"from": ["ip"], "trusted_proxies": ["127.0.0.1"], "ipv6_prefix": 56},
                    limits={"day": daily(5), "logins": daily(7, per="ip")})
    for address, times in ("2001:db8:1:2::1", 1), ("2001:db8:1:3::9", 2), ("203.0.113.7", 4):
        for _ in range(times):
            get(weir.address, headers={"X-Forwarded-For": address})
    for name in "ip:2001:db8:1:2::1", "ip:2001:db8:1:ff::", "ip:2001:db8:1::/56":
        text = weir_command(rig, weir, "inspect", name)
        assert text.startswith("client  ip:2001:db8:1::/56\n")
        assert table(text)["day", "client"][1] == "2 of 5" and table(text)["logins", "ip"][1] == "4 of 7"
    assert table(weir_command(rig, weir, "inspect", "ip:203.0.113.7"))["day", "client"][1] == "1 of 5"
    assert table(weir_command(rig, weir, "inspect", "ip:::ffff:203.0.113.7"))["day", "client"][1] == "1 of 5"
    for nonsense in "ip:nonsense", "ip:2001:db8::/48", "", "cookie:%00", "a\nb":
        assert "is not a client" in weir_command(rig, weir, "inspect", nonsense, status=2)
    assert rig.command("inspect", "-c", weir.policy_file).returncode == 2
    assert rig.command("reset", "-c", weir.policy_file, "a", "b").returncode == 2


def test_inspect_and_reset_report_an_unreachable_redis(rig):
    policy = rig.policy(limits={"day": daily(5)}, redis={"address": f"127.0.0.1:{free_port()}"})
    file = rig.write("policy.yaml", json.dumps(policy))
    for command in "inspect", "reset":
        done = rig.command(command, "-c", file, "a")
        assert done.returncode == 1 and "redis 127.0.0.1" in done.stderr and "refused" in done.stderr, done.stderr
    policy["redis"]["address"] = "embedded"
    file = rig.write("embedded.yaml", json.dumps(policy))
    done = rig.command("inspect", "-c", file, "a")
    assert done.returncode == 1 and "/api/v1/clients/" in done.stderr
    done = rig.command("inspect", "-c", rig.write("bad.yaml", "limits: nonsense"), "a")
    assert done.returncode == 1 and "bad.yaml:1:" in done.stderr


def test_inspect_uses_the_password_and_the_database(rig):
    redis = rig.redis(arguments=["--requirepass", "secret"])
    weir = rig.weir(limits={"day": daily(5)}, redis={"password": "secret", "database": 3, "address": redis.text})
    weir.wait_for_redis()
    fetch(weir, "a", 2)
    assert table(weir_command(rig, weir, "inspect", "a"))["day", "client"][1] == "3 of 5"
    assert weir_command(rig, weir, "reset", "a") == "id:a: 1 key removed\n"
    assert table(weir_command(rig, weir, "inspect", "a"))["day", "client"][1] == "5 of 5"


def test_inspect_warns_about_ambiguous_client_names(rig):
    weir = rig.weir(limits={"day": daily(5)})
    warnings = [rig.command("inspect", "-c", weir.policy_file, client).stderr for client in ("10.0.0.1", "ip:10.0.0.1", "alice")]
    assert "the address is ip:10.0.0.1" in warnings[0] and warnings[1:] == ["", ""], warnings
    weir.reload(identity={"from": "ip"})
    assert "this policy has no such ids: identity.from contains no header" in rig.command("inspect", "-c", weir.policy_file, "alice").stderr


# --- weir reset ---------------------------------------------------------------------------------------------------

def test_reset_removes_only_the_keys_of_the_client(rig):
    weir = rig.weir(limits={"day": daily(2), "each": daily(9, per=["client", "route"]), "everyone": daily(100, per="all")})
    assert fetch(weir, "a", 2) + fetch(weir, "ab", 2) + fetch(weir, "*", 1) == [200] * 5
    rig.redis().command("SET", "weir:{id:a}:l:removed-from-the-policy", "x")
    assert weir_command(rig, weir, "reset", "a") == "id:a: 3 keys removed\n"
    assert weir_command(rig, weir, "reset", "a") == "id:a: 0 keys removed\n"
    assert weir_command(rig, weir, "reset", "*") == "id:*: 2 keys removed\n"
    assert sorted(rig.redis().command("KEYS", "*")) == [
        "weir:{all}:l:everyone", "weir:{id:ab}:l:day", "weir:{id:ab}:l:each:{route:*}"]
    assert fetch(weir, "a", 3) == [200, 200, 429]


# --- /api/v1/clients/ID -------------------------------------------------------------------------------------------

def look(weir, client, status=200, **more):
    response = get(weir.admin, "/api/v1/clients/" + client, **more)
    assert response.status == status, (response.status, response.body)
    assert response["Content-Type"] == ("application/json" if status == 200 else "application/problem+json")
    assert response["Cache-Control"] == "no-store"
    return json.loads(response.body)


def test_the_api_shows_the_limits_of_a_client(rig):
    weir = rig.weir(limits={"day": daily(5), "each": daily(9, per=["client", "route"]), "tried": daily(2, shadow=True)},
                    clients={"pest": {"quota": 0}, "a b": {"quota": 4}})
    fetch(weir, "a", 3)
    fetch(weir, "a b", 1)
    for _ in range(2):
        seen = look(weir, "a")
        assert seen["client"] == "id:a" and seen["client_limits"] == "default" and seen["complete"] and seen["plan"] is None
        rows = {row["limit"]: row for row in seen["limits"]}
        assert [rows[n]["remaining"] for n in ("day", "each", "tried")] == [2, 6, 0]
        assert rows["each"]["key"] == "weir:{id:a}:l:each:{route:*}" and rows["each"]["per"] == ["client", "route"]
        assert (rows["each"]["rest"], rows["day"]["rest"]) == ("{route:*}", None), rows
        assert rows["day"]["admits"] and rows["day"]["retry_after_seconds"] == 0
        assert not rows["tried"]["admits"] and rows["tried"]["retry_after_seconds"] == rows["tried"]["resets_in_seconds"]
        assert [rows[n]["enforced"] for n in ("day", "tried")] == [True, False]
        assert 0 < rows["day"]["resets_in_seconds"] <= 86400 == rows["day"]["period_seconds"]
    assert look(weir, "id:a%20b")["client"] == "id:a b"
    seen = look(weir, "a%20b")
    assert (seen["client_limits"], seen["entry"], seen["limits"][0]["quota"]) == ("quota", "a b", 4)
    assert look(weir, "pest") == {"client": "id:pest", "client_limits": "prohibited", "plan": None, "entry": "pest", "grant": None,
                                  "database": None, "limits": [],
                                  "complete": True, "warnings": []}
    assert look(weir, "ip:2001:db8::1")["client"] == "ip:2001:db8::/64"
    assert look(weir, "ip%3A2001%3adb8%3a%3a%2f64")["client"] == "ip:2001:db8::/64"
    assert look(weir, "ip:2001:db8::/64")["client"] == "ip:2001:db8::/64"
    assert look(weir, "%C3%A9%22%7B%5C")["client"] == 'id:é"{\\'
    for nonsense in "", "%", "%4", "%zz", "a%00b", "a%0ab", "ip:nonsense", "cookie:%2500", "jwt:":
        assert look(weir, nonsense, 400)["status"] == 400
    assert look(weir, "%41" * 256)["client"] == "id:" + "A" * 256


def test_limits_are_shown_with_each_attribute_they_count_by(rig):
    counted_by = ["client", "cookie:team", "header:X-Team", "json:team.name"], ["client", "path:2", "query:team", "method"]
    weir = rig.weir(limits={f"l{i}": daily(5, per=per) for i, per in enumerate(counted_by)})
    for count in 0, 1:
        shown = table(weir_command(rig, weir, "inspect", "a"))
        if count == 0:
            assert {(f"l{i}", "client, each " + ", each ".join(per[1:])) for i, per in enumerate(counted_by)} == shown.keys(), shown
        assert [row["per"] for row in sorted(look(weir, "a")["limits"], key=lambda row: row["limit"])] == list(counted_by)
        fetch(weir, "a", 1)


def test_the_api_takes_names_of_any_length_that_inspect_takes(rig):
    """The value of a cookie is hashed, so it may be longer than an id."""
    weir = rig.weir(limits={"few": {"script": "gcra", "limit": 2, "period": "1h"}}, identity={"from": ["cookie:session"]}).wait_for_redis()
    value = "v" * 3000
    assert [get(weir.address, headers={"Cookie": "session=" + value}).status for _ in range(3)] == [200, 200, 429]
    path = "/api/v1/clients/cookie:" + value
    shown = get(weir.admin, path)
    assert shown.status == 200 and json.loads(shown.body)["limits"][0]["remaining"] == 0, shown.body
    assert get(weir.admin, path, method="PUT", body=b'{"quota": 9, "for": "1h"}').status == 200
    assert get(weir.admin, path, method="PUT", body=b'{"quota": null}').status == 200
    assert get(weir.admin, path, method="DELETE").status == 200
    assert json.loads(get(weir.admin, path).body)["limits"][0]["remaining"] == 2


def test_the_api_resets_a_client(rig):
    weir = rig.weir(limits={"day": daily(2), "each": daily(9, per=["client", "route"])}, workers=1)
    assert fetch(weir, "a", 4) == [200, 200, 429, 429]
    assert look(weir, "a", method="DELETE") == {"client": "id:a", "removed": 2, "published": True, "complete": True, "warnings": []}
    assert fetch(weir, "a", 3) == [200, 200, 429], "the worker drops its cached denials at once"
    assert look(weir, "b", method="DELETE")["removed"] == 0


def test_cross_site_requests_cannot_reset(rig):
    weir = rig.weir(limits={"day": daily(2)})
    fetch(weir, "a", 2)
    host = "127.0.0.1:9180"

    def delete(status, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        look(weir, "a", status, method="DELETE", host=host, headers=fields)
    for origin in "http://evil.example", "null", "", "http://127.0.0.1:9181", "http://127.0.0.1:9180.evil.example", host:
        delete(403, Origin=origin)
    delete(403, Sec_Fetch_Site="cross-site")
    delete(403, Sec_Fetch_Site="same-site")
    assert look(weir, "a")["limits"][0]["remaining"] == 0
    preflight = get(weir.admin, "/api/v1/clients/a", method="OPTIONS", headers={
        "Origin": "http://evil.example", "Access-Control-Request-Method": "DELETE"})
    assert preflight.status == 403 and preflight["Access-Control-Allow-Origin"] is None
    put = get(weir.admin, "/api/v1/clients/a", method="PUT", body=b'{"quota": 9, "for": "1h"}', headers={"Origin": "http://evil.example"})
    assert put.status == 403
    for method in "POST", "PATCH":
        response = get(weir.admin, "/api/v1/clients/a", method=method, body=b"_method=DELETE")
        assert (response.status, response["Allow"]) == (405, "GET, HEAD, PUT, DELETE")
    assert look(weir, "a")["limits"][0]["remaining"] == 0
    delete(200, Origin="http://" + host, Sec_Fetch_Site="same-origin")
    assert look(weir, "a")["limits"][0]["remaining"] == 2


def test_methods_of_the_admin_listener(rig):
    weir = rig.weir(limits={"day": daily(2)})
    for target in "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/policy":
        for method in "POST", "DELETE", "PUT":
            response = get(weir.admin, target, method=method)
            assert (response.status, response["Allow"]) == (405, "GET, HEAD"), target
    for target in "/api/", "/api/v1/", "/api/v1/clients", "/api/v2/status", "/api/v1/status/x":
        response = get(weir.admin, target)
        assert response.status == 404 and json.loads(response.body)["status"] == 404
    # a response to HEAD has no content: the next response follows directly
    with Connection(weir.admin) as connection:
        for target in "/api/v1/status", "/api/v1/clients/a", "/api/v1/policy", "/healthz", "/api/v1/none":
            head = connection.request(target, method="HEAD")
            found = connection.request(target)
            assert head.status == found.status and head["Content-Type"] == found["Content-Type"] and found.body
            assert int(head["Content-Length"]) >= len(found.body) - 20, "the length for GET, except for the digits of the uptime"


def test_the_api_while_redis_is_down(rig):
    weir = rig.weir(limits={"day": daily(2)}, redis={"timeout": "100ms", "on_failure": "allow"})
    weir.expect_errors("redis")
    fetch(weir, "a")
    rig.redis().kill()
    answer = look(weir, "a", 503)
    assert "Redis" in answer["detail"]
    assert look(weir, "a", 503, method="DELETE")["title"] == "Service Unavailable"
    assert get(weir.admin, "/api/v1/clients/a")["Retry-After"] == "1"
    eventually(lambda: json.loads(get(weir.admin, "/api/v1/status").body)["redis"]["ready"] is False, what="workers to notice")
    rig.redis().start()
    eventually(lambda: get(weir.admin, "/api/v1/clients/a").status == 200, what="a response after Redis is back")


def test_a_hanging_redis_does_not_block_other_requests(rig):
    weir = rig.weir(limits={"day": daily(2)}, redis={"timeout": "1s", "on_failure": "allow"})
    weir.expect_errors("redis")
    look(weir, "a")
    rig.redis().freeze()
    waiting = [Connection(weir.admin) for _ in range(20)]
    for connection in waiting[:16]:
        connection.send(b"GET /api/v1/clients/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    waiting[0].close()  # a client that disconnects meanwhile
    for connection in waiting[16:]:
        response = connection.request("/api/v1/clients/a")
        assert response.status == 503
    assert get(weir.admin, "/healthz").status == 200
    for connection in waiting[1:16]:
        assert connection.response().status == 503
    for connection in waiting[1:]:
        connection.close()
    rig.redis().thaw()
    eventually(lambda: get(weir.admin, "/api/v1/clients/a").status == 200, what="a response after Redis is back")


def test_the_api_uses_the_new_policy_after_a_reload(rig):
    weir = rig.weir(limits={"day": daily(2)})
    fetch(weir, "a")
    assert look(weir, "a")["limits"][0]["quota"] == 2
    with open(weir.policy_file, encoding="utf-8") as file:
        policy = json.load(file)
    policy["limits"]["day"]["limit"] = 7
    with open(weir.policy_file, "w", encoding="utf-8") as file:
        json.dump(policy, file)
    weir.signal(1)
    weir.wait_for_output("is in effect")
    assert look(weir, "a")["limits"][0]["remaining"] == 6
    assert b"limit: 7" in get(weir.admin, "/api/v1/policy").body


def test_the_api_works_with_an_embedded_redis(rig):
    weir = rig.weir(limits={"day": daily(2)}, redis={"address": "embedded"}, workers=1).wait_for_redis()
    assert fetch(weir, "a", 3) == [200, 200, 429]
    assert look(weir, "a")["limits"][0]["remaining"] == 0
    assert look(weir, "a", method="DELETE")["removed"] == 1
    assert fetch(weir, "a", 3) == [200, 200, 429]
    assert json.loads(get(weir.admin, "/api/v1/status").body)["redis"]["address"] == "embedded"


def test_pending_api_responses_do_not_delay_the_shutdown(rig):
    weir = rig.weir(limits={"day": daily(2)}, redis={"timeout": "10s", "on_failure": "allow"})
    weir.expect_errors("redis")
    look(weir, "a")
    rig.redis().freeze()
    with Connection(weir.admin) as connection:
        connection.send(b"DELETE /api/v1/clients/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert get(weir.admin, "/healthz").status == 200
        weir.signal(15)
        weir.wait(8)


# --- /api/v1/status, /api/v1/policy ----------------------------------------------------------------------------------

def test_status_shows_workers_redis_and_servers(rig):
    dead = f"127.0.0.1:{free_port()}"
    weir = rig.weir(limits={"day": daily(99)}, workers=2,
                    upstreams={"api": {"servers": [dead, rig.upstream().text]}, "other": {"servers": [rig.upstream().text]}})

    def status():
        response = get(weir.admin, "/api/v1/status")
        assert response.status == 200 and response["Content-Type"] == "application/json"
        return json.loads(response.body)
    seen = status()
    assert seen["version"] and seen["uptime_seconds"] > 0 and seen["pid"] == weir.pid and seen["state"] == "running"
    assert seen["workers"] == 2 and seen["policy_file"] == weir.policy_file and seen["limits"] == 1 and seen["rules"] == 1
    assert seen["redis"] == {"address": rig.redis().text, "topology": "single", "ready": True, "ready_workers": 2,
                             "breaker": {"closed": 2, "half_open": 0, "open": 0}}
    assert [s["state"] for u in seen["upstreams"] for s in u["servers"]] == ["up"] * 3
    with Connection(weir.address) as connection:
        for _ in range(4):
            assert connection.request("/").status == 200
        eventually(lambda: [status()[name] for name in ("connections", "requests_active")] == [1, 0])
    seen = eventually(lambda: status()["upstreams"][0]["servers"][0]["state"] == "down" and status(), what="the dead server to be down")
    assert [u["name"] for u in seen["upstreams"]] == ["api", "other"]
    assert [s["address"] for s in seen["upstreams"][0]["servers"]] == [dead, rig.upstream().text]
    assert seen["upstreams"][0]["servers"][0]["ejected_by_workers"] == 1
    assert seen["upstreams"][0]["servers"][1]["state"] == seen["upstreams"][1]["servers"][0]["state"] == "up"


def test_the_policy_resource_hides_passwords(rig):
    redis = rig.redis(arguments=["--requirepass", "very-secret"])
    weir = rig.weir(limits={"day": daily(2)}, redis={"password": "very-secret", "address": redis.text})
    response = get(weir.admin, "/api/v1/policy")
    assert response.status == 200 and response["Content-Type"] == "application/yaml"
    assert b'password: "***"' in response.body and b"very-secret" not in response.body

    def without_ports(text):
        return [line for line in text.splitlines() if "127.0.0.1" not in line]
    assert without_ports(response.body.decode()) == without_ports(rig.command("check", "-c", weir.policy_file).stdout)


# --- Resets reach every weir -----------------------------------------------------------------------------------------

def two_weirs(rig, **more):
    """Two weirs with one worker each, and a connection to each."""
    weirs = [rig.weir(workers=1, limits={"day": daily(2)}, **more) for _ in range(2)]
    eventually(lambda: rig.redis().command("PUBSUB", "NUMSUB", "weir:resets") == ["weir:resets", 2], what="both subscriptions")
    return weirs, [Connection(weir.address) for weir in weirs]


def test_a_reset_reaches_all_weirs(rig):
    weirs, connections = two_weirs(rig)
    assert_reset_applies_at_once(connections, lambda client: weir_command(rig, weirs[0], "reset", client))


def test_a_reset_on_the_admin_listener_reaches_all_weirs(rig):
    weirs, connections = two_weirs(rig)
    assert_reset_applies_at_once(connections, lambda client: look(weirs[1], client, method="DELETE"))


def test_after_a_reload_resets_use_the_new_key_prefix(rig):
    weirs, connections = two_weirs(rig)
    for weir in weirs:
        with open(weir.policy_file, encoding="utf-8") as file:
            policy = json.load(file)
        policy["redis"]["key_prefix"] = "other"
        with open(weir.policy_file, "w", encoding="utf-8") as file:
            json.dump(policy, file)
        weir.signal(1)
    eventually(lambda: rig.redis().command("PUBSUB", "NUMSUB", "weir:resets", "other:resets") ==
               ["weir:resets", 0, "other:resets", 2], what="the other subscriptions")


def test_resets_work_again_after_a_redis_outage(rig):
    weirs, connections = two_weirs(rig, redis={"on_failure": "allow"})
    for weir in weirs:
        weir.expect_errors("redis")
    rig.redis().kill()
    for weir in weirs:  # else, ready can be from before it
        weir.counts(0, "weir_redis_ready_workers")
    rig.redis().start()
    eventually(lambda: rig.redis().command("PUBSUB", "NUMSUB", "weir:resets") == ["weir:resets", 2], 20, "both subscriptions")
    for weir in weirs:
        weir.wait_for_redis()
    assert_reset_applies_at_once(connections, lambda client: weir_command(rig, weirs[0], "reset", client))


def test_a_user_without_subscribe_permission_is_reported_once(rig):
    rig.redis().command("ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all", "-subscribe", "-publish")
    weir = rig.weir(limits={"day": daily(2)}, redis={"username": "weir", "password": "secret"})
    weir.wait_for_output("allow this user to SUBSCRIBE to weir:resets")
    assert fetch(weir, "a", 3) == [200, 200, 429]
    done = rig.command("reset", "-c", weir.policy_file, "a")
    assert (done.returncode, done.stdout) == (0, "id:a: 1 key removed\n") and "PUBLISH" in done.stderr
    answer = json.loads(get(weir.admin, "/api/v1/clients/a", method="DELETE").body)
    assert not answer["published"] and "PUBLISH" in answer["warnings"][0], answer
    assert len(re.findall("SUBSCRIBE", weir.output())) == 1


def test_malformed_pubsub_messages_are_harmless(rig):
    nonsense = [b"*0\r\n", b"*2\r\n:1\r\n:2\r\n", b"*3\r\n$7\r\nmessage\r\n*0\r\n:5\r\n", b"*1000000000\r\n", b"*-1\r\n",
                b"$-1\r\n", b"+OK\r\n" * 100, b"-ERR no\r\n", b"\0\xff" * 5000, b"*3\r\n$7\r\nmessage\r\n",
                b"$400000\r\n" + b"x" * 200000,
                b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$0\r\n\r\n"]
    server = socket.create_server(("127.0.0.1", 0))
    rig.add_cleanup(server.close)
    address = "127.0.0.1:%d" % server.getsockname()[1]
    policy = rig.policy(limits={"day": daily(2)}, redis={"address": address, "on_failure": "allow"})
    weir = rig.weir(text=json.dumps(policy), wait="listening")
    weir.expect_errors("redis")
    server.settimeout(20)
    while nonsense:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            try:
                if b"SUBSCRIBE" in connection.recv(65536):
                    connection.sendall(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n" + nonsense.pop())
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
            except OSError:
                pass
    assert get(weir.admin, "/healthz").status == 200
