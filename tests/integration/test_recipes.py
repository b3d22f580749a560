"""Every recipe of docs/recipes.md works as described. The name of each test is derived from the
recipe's heading."""

import json
import os
import re
import ssl
import subprocess
import threading
import time
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cryptography import x509

import envoy_messages as envoy
from browser import Site
from certificates import Authority, write
from envoy_calls import Caller, listener_of
from grpc_programs import GrpcServer
from http2_wire import Http2
from key_server import KeyServer
from postgres import Postgres
from recipe_book import blocks, weir_with_recipe, recipes
from rig import eventually, top, weir_program
from scripted import OK, Scripted
from tls_client import TlsConnection, client, pair
from tls_server import CA
from tokens import Issuer
from wire import Connection, count, flood, get, request_bytes


DAY = [("period: 1m", "period: 1d")]  # so that no unit is refilled and no state expires during a test


def statuses(weir, times, path="/", method="GET", **headers):
    return [get(weir.address, path, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()}).status
            for _ in range(times)]


def granted_units(answer):
    """X-Granted as the upstream received it."""
    values = [value.strip() for name, value in json.loads(answer.body)["fields"] if name.lower() == "x-granted"]
    assert len(values) == 1, values
    return values[0]


def function_name(heading):
    return "test_" + re.sub(r"\W+", "_", heading.lower()).strip("_")


def test_every_recipe_has_its_test(rig):
    headings = recipes()[1]
    assert len(headings) >= 22
    missing = [h for h in headings if function_name(h) not in globals()]
    assert not missing, missing


def test_a_token_bucket_for_each_address(rig):
    weir = weir_with_recipe(rig, "A token bucket for each address", replace=[("period: 1d }", "period: 1d, lease: off }")])
    assert statuses(weir, 1, "/batch/1") == [200]
    assert count(flood(weir.address, 1200)) == {200: 990, 429: 210}


def test_a_token_every_two_seconds_ten_at_once(rig):
    weir = weir_with_recipe(rig, "A token every two seconds, ten at once")
    assert statuses(weir, 10, X_User="alice") == [200] * 10, "a bucket of its own"
    requests = []
    while not requests or requests[-1][1] < requests[0][1] + 4.5 or requests[-1][2] == 200:
        sent = time.monotonic()
        status = get(weir.address).status
        requests.append((sent, time.monotonic(), status))
    passed = sum(status == 200 for *_, status in requests)
    least, took = requests[-1][0] - requests[0][1], requests[-1][1] - requests[0][0]  # the last request was rejected
    assert 10 + int(least / 2) <= passed <= 10 + took / 2, f"{passed} passed in {least} to {took} s"


def test_a_counter_per_window_with_a_local_fallback(rig):
    weir = weir_with_recipe(rig, "A counter per window, with a local fallback")
    answer = get(weir.address, "/reports/a")
    assert answer.status == 200 and answer.number("X-RateLimit-Remaining") in (54, 55)
    rig.redis().kill()
    weir.expect_errors("[Rr]edis")
    answers = count(flood(weir.address, 200))
    assert set(answers) == {200, 429} and answers[200] <= 122, "the local limit; twice if a new minute starts during the test"


def test_a_window_from_the_first_request_what_is_left_repeats_for_free(rig):
    weir = weir_with_recipe(rig, "A window from the first request, what is left, repeats for free")
    answers = [get(weir.address, "/echo", headers={"Idempotency-Key": key, "X-Granted": "99"}) for key in "aabbccd"]
    amounts = [get(weir.address, "/echo", headers={"X-Amount": amount, "X-Forwarded-For": "203.0.113.7", "Idempotency-Key": amount})
               for amount in ("3", "1", "3", "500", "2")]
    assert [answer.status for answer in amounts] == [200] * 4 + [429]
    assert [granted_units(answer) for answer in amounts[:4]] == ["3", "1", "3", "6"], "an amount of each call; a repeat; the rest"
    assert [answer.status for answer in answers] == [200] * 6 + [429]
    assert [granted_units(answer) for answer in answers[:6]] == ["4", "4", "4", "4", "2", "2"], "the remaining units; repeats get the units of the first request"


