"""Quotas from PostgreSQL: the meaning of rows, one query for all workers, and a database that is
slow, down or back."""

import itertools
import json
import os
import re
import signal
import threading
import time

from postgres import Postgres
from queues import reset
from rig import TLS_FILES, eventually, free_port, redis_tls, sanitized, timeout
from scripted import Scripted
from wire import Connection, flood, get

WINDOW = {"quota": dict(script="fixed_window", limit=60, period="1m", label="Window")}
HOUR = {"quota": dict(script="fixed_window", limit=60, period="1h")}
DOWN = "postgres .*(the connection failed|connection was lost)"
SLOW = "postgres .*the query timed out"


def quotas(database, **more):
    postgres = dict(connection=more.pop("connection", database.connection), query=more.pop("query", database.query))
    return dict(postgres=postgres, **{"timeout": "10s", **more})


def weir_with_database(rig, database, limits=None, settings=None, **keys):
    return rig.weir(limits=limits or HOUR, quotas=quotas(database, **(settings or {})), **keys)


def fetch(weir, client, **headers):
    return get(weir.address, headers={"X-Client-Id": client, **headers})


def limit_of(weir, client):
    """The limit of the client as the response shows it; the status if it shows none."""
    response = fetch(weir, client)
    return int(response["X-RateLimit-Limit"] or response["X-Rate-Limit-Quota"] or response.status)


def wait_for_down(weir):
    eventually(lambda: weir.metric("weir_quota_database_up") == 0, what="weir to notice that the database is down")


def wait_for_up(weir):
    eventually(lambda: weir.metric("weir_quota_database_up") == 1, 20, "weir to notice that the database is up")


def test_S7_the_published_example(rig):
    weir = weir_with_database(rig, Postgres(rig), WINDOW)
    zero = fetch(weir, "client-0")
    assert zero.status == 429 and zero["X-Rate-Limit-Policy"] == "Window"
    assert zero["X-Rate-Limit-Quota"] == "0"
    assert zero["X-Rate-Limit-Used"] is None and zero["X-Rate-Limit-Reset"] is None
    one = fetch(weir, "client-1")
    assert one.status == 200 and one["X-Rate-Limit-Quota"] == "-1"
    resets = []
    for used, status in ("1", 200), ("2", 200), ("3", 200), ("3", 429), ("3", 429):
        two = fetch(weir, "client-2")
        assert two.status == status and two["X-Rate-Limit-Quota"] == "3", two
        assert two["X-Rate-Limit-Used"] == used and two["X-Rate-Limit-Policy"] == "Window"
        resets.append(int(two["X-Rate-Limit-Reset"]))
    assert 55 <= resets[-1] <= 60 and resets == sorted(resets, reverse=True)


def test_concurrent_first_requests_cause_one_query(rig):
    """For a client that is not cached yet, over two weirs with several workers and one Redis."""
    database = Postgres(rig)
    database.sql("CREATE OR REPLACE FUNCTION slow(text) RETURNS TABLE (quota bigint, plan text) LANGUAGE sql VOLATILE AS "
                 "'SELECT pg_sleep(0.1); SELECT * FROM quota_of($1)'")
    settings = {"query": "SELECT * FROM slow($1)"}
    weirs = [weir_with_database(rig, database, settings=settings, workers=3) for _ in range(2)]
    responses = flood([weir.address for weir in weirs], 100, connections=100, headers={"X-Client-Id": "client-2"})
    statuses = sorted(response.status for response in responses)
    assert statuses == [200] * 3 + [429] * 97, statuses
    assert database.query_count("client-2") == 1


def test_meaning_of_rows(rig):
    """As in the system that this replaces, numbers above the maximum apply as the maximum, and
    negative numbers but -1 reject all. Values that cannot be used are counted."""
    database = Postgres(rig)
    database.sql("""
        CREATE TABLE rows (id text, a text, b text);
        INSERT INTO rows VALUES ('null', NULL, NULL), ('many', '7', NULL), ('negative', '-5', NULL), ('words', 'ten', NULL),
            ('large', '2000000000000000000', NULL), ('largest', '1000000000', NULL), ('decimal', '5.00', NULL),
            ('fraction', '5.5', NULL), ('empty', '', ''), ('gold', NULL, 'gold'), ('both', '9', 'gold'), ('lead', NULL, 'lead'),
            ('spaces', ' 8 ', NULL), ('several', '4', NULL), ('several', '6', NULL), ('unlimited', 'unlimited', NULL);""")
    weir = weir_with_database(rig, database, WINDOW, settings={"query": "SELECT a, b FROM rows WHERE id = $1 ORDER BY a"},
                   plans={"gold": {"limits": {"quota": {"limit": 500}}}}, clients={"named": {"quota": 2}})
    expected = {"words": 60, "null": 60, "many": 7, "negative": 0, "largest": 10 ** 9, "decimal": 5, "fraction": 60,
                "empty": 60, "gold": 500, "both": 9, "lead": 60, "spaces": 8, "several": 4, "unlimited": -1, "absent": 60,
                "named": 2}
    for _ in range(2):  # from the database, then from the cache
        assert {name: limit_of(weir, name) for name in expected} == expected
        assert limit_of(weir, "large") >= 10 ** 9
        assert fetch(weir, "negative").status == 429
    weir.wait_for_output(r'warn .*for "words", the query says "ten" in its column a; expected (a whole number)')
    weir.wait_for_output(r'warn .*for "id:lead", the query returns the plan "(lead)", which is not in plans')
    weir.counts(4, "weir_quota_unusable_total")  # words, fraction, empty, lead


