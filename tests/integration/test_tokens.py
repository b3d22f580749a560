"""Client ids from JSON Web Tokens, cookies and query parameters: which client they identify, what
is stored, and that they cannot bypass a limit. PyJWT creates the tokens."""

import json
import os
import re
import time

from postgres import Postgres
from rig import eventually
from tokens import SECRET, Issuer
from wire import get

LIMIT = {"each": dict(script="fixed_window", limit=1000, period="1d")}
LATER = 4102444800
HASH_A = "a0dabcded476260cab004db95defee2c"  # of "A" with the key "weir"


def bearer(token):
    return {"Authorization": "Bearer " + token}


def charged_identity(weir, headers=None, target="/echo"):
    """The identity that was charged, from the field that the upstream received."""
    response = get(weir.address, target, headers=headers)
    assert response.status == 200, response
    return next(value for name, value in json.loads(response.body)["fields"] if name.lower() == "x-weir-client")


def weir_with_tokens(rig, keys, sources=("jwt:sub", "ip"), limits=None, workers=2, identity=None, **jwt):
    rig.write("jwks.json", keys.jwks)
    settings = {"keys": "jwks.json", "audience": "api", **jwt}
    return rig.weir(limits=limits or LIMIT, workers=workers, identity={"from": list(sources), "jwt": settings, **(identity or {})})


def test_tokens_with_each_algorithm(rig):
    issuer = Issuer(rig, "RS256", "ES256", "EdDSA")
    rig.write("secret", SECRET + "\n")
    os.chmod(os.path.join(rig.directory, "secret"), 0o600)
    weir = weir_with_tokens(rig, issuer, secret_file="secret", issuer="https://id.test")
    for algorithm in ("RS256", "ES256", "EdDSA", "HS256"):
        alice, number, several = issuer.sign(algorithm, *({"sub": sub, "iss": "https://id.test", "aud": aud, "exp": LATER}
                                             for sub, aud in (("alice", "api"), (42, "api"), ("bob", ["web", "api"]))))
        assert charged_identity(weir, bearer(alice)) == charged_identity(weir, {"authorization": "bearer  " + alice}) == "jwt:alice", algorithm
        assert charged_identity(weir, bearer(number)) == "jwt:42" and charged_identity(weir, bearer(several)) == "jwt:bob"
        echo = json.loads(get(weir.address, "/echo", headers=bearer(alice)).body)
        assert ["Authorization", "Bearer " + alice] in echo["fields"], "forwarded unchanged"
        assert charged_identity(weir, bearer(alice[:-2] + ("AA" if alice[-2:] != "AA" else "BB"))) == "ip:127.0.0.1"
    eventually(lambda: weir.metric("weir_tokens_total", result="cached") + weir.metric("weir_tokens_total", result="verified") == 20,
               what="every request with a valid token to be counted once")
    assert weir.metric("weir_tokens_total", result="verified") <= 2 * 12, "at most once per worker"
    weir.counts(4, "weir_invalid_tokens_total", reason="signature")