def test_a_rolling_window(rig):
    weir = weir_with_recipe(rig, "A rolling window", replace=[("/batch/**", "/echo")])
    assert count(flood(weir.address, 580)) == {200: 580}
    assert granted_units(get(weir.address, "/echo")) == "20", "the remaining units of 600"
    assert statuses(weir, 2) == [429, 429]


def timed_answer(rig, weir, **more):
    """The time of Redis in seconds before the request, and the answer; again if that took more than a second."""
    def at_once():
        before, answer = int(rig.redis().command("TIME")[0]), get(weir.address, **more)
        return int(rig.redis().command("TIME")[0]) - before <= 1 and (before, answer)
    return eventually(at_once, what="an answer in time")


def test_a_day_that_starts_at_eight_a_calendar_month(rig):
    weir = weir_with_recipe(rig, "A day that starts at eight, a calendar month")
    seconds, answer = timed_answer(rig, weir)
    resets = {name: int(t) for name, t in re.findall(r'"(\w+)";r=\d+;t=(\d+)', answer["RateLimit"])}
    berlin = ZoneInfo("Europe/Berlin")
    now = datetime.fromtimestamp(seconds, berlin)
    eight = now.replace(hour=8, minute=0, second=0)
    if eight <= now:
        eight = (eight + timedelta(days=1))
    first = (now.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
    assert abs(now.timestamp() + resets["daily"] - eight.timestamp()) <= 2, answer
    assert abs(now.timestamp() + resets["monthly"] - first.timestamp()) <= 2, answer


def test_quotas_from_the_database(rig):
    database = Postgres(rig)
    database.sql("ALTER TABLE clients RENAME quota TO rate_limit_quota")
    weir = weir_with_recipe(rig, "Quotas from the database",
                            replace=[('"postgresql://weir@127.0.0.1/weir"', json.dumps(database.connection)),
                                     ("cache: 30m", "cache: 30m\n  timeout: 10s")])
    assert statuses(weir, 1, X_Client_Id="client-0") == [429]
    assert get(weir.address, headers={"X-Client-Id": "client-1"})["X-Rate-Limit-Quota"] == "-1"
    def minute():
        return int(rig.redis().command("TIME")[0]) // 60
    before = minute()
    answers = statuses(weir, 8, X_Client_Id="client-2")
    assert answers == [200] * 3 + [429] * 5 or (minute() > before and answers.count(200) <= 6 and 429 in answers), answers
    seconds, answer = timed_answer(rig, weir, headers={"X-Client-Id": "nobody"})
    assert answer["X-Rate-Limit-Quota"] == "60"
    assert abs(answer.number("X-Rate-Limit-Reset") - (60 - seconds % 60)) % 59 <= 2, "the window is aligned to the minute"
    database.stop()
    weir.expect_errors("postgres")
    eventually(lambda: weir.metric("weir_quota_database_up") == 0)
    assert statuses(weir, 1, X_Client_Id="another") == [503] and statuses(weir, 1, X_Client_Id="client-0") == [429]


def test_two_per_four_seconds_to_the_microsecond(rig):
    weir = weir_with_recipe(rig, "Two per four seconds, to the microsecond", replace=[("period: 4s", "period: 1h")])
    assert statuses(weir, 3) == [200, 200, 429]


def test_from_a_program(rig):
    """A tight loop for 10 s, as S8 was published: steps pass at 0, 4 and 8 s, two each time."""
    heading = "From a program"
    weir = weir_with_recipe(rig, heading, replace=(("127.0.0.1:9190", "127.0.0.1:0"),))
    port = weir.wait_for_output(r"listening on \S+:(\d+) \(decisions\)$")[0]
    names = {}
    program = blocks(recipes()[1][heading], "python")[0].replace("9190", port)
    assert "timeout=1)" in program
    exec(program.replace("timeout=1)", "timeout=20)"), names)
    start, passed = time.monotonic(), []
    while (sent := time.monotonic()) < start + (10 if len(passed) >= 6 else 30):
        if names["may_run"]("mail"):
            passed.append((sent - start, time.monotonic() - start))
    names["weir"].close()
    assert len(passed) >= 6, passed
    assert all(third[1] - first[0] >= 4 for first, third in zip(passed, passed[2:])), f"three within 4 s: {passed}"


def test_from_a_program_without_weir(rig):
    redis = rig.redis()
    commands, = blocks(recipes()[1]["From a program"], "sh")
    for old, new in (("weir script", weir_program + " script"), ("redis-cli", f"redis-cli -s {redis.address}"),
                     ("2 4000000", "2 3600000000")):  # an hour: none passes during the test
        assert old in commands, old
        commands = commands.replace(old, new)
    replies = [subprocess.run(["sh", "-ec", commands], cwd=rig.directory, env={**os.environ, "WEIR_LUA_DIR": os.path.join(top, "lua")},
                              check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
    assert [reply[:2] for reply in replies] == [["1", "1"], ["1", "0"], ["0", "0"]], replies
    assert 0 < int(replies[2][2]) <= 3600000000


def test_a_hundred_a_minute_for_each_client(rig):
    weir = weir_with_recipe(rig, "A hundred a minute for each client", replace=DAY)
    for name in "a", "b":
        assert statuses(weir, 22, X_Client_Id=name) == [200] * 20 + [429] * 2
    assert statuses(weir, 40, "/healthz") == [200] * 40


def test_five_failed_logins(rig):
    def login(peer, number):
        while request := peer.read_request():
            right = b"right" in request[0]
            peer.socket.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % (b"200 OK" if right else b"401 Unauthorized"))
    weir = weir_with_recipe(rig, "Five failed logins", Scripted(rig, login), replace=[("listen:", "workers: 1\nlisten:")])  # refunded in order

    def attempt(word):
        return get(weir.address, "/login", method="POST", headers={"X-Word": word}).status
    assert [attempt("right") for _ in range(9)] == [200] * 9, "successful logins are not counted"
    assert [attempt("wrong") for _ in range(5)] == [401] * 5
    assert attempt("right") == 429, "also for the right password"


def test_login_protection_with_lockout(rig):
    def login(peer, number):
        while request := peer.read_request():
            right = b"right" in request[0]
            peer.socket.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % (b"200 OK" if right else b"401 Unauthorized"))
    weir = weir_with_recipe(rig, "Login protection with lockout", Scripted(rig, login), replace=[("listen:", "workers: 1\nlisten:")])  # refunded in order

    def attempt(password):
        return get(weir.address, "/login?" + password, method="POST")
    assert [attempt("right").status for _ in range(8)] == [200] * 8, "successful logins are refunded"
    assert [attempt("wrong").status for _ in range(5)] == [401] * 5
    rejected = [attempt("right") for _ in range(3)]
    assert all(answer.status == 429 and 3590 <= int(answer["Retry-After"]) <= 3600 for answer in rejected), rejected
    assert get(weir.address, "/login?wrong").status == 401, "only POST is limited"


def test_plans(rig):
    weir = weir_with_recipe(rig, "Plans", replace=DAY)
    assert statuses(weir, 40, X_Client_Id="shop") == [200] * 40
    assert statuses(weir, 40, X_Client_Id="partner") == [200] * 40
    assert statuses(weir, 1, X_Client_Id="crawler") == [429]
    made_up = [statuses(weir, 1, X_Client_Id=f"made-up-{i}")[0] for i in range(8)]
    assert made_up == [200] * 5 + [429] * 3, made_up


def test_free_and_pro_plans_with_different_periods(rig):
    weir = weir_with_recipe(rig, "Free and pro plans with different periods")
    assert "w=86400" in get(weir.address)["RateLimit-Policy"]
    pro = get(weir.address, headers={"X-Client-Id": "shop"})["RateLimit-Policy"]
    assert "q=5000" in pro and "w=3600" in pro, pro
    assert statuses(weir, 3, "/reports/7?format=csv") == [200, 200, 429]
    assert statuses(weir, 3, "/reports/7?format=csv", X_Client_Id="shop") == [200] * 3
    assert statuses(weir, 3, "/reports/7?format=json") == [200] * 3
    assert statuses(weir, 1, X_Client_Id="bad") == [403]


def test_browsers_on_another_origin(rig):
    """With a real browser: test_browser.py."""
    weir = weir_with_recipe(rig, "Browsers on another origin")
    preflight = dict(Origin="https://app.example.com", Access_Control_Request_Method="PUT")
    assert statuses(weir, 30, method="OPTIONS", **preflight) == [200] * 30
    answer = eventually(lambda: (a := get(weir.address)).status == 429 and a, what="429")
    assert answer["Access-Control-Allow-Origin"] == "https://app.example.com" and "Retry-After" in answer["Access-Control-Expose-Headers"]
    assert answer["Vary"] == "Origin" and answer.number("Retry-After") >= 1


def test_the_api_s_capacity_shared_fairly(rig):
    weir = weir_with_recipe(rig, "The API's capacity, shared fairly", replace=[("period: 1s", "period: 1d")])
    answers = flood(weir.address, 40)
    policy = answers[0]["RateLimit-Policy"]
    assert "per-client" in policy and "everyone" in policy
    assert count(answers) == {200: 10, 429: 30}


def test_batch_jobs_are_rejected_first_payments_last(rig):
    weir = weir_with_recipe(rig, "Batch jobs are rejected first, payments last")
    shares = {"/v1/payments/1": ({}, 200), "/v1/a": ({}, 160), "/v1/b": ({"X-Job": "nightly"}, 100),
              "/v1/c": ({"X-Client-Id": "partner", "X-Job": "nightly"}, 200)}
    for path, (headers, share) in shares.items():
        assert get(weir.address, path, headers=headers)["X-RateLimit-Limit"] == str(share), path


def test_reading_is_cheap_writing_is_not(rig):
    weir = weir_with_recipe(rig, "Reading is cheap, writing is not", replace=[*DAY, ("period: 1s", "period: 1d")])
    assert statuses(weir, 3, "/v1/a", "POST") == [200, 200, 429]
    assert statuses(weir, 3, "/v1/a") == [200] * 3
    assert get(weir.address, "/v1/search").number("X-RateLimit-Remaining") == 100 - 2 - 3 - 10


def test_pay_by_what_the_answer_cost(rig):
    def chat(peer, number):
        while peer.read_request():
            peer.socket.sendall(b"HTTP/1.1 200 OK\r\nX-Tokens-Used: 6000\r\nContent-Length: 0\r\n\r\n")
    weir = weir_with_recipe(rig, "Pay by what the answer cost", Scripted(rig, chat))

    def fetch():
        return get(weir.address, "/v1/chat/a")
    assert fetch().number("X-RateLimit-Remaining") == 9999
    eventually(lambda: rig.redis().calls("evalsha") >= 2, what="the charge to be adjusted")
    assert fetch().status == 200
    eventually(lambda: fetch().status == 429, what="429 after 12,000 of 10,000 units are used")


def test_behind_a_load_balancer(rig):
    weir = weir_with_recipe(rig, "Behind a load balancer", replace=DAY)
    assert statuses(weir, 4, X_Forwarded_For="198.51.100.7") == [200] * 3 + [429]
    assert statuses(weir, 1, X_Forwarded_For="198.51.100.8") == [200]
    assert statuses(weir, 1, X_Forwarded_For="made-up, 198.51.100.7") == [429]


def test_behind_cloudflare(rig):
    weir = weir_with_recipe(rig, "Behind Cloudflare", replace=DAY)
    assert statuses(weir, 5, CF_Connecting_IP="203.0.113.7", X_Forwarded_For="1.1.1.1") == [200] * 3 + [429] * 2
    assert statuses(weir, 1, CF_Connecting_IP="203.0.113.8", X_Forwarded_For="1.1.1.1") == [200]


def test_limits_per_user_from_an_access_token(rig):
    heading = "Limits per user, from an access token"
    before, after = Issuer(rig, "RS256"), Issuer(rig, "ES256")
    rig.write("jwks.json", before.jwks)
    weir = weir_with_recipe(rig, heading, replace=DAY)
    claims = {"iss": "https://id.example.com/realms/shop", "aud": "api", "exp": int(time.time()) + 600}

    def limited(token):
        return statuses(weir, 22, Authorization="Bearer " + token) == [200] * 20 + [429] * 2
    alice, bob = before.sign("RS256", {**claims, "sub": "alice"}, {**claims, "sub": "bob"})
    assert limited(alice) and limited(bob)
    rig.write("next.json", after.jwks)
    commands = blocks(recipes()[1][heading], "sh")[0]
    assert "https://id.example.com/realms/shop/certs" in commands and "systemctl reload weir" in commands
    commands = commands.replace("https://id.example.com/realms/shop/certs", "file://" + os.path.join(rig.directory, "next.json"))
    subprocess.run(["sh", "-ec", commands.replace("systemctl reload weir", f"kill -HUP {weir.pid}")], cwd=rig.directory, check=True)
    weir.wait_for_output("is in effect")
    carol = after.sign("ES256", {**claims, "sub": "carol"})[0]
    eventually(lambda: get(weir.address, headers={"Authorization": "Bearer " + carol}).number("X-RateLimit-Limit"), what="a limit")
    echo = json.loads(get(weir.address, "/echo", headers={"Authorization": "Bearer " + carol}).body)
    assert ["X-Weir-Client", "jwt:carol"] in echo["fields"]


def test_an_issuer_that_rotates_its_keys(rig):
    old, new = Issuer(rig, "RS256", kid="2025"), Issuer(rig, "RS256", kid="2026")
    issuer = KeyServer(rig, old.jwks)
    state = os.path.join(rig.directory, "state")
    os.mkdir(state)
    weir = weir_with_recipe(rig, "An issuer that rotates its keys", replace=[
        ("https://id.example.com/realms/shop/certs", f"{issuer.url}\n    ca: {CA}"), ("/var/lib/weir", state)])
    claims = {"sub": "alice", "aud": "api", "iss": "https://id.example.com/realms/shop"}

    def client(keys):
        echo = get(weir.address, "/echo", headers={"Authorization": "Bearer " + keys.sign("RS256", claims)[0]})
        return dict(json.loads(echo.body)["fields"])["X-Weir-Client"]
    assert client(old) == "jwt:alice"
    issuer.content = new.jwks
    assert client(new) == "jwt:alice", "the request waits for the new key"
    assert client(old) == "ip:127.0.0.1" and len(issuer.fetches) == 2
    issuer.close()
    again = rig.weir(text=open(weir.policy_file, encoding="utf-8").read())
    assert get(again.address, "/echo", headers={"Authorization": "Bearer " + new.sign("RS256", claims)[0]}).status == 200
    assert "1 kept, of" in again.output() and weir.metric("weir_jwt_keys_age_seconds") < 7200


def test_api_keys_that_are_never_stored(rig):
    heading = "API keys that are never stored"
    command = blocks(recipes()[1][heading], "sh")[0]
    made = subprocess.run(["sh", "-ec", command], env={**os.environ, "API_KEY": "pk_partner", "WEIR_HASH_KEY": "a secret"},
                          capture_output=True, text=True, check=True).stdout.strip()
    weir = weir_with_recipe(rig, heading, replace=DAY + [("${WEIR_HASH_KEY}", "a secret"), ("id:h:HASH", "id:h:" + made)])
    assert statuses(weir, 1, X_Api_Key="pk_partner") == statuses(weir, 1, X_Api_Key="pk_other") == [200]
    for key, quota in (("pk_partner", "1000"), ("pk_other", "100")):
        assert re.search(rf"per-key .*\b{quota}\b", rig.command("inspect", "-c", weir.policy_file, "id:" + key).stdout)
    keys = rig.redis().command("KEYS", "*")
    assert any(made in key for key in keys) and not any("pk_" in key for key in keys), keys


def test_no_more_than_so_many_at_a_time(rig):
    may_answer, came = threading.Event(), []
    rig.add_cleanup(may_answer.set)

    def report(peer, number):
        while peer.read_request():
            came.append(number)
            may_answer.wait(20)
            peer.socket.sendall(OK)
    weir = weir_with_recipe(rig, "No more than so many at a time", Scripted(rig, report))
    under_way = [Connection(weir.address).send(request_bytes("/reports/1")) for _ in range(2)]
    eventually(lambda: len(came) == 2, what="two requests to reach the server")
    assert get(weir.address, "/reports/1").status == 429
    may_answer.set()
    assert [connection.response().status for connection in under_way] == [200, 200]
    eventually(lambda: get(weir.address, "/reports/1").status == 200, what="a free slot")


def test_a_back_end_that_must_not_see_bursts(rig):
    came = []

    def hook(peer, number):
        while peer.read_request():
            came.append(time.monotonic())
            peer.socket.sendall(OK)
    weir = weir_with_recipe(rig, "A back end that must not see bursts", Scripted(rig, hook))
    start = time.monotonic()
    connections = [Connection(weir.address).send(request_bytes("/hooks/a")) for _ in range(30)]
    assert [connection.response().status for connection in connections] == [200] * 30
    assert max(came) - start >= 29 * 0.02 - 0.01, "29 steps of 20 ms"


def test_the_office_and_the_unwelcome(rig):
    weir = weir_with_recipe(rig, "The office and the unwelcome", files=[("office.txt", "text"), ("unwelcome.txt", "text")])
    assert statuses(weir, 5, X_Forwarded_For="198.51.100.9") == [200] * 5
    assert statuses(weir, 2, X_Forwarded_For="203.0.113.7") == [403] * 2
    assert statuses(weir, 2, X_Forwarded_For="203.0.113.8") == [200, 429]


def test_try_a_limit_before_it_rejects_anybody(rig):
    weir = weir_with_recipe(rig, "Try a limit before it rejects anybody")
    limited = [name for name in map(str, range(60)) if 429 in statuses(weir, 3, X_Client_Id=name)]
    assert 0 < len(limited) < 20, limited
    eventually(lambda: weir.metric("weir_limit_decisions_total", limit="strict", decision="shadow") >= 60)


def test_your_own_words_for_a_rejection(rig):
    weir = weir_with_recipe(rig, "Your own words for a rejection", files=[("rejected.json", "json")])
    assert statuses(weir, 1) == [200]
    answer = get(weir.address)
    body = json.loads(answer.body)
    assert answer.status == 429 and body["error"] == "per-client is used up"
    assert body["try_again_in_seconds"] == answer.number("Retry-After") > 3500


def test_what_must_not_fail_open(rig):
    weir = weir_with_recipe(rig, "What must not fail open")
    rig.redis().kill()
    weir.expect_errors("[Rr]edis")
    assert statuses(weir, 2, "/payments/1") == [503, 503]
    assert statuses(weir, 2) == [200, 200]


def test_github_s_fields(rig):
    weir = weir_with_recipe(rig, "GitHub's fields")
    answer = get(weir.address)
    assert abs(answer.number("X-RateLimit-Reset") - time.time() - 3600) < 60
    assert answer["RateLimit"] is None and answer["X-Rate-Limit-Quota"] is None


def test_envoy_s_rate_limit_service(rig):
    weir = weir_with_recipe(rig, "Envoy's rate limit service", replace=[("127.0.0.1:8081", "127.0.0.1:0")])
    with Caller(listener_of(weir)) as caller:
        address = caller.call("edge", {"remote_address": "192.0.2.1"}).statuses[0]
        assert (address.current_limit.requests_per_unit, address.current_limit.unit, address.limit_remaining) == (100, envoy.UNITS["MINUTE"], 99)
        key = caller.call("edge", {"api_key": "a"}).statuses[0]
        assert (key.current_limit.name, key.limit_remaining) == ("per-key", 19)
        assert caller.code("edge", {"api_key": "a"}, hits_addend=21) == envoy.OVER_LIMIT
        partner = caller.call("edge", {"plan": "partner", "api_key": "b"}).statuses[0]
        assert partner.current_limit.name == "per-key" and partner.limit_remaining == 19, "the one with the least left"
        assert caller.call("edge", {"plan": "other", "api_key": "b"}).statuses[0].current_limit.name == ""


def test_behind_nginx_without_forwarding(rig):
    """With a real nginx: test_decisions.py."""
    assert "request_from: original" in recipes()[1]["Behind nginx, without forwarding"]


def test_behind_caddy_without_forwarding(rig):
    """With a real Caddy: test_decisions.py."""
    assert "forward_auth" in recipes()[1]["Behind Caddy, without forwarding"]


def test_behind_haproxy_without_forwarding(rig):
    """With a real HAProxy: test_decisions.py."""
    assert "lua.weir" in recipes()[1]["Behind HAProxy, without forwarding"]


def json_server(rig, respond):
    """A server that responds with (status, document) for the document of a request."""
    def script(peer, _number):
        while (request := peer.read_request()) is not None:
            status, document = respond(json.loads(request[1]))
            content = json.dumps(document).encode()
            peer.send(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content))
    return Scripted(rig, script)


