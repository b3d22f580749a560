"""Random policies and requests, and what a running weir does with them, for test_explain.py."""

import base64
import hmac
import json
import os
import subprocess
import time

from rig import eventually, top, weir_program
from scripted import Scripted
from wire import Connection, IncompleteResponse

explain_program = os.path.join(os.path.dirname(weir_program), "tests/support/explain_requests")
SECRET = "s" * 40
ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

# ---- policies ------------------------------------------------------------------------------------

SOURCES = ["header:X-Client-Id", "header:X-User", "cookie:session", "query:key", "jwt:sub", "json:user", "ip"]
LIMITS = {
    "small": dict(script="fixed_window", limit=100, period="1d"),
    "gcra": dict(script="gcra", limit=50000, period="30d", burst=40000),
    "tokens": dict(script="token_bucket", limit=60000, period="30d"),
    "rolling": dict(script="rolling_window", limit=60000, period="1d"),
    "routes": dict(script="fixed_window", limit=60000, period="1d", per=["client", "route", "method"]),
    "hosts": dict(script="fixed_window", limit=60000, period="1d", per=["ip", "host"]),
    "all": dict(script="sliding_window_log", limit=1000, period="1d", per="all"),
    "headers": dict(script="fixed_window", limit=60000, period="1d", per=["client", "header:X-Team"]),
    "queries": dict(script="fixed_window", limit=60000, period="1d", per=["client", "query:team"]),
    "segments": dict(script="fixed_window", limit=60000, period="1d", per=["client", "path:2"]),
    "models": dict(script="fixed_window", limit=60000, period="1d", per=["client", "json:model"]),
    "repeats": dict(script="fixed_window", limit=60000, period="1d", dedup="Idempotency-Key"),
    "shadow": dict(script="fixed_window", limit=100, period="1d", shadow=True),
    "some": dict(script="gcra", limit=60000, period="30d", best_effort=True, granted_header="X-Granted"),
    "reserved": dict(script="token_bucket", limit=60000, period="1d",
                     cost=dict(reserve="auto", request_json=["max_tokens"], max=500, usage="openai")),
    "flight": dict(script="concurrency", limit=100),
}
PATHS = ["/v1/**", "/v1/*", "/healthz", "/login", "/v1/items", "/*/items", "/v1/chat"]


def some(random, items, most):
    return random.sample(items, random.randint(1, most))


def random_match(random):
    match = {}
    if random.random() < 0.6:
        match["path"] = random.choice(PATHS)
    if random.random() < 0.3:
        match["methods"] = some(random, ["GET", "POST", "PUT", "DELETE", "OPTIONS"], 2)
    if random.random() < 0.2:
        match["host"] = random.choice(["api.test", "*.test", "www.example.com"])
    if random.random() < 0.2:
        match["header"] = {random.choice(["X-Plan", "X-Team", "User-Agent"]): random.choice(["gold", "g*", "*"])}
    if random.random() < 0.2:
        match["query"] = {random.choice(["format", "page"]): random.choice(["csv", ["csv", "xml"], "*"])}
    if random.random() < 0.15:
        match["json"] = {random.choice(["model", "a.b"]): random.choice(["gpt-4*", "5", "true", "*"])}
    if random.random() < 0.15:
        match["client"] = random.choice(["alice", "ip:127.0.0.2", ["bob", "carol"]])
    if random.random() < 0.1:
        match["scheme"] = random.choice(["http", "https"])
    return match


def random_rule(random, number):
    rule = {"name": f"rule-{number}", "limits": random.choice(["none", some(random, list(LIMITS), 3)])}
    match = random_match(random)
    if match:
        rule["match"] = match
    if random.random() < 0.2 and rule["limits"] != "none":
        rule["cost"] = random.choice([0, 2, 5, {"request_header": "X-Cost", "max": 50, "reserve": 3}])
    if random.random() < 0.3:
        rule["upstream"] = "web"
    return rule