def test_integers_of_the_database_keep_their_meaning(rig):
    """The whole range of PostgreSQL's integer is valid."""
    database = Postgres(rig)
    database.sql("INSERT INTO clients VALUES ('most', 2147483647), ('least', -2147483648)")
    weir = weir_with_database(rig, database, WINDOW)
    other = weir_with_database(rig, database, WINDOW)
    for each in weir, other:  # the second one reads the rows from Redis
        assert limit_of(each, "most") >= 10 ** 9 and fetch(each, "most").status == 200
        assert limit_of(each, "least") == 0 and fetch(each, "least").status == 429
    assert weir.metric("weir_quota_unusable_total") == 0


def test_columns_are_found_by_name(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"query": "SELECT 'gold' AS plan, 1 AS other, 5 AS quota WHERE $1 <> ''"},
                   plans={"gold": {"limits": {"quota": {"limit": 500}}}})
    assert limit_of(weir, "anybody") == 5
    weir.reload(quotas=quotas(database, query="SELECT 'gold' AS plan, 1 AS other WHERE $1 <> ''"))
    eventually(lambda: limit_of(weir, "anybody") == 1, what="the result of the new query instead of the cached one")


def test_an_id_that_the_query_rejects_has_no_row(rig):
    database = Postgres(rig)
    database.sql("CREATE TABLE numbered (id int, quota int); INSERT INTO numbered VALUES (7, 4)")
    weir = weir_with_database(rig, database, settings={"query": "SELECT quota FROM numbered WHERE id = $1"})
    ids = ["7", "seven", "99999999999", "7 OR 1=1", "\xff\xfe", "'; --"]
    assert [limit_of(weir, i) for i in ids] == [4, 60, 60, 60, 60, 60]
    weir.counts(1, "weir_quota_database_up")
    assert weir.metric("weir_quota_queries_total", result="failed") == 0
    del weir.policy["quotas"]
    weir.reload()
    assert weir.metric("weir_quota_database_up") is None, "no alarm about a database that weir does not use"


def test_the_policy_overrides_the_database(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, clients={"client-2": {"quota": 5}})
    assert limit_of(weir, "client-2") == 5 and database.query_count() == 0


def test_addresses_and_requests_without_limits_cause_no_query(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, rules=[{"match": {"path": "/free"}, "limits": []}, {"limits": ["quota"]}],
                   settings={"unknown_client": "deny"})
    assert get(weir.address).status == 200
    assert get(weir.address, "/free", headers={"X-Client-Id": "stranger"}).status == 200
    assert database.query_count() == 0
    assert fetch(weir, "stranger").status == 403


def test_unknown_clients_can_be_denied(rig):
    weir = weir_with_database(rig, Postgres(rig), settings={"unknown_client": "deny"})
    with Connection(weir.address) as connection:
        stranger = connection.request(headers={"X-Client-Id": "stranger"})
    assert stranger.status == 403 and stranger["Content-Type"] == "application/problem+json"
    assert json.loads(stranger.body)["status"] == 403 and stranger["X-RateLimit-Limit"] is None
    weir.counts(1, "weir_errors_total", cause="unknown_client")
    assert limit_of(weir, "client-2") == 3


def test_a_grant_admits_a_client_without_a_row(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"unknown_client": "deny", "on_failure": "deny"})

    def grant(client, quota):
        granted = rig.command("grant", "-c", weir.policy_file, client, str(quota), "1h")
        assert granted.returncode == 0, granted.stderr

    assert fetch(weir, "stranger").status == 403
    grant("stranger", 7)
    eventually(lambda: limit_of(weir, "stranger") == 7, what="the grant of a client without a row")
    database.stop()
    grant("another", 8)
    eventually(lambda: limit_of(weir, "another") == 8, what="the grant of a client that cannot be looked up")
    assert fetch(weir, "nobody").status == 503
    weir.expect_errors("postgres")


