"""Seeing where a client stands, and giving it a fresh start: from the command line and on the admin listener."""

import json
import re

from rig import eventually, free_port, weir_program
from wire import Connection, get


def daily(limit, **more):
    return dict(script="fixed_window", limit=limit, period="1d", **more)


def ask(weir, client, times=1, **more):
    return [get(weir.address, headers={"X-Client-Id": client}, **more).status for _ in range(times)]


def weir_command(rig, weir, name, client, status=0):
    done = rig.command(name, "-c", weir.policy_file, client)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def table(text):
    """The rows of weir inspect's table by their first two columns."""
    rows = [re.split(r"  +", line.strip()) for line in text.partition("\n\n")[2].splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if len(row) == 5 and row[0] != "LIMIT"}


# --- weir inspect -------------------------------------------------------------------------------------------------

def test_inspect_shows_every_limit_and_charges_none(rig):
    weir = rig.weir(limits={"day": daily(5), "bucket": dict(script="token_bucket", limit=60, period="1m", burst=3),
                            "log": dict(script="sliding_window_log", limit=4, period="1h"), "everyone": daily(100, per="all")},
                    clients={"small": {"quota": 3}})
    ask(weir, "a", 2)
    ask(weir, "small", 2)
    before = rig.redis().ask("MGET", "weir:{id:a}:l:day", "weir:{id:a}:l:bucket", "weir:{id:a}:l:log")
    for _ in range(3):
        text = weir_command(rig, weir, "inspect", "a")
        rows = table(text)
        assert set(rows) == {("day", "client"), ("bucket", "client"), ("log", "client")}, text
        assert rows["day", "client"][:2] == ["5 in 1d", "3 of 5"], text
        assert rows["log", "client"][:2] == ["4 in 1h", "2 of 4"], text
        assert re.fullmatch(r"\d+h \d\dm", rows["day", "client"][2]), text
        assert text.startswith("client  id:a\nterms   default\n")
    assert rig.redis().ask("MGET", "weir:{id:a}:l:day", "weir:{id:a}:l:bucket", "weir:{id:a}:l:log") == before
    text = weir_command(rig, weir, "inspect", "id:small")
    assert "terms   quota (clients: small)" in text
    assert table(text)["day", "client"][:2] == ["3 in 1d", "1 of 3"]
    assert table(weir_command(rig, weir, "inspect", "never-seen"))["day", "client"] == ["5 in 1d", "5 of 5", "-"]


def test_inspect_finds_the_keys_of_lists(rig):
    weir = rig.weir(limits={"each": daily(9, per=["client", "route"]), "by-method": daily(5, per=["client", "method"])},
                    rules=[{"name": "*one?", "match": {"path": "/one"}, "limits": ["each"]},
                           {"match": {"path": "/two"}, "limits": ["each"]}, {"limits": ["by-method"]}])
    odd = "[a-z]*?{%}\\"
    ask(weir, odd, 2, target="/one")
    ask(weir, odd, 3, target="/two")
    ask(weir, "a", 1, target="/one")
    rows = table(weir_command(rig, weir, "inspect", odd))
    assert {key: row[1] for key, row in rows.items()} == {
        ("each", "client, route:*one?"): "7 of 9", ("each", "client, route:/two"): "6 of 9",
        ("by-method", "client, each method"): "5 of 5"}


def test_inspect_goes_through_a_large_redis(rig):
    weir = rig.weir(limits={"each": daily(9, per=["client", "route"])}, rules=[{"name": "all", "limits": ["each"]}])
    ask(weir, "a")
    rig.redis().ask("EVAL", "for i = 1, 20000 do redis.call('SET', 'other:' .. i, 'x') end", 0)
    for i in range(300):
        rig.redis().ask("SET", f"weir:{{id:many}}:l:each:{{route:{i}}}", "x", "PX", 1000000)
    assert table(weir_command(rig, weir, "inspect", "a"))["each", "client, route:all"][1] == "8 of 9"
    assert weir_command(rig, weir, "reset", "many") == "id:many: 300 keys removed\n"
    assert rig.redis().ask("DBSIZE") == 20001


def test_inspect_says_who_is_prohibited_or_unlimited(rig):
    weir = rig.weir(limits={"day": daily(5)}, clients={"pest": {"quota": 0}, "boss": {"quota": "unlimited"}, "vip": {"plan": "gold"}},
                    plans={"gold": {"limits": {"day": {"limit": 50}}}})
    assert "terms   prohibited (clients: pest)" in weir_command(rig, weir, "inspect", "pest")
    assert "terms   unlimited (clients: boss)" in weir_command(rig, weir, "inspect", "boss")
    text = weir_command(rig, weir, "inspect", "vip")
    assert "terms   plan gold (clients: vip)" in text and table(text)["day", "client"][0] == "50 in 1d"


def test_addresses_are_grouped_as_the_proxy_groups_them(rig):
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
    for nonsense in "ip:nonsense", "ip:2001:db8::/48", "", "x" * 257, "a\nb":
        assert "is no client" in weir_command(rig, weir, "inspect", nonsense, status=1)
    assert rig.command("inspect", "-c", weir.policy_file).returncode == 2
    assert rig.command("reset", "-c", weir.policy_file, "a", "b").returncode == 2


def test_redis_away_is_said(rig):
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


def test_inspect_logs_in_and_takes_the_database(rig):
    redis = rig.redis(arguments=["--requirepass", "secret"])
    weir = rig.weir(limits={"day": daily(5)}, redis={"password": "secret", "database": 3, "address": redis.text})
    weir.wait_for_redis()
    ask(weir, "a", 2)
    assert table(weir_command(rig, weir, "inspect", "a"))["day", "client"][1] == "3 of 5"
    assert weir_command(rig, weir, "reset", "a") == "id:a: 1 key removed\n"
    assert table(weir_command(rig, weir, "inspect", "a"))["day", "client"][1] == "5 of 5"


# --- weir reset ---------------------------------------------------------------------------------------------------

def test_reset_removes_the_client_and_nobody_else(rig):
    weir = rig.weir(limits={"day": daily(2), "each": daily(9, per=["client", "route"]), "everyone": daily(100, per="all")})
    assert ask(weir, "a", 2) + ask(weir, "ab", 2) + ask(weir, "*", 1) == [200] * 5
    rig.redis().ask("SET", "weir:{id:a}:l:removed-from-the-policy", "x")
    assert weir_command(rig, weir, "reset", "a") == "id:a: 3 keys removed\n"
    assert weir_command(rig, weir, "reset", "a") == "id:a: 0 keys removed\n"
    assert weir_command(rig, weir, "reset", "*") == "id:*: 2 keys removed\n"
    assert sorted(rig.redis().ask("KEYS", "*")) == [
        "weir:{all}:l:everyone", "weir:{id:ab}:l:day", "weir:{id:ab}:l:each:{route:*}"]
    assert ask(weir, "a", 3) == [200, 200, 429]