def test_reasons_for_invalid_tokens(rig):
    issuer, other = Issuer(rig, "RS256", "ES256"), Issuer(rig, "RS256")
    good = {"sub": "alice", "aud": "api", "iss": "https://id.test"}
    old, early, stranger, elsewhere, fine = issuer.sign("RS256", {**good, "exp": 1}, {**good, "nbf": LATER}, {**good, "iss": "x"},
                                                        {**good, "aud": "web"}, good)
    weir = weir_with_tokens(rig, issuer, issuer="https://id.test", invalid="401", workers=1)
    assert charged_identity(weir, bearer(fine)) == "jwt:alice"
    none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0." + fine.split(".")[1] + "."
    wrong = [(old, "expired"), (early, "not_yet_valid"), (stranger, "issuer"), (elsewhere, "audience"), (none, "algorithm"),
             (other.sign("RS256", good)[0], "signature"), (issuer.sign("HS256", good)[0], "algorithm"), ("opaque", "malformed"), ("", "malformed"),
             (issuer.sign("RS256", good)[0].replace(".", ".."), "malformed"), (fine + ", Basic x", "malformed")]
    for count, (token, reason) in enumerate(wrong):
        answer = get(weir.address, headers=bearer(token))
        assert answer.status == 401 and answer["WWW-Authenticate"] == 'Bearer error="invalid_token"', (token, reason, answer)
        assert weir.metric("weir_invalid_tokens_total", reason=reason) >= 1, reason
        assert json.loads(answer.body)["detail"].startswith("the token is not valid: ")
    answer = get(weir.address, headers=[("Authorization", "Bearer " + fine)] * 2)
    assert answer.status == 401 and weir.metric("weir_invalid_tokens_total", reason="repeated") == 1, answer
    assert charged_identity(weir, {**bearer(fine), "Connection": "Authorization"}) == "jwt:alice", "Connection cannot remove the token"
    assert charged_identity(weir) == charged_identity(weir, {"Authorization": "Basic YTpi"}) == "ip:127.0.0.1", "no token"
    weir.counts(len(wrong) + 1, "weir_errors_total", cause="invalid_token")
    weir.wait_for_output("invalid token")
    lines = [text for _, text in weir.log() if "invalid token" in text]
    assert lines == ["1 invalid token; the last, from 127.0.0.1: it has expired"], "the other errors are in the next line"
    assert not any(token in weir.output() for token, _ in wrong if len(token) > 20), "the log contains no token"


def test_with_an_invalid_token_the_next_source_is_used(rig):
    issuer = Issuer(rig, "EdDSA")
    bad = issuer.sign("EdDSA", {"sub": "alice", "aud": "web"})[0]
    list_claim, good = issuer.sign("EdDSA", {"sub": ["a"], "client_id": "c", "aud": "api"}, {"sub": "x" * 300, "aud": "api"})
    weir = weir_with_tokens(rig, issuer, ("jwt:sub", "jwt:client_id", "header:X-Client-Id", "ip"))
    assert charged_identity(weir, {**bearer(bad), "X-Client-Id": "c"}) == "id:c"
    assert charged_identity(weir, bearer(list_claim)) == "jwt:c", "a claim that is not a string is ignored"
    assert re.fullmatch("jwt:h:[0-9a-f]{32}", charged_identity(weir, bearer(good))), "long values are hashed"
    answer = get(weir.address, headers=[("Authorization", "Bearer " + good), ("Authorization", "Bearer x")])
    assert answer.status == 400, "a server could use the first one"
    weir.counts(1, "weir_invalid_tokens_total", reason="repeated")
    for same in (f"Bearer {good} x", f"x Bearer {good}"):
        assert get(weir.address, headers={"Authorization": same}).status == 400, "a server could read the token"
    weir.counts(1, "weir_invalid_tokens_total", reason="malformed")
    assert not weir.log() or all("web" not in text for _, text in weir.log())


def test_a_cached_token_expires_at_exp(rig):
    issuer = Issuer(rig, "EdDSA")
    ends = int(time.time()) + 2
    token = issuer.sign("EdDSA", {"sub": "alice", "aud": "api", "exp": ends})[0]
    weir = weir_with_tokens(rig, issuer, workers=1)
    seen = charged_identity(weir, bearer(token))
    if time.time() < ends:
        assert seen == "jwt:alice"
    eventually(lambda: charged_identity(weir, bearer(token)) == "ip:127.0.0.1", what="the token to expire")
    assert time.time() >= ends
    was_late = seen != "jwt:alice"
    weir.counts(1 + was_late, "weir_invalid_tokens_total", reason="expired")


def test_a_reload_reads_the_keys_again(rig):
    before, after = Issuer(rig, "EdDSA"), Issuer(rig, "EdDSA")
    claims = {"sub": "alice", "aud": "api"}
    weir = weir_with_tokens(rig, before, workers=1)
    old, new = before.sign("EdDSA", claims)[0], after.sign("EdDSA", claims)[0]
    assert charged_identity(weir, bearer(old)) == charged_identity(weir, bearer(old)) == "jwt:alice" and charged_identity(weir, bearer(new)) == "ip:127.0.0.1"
    rig.write("jwks.json", after.jwks)
    weir.reload()
    assert charged_identity(weir, bearer(old)) == "ip:127.0.0.1", "the cache of verified tokens is cleared"
    assert charged_identity(weir, bearer(new)) == "jwt:alice"
    rig.write("old.json", before.jwks)
    weir.reload(identity={"from": ["jwt:sub", "ip"], "jwt": {"keys": ["jwks.json", "old.json"], "audience": "api"}})
    assert charged_identity(weir, bearer(old)) == charged_identity(weir, bearer(new)) == "jwt:alice", "keys of two files have one kid"


