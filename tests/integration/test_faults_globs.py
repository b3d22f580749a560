"""Many rules with patterns, and paths that are expensive to compare with them."""

import json

from wire import get


def rules_with(pattern, count):
    return [{"match": {"path": pattern % number}, "limits": "none"} for number in range(count)] + [{"limits": "none"}]


def test_a_path_that_takes_too_many_steps_is_refused(rig):
    """The steps are counted in check_match_model."""
    weir = rig.weir(rules=rules_with("/*a*a*a*ab%d", 1000))
    refused = get(weir.address, "/" + "a" * 15000)
    assert refused.status == 400 and b"4 million steps" in refused.body, refused
    for path in "/" + "a" * 1500, "/" + "b" * 1500, "/x/" + "a" * 15000:
        assert get(weir.address, path).status == 200, len(path)


def test_check_warns_of_more_than_1000_patterns(rig):
    def check(pattern, count):
        policy = rig.write("policy.yaml", json.dumps({"upstreams": {"api": {"servers": ["127.0.0.1:1"]}}, "rules": rules_with(pattern, count)}))
        return rig.command("check", "-c", policy).stderr
    assert '1001 rules have a "*" inside their path' in check("/v1/*/x%d", 1001)
    assert "inside their path" not in check("/v1/*/x%d", 1000)
    assert "inside their path" not in check("/v1/x%d/**", 1001)
