"""Rules that match on headers, query parameters, clients, addresses and the scheme."""

from flask_api import fetch, weir_before_flask
from rule_choice import weir_with
from wire import get

REST = {"name": "rest", "limits": ["rest"]}


def limit_of(weir, target="/", **more):
    return get(weir.address, target, **more)["X-Rate-Limit-Policy"]


def test_each_condition_selects_a_rule(rig):
    weir = rig.weir(
        identity={"from": ["header:X-Client-Id", "ip"], "trusted_proxies": ["127.0.0.1"]},
        limits={name: dict(script="gcra", limit=1000, period="1d") for name in ("gold", "reports", "partner", "office", "plain", "rest")},
        rules=[{"match": {"header": {"X-Plan": ["gold", "platinum-*"]}}, "limits": ["gold"]},
               {"match": {"query": {"format": "csv", "page": "*"}}, "limits": ["reports"]},
               {"match": {"client": "partner"}, "limits": ["partner"]},
               {"match": {"client": ["ip:10.0.0.0/8", "ip:2001:db8::/32"]}, "limits": ["office"]},
               {"match": {"scheme": "http", "path": "/cleartext"}, "limits": ["plain"]},
               REST])
    assert limit_of(weir) == "rest"
    assert limit_of(weir, headers={"x-plan": "gold"}) == "gold"
    assert limit_of(weir, headers={"X-Plan": "platinum-2"}) == "gold"
    assert limit_of(weir, headers={"X-Plan": "Gold"}) == "rest", "values are case-sensitive"
    assert limit_of(weir, "/?format=csv&page=") == "reports"
    assert limit_of(weir, "/?page=2&x&form%61t=%63sv") == "reports"
    assert limit_of(weir, "/?format=csv") == "rest"
    assert limit_of(weir, headers={"X-Client-Id": "partner"}) == "partner"
    assert limit_of(weir, headers={"X-Forwarded-For": "10.1.2.3"}) == "office"
    assert limit_of(weir, headers={"X-Forwarded-For": "2001:db8::1", "X-Client-Id": "someone"}) == "office", "also with an id"
    assert limit_of(weir, headers={"X-Forwarded-For": "11.0.0.1"}) == "rest"
    assert limit_of(weir, "/cleartext") == "plain"
    assert limit_of(weir, "/cleartext", headers={"X-Forwarded-Proto": "https"}) == "rest"


def test_only_trusted_proxies_set_the_scheme(rig):
    weir = weir_with(rig, {"match": {"scheme": "https"}, "limits": ["secure"]}, REST)
    assert limit_of(weir, headers={"X-Forwarded-Proto": "https"}) == "rest"


def test_fields_that_are_not_forwarded_do_not_match(rig):
    """Names that differ only in punctuation (twins) and headers listed in Connection are not
    forwarded."""
    weir = weir_with(rig, {"match": {"header": {"X-Plan": "gold"}}, "limits": ["gold"]}, REST)
    assert limit_of(weir, headers={"X_Plan": "gold"}) == "rest"
    assert limit_of(weir, headers={"X-Plan": "gold", "Connection": "X-Plan"}) == "rest"
    assert limit_of(weir, headers=[("X-Plan", "gold"), ("X_Plan", "free")]) == "gold"


def test_repeated_and_encoded_query_parameters_select_no_laxer_rule(rig):
    """In both directions: a strict rule for csv, and a lax one for json."""
    csv = {"match": {"query": {"format": "csv"}}, "limits": ["csv"]}
    targets = ["/?format=csv", "/?format=json", "/?x=1"] + [f"/?{query}" for query in (
        "format=json&format=csv", "format=csv&format=json", "format=csv&format=csv", "FORMAT=csv", "format[]=csv", "format[a]=csv",
        "x=1;format=csv", "format=json;format=csv", "format=csv;x=1", "format=%2563sv", "%66ormat=csv", "%2566ormat=csv", "+format=csv",
        "format%00=csv", "format=%63%73%76", "format=csv%00", "format.=csv", "format=json&FORMAT=csv", "format=csv&x=%", "&format=csv&",
        "format=json&%66ormat=csv", "format", "format=")]
    weir = weir_before_flask(rig, csv, {"name": "rest"})
    assert fetch(weir.address, "/?format=csv")[0] == 200
    refused = set()
    for target in targets:
        status, seen = fetch(weir.address, target)
        assert status in (400, 429) or (status == 200 and seen.get("format") != "csv"), (target, status, seen)
        refused |= {target} if status == 400 else set()
    assert "/?format=json" not in refused and "/?format=csv" not in refused and "/?%66ormat=csv" not in refused
    weir = weir_before_flask(rig, {"match": {"query": {"format": "json"}}, "name": "lax"}, {"limits": ["strict"]})
    assert fetch(weir.address, "/?format=csv")[0] == 200
    for target in targets:
        status, seen = fetch(weir.address, target)
        assert status in (400, 429) or (status == 200 and seen.get("format") == "json"), (target, status, seen)
    weir.reload(paths={"ambiguous": "allow"})
    assert fetch(weir.address, "/?format=csv&format=json")[0] == 200, "any value matches"


def test_repeated_headers_are_refused_if_the_rule_depends_on_them(rig):
    weir = weir_before_flask(rig, {"match": {"header": {"X-Plan": "gold"}}, "name": "lax"}, {"limits": ["strict"]})
    assert fetch(weir.address, "/", headers=[("X-Plan", "free")])[0] == 200
    for values in (("gold", "free"), ("free", "gold"), ("gold", "gold")):
        assert fetch(weir.address, "/", headers=[("X-Plan", value) for value in values])[0] == 400, values
    assert fetch(weir.address, "/", headers=[("X-Plan", "free"), ("X-Plan", "silver")])[0] == 429
    assert fetch(weir.address, "/", headers=[("X-Other", "a"), ("X-Other", "b"), ("X-Plan", "gold")])[0] == 200