def test_tokens_are_accepted_from_every_peer_and_other_sources_from_trusted_ones(rig):
    issuer = Issuer(rig, "EdDSA")
    token = issuer.sign("EdDSA", {"sub": "alice", "aud": "api"})[0]
    weir = weir_with_tokens(rig, issuer, ("cookie:session", "query:key", "header:X-Client-Id", "jwt:sub", "ip"),
                       identity={"trusted_proxies": ["10.0.0.1"]}, header="X-Token")
    headers = {"X-Token": token, "Cookie": "session=a", "X-Client-Id": "c"}
    assert charged_identity(weir, headers, "/echo?key=k") == charged_identity(weir, {**headers, "X-Token": "Bearer " + token}) == "jwt:alice"
    assert get(weir.address, headers={**headers, "Connection": "X-Token"}).status == 400
    echo = json.loads(get(weir.address, "/echo?key=k", headers=headers).body)
    names = [name for name, _ in echo["fields"]]
    assert echo["target"] == "/echo?key=k" and "Cookie" in names and "X-Client-Id" not in names
    assert charged_identity(weir, [("Cookie", "session=a; session=b"), ("X_Token", token)]) == "ip:127.0.0.1", "names that differ only in punctuation are dropped"
    weir.reload(identity={**weir.policy["identity"], "headers_from": "anyone"})
    assert charged_identity(weir, {**headers, "Cookie": ""}, "/echo?key=k").startswith("query:")
    assert charged_identity(weir, headers, "/echo?key=k").startswith("cookie:")


def test_client_ip_header_selects_the_field_with_the_address(rig):
    weir = rig.weir(limits=LIMIT, identity={"trusted_proxies": ["127.0.0.1"], "client_ip_header": "CF-Connecting-IP", "ipv4_prefix": 24})
    headers = {"CF-Connecting-IP": "203.0.113.7", "X-Forwarded-For": "198.51.100.1"}
    assert charged_identity(weir, headers) == "ip:203.0.113.0/24"
    weir.reload(identity={"trusted_proxies": ["10.0.0.1"], "client_ip_header": "X-Edge-Address"})
    echo = json.loads(get(weir.address, "/echo", headers={"X-Edge-Address": "203.0.113.7"}).body)
    assert "X-Edge-Address" not in [name for name, _ in echo["fields"]], "from an untrusted peer"
    assert ["X-Weir-Client", "ip:127.0.0.1"] in echo["fields"]