def test_known_clients_only_uses_the_database(rig):
    """An id without a row is ignored: the next header whose id has a row is used, or the
    address."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, identity={"from": ["header:X-First", "header:X-Second", "ip"], "known_clients_only": True})

    def identity_of(**headers):
        return dict(json.loads(get(weir.address, "/echo", headers=headers).body)["fields"])["X-Weir-Client"]

    for _ in range(2):  # from the database, then from the cache
        assert identity_of(**{"X-First": "client-2"}) == "id:client-2"
        assert identity_of(**{"X-First": "stranger", "X-Second": "client-1"}) == "id:client-1"
        assert identity_of(**{"X-First": "stranger", "X-Second": "another"}) == "ip:127.0.0.1"
        assert identity_of(**{"X-First": "a much longer id than any address has: " + "x" * 200}) == "ip:127.0.0.1"
    assert database.query_count("stranger") == 1
    seen = {client: json.loads(get(weir.admin, f"/api/v1/clients/{client}").body)["warnings"] for client in ("client-2", "stranger")}
    assert seen["client-2"] == [] and "an unknown id" in seen["stranger"][0], seen
    assert get(weir.address, headers=[("X-First", "stranger"), ("X-Second", "a"), ("X-Second", "b")]).status == 400
    weir.reload(clients={"ip:127.0.0.1": {"blocked": True}}, rules=[{"match": {"path": "/free"}, "limits": "none"}, {"limits": ["quota"]}])
    for target in "/", "/free":
        assert get(weir.address, target).status == 403
        for unknown in "stranger", "unknown of " + target:
            assert get(weir.address, target, headers={"X-First": unknown}).status == 403, "an invented id does not bypass the block"
        assert get(weir.address, target, headers={"X-First": "stranger", "X-Second": "client-1"}).status == 200


def test_rules_and_blocks_apply_to_the_identity_that_is_used(rig):
    """The first id has no row. The rule, a block and the fields are those of the next identity, not
    of the invented id; both at first and from the cache."""
    weir = weir_with_database(rig, Postgres(rig), limits={**HOUR, "made-up": dict(script="fixed_window", limit=9, period="1h")},
                   identity={"from": ["header:X-First", "header:X-Second", "ip"], "known_clients_only": True},
                   clients={"banned": {"blocked": True}},
                   rules=[{"match": {"client": "stranger"}, "limits": ["made-up"]},
                          {"match": {"client": "client-1"}, "limits": "none"},
                          {"limits": ["quota"]}])
    for _ in range(2):
        two, one, banned, nobody = [get(weir.address, headers={"X-First": "stranger", "X-Second": second})
                                    for second in ("client-2", "client-1", "banned", "nobody")]
        assert two.status == 200 and two["X-RateLimit-Limit"] == "3", two
        assert one.status == 200 and one["X-RateLimit-Limit"] is None, one
        assert banned.status == 403, banned
        assert nobody["X-RateLimit-Limit"] == "60", nobody
    weir.counts(2, "weir_errors_total", cause="client_blocked")


def test_bodies_and_pipelined_requests_during_a_query(rig):
    database = Postgres(rig)
    database.sql("INSERT INTO clients SELECT 'c' || n, 1000 FROM generate_series(1, 40) n")
    weir = weir_with_database(rig, database)
    with Connection(weir.address) as connection:
        for n in range(1, 20):
            body = b"x" * (n * 5000)
            response = connection.request("/echo", "POST", {"X-Client-Id": f"c{n}"}, body)
            assert response.status == 200 and response["X-RateLimit-Limit"] == "1000"
        connection.send(b"".join(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client-Id: c%d\r\n\r\n" % n for n in range(20, 41)))
        assert [connection.response()["X-RateLimit-Remaining"] for _ in range(20, 41)] == ["999"] * 21


def test_cache_entries_expire(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"cache": "1s"})
    assert limit_of(weir, "client-2") == 3
    database.sql("UPDATE clients SET quota = 30 WHERE id = 'client-2'")
    eventually(lambda: limit_of(weir, "client-2") == 30, what="the new quota")
    assert database.query_count("client-2") <= 5


def test_other_weirs_read_the_cache_in_redis(rig):
    database = Postgres(rig)
    first = weir_with_database(rig, database)
    assert limit_of(first, "client-2") == 3 and limit_of(first, "stranger") == 60
    second = weir_with_database(rig, database)
    assert limit_of(second, "client-2") == 3 and limit_of(second, "stranger") == 60
    assert database.query_count("client-2") == 1 and database.query_count("stranger") == 1
    second.counts(2, "weir_quota_redis_hits_total")
    assert 0 < rig.redis().command("PTTL", "weir:{id:stranger}:q") <= 300000
    limit_of(second, "client-1")

    def causes_no_calls():  # apart from those that each weir makes every few seconds
        calls = rig.redis().calls("evalsha")
        for _ in range(10):
            limit_of(second, "client-1")
        return rig.redis().calls("evalsha") == calls
    eventually(causes_no_calls, what="requests of a cached unlimited client without a call")


def test_a_reset_clears_the_cache_on_every_weir(rig):
    database = Postgres(rig)
    weirs = [weir_with_database(rig, database) for _ in range(2)]
    assert [limit_of(weir, "client-2") for weir in weirs] == [3, 3]
    database.sql("UPDATE clients SET quota = 4 WHERE id = 'client-2'")
    assert [limit_of(weir, "client-2") for weir in weirs] == [3, 3]
    with Connection(weirs[0].admin) as admin:
        assert admin.request("/api/v1/clients/client-2", "DELETE").status == 200
    for weir in weirs:
        eventually(lambda weir=weir: limit_of(weir, "client-2") == 4, what="the new quota after a reset")
    database.sql("UPDATE clients SET quota = 5 WHERE id = 'client-2'")
    assert rig.command("reset", "-c", weirs[0].policy_file, "client-2").returncode == 0
    for weir in weirs:
        eventually(lambda weir=weir: limit_of(weir, "client-2") == 5, what="the new quota after weir reset")


def test_inspect_shows_the_quota_of_the_database(rig):
    database = Postgres(rig)
    database.sql("INSERT INTO clients VALUES ('golden', NULL, 'gold')")
    weir = weir_with_database(rig, database, plans={"gold": {"limits": {"quota": {"limit": 500}}}}, clients={"named": {"quota": 2}})

    def look(client):
        with Connection(weir.admin) as admin:
            return json.loads(admin.request(f"/api/v1/clients/{client}").body)

    def inspect(client):
        return rig.command("inspect", "-c", weir.policy_file, client).stdout

    assert look("client-2")["database"] == {"cached": False} and "not cached: the next request looks" in inspect("client-2")
    for client in "client-0", "client-1", "client-2", "golden", "stranger", "named":
        fetch(weir, client)
    two = look("client-2")
    assert two["client_limits"] == "quota" and two["limits"][0]["quota"] == 3 and two["limits"][0]["remaining"] == 2
    assert two["database"]["known"] and two["database"]["quota"] == 3 and 1790 < two["database"]["expires_in_seconds"] <= 1800
    assert re.search(r"a quota of 3; looked up again in (30m 00|29m \d\d)s", inspect("client-2")) and "3 in 1h" in inspect("client-2")
    assert look("client-0")["client_limits"] == "prohibited" and "Every request that has an enforced limit is rejected" in inspect("client-0")
    assert look("client-1")["client_limits"] == "unlimited" and "quotas  unlimited; " in inspect("client-1")
    golden = look("golden")
    assert golden["plan"] == "gold" and golden["database"]["plan"] == "gold" and golden["limits"][0]["quota"] == 500
    assert "quotas  plan gold; " in inspect("golden")
    eventually(lambda: look("stranger")["database"].get("known") is False, what="its row in Redis")
    assert "no row for this id" in inspect("stranger")
    assert look("named")["database"] is None and "quotas  " not in inspect("named")


def test_a_reload_keeps_the_cache(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, workers=1)
    assert limit_of(weir, "client-2") == 3
    weir.reload(timeouts={"keepalive": "50s"})
    assert limit_of(weir, "client-2") == 3
    assert database.query_count() == 1
    weir.reload(quotas=quotas(database, query="SELECT quota + 1 FROM clients WHERE id = $1"))
    eventually(lambda: limit_of(weir, "client-2") == 4, what="the result of the new query")
    weir.policy.pop("quotas")
    weir.reload()
    eventually(lambda: limit_of(weir, "client-2") == 60, what="no quotas")
    weir.reload(quotas=quotas(database))
    eventually(lambda: limit_of(weir, "client-2") == 3, what="quotas again")


def test_the_database_goes_down_and_comes_back(rig):
    """Cached quotas stay in use after they expire. Other clients follow on_failure at once. One
    log line for each change; /readyz does not change."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"cache": "1s", "on_failure": "deny"})
    weir.expect_errors(DOWN)
    assert limit_of(weir, "client-2") == 3
    until = time.monotonic() + 1.2
    database.stop()
    wait_for_down(weir)
    eventually(lambda: time.monotonic() > until)
    took = []
    for _ in range(20):
        begun = time.monotonic()
        assert limit_of(weir, "client-2") == 3 and fetch(weir, "client-1").status == 503
        took.append(time.monotonic() - begun)
    assert sorted(took)[10] < 1, f"requests wait for a database that is down: {took}"
    eventually(lambda: weir.metric("weir_quota_expired_total") >= 1)
    assert get(weir.admin, "/readyz").status == 200
    later = weir_with_database(rig, database, settings={"cache": "1s", "on_failure": "deny"})
    later.expect_errors(DOWN)
    wait_for_down(later)
    assert limit_of(later, "client-2") == 3, "from Redis, although it has expired"
    database.start()
    wait_for_up(weir)
    eventually(lambda: limit_of(weir, "client-1") == -1, what="the client that was not cached")
    weir.wait_for_output("postgres .*available again")
    lines = [message for level, message in weir.log() if "postgres" in message and level != "debug"]
    assert len(lines) == 2 and "check that PostgreSQL runs there" in lines[0] and "available again" in lines[1], lines