def post(weir, path, document, **headers):
    return get(weir.address, path, method="POST", body=json.dumps(document).encode(),
               headers={name.replace("_", "-"): value for name, value in headers.items()})


def left(response):
    return {name: int(r) for name, r in re.findall(r'"([^"]+)";r=(\d+)', response["RateLimit"])}


def usage(prompt, completion):
    return 200, {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}


def test_tokens_per_minute_for_each_key_and_model(rig):
    weir = weir_with_recipe(rig, "Tokens per minute for each key and model", replace=DAY,
                            upstream=json_server(rig, lambda _: usage(100, 8900)))
    seen = [left(post(weir, "/v1/chat/completions", {"model": model, "max_tokens": 9000}, Authorization=f"Bearer {key}"))["tokens"]
            for key, model in (("one", "a"), ("one", "a"), ("one", "b"), ("two", "a"))]
    assert 90980 < seen[0] < 91000 and 81980 < seen[1] < 82050 and seen[2] == seen[0] == seen[3], seen


def test_a_monthly_budget_for_each_user_and_team(rig):
    weir = weir_with_recipe(rig, "A monthly budget for each user and team", replace=[("listen:", "workers: 1\nlisten:")],  # charged in order
                            upstream=json_server(rig, lambda _: usage(1000000, 2000000)))
    statuses = [post(weir, "/v1/chat/completions", {}, X_User=user, X_Team="t").status for user in "aaa" "b"]
    assert statuses == [200, 200, 200, 200]
    assert left(post(weir, "/v1/chat/completions", {}, X_User="b", X_Team="t")) == {"user-budget": 5000000 - 2250000 - 1000, "team-budget": 100000000 - 4 * 2250000 - 1000}
    assert post(weir, "/v1/chat/completions", {}, X_User="a", X_Team="t").status == 429, "6.75 of 5 are spent"


