"""Which rule decides: paths in their normal form, methods, hosts, order; and what goes upstream stays as it came.

Paths that servers read in another way: test_bypass_paths.py."""

from rule_choice import echo_server, weir_with

from wire import get


def test_no_spelling_of_a_path_slips_past_its_rule(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/admin", "/admin/", "/admin/x", "/%61dmin/x", "/%61%64%6D%69%6e", "/admin//x", "/admin?x=/free",
                   "/admin/a%2Fb", "/admin/x;y=z", "/admin/%3Ax%20y", "/admin/a|b[c]^{d}<e>`\"\\"):
        response = get(weir.address, target)
        assert response["X-Rate-Limit-Policy"] == "admin", target
        assert response.body == f"GET {target} HTTP/1.1".encode(), "what goes upstream is byte for byte what came"


def test_what_only_looks_like_it_is_not_the_path(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/administrator", "/x/admin", "/x%2Fadmin", "/?/admin", "/Admin", "/", "/x/y;z//"):
        assert get(weir.address, target)["X-Rate-Limit-Policy"] is None, target


def test_a_bad_percent_code_is_refused(rig):
    weir = weir_with(rig, {"match": {"path": "/admin/**"}, "limits": ["admin"]})
    for target in ("/%", "/%4", "/%zz", "/a%00b"):
        assert get(weir.address, target).status == 400, target


def test_the_first_rule_that_matches_decides(rig):
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
    assert limit("/v1/7/8/items") == "rest", "* stays within one segment"
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
    assert response.body == b"GET /a HTTP/1.1", "upstream it is in origin form"


def test_nothing_matches_is_forwarded_to_the_first_upstream_unlimited(rig):
    first, second = echo_server(rig), echo_server(rig)
    weir = rig.weir(upstreams={"one": {"servers": [first.text]}, "two": {"servers": [second.text]}},
                    limits={"few": dict(script="gcra", limit=1, period="1d")},
                    rules=[{"match": {"path": "/two"}, "limits": ["few"], "upstream": "two"}])
    assert get(weir.address, "/two").status == 200
    assert (first.accepted, second.accepted) == (0, 1)
    assert get(weir.address, "/two").status == 429
    assert [get(weir.address, "/other").status for _ in range(3)] == [200] * 3
    assert first.accepted > 0 and second.accepted == 1
