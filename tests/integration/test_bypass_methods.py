"""Ambiguous methods, in front of a real Flask application: other case, TRACE."""

from flask_api import FlaskApi, fetch, weir_before_flask
from scripted import Scripted, respond_to_all
from wire import get


def test_werkzeug_accepts_methods_in_any_case(rig):
    """Shows why the case of methods matters."""
    api = FlaskApi(rig)
    assert fetch(api.address, "/login", "post") == (401, {"handler": "login", "method": "POST", "path": "/login", "target": "/login"})


def test_a_method_in_another_case_does_not_bypass_its_rule(rig):
    weir = weir_before_flask(rig, {"match": {"path": "/login", "methods": ["POST"]}, "limits": ["logins"]}, {"name": "rest"})
    for _ in range(3):
        for method in "post", "Post", "pOST":
            status, seen = fetch(weir.address, "/login", method)
            assert (status, seen) == (400, None), method
    assert fetch(weir.address, "/login", "POST")[0] == 401
    assert fetch(weir.address, "/login", "POST")[0] == 429
    assert fetch(weir.address, "/login", "GET")[0] == 401, "another rule applies to another method"


def test_methods_in_another_case_are_refused(rig):
    api = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, rules=[{"match": {"methods": ["PURGE"]}}])
    for method in "get", "Get", "options", "trace", "Purge", "propFind", "query":
        response = get(weir.address, method=method)
        assert response.status == 400 and b"case" in response.body, response
    assert not api.accepted
    for method in "purgeall", "Frobnicate", "GETS":
        assert get(weir.address, method=method).status == 200, f"{method} does not resemble a known method"
    weir.counts(7, "weir_errors_total", cause="bad_request")


def test_trace_is_refused(rig):
    api = Scripted(rig, respond_to_all())
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [api.text]}}, rules=[{"match": {"methods": ["TRACE"]}}])
    secret = {"Cookie": "a-secret", "Authorization": "a-secret"}
    for more in {}, {"Max-Forwards": "0"}, {"Max-Forwards": "7"}, {"Max-Forwards": "x"}:
        response = get(weir.address, method="TRACE", headers={**secret, **more})
        assert response.status == 405 and "GET" in response["Allow"] and "TRACE" not in response["Allow"], response
        assert b"a-secret" not in response.body
    assert not api.accepted
    weir.counts(4, "weir_errors_total", cause="method_not_allowed")