def test_an_unavailable_database_is_not_an_unknown_client(rig):
    """on_failure decides, whatever unknown_client says: with default the limits apply, with deny
    the response is 503 until the database is back."""
    database = Postgres(rig)
    settings = [{"unknown_client": "deny"}, {"on_failure": "deny"}, {"unknown_client": "deny", "on_failure": "deny"}]
    rules = [{"match": {"path": "/free"}, "limits": "none"}, {"limits": ["quota"]}]
    weirs = [weir_with_database(rig, database, settings=each, rules=rules) for each in settings]
    assert [limit_of(weir, "stranger") for weir in weirs] == [403, 60, 403]
    assert limit_of(weirs[1], "client-2") == 3
    database.stop()
    for weir in weirs:
        weir.expect_errors(DOWN)
        wait_for_down(weir)
    for _ in range(2):
        open_, closed, both = [fetch(weir, "client-0") for weir in weirs]
        assert open_.status == 200 and open_["X-RateLimit-Limit"] == "60", open_
        for answer in closed, both:
            assert answer.status == 503 and answer["Retry-After"] == "1" and answer["X-RateLimit-Limit"] is None, answer
            assert json.loads(answer.body)["detail"] == "the client's quota cannot be looked up at the moment"
    assert [limit_of(weir, "stranger") for weir in weirs] == [403, 60, 403], "the database is known not to have this id"
    assert limit_of(weirs[1], "client-2") == 3, "from the cache"
    assert get(weirs[1].address).status == 200 and get(weirs[1].address, "/free", headers={"X-Client-Id": "client-0"}).status == 200
    weirs[1].counts(2, "weir_errors_total", cause="quota_unavailable")
    database.start()
    eventually(lambda: limit_of(weirs[1], "client-0") == 429 or fetch(weirs[1], "client-0").status == 429, 30, "the quota")


