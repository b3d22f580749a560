"""Rule selection: normalized paths, methods, hosts, order. Requests are forwarded unchanged. Paths
that servers read differently: test_bypass_paths.py."""

from rule_choice import echo_server, weir_with

from wire import get


def test_every_spelling_of_a_path_matches_its_rule(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/admin", "/admin/", "/admin/x", "/%61dmin/x", "/%61%64%6D%69%6e", "/admin//x", "/admin?x=/free",
                   "/admin/a%2Fb", "/admin/x;y=z", "/admin/%3Ax%20y", "/admin/a|b[c]^{d}<e>`\"\\"):
        response = get(weir.address, target)
        assert response["X-Rate-Limit-Policy"] == "admin", target
        assert response.body == f"GET {target} HTTP/1.1".encode(), "the target is forwarded byte for byte"


def test_similar_paths_do_not_match(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/administrator", "/x/admin", "/x%2Fadmin", "/?/admin", "/Admin", "/", "/x/y;z//"):
        assert get(weir.address, target)["X-Rate-Limit-Policy"] is None, target


def test_an_invalid_percent_encoding_is_refused(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/%", "/%4", "/%zz", "/a%00b"):
        assert get(weir.address, target).status == 400, target


def test_the_first_matching_rule_applies(rig):
    weir = weir_with(rig,
                     {"match": {"path": "/healthz"}, "limits": []},
                     {"match": {"path": "/v1/*/items"}, "limits": ["items"]},
                     {"match": {"path": "/v1/**", "methods": ["POST", "PUT"]}, "limits": ["writes"]},
                     {"match": {"host": "*.example.com"}, "limits": ["tenant"]},
                     {"limits": ["rest"]})

    def limit(target, method="GET", host="api.test"):
        return get(weir.address, target, method=method, host=host)["X-Rate-Limit-Policy"]
    assert limit("/healthz") is None
    assert limit("/v1/7/items") == "items"
    assert limit("/v1/7/8/items") == "rest", "* matches one segment"
    assert limit("/v1/7", "POST") == "writes"
    assert limit("/v1/7") == "rest"
    assert limit("/x", host="a.example.com") == "tenant"
    assert limit("/x", host="A.EXAMPLE.com:8080") == "tenant"
    assert limit("/x", host="example.com") == "rest"
    assert limit("/x", host="badexample.com") == "rest"


def test_an_absolute_target_is_matched_by_its_own_host(rig):
    weir = weir_with(rig, {"match": {"host": "inside.test", "path": "/a"}, "limits": ["inside"]})
    response = get(weir.address, "http://inside.test/a", host="inside.test")
    assert response["X-Rate-Limit-Policy"] == "inside"
    assert response.body == b"GET /a HTTP/1.1", "forwarded in origin form"


def test_without_a_matching_rule_the_first_upstream_is_used_without_limits(rig):
    first, second = echo_server(rig), echo_server(rig)
    weir = rig.weir(upstreams={"one": {"servers": [first.text]}, "two": {"servers": [second.text]}},
                    limits={"few": dict(script="gcra", limit=1, period="1d")},
                    rules=[{"match": {"path": "/two"}, "limits": ["few"], "upstream": "two"}])
    assert get(weir.address, "/two").status == 200
    assert (first.accepted, second.accepted) == (0, 1)
    assert get(weir.address, "/two").status == 429
    assert [get(weir.address, "/other").status for _ in range(3)] == [200] * 3
    assert first.accepted > 0 and second.accepted == 1
