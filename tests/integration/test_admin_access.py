"""Several admin listeners: read-only, with a token, and on Unix sockets."""

import json
import os
import re
import stat

from rig import address_of, free_port
from wire import get

TOKEN, OTHER = "0123456789abcdef-first", "fedcba9876543210-other"
EVERYTHING = ["/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/policy", "/api/v1/clients/a", "/nothing-here"]


def admins(weir):
    return [address_of(t) for t in re.findall(r"admin on (\S+)$", weir.output(), re.M)]


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}"}


def statuses(address, paths, **headers):
    return [get(address, path, host="127.0.0.1", headers=headers).status for path in paths]


def write_token(rig, token, mode=0o600):
    path = rig.write("admin.token", token)
    os.chmod(path, mode)
    return path


def test_each_admin_listener_has_its_own_rules(rig):
    sock = os.path.join(rig.directory, "admin.sock")
    write_token(rig, TOKEN + "\n")
    weir = rig.weir(rules=[], admin=["127.0.0.1:0", {"address": "127.0.0.1:0", "read_only": True},
                                     {"address": "127.0.0.1:0", "token_file": "admin.token", "hosts": ["weir.internal"]},
                                     {"address": f"unix:{sock}", "mode": "0660"}])
    everything, read_only, guarded, local = admins(weir)
    assert stat.S_IMODE(os.stat(sock).st_mode) == 0o660
    answered = [200, 200, 200, 200, 200, 200, 404]
    assert statuses(everything, EVERYTHING) == answered
    assert statuses(local, EVERYTHING) == answered
    assert statuses(read_only, EVERYTHING) == [200, 200, 200, 403, 403, 403, 403]
    assert statuses(guarded, EVERYTHING) == [200, 200, 401, 401, 401, 401, 401]
    assert statuses(guarded, EVERYTHING, **bearer(TOKEN)) == answered
    assert get(guarded, "/metrics", host="weir.internal", headers=bearer(TOKEN)).status == 200
    assert get(everything, "/metrics", host="weir.internal").status == 403, "hosts apply to one listener only"
    assert get(read_only, "/healthz", host="evil.example").status == 403


def test_invalid_tokens_are_refused(rig):
    write_token(rig, TOKEN)
    weir = rig.weir(rules=[], admin={"address": "127.0.0.1:0", "token_file": "admin.token"})
    refused = get(weir.admin, "/api/v1/status", host="localhost")
    assert refused.status == 401 and refused["WWW-Authenticate"] == 'Bearer realm="weir admin"', refused.body
    assert TOKEN not in refused.body.decode()
    for headers in (bearer(TOKEN[:-1]), bearer(TOKEN + "x"), bearer(""), bearer("x" * len(TOKEN)), bearer(TOKEN, "Basic"), bearer(TOKEN * 2),
                    {"Authorization": TOKEN}, {"X-Token": TOKEN}, bearer(TOKEN[:-1] + "T")):
        assert statuses(weir.admin, ["/metrics"], **headers) == [401], headers
    assert statuses(weir.admin, ["/metrics?token=" + TOKEN]) == [401]
    twice = get(weir.admin, "/metrics", host="localhost", headers=[("Authorization", f"Bearer {TOKEN}")] * 2)
    assert twice.status == 401
    assert statuses(weir.admin, ["/metrics"], **bearer(TOKEN, "bearer")) == [200], "schemes are case-insensitive (RFC 9110 section 11.1)"
    policy = get(weir.admin, "/api/v1/policy", host="localhost", headers=bearer(TOKEN)).body.decode()
    assert "token_file: admin.token" in policy and TOKEN not in policy
    assert TOKEN not in weir.output()


def test_a_reload_reads_the_token_again_and_keeps_other_settings_of_open_sockets(rig):
    write_token(rig, TOKEN)
    one = {"address": "127.0.0.1:0", "token_file": "admin.token"}
    weir = rig.weir(rules=[], admin=[one])
    write_token(rig, OTHER)
    weir.reload()
    assert statuses(weir.admin, ["/metrics"], **bearer(TOKEN)) == [401]
    assert statuses(weir.admin, ["/metrics"], **bearer(OTHER)) == [200]
    weir.reload(admin=[{**one, "read_only": True}])
    assert statuses(weir.admin, ["/metrics", "/api/v1/status"], **bearer(OTHER)) == [200, 403]
    assert "a changed admin" not in weir.output()
    weir.reload(admin=None)
    weir.reload(admin=f"127.0.0.1:{free_port()}")
    assert weir.output().count("a changed admin takes effect") == 2
    assert statuses(weir.admin, ["/metrics"]) == [401], "the open socket keeps its rules"


def check(rig, admin):
    policy = rig.policy(admin=admin, rules=[{"name": "all", "limits": "none"}], redis={"address": "127.0.0.1:6379"},
                        identity={"from": ["ip"]})
    return rig.command("check", "-c", rig.write("policy.yaml", json.dumps(policy)))


def test_warnings_and_errors_in_admin_settings(rig):
    write_token(rig, TOKEN)
    reachable = "anyone who can connect to this address"
    good = {"address": "0.0.0.0:9180", "token_file": "admin.token"}
    for admin, warned in ((["0.0.0.0:9180"], True), ({"address": "[::]:9180"}, True), ("10.1.2.3:9180", True), (good, False),
                          ({"address": "0.0.0.0:9180", "read_only": True}, False), ("127.0.0.2:9180", False), ("[::1]:9180", False),
                          ("unix:/run/weir.sock", False), (None, False)):
        result = check(rig, admin)
        assert result.returncode == 0 and (reachable in result.stderr) == warned, (admin, result.stderr)
    write_token(rig, TOKEN, 0o644)
    assert "can be read by all users" in check(rig, good).stderr
    for token in "short", "with blank in the middle", "two\nlines-of-more-than-sixteen", "", "x" * 600:
        write_token(rig, token)
        result = check(rig, good)
        assert result.returncode == 1 and "openssl rand -hex 32" in result.stderr, (token, result.stderr)
    for admin, message in (([{"address": "127.0.0.1:1", "mode": "0660"}], "admin[0].mode: applies to unix sockets"),
                           ([{"address": "unix:/a", "mode": "0999"}], "not an octal permission"), (["127.0.0.1:1"] * 2, "is listed twice"),
                           (["127.0.0.1:0"] * 17, "expected at most 16"), ([{"read_only": True}], "address is missing"),
                           ([{"address": "127.0.0.1:1", "token_file": "missing"}], "cannot be read")):
        result = check(rig, admin)
        assert result.returncode == 1 and message in result.stderr, (admin, result.stderr)
    printed = check(rig, [{**good, "read_only": True, "token_file": None}, {"address": "unix:/a", "mode": "0660"}, "127.0.0.1:1"]).stdout
    assert 'admin: [ { address: 0.0.0.0:9180, read_only: true }, { address: unix:/a, mode: 0660 }, 127.0.0.1:1 ]' in printed, printed