def test_a_failing_and_a_slow_query_are_failures(rig):
    database = Postgres(rig)
    for query, timeout, words in (("SELECT 1 / (length($1) - length($1))", "10s", "the query fails"),
                                  ("SELECT 5 FROM pg_sleep(60) WHERE $1 <> ''", "200ms", "the query timed out")):
        weir = weir_with_database(rig, database, settings={"query": query, "timeout": timeout, "on_failure": "deny"})
        weir.expect_errors("postgres")

        def fails(weir=weir, words=words):  # a lookup that is late before its query ends without it
            assert fetch(weir, "client-2").status == 503
            return words in weir.output()
        eventually(fails, what=words)


def test_an_unavailable_database_with_known_clients_only(rig):
    """With deny, an id that cannot be looked up is not counted by its address."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"on_failure": "deny"}, identity={"from": ["header:X-Client-Id", "ip"], "known_clients_only": True})
    assert fetch(weir, "stranger").status == 200
    database.stop()
    weir.expect_errors(DOWN)
    wait_for_down(weir)
    assert fetch(weir, "another").status == 503 and fetch(weir, "stranger").status == 200
    weir.reload(quotas=quotas(database))
    eventually(lambda: fetch(weir, "another").status == 200, what="on_failure: default")


def test_a_policy_that_denies_unknown_clients_names_on_failure(rig):
    database = Postgres(rig)

    def check(**settings):
        weir = weir_with_database(rig, database, settings=settings)
        return rig.command("check", "-c", weir.policy_file).stderr
    assert "if the database is unavailable" in check(unknown_client="deny")
    assert "if the database is unavailable" not in check(unknown_client="deny", on_failure="default")


@timeout(90)
def test_the_database_fails_under_load(rig):
    """No request fails, and no client exceeds its quota."""
    database = Postgres(rig)
    database.sql("INSERT INTO clients SELECT 'c' || n, 5 FROM generate_series(1, 300) n")
    weir = weir_with_database(rig, database, settings={"timeout": "1s"}, limits={"quota": dict(script="fixed_window", limit=5, period="1h")})
    weir.expect_errors(DOWN, SLOW)
    statuses, lock, stop = {}, threading.Lock(), threading.Event()

    def client(first):
        with Connection(weir.address) as connection:
            n = first
            while not stop.is_set():
                response = connection.request(headers={"X-Client-Id": f"c{n % 300 + 1}"})
                with lock:
                    statuses.setdefault(response.status, []).append(n % 300 + 1)
                n += 7

    threads = [threading.Thread(target=client, args=(n,)) for n in range(0, 300, 40)]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(map(len, statuses.values())) > 50)
    database.stop()
    wait_for_down(weir)
    database.start()
    wait_for_up(weir)
    eventually(lambda: len(statuses.get(200, [])) >= 1490, 40, "five requests of every client")
    stop.set()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}, {status: len(all) for status, all in statuses.items()}
    assert all(statuses[200].count(n) <= 5 for n in range(1, 301))


def test_the_database_hangs(rig):
    """The database processes are stopped: the connection stays open without replies."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"timeout": "300ms", "cache": "1s"})
    weir.expect_errors(SLOW, DOWN)
    eventually(lambda: limit_of(weir, "client-2") == 3, what="the quota")
    wait = time.monotonic() + 1.1
    eventually(lambda: time.monotonic() > wait)
    database.freeze()
    begun = time.monotonic()
    assert limit_of(weir, "client-2") == 3, "although it has expired"
    assert time.monotonic() - begun < 3
    numbers = itertools.count()
    eventually(lambda: limit_of(weir, f"hang-{next(numbers)}") == 60 and weir.metric("weir_quota_database_up") == 0, what="the database to be down")
    took = []
    for n in range(20):
        begun = time.monotonic()
        assert limit_of(weir, f"stranger-{n}") == 60
        took.append(time.monotonic() - begun)
    assert sorted(took)[10] < 0.25, f"requests wait for a database that is down: {took}"
    database.thaw()
    eventually(lambda: limit_of(weir, "client-0") == 429 or fetch(weir, "client-0").status == 429, 30, "the quota of another client")