def random_identity(random):
    sources = random.sample(SOURCES, random.randint(1, 4))
    identity = {"from": sources, "trusted_proxies": some(random, ADDRESSES, 2)}
    if "jwt:sub" in sources:
        identity["jwt"] = {"secret": SECRET, "invalid": random.choice(["fall_through", "401"])}
    for option, values in (("known_clients_only", [True]), ("cookies", ["reject"]), ("headers_from", ["anyone"]),
                           ("hash", [True])):
        if random.random() < 0.15:
            identity[option] = random.choice(values)
    return identity


def random_policy(random):
    """The keys of a policy, without its listeners, upstreams and Redis. Not every one is valid."""
    policy = {
        "identity": random_identity(random),
        "limits": LIMITS,
        "plans": {"gold": {"limits": {"gcra": {"limit": 600}, "small": {"limit": 70, "period": "1h"}}}},
        "clients": {"alice": {"plan": "gold"}, "bob": {"quota": 0}, "carol": {"quota": "unlimited"}, "dave": {"blocked": True},
                    "erin": {"limits": {"tokens": {"limit": 4}}}, "frank": {"quota": 2000}},
        "rules": [random_rule(random, number) for number in range(random.choice([2, 4, 8, 20]))],
        "paths": {"dot_segments": random.choice(["reject", "normalize"]), "ambiguous": random.choice(["reject", "reject", "allow"]),
                  "trailing_slash": random.choice(["ignore", "exact"]), "ignore_case": random.random() < 0.2},
    }
    if random.random() < 0.2:
        policy["priorities"] = {"critical": "100%", "normal": "80%", "batch": "50%"}
        policy["clients"]["frank"]["priority"] = "critical"
        for rule in policy["rules"]:
            rule["priority"] = random.choice(["critical", "normal", "batch"])
    if random.random() < 0.1:
        policy["size_limits"] = {"request_body": 40}
    if random.random() < 0.1:
        policy["addresses"] = {"block": ["blocked.txt"]}
    if random.random() < 0.1:
        policy.setdefault("addresses", {})["allow"] = ["allowed.txt"]
    return policy


def token(claims):
    """A token that weir accepts."""
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    signed = part(b'{"alg":"HS256"}') + b"." + part(json.dumps({"exp": time.time() + 86400, **claims}).encode())
    return (signed + b"." + part(hmac.digest(SECRET.encode(), signed, "sha256"))).decode()


# ---- requests ------------------------------------------------------------------------------------

PIECES = ["/", "/", "v1", "v1", "items", "items", "healthz", "login", "chat", "%2f", "%2e", "..", ".", ";x", "//", "\\", "%41", "%00", "%",
          "A", "a b", "%3f", "\u00e9"]