def test_graphql_by_operation(rig):
    weir = weir_with_recipe(rig, "GraphQL by operation", upstream=json_server(rig, lambda _: (200, {})),
                            replace=[("period: 1m", "period: 1h")])
    seen = [left(post(weir, "/graphql", {"operationName": name, "query": "..."})) for name in ("Orders", "Orders", "Users", None)]
    assert [s["operation"] for s in seen] == [59, 58, 59, 59] and seen[3]["operations"] == 296, seen


def test_json_rpc_by_method(rig):
    weir = weir_with_recipe(rig, "JSON-RPC by method", upstream=json_server(rig, lambda _: (200, {})),
                            replace=[("period: 1s", "period: 1h")])
    calls = [{"jsonrpc": "2.0", "method": "a"}, {"jsonrpc": "2.0", "method": "b"}, {"jsonrpc": "2.0", "method": "a"}, [{"method": "a"}], [{"method": "b"}]]
    assert [left(post(weir, "/", call))["method"] for call in calls] == [99, 99, 98, 99, 98]


def test_mcp_tools(rig):
    weir = weir_with_recipe(rig, "MCP tools", upstream=json_server(rig, lambda _: (200, {})), replace=DAY)

    def call(method, **params):
        return left(post(weir, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))["tool"]
    assert [call("tools/call", name="search"), call("tools/call", name="search"), call("tools/call", name="fetch"), call("tools/list")] == [29, 28, 29, 29]