def test_a_slow_query_is_cancelled(rig):
    database = Postgres(rig)
    database.sql("CREATE TABLE pace (seconds float); INSERT INTO pace VALUES (30)")
    slow = "SELECT quota FROM clients, (SELECT pg_sleep(seconds) FROM pace) p WHERE id = $1"
    weir = weir_with_database(rig, database, settings={"timeout": "200ms", "query": slow})
    weir.expect_errors(SLOW)

    def times_out():
        begun = time.monotonic()
        assert limit_of(weir, "client-2") == 60 and time.monotonic() - begun < 3
        return "the query timed out" in weir.output()
    eventually(times_out, what="a query that times out")
    wait_for_down(weir)
    assert get(weir.admin, "/readyz").status == 200
    eventually(lambda: database.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND state = 'active' "
                                    "AND pid <> pg_backend_pid()") == "0", what="no running query")
    database.sql("UPDATE pace SET seconds = 0")
    eventually(lambda: limit_of(weir, "client-2") == 3, 30, "the quota")
    weir.wait_for_output("postgres .*available again")
    lines = [message for level, message in weir.log() if "postgres" in message and level != "debug"]
    # Two lines, or further pairs if the machine stalls.
    assert len(lines) >= 2 and all("raise quotas.timeout" in line for line in lines[::2]) and all("available again" in line for line in lines[1::2]), lines