QUERIES = ["format=csv", "format=xml", "page=2", "key=k1", "key=k2", "team=red", "FORMAT=csv", "format[]=csv", "x;format=csv", "key=%zz", "team=%41"]
NAMES = ["alice", "bob", "carol", "dave", "erin", "frank", "nobody", "a" * 300, "", "with space", "t\u00e9st"]
FIELDS = [
    lambda r: ("X-Client-Id", r.choice(NAMES)), lambda r: ("X-Client-Id", r.choice(NAMES)), lambda r: ("X-User", r.choice(NAMES)),
    lambda r: ("X_Client_Id", r.choice(NAMES)), lambda r: ("Cookie", r.choice(["session=s1", "session=s1; session=s2", "a=b; session=s3", "x y"])),
    lambda r: ("X-Plan", r.choice(["gold", "free"])), lambda r: ("X-Team", r.choice(["gold", "red", "x{y}"])),
    lambda r: ("X-Forwarded-For", r.choice(["9.9.9.9", "9.9.9.9, 127.0.0.2", "garbage", "127.0.0.2, 127.0.0.1"])),
    lambda r: ("X-Forwarded-Proto", r.choice(["https", "http"])), lambda r: ("X-Forwarded-Host", "other.test"),
    lambda r: ("Forwarded", "for=9.9.9.9"), lambda r: ("X-Real-IP", "9.9.9.9"), lambda r: ("Connection", r.choice(["close", "X-Plan", "keep-alive"])),
    lambda r: ("Authorization", r.choice(["Bearer abc", "Basic eDp5", "Bearer a.b.c"])),
    lambda r: ("Authorization", "Bearer " + token({"sub": r.choice(["alice", "x" * 300])})), lambda r: ("Authorization", "Bearer " + token({"exp": 9})), lambda r: ("X-Request-Id", r.choice(["id-1", "bad id"])),
    lambda r: ("X-Cost", r.choice(["1", "7", "70", "x", "0"])), lambda r: ("Idempotency-Key", r.choice(["k1", "k2"])),
    lambda r: ("X-Granted", "9"), lambda r: ("Via", "1.1 proxy"), lambda r: ("TE", "trailers"), lambda r: ("X-HTTP-Method-Override", r.choice(["PUT", "GET"])),
    lambda r: ("Accept-Encoding", "gzip"), lambda r: ("Proxy", "x"), lambda r: ("X-Original-URL", "/x"), lambda r: ("X-Weir-Client", "id:me"),
    lambda r: ("User-Agent", "gold"), lambda r: ("Content-Encoding", "gzip"), lambda r: ("Bad Name", "x"), lambda r: ("Host", "twice.test"),
    lambda r: ("Content-Length", "7"), lambda r: ("Origin", "http://a.test"), lambda r: ("Access-Control-Request-Method", "PUT"),
    lambda r: ("Max-Forwards", r.choice(["0", "3"])),
]
RARE = {"Bad Name", "Host", "Content-Length", "X-HTTP-Method-Override", "Max-Forwards"}
CONTENTS = ['{"user":"alice","model":"gpt-4o"}', '{"user":"zoe","model":5,"max_tokens":20}', '{"model":"a","model":"b"}', "no json", '{"a":{"b":true}}',
            '{"user":"x","stream":true,"max_tokens":900}', "x" * 70000, '{"USER":"a","user":"b"}', "[1]"]


def random_target(random):
    target = "/" + "".join(random.choice(PIECES) for _ in range(random.randint(0, 6))) if random.random() < 0.5 else random.choice(
        ["/v1/items", "/v1/chat", "/login", "/healthz", "/", "/v1/", "/V1/Items", "/v1/a/../items", "/v1%2fitems", "*"])
    if random.random() < 0.3:
        target += "?" + "&".join(random.choice(QUERIES) for _ in range(random.randint(1, 3)))
    return target


class Request:
    def __init__(self, random):
        self.method = random.choice(["GET"] * 6 + ["POST"] * 5 + ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "get", "BREW"])
        self.source = random.choice(ADDRESSES)
        self.content = random.choice(CONTENTS).encode() if self.method in ("POST", "PUT") and random.random() < 0.8 else b""
        fields = [("Host", random.choice(["api.test", "api.test", "www.example.com", "x.test:8080"]))]
        for _ in range(random.choice([0, 1, 2, 3, 6])):
            name, value = random.choice(FIELDS)(random)
            if name not in RARE or random.random() < 0.2:
                fields.append((name, value))
        if self.content:
            fields.append(("Content-Length", str(len(self.content))))
        self.fields = fields
        lines = [f"{self.method} {random_target(random)} HTTP/1.{int(random.random() > 0.05)}"] + [f"{name}: {value}" for name, value in fields]
        self.head = ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")
        # weir waits for content that the request announces: such a request cannot be explained
        lengths = [value for name, value in fields if name == "Content-Length"]
        self.is_usable = lengths in ([], [str(len(self.content))]) or len(lengths) > 1

    def record(self):
        return b"%s 0 %d %d\n" % (self.source.encode(), len(self.head), len(self.content)) + self.head + self.content


def explain_all(policy_file, requests):
    """What `weir explain` says of each request. None: the policy is not valid."""
    done = subprocess.run([explain_program, policy_file, os.path.join(top, "lua")], input=b"".join(r.record() for r in requests), capture_output=True,
                          timeout=60)
    if done.returncode == 2 and not done.stdout:
        return None
    assert done.returncode == 0, (done.returncode, policy_file, requests[len(done.stdout.splitlines())].record()[:700], done.stderr.decode()[-300:])
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