def test_credentials_are_neither_stored_nor_logged(rig):
    weir = rig.weir(limits={"each": dict(script="fixed_window", limit=5, period="1d")}, log={"access": "json"},
                    clients={"cookie:secret-c%20": {"quota": 3}},
                    identity={"from": ["cookie:session", "query:api_key", "header:X-Api-Key", "ip"], "hash": True, "hash_key": "a key",
                              "headers_from": "anyone"})
    clients = {"cookie": charged_identity(weir, {"Cookie": "session=secret-c"}),
               "query": charged_identity(weir, {"Referer": "http://a/?api_key=secret-r"}, "/echo?a=1&api_key=secret-q"),
               "id": charged_identity(weir, {"X-Api-Key": "secret-k"})}
    for prefix, client in clients.items():
        assert re.fullmatch(prefix + ("" if prefix != "id" else ":h") + ":[0-9a-f]{32}", client), client
    lines = eventually(lambda: [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")][2:], what="three lines")
    assert len(lines) == 1 and "secret" not in weir.output() and "/echo?a=1&api_key=***" in weir.output()
    assert all("secret" not in key for key in rig.redis().command("KEYS", "*"))
    for name, limit in (("cookie:secret-c", 3), ("query:secret-q", 5), ("id:secret-k", 5), ("cookie:h:" + clients["cookie"][7:], 3)):
        shown = rig.command("inspect", "-c", weir.policy_file, name)
        assert f"{limit}" in shown.stdout and f"{limit - 1}" in shown.stdout and not shown.stderr, shown
    assert "secret" not in rig.command("check", "-c", weir.policy_file).stdout
    wrong_name = rig.command("inspect", "-c", weir.policy_file, clients["query"])
    assert "a hash, as in logs, is written query:h:HASH" in wrong_name.stderr, wrong_name
    assert rig.command("grant", "-c", weir.policy_file, "query:secret-q", "9", "1h").returncode == 0
    eventually(lambda: get(weir.address, "/?api_key=secret-q")["X-RateLimit-Limit"] == "9", what="the grant")
    assert rig.command("reset", "-c", weir.policy_file, "query:secret-q").returncode == 0


def test_an_ambiguous_cookie_or_query_parameter_is_refused(rig):
    weir = rig.weir(limits=LIMIT, identity={"from": ["cookie:session", "query:api_key", "ip"], "headers_from": "anyone",
                                            "cookies": "reject"})
    for headers, target in (([("Cookie", "session=a; session=b")], "/"), ([("Cookie", "session=a"), ("Cookie", "session=b")], "/"),
                            ([("Cookie", "SESSION=a")], "/"), ([], "/?api_key=a&api_key=b"), ([], "/?x;api_key=a"), ([], "/?api.key=a"),
                            ([], "/?api_key=%zz"), ([], "/?api_key=%00")):
        answer = get(weir.address, target, headers=headers)
        assert answer.status == 400, (headers, target, answer)
    assert charged_identity(weir, [("Cookie", "session=a; b=c"), ("Cookie", "session=\"%61\"")]).startswith("cookie:"), "one value"


def test_quotas_of_the_database_with_prefixed_client_names(rig):
    database = Postgres(rig)
    database.sql("INSERT INTO clients VALUES ('jwt:app', 7), ('cookie:h:%s', 8)" % HASH_A)
    issuer = Issuer(rig, "EdDSA")
    known, unknown = issuer.sign("EdDSA", {"sub": "alice", "client_id": "app", "aud": "api"}, {"sub": "bob", "aud": "api"})
    rig.write("jwks.json", issuer.jwks)
    weir = rig.weir(limits=LIMIT, workers=1, quotas={"postgres": {"connection": database.connection, "query": database.query}, "timeout": "10s"},
                    identity={"from": ["jwt:sub", "jwt:client_id", "cookie:session", "ip"], "known_clients_only": True,
                              "jwt": {"keys": "jwks.json", "audience": "api"}})

    def limit_of(**headers):
        return get(weir.address, headers=headers)["X-RateLimit-Limit"]
    for _ in range(2):
        assert limit_of(Authorization="Bearer " + known) == "7", "the second claim, because the first has no row"
        assert limit_of(Authorization="Bearer " + unknown, Cookie="session=A") == "8"
        assert limit_of(Authorization="Bearer " + unknown) == "1000"
    assert weir.metric("weir_tokens_total", result="verified") == 2, "once each"
    assert weir.metric("weir_tokens_total", result="cached") == 4, "each request is counted once, independent of the database"


def left(weir, path="/", headers=None):
    """What is left of the only limit after this request."""
    response = get(weir.address, path, headers=headers)
    assert response.status == 200, response
    return int(re.search(r";r=(\d+)", response["RateLimit"])[1])


def test_limits_count_by_claims_cookies_parameters_and_segments(rig):
    """One request is charged to its user, its team and its organisation at once."""
    issuer = Issuer(rig, "RS256")
    rig.write("jwks.json", issuer.jwks)
    one, two, none = issuer.sign("RS256", {"sub": "alice", "team": "red", "aud": "api"}, {"sub": "bob", "team": "red", "aud": "api"},
                                 {"sub": "carol", "aud": "api"})
    limits = {name: dict(script="fixed_window", limit=1000, period="366d", per=[part])
              for name, part in (("user", "client"), ("team", "jwt:team"), ("plan", "cookie:plan"), ("shop", "query:shop"), ("item", "path:2"))}
    weir = rig.weir(limits=limits, log={"access": "json"}, identity={"from": ["jwt:sub", "ip"], "jwt": {"keys": "jwks.json"}})

    def lefts(token, cookie, target):
        headers = {**bearer(token), **({"Cookie": cookie} if cookie else {})}
        response = get(weir.address, target, headers=headers)
        assert response.status == 200, response
        return {name: int(rest) for name, rest in re.findall(r'"(\w+)";r=(\d+)', response["RateLimit"])}
    assert lefts(one, "plan=gold", "/echo/7?shop=5") == dict(user=999, team=999, plan=999, shop=999, item=999)
    assert lefts(two, "a=b; plan=gold", "/echo/8?x=1&shop=5") == dict(user=999, team=998, plan=998, shop=998, item=999)
    assert lefts(one, 'plan="gold"', "/echo/7/more?shop=%35") == dict(user=998, team=997, plan=997, shop=997, item=998), "equal for servers"
    assert lefts(none, None, "/echo") == dict(user=999, team=999, plan=999, shop=999, item=999), "absent values are the empty one"
    assert lefts(none, "plan=", "/echo?shop=") == dict(user=998, team=998, plan=998, shop=998, item=998)
    keys = str(rig.redis().command("KEYS", "*"))
    assert "red" in keys and "gold" not in keys, "values of cookies are stored as hashes: " + keys
    eventually(lambda: weir.output().count('"target":"/echo') == 5, what="five access lines")
    assert "gold" not in weir.output() and "shop=***" in weir.output(), "nor are they in the log"


def test_values_of_keys_cannot_be_doubted(rig):
    limits = {"each": dict(script="fixed_window", limit=1000, period="366d", per=["cookie:team", "query:shop"])}
    weir = rig.weir(limits=limits, identity={"from": ["ip"], "cookies": "reject"})
    for target, headers in (("/?shop=1&shop=2", {}), ("/?shop=1&Shop=2", {}), ("/?shop=%zz", {}), ("/?a=1;shop=2", {}),
                            ("/", {"Cookie": "team=1; team=2"}), ("/", {"Cookie": "team=1; Team=2"})):
        assert get(weir.address, target, headers=headers).status == 400, (target, headers)
    assert left(weir, "/?shop=1&shop=1") == 999


def test_only_trusted_peers_choose_the_values_of_keys(rig):
    limits = {"each": dict(script="fixed_window", limit=1000, period="366d", per=["cookie:team"])}
    weir = rig.weir(limits=limits, identity={"from": ["ip"], "trusted_proxies": ["192.0.2.1"]})
    assert [left(weir, headers={"Cookie": "team=%d" % n}) for n in range(3)] == [999, 998, 997]


def test_invalid_tokens_have_no_claims_or_are_refused(rig):
    issuer = Issuer(rig, "RS256")
    good, old = issuer.sign("RS256", {"team": "red", "aud": "api"}, {"team": "red", "aud": "api", "exp": 1})
    limits = {"team": dict(script="fixed_window", limit=1000, period="366d", per=["jwt:team"])}
    weir = weir_with_tokens(rig, issuer, sources=["ip"], limits=limits)
    assert [left(weir, headers=bearer(token)) for token in (good, old, good)] == [999, 999, 998]
    weir.counts(1, "weir_invalid_tokens_total", reason="expired")
    strict = weir_with_tokens(rig, issuer, sources=["ip"], limits=limits, invalid="401")
    assert get(strict.address, headers=bearer(old)).status == 401 and left(strict, headers=bearer(good)) == 997


def test_segments_that_servers_read_in_several_ways_count_as_absent(rig):
    limits = {"item": dict(script="fixed_window", limit=1000, period="366d", per=["path:2"])}
    weir = rig.weir(limits=limits, paths={"ambiguous": "allow"})
    assert left(weir, "/v1/%61") == 999 and left(weir, "/v1/a") == 998 and left(weir, "/v1/a/b") == 997
    doubtful = ["/v1//a", "/v1/a%2Fb", "/v1/a;x=1", "/v1%2Fa", "/v1/a%00".replace("%00", "%0A")]
    assert [left(weir, path) for path in doubtful] == list(range(999, 999 - len(doubtful), -1))
    assert left(weir, "/v1") == 999 - len(doubtful), "the empty value"