def test_login_attempts_per_account(rig):
    weir = weir_with_recipe(rig, "Login attempts per account",
                            upstream=json_server(rig, lambda login: (200 if login["password"] == "right" else 401, {})))
    assert [post(weir, "/login", {"username": "eve", "password": "wrong"}).status for _ in range(12)] == [401] * 10 + [429] * 2
    assert post(weir, "/login", {"username": "bob", "password": "right"}).status == 200


def test_grpc_service(rig):
    server = GrpcServer(rig)
    weir = weir_with_recipe(rig, "gRPC service", upstream=server, replace=DAY)
    with Http2(weir.address) as client:
        def call(path):
            stream = client.start(path, method="POST", fields=[("content-type", "application/grpc"), ("te", "trailers")], end=False)
            client.send_body(stream, b"\0\0\0\0\2hi")
            response = client.response(stream)
            assert response.status == 200
            return int(response["grpc-status"] or dict(response.trailers)["grpc-status"])
        assert call("/t.Echo/Say") == 0
        assert [call("/shop.Orders/Create") for _ in range(12)] == [12] * 10 + [8] * 2, "the server does not implement the method"
        assert call("/t.Echo/Say") == 0


def test_browser_site(rig):
    tls = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tls")
    files = [("site.pem", os.path.join(tls, "cert.pem")), ("site.key", os.path.join(tls, "key.pem"))]
    site = Site(rig)
    weir = weir_with_recipe(rig, "Browser site", upstream=site, replace=files)
    seen = site.shown_by(weir.address)
    assert seen == ["h2", "open", "hello"], "the page over HTTP/2, the WebSocket over HTTP/1.1"
    assert site.upgrades == 1