# ---- the running weir ----------------------------------------------------------------------------

class Recorder:
    """An upstream that keeps the header of its last request."""

    def __init__(self, rig):
        self.head = None

        def script(peer, _number):
            while (request := peer.read_request()) is not None:
                self.head = request[0]
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.server = Scripted(rig, script)


class Client:
    """Sends requests one by one, on one connection per address."""

    def __init__(self, address):
        self.address, self.connections = address, {}

    def send(self, request):
        for again in (False, True):
            connection = self.connections.pop(request.source, None) or Connection(self.address, source=request.source)
            try:
                connection.send(request.head + request.content)
                response = connection.response(request.method)
            except (IncompleteResponse, ConnectionError):  # closed while it was idle
                assert not again
                continue
            if response["Connection"] == "close" or b" HTTP/1.0\r\n" in request.head:
                connection.close()
            else:
                self.connections[request.source] = connection
            return response

    def close(self):
        for connection in self.connections.values():
            connection.close()


def log_lines(weir, count):
    """The access log, when it has this many lines."""
    def look():
        lines = [line for line in weir.output().splitlines() if line.startswith('{"time"') and '"status"' in line]
        return lines if len(lines) >= count else None
    return [json.loads(line) for line in eventually(look, what=f"{count} lines in the access log")]


def fields_of(head):
    lines = head.decode("utf-8", "surrogateescape").rstrip("\r\n").split("\r\n")
    return lines[0], sorted((name.lower(), value.strip(" \t")) for name, _, value in (line.partition(":") for line in lines[1:]))


def expected_fields(request, explained):
    """The fields that the server receives, by the explanation."""
    _, fields = fields_of(request.head)
    for removed in explained["forwarded_request"]["removed"]:
        fields.remove((removed["name"].lower(), removed["value"]))
    for added in explained["forwarded_request"]["added"]:
        fields.append((added["name"].lower(), added["value"]))
    return fields


def without_generated(fields, explained):
    """A field with an unknown value is compared by its name alone."""
    generated = {a["name"].lower() for a in explained["forwarded_request"]["added"] if a["value"] is None}
    return sorted((name, None if name in generated else value) for name, value in fields)


def check_forwarded(request, explained, recorders, head):
    line, fields = fields_of(head)
    assert line == explained["forwarded_request"]["line"]
    assert without_generated(fields, explained) == without_generated(expected_fields(request, explained), explained)


def check_logged(explained, logged):
    client = explained.get("client") or {}
    rule = next((rule["name"] for rule in explained["rules"] if rule["result"] == "chosen"), None)
    assert rule == logged.get("rule")
    if client.get("name") or not explained.get("client"):  # else the log may have the address
        assert client.get("name") == logged.get("client")
    if client and logged.get("client_ip"):
        assert client["address"] == logged["client_ip"]
    if explained["limits"]:
        assert explained["client_limits"]["priority"] == logged.get("priority")
    if explained["forwarded"]:
        assert explained["upstream"]["name"] == logged["upstream"]
        assert explained["rules"][-1]["name"] == rule


def check_limits(explained, response):
    """The numbers that clients are sent, of limits that they are sent."""
    sent = {}
    for item in (response["RateLimit-Policy"] or "").split(","):
        name, *parameters = item.strip().split(";")
        values = dict(parameter.split("=") for parameter in parameters)
        if values.get("q"):
            sent[name.strip('"')] = int(values["q"])
    shown = {limit["name"]: limit for limit in explained["limits"] if not limit["shadow"]}
    assert set(sent) == set(shown), (sent, shown)
    for name, quota in sent.items():
        assert quota + shown[name]["reserve"] in (shown[name]["limit"], shown[name]["burst"])


def charged_keys(explained):
    """Keys that Redis must have after the request."""
    if not explained["forwarded"]:
        return set()
    return {limit["key"] for limit in explained["limits"] if not limit["free"] and limit["script"] != "concurrency"}