def test_requests_during_a_query_that_is_tried_again_are_not_refused(rig):
    """They get the result of the last query, at once, and are not counted as too many."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"timeout": "1500ms", "query": "SELECT 5 FROM pg_sleep(60) WHERE $1 <> ''"})
    weir.expect_errors(SLOW, "postgres")
    eventually(lambda: limit_of(weir, "client-2") == 60 and weir.metric("weir_quota_queries_total", result="failed") >= 2, 30, "two queries")
    assert weir.metric("weir_quota_refused_total") == 0


def test_clients_disconnect_while_their_quota_is_queried(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"timeout": "60s"})
    assert limit_of(weir, "client-1") == -1
    database.freeze()
    waiting = [Connection(weir.address) for _ in range(40)]
    for n, connection in enumerate(waiting):
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client-Id: %s\r\n\r\n" % (b"client-2" if n % 2 else b"gone-%d" % (n % 6)))
    eventually(lambda: weir.metric("weir_requests_active") == 40)
    for connection in waiting[2:20]:
        connection.close()
    for connection in waiting[20:]:
        reset(connection)
    weir.counts(2, "weir_requests_active")
    database.thaw()
    assert waiting[1].response()["X-RateLimit-Limit"] == "3" and waiting[0].response()["X-RateLimit-Limit"] == "60"
    eventually(lambda: weir.metric("weir_requests_active") == 0)


def test_a_shutdown_while_requests_wait_for_a_quota(rig):
    """Requests in progress finish first: with the quota, or without it after quotas.timeout."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"timeout": "3s"})
    weir.expect_errors(SLOW)
    database.freeze()
    with Connection(weir.address) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client-Id: client-2\r\n\r\n")
        eventually(lambda: weir.metric("weir_requests_active") == 1)
        weir.signal(signal.SIGTERM)
        assert connection.response()["X-RateLimit-Limit"] == "60"
    assert weir.wait(20) == 0


def test_a_failing_query_is_reported(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"query": "SELECT quota FROM clients_of_all WHERE id = $1"})
    weir.expect_errors("postgres .*the query fails")
    assert limit_of(weir, "client-2") == 60
    wait_for_down(weir)
    weir.wait_for_output(r"error .*relation \"clients_of_all\" does not exist.*check quotas.postgres.query")
    database.sql("ALTER TABLE clients RENAME TO clients_of_all")
    eventually(lambda: limit_of(weir, "client-2") == 3, 30, "the quota")


def test_a_query_with_too_many_rows_is_stopped(rig):
    database = Postgres(rig)
    weir = weir_with_database(rig, database, settings={"query": "SELECT generate_series(1, 100000000) WHERE $1 <> ''"})
    weir.expect_errors("postgres .*the query fails.*more than 1000 rows")
    memory = weir.resident_kib()
    assert limit_of(weir, "client-2") == 60
    wait_for_down(weir)
    assert sanitized or weir.resident_kib() < memory + 20000


def test_quotas_with_redis_over_tls(rig):
    """The quota fetcher's own connection to Redis: it stores the row, and the next weir reads
    it."""
    redis = rig.redis(tls=redis_tls())
    database = Postgres(rig)
    address = {"address": f"rediss://{redis.text}", "tls": {"ca": os.path.join(TLS_FILES, "ca.pem")}}
    weirs = [weir_with_database(rig, database, redis=address).wait_for_redis() for _ in range(2)]
    assert [limit_of(weir, "client-2") for weir in weirs] == [3, 3] and database.query_count() == 1
    weirs[1].counts(1, "weir_quota_redis_hits_total")
    database.sql("UPDATE clients SET quota = 4 WHERE id = 'client-2'")
    assert rig.command("reset", "-c", weirs[0].policy_file, "client-2").returncode == 0
    for weir in weirs:
        eventually(lambda weir=weir: limit_of(weir, "client-2") == 4, what="the new quota after a reset")
    assert redis.command("PTTL", "weir:{id:client-2}:q") > 0


def test_without_redis_weir_queries_the_database(rig):
    database = Postgres(rig)
    redis = rig.redis()
    weir = weir_with_database(rig, database, redis={"timeout": "50ms", "on_failure": "local"})
    weir.expect_errors("redis ")
    redis.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    assert [fetch(weir, "client-2").status for _ in range(5)] == [200] * 3 + [429] * 2
    assert fetch(weir, "client-0").status == 429 and fetch(weir, "client-1").status == 200
    assert database.query_count("client-2") == 1


def test_a_lock_of_a_crashed_weir_expires(rig):
    database = Postgres(rig)
    rig.redis().command("SET", "weir:{id:client-2}:q:lock", "somebody", "PX", "400")
    weir = weir_with_database(rig, database)
    assert limit_of(weir, "client-2") == 3
    assert database.query_count("client-2") == 1


def test_a_lock_that_is_acquired_too_late_is_released(rig):
    """Redis stalls for longer than redis.timeout, and executes the call after the database has
    replied. Another weir must not wait for a row that this one does not store."""
    database, redis = Postgres(rig), rig.redis()
    weir = weir_with_database(rig, database, redis={"timeout": "200ms", "on_failure": "allow"}, settings={"timeout": "60s"})
    weir.wait_for_redis().expect_errors("redis")
    redis.command("CLIENT", "PAUSE", "600000", "WRITE")
    assert fetch(weir, "client-2").status == 200 and database.query_count("client-2") == 1
    redis.command("CLIENT", "UNPAUSE")
    eventually(lambda: "cmdstat_set:" in redis.command("INFO", "commandstats"), what="the lock")
    eventually(lambda: redis.command("EXISTS", "weir:{id:client-2}:q:lock") == 0, what="its release")