def test_mtls_between_services(rig):
    ca = Authority(rig.directory)
    billing, retired, orders, stolen = (ca.issue(name, sans=[x509.DNSName(name + ".internal")])
                                        for name in ("billing", "retired", "orders", "stolen"))
    write(rig, "clients.crl", ca.crl(stolen))
    files = zip(("site.pem", "site.key", "clients.pem"), (*pair("one").values(), ca.file))
    weir = weir_with_recipe(rig, "mTLS between services", replace=[*DAY, *files])

    def call(one, times=1):
        with TlsConnection(weir.address, context=one.context()) as connection:
            return [connection.request("/echo") for _ in range(times)]
    assert count(call(orders, 30)) == {200: 20, 429: 10}
    assert count(call(billing, 60)) == {200: 50, 429: 10}
    assert count(call(retired)) == {403: 1}
    later = ca.issue("later", sans=[x509.DNSName("later.internal")])
    fields = dict(json.loads(call(later)[0].body)["fields"])
    assert (fields["X-Client-Certificate-Subject"], fields["X-Weir-Client"]) == ("CN=later", "certificate:later.internal")
    write(rig, "clients.crl", ca.crl(stolen, later))
    weir.signal(1)
    weir.wait_for_output("is in effect")
    for context in stolen.context(), later.context(), client("one"):
        try:
            with TlsConnection(weir.address, context=context) as connection:
                raise AssertionError(connection.request().status)
        except (ssl.SSLError, ConnectionError):
            pass