@timeout(90)
def test_made_up_ids_do_not_evict_real_clients(rig):
    """Many ids without a row: memory, the cache and the query rate are bounded, and a client's
    quota stays cached."""
    database = Postgres(rig)
    weir = weir_with_database(rig, database, workers=1, settings={"timeout": "2s"})
    assert limit_of(weir, "client-2") == 3
    memory, begun = weir.resident_kib(), time.monotonic()

    def send_made_up_ids(first):
        with Connection(weir.address) as connection:
            for n in range(first, first + 500):
                assert connection.request(headers={"X-Client-Id": f"made-up-{n}"}).status == 200

    threads = [threading.Thread(target=send_made_up_ids, args=(n * 500,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.query_count() - 1 <= 1000 * (time.monotonic() - begun) + 1100
    assert weir.metric("weir_quota_unknown_ids") <= 16500
    assert sanitized or weir.resident_kib() < memory + 30000
    assert limit_of(weir, "client-2") == 3 and database.query_count("client-2") == 1


def test_a_database_by_host_name(rig):
    """Over TCP: by host name, as the second of two servers, and as a URI."""
    database = Postgres(rig, tcp=True)
    several = f"host=127.0.0.1,localhost port={free_port()},{database.port} user=weir dbname=postgres"
    weir = weir_with_database(rig, database, settings={"connection": several})
    assert limit_of(weir, "client-2") == 3
    uri = f"postgresql://weir@localhost:{database.port}/postgres?connect_timeout=3"
    weir.reload(quotas=quotas(database, connection=uri))
    assert fetch(weir, "client-0").status == 429 and database.query_count("client-0") == 1


def test_weir_tries_the_next_server_if_one_does_not_respond(rig):
    """The first server accepts connections and sends nothing. Another one closes them."""
    database = Postgres(rig, tcp=True)
    silent = Scripted(rig, lambda peer, _number: eventually(lambda: not peer.socket.recv(65536)))
    closing = Scripted(rig, lambda _peer, _number: None)
    addresses = f"hostaddr=127.0.0.1,127.0.0.1,127.0.0.1 port={silent.address[1]},{closing.address[1]},{database.port}"
    socket_path = f"host=127.0.0.1,{database.directory} port={silent.address[1]},{database.port}"
    weirs = [weir_with_database(rig, database, settings={"connection": f"{servers} user=weir dbname=postgres"})
             for servers in (addresses, socket_path)]
    for weir, client, limit in zip(weirs, ("client-2", "client-0"), (3, 0)):
        weir.expect_errors("postgres .*no reply during connection setup and login")
        eventually(lambda: limit_of(weir, client) == limit, 40, "the quota from the last server")
        weir.wait_for_output("postgres .*no reply during connection setup and login")
    assert closing.accepted > 0


def test_weir_tries_the_next_server_if_the_query_fails(rig):
    """As on a standby, if the query writes. Here the query fails over the Unix socket."""
    database = Postgres(rig, tcp=True)
    servers = f"host={database.directory},127.0.0.1 port={database.port} user=weir dbname=postgres"
    query = "SELECT quota / (inet_server_addr() IS NOT NULL)::int FROM clients WHERE id = $1"
    weir = weir_with_database(rig, database, settings={"connection": servers, "query": query})
    weir.expect_errors("postgres .*the query fails .*division by zero")
    eventually(lambda: limit_of(weir, "client-2") == 3, 40, "the quota from the second server")
    weir.wait_for_output("postgres .*the query fails .*division by zero")


def test_weir_check_shows_no_password(rig):
    for connection, shown in ("postgresql://weir:s3cret@127.0.0.1/weir", "password"), ("host=127.0.0.1 user=weir sslpassword=s3cret", "sslpassword"):
        file = rig.write("policy.yaml", f"""
upstreams: {{ api: {{ servers: [ 127.0.0.1:3000 ] }} }}
identity: {{ from: "header:X-Client-Id", trusted_proxies: [ 127.0.0.1 ] }}
quotas:
  postgres: {{ connection: "{connection}", query: "SELECT quota FROM clients WHERE id = $1" }}
""")
        result = rig.command("check", "-c", file)
        assert result.returncode == 0, result.stderr
        assert "s3cret" not in result.stdout + result.stderr and f"{shown}='***'" in result.stdout, result.stdout
