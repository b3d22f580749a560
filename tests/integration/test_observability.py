"""Monitoring: metrics that Prometheus accepts, the shipped alert rules and dashboard, access log
lines."""

import json
import os
import re
import subprocess

from rig import eventually, top
from tls_client import pair
from wire import flood, get

HOUR = {"script": "gcra", "limit": 10, "period": "1h"}
CONTRIB = os.path.join(top, "contrib")


def promtool(*arguments, **more):
    result = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=os.path.join(top, "tests/prometheus"),
                            timeout=60, **more)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def metrics(weir):
    return get(weir.admin, "/metrics", host="127.0.0.1").body.decode()


def filled(expression):
    """An expression of the dashboard with values for the Grafana variables."""
    for variable, value in ("$__rate_interval", "5m"), ("$instance", ".*"), ("$job", ".*"):
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def test_promtool_accepts_the_metrics(rig):
    weir = rig.weir(limits={"each": HOUR}, listen=["127.0.0.1:0", {"address": "127.0.0.1:0", "tls": pair("one")}])
    flood(weir.address, 20)
    eventually(lambda: 'weir_rule_duration_seconds_count{rule="*"} 20' in metrics(weir))
    problems = promtool("check", "metrics", input=metrics(weir)).stderr
    assert not problems, problems


def test_the_alert_rules_pass_their_unit_tests(rig):
    promtool("check", "rules", os.path.join(CONTRIB, "prometheus/weir.rules.yml"))
    promtool("test", "rules", "weir.test.yml")


def sources(names=r"\.[ch]$"):
    """The text of the source files whose path matches, one after the other."""
    paths = [os.path.join(directory, file) for directory, _, files in os.walk(os.path.join(top, "src")) for file in files]
    return "\n".join(open(path, encoding="utf-8").read() for path in sorted(paths) if re.search(names, path))


def families():
    """Names of the metrics in the tables of base/metric.h and in metrics*.c."""
    return set(re.findall(r'"((?:weir|process)_[a-z0-9_]+)\b', sources()))


def operations():
    return "".join(open(os.path.join(top, f"docs/{name}.md"), encoding="utf-8").read() for name in ("operations", "monitoring", "backends"))


def test_rules_and_dashboard_use_existing_metrics(rig):
    with open(os.path.join(CONTRIB, "grafana/weir.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    with open(os.path.join(CONTRIB, "prometheus/weir.rules.yml"), encoding="utf-8") as file:
        rules = file.read()
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used = set(re.findall(r"\b(?:weir|process)_[a-z_]+\b", " ".join(expressions) + rules))
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert len(used) > 30 and used <= families(), used - families()
    groups = {"groups": [{"name": "dashboard", "rules": [
        {"record": f"panel:{number}", "expr": filled(expression)} for number, expression in enumerate(expressions)]}]}
    promtool("check", "rules", rig.write("dashboard.yml", json.dumps(groups)))


def test_every_alert_is_documented(rig):
    with open(os.path.join(CONTRIB, "prometheus/weir.rules.yml"), encoding="utf-8") as file:
        alerts = set(re.findall(r"- alert: (\w+)", file.read()))
    assert set(re.findall(r"^#### (Weir\w+)$", operations(), re.M)) == alerts


def test_every_metric_is_documented(rig):
    named = set(re.findall(r"\b(?:weir|process)_[a-z0-9_]+\b", operations()))
    assert len(named) > 70 and named == families(), named ^ families()


def test_every_cause_is_documented(rig):
    """Values of the labels `cause` and `reason`: of a request with its status, of Redis with its remedy; the others in the
    row of their metric."""
    page = operations()

    def table(header):
        """[(words of the first column, the other columns)]"""
        rows = page.split(header, 1)[1].split("\n\n", 1)[0].splitlines()[2:]
        return [(re.findall(r"\w+", row.split("|")[1]), row.split("|")[2:]) for row in rows]

    causes = {}
    for labels, columns in table("| cause | status | meaning and remedy |"):
        statuses = re.findall(r"\d{3}|none", columns[0].partition("(")[0])
        causes |= dict(zip(labels, statuses if len(statuses) == len(labels) else statuses * len(labels)))
    rows = re.findall(r"X\(CAUSE_\w+, (\d+), [^\"]*\"(\w+)\"", sources("proxy/cause.h$"))
    assert causes == {label: "none" if status == "0" else status for status, label in rows[1:]}, causes

    redis = [label for labels, _ in table("| cause | meaning and remedy |") for label in labels]
    assert sorted(redis) == sorted(re.findall(r"X\(REDIS_FAILURE_\w+, \"(\w+)\"", sources("redis/failure.h$"))), redis

    for metric, pattern, file in (
            ("weir_upstream_retries_total{cause}", r"X\(RETRY_\w+, \"(\w+)\"", "proxy/cause.h$"),
            ("weir_upstream_ejections_total{reason}", r"X\(EJECTION_\w+, \"(\w+)\"", "upstream/upstream_stats.h$"),
            ("weir_http2_errors_total{cause}", r"\] = \"([a-z_]+)\"", "http2/causes.c$"),
            ("weir_invalid_tokens_total{reason}", r"X\(JWT_\w+, \"(\w+)\"", "policy/jwt.h$"),
            ("weir_tls_handshake_failures_total{listener,reason}", r"X\(TLS_FAILURE_\w+, \"(\w+)\"", "net/tls.h$"),
            ("weir_requests_total{rule,decision}", r"X\(VERDICT_\w+, \"(\w+)\"", "limit/decision.h$")):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{metric}`"))
        labels = set(re.findall(pattern, sources(file))) - {"none", "not_charged", "shadow", "no_ping_response"}
        assert len(labels) > 2 and labels <= set(re.findall(r"`(\w+)`", row)), labels - set(re.findall(r"`(\w+)`", row))


def test_log_messages_in_the_manual_exist(rig):
    """Each phrase of the table "Log messages" is in the source, with %s and the like in place of names and numbers."""
    code = re.sub(r"/\*.*?\*/", "", sources(), flags=re.S)
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"[ \t\\]*\n\s*"', "", code))
    text = re.sub(r"%[-+0-9.*]*(?:ll|z)?[a-zA-Z]", "\0", "\n".join(literals)) + "\nAddress already in use"
    texts = [text, text.replace("\0", "s"), text.replace("\0", "")]

    def exists(phrase):
        if any(phrase in text for text in texts):
            return True
        words = phrase.split()  # a message that is written in two parts
        return any(" ".join(words[:n]) + " \0" in text and " ".join(words[n:]) in text for n in range(1, len(words)))
    section = operations().split("## Log messages", 1)[1].split("\n### ", 1)[0]
    messages = [message for row in re.findall(r"^\| (`.*?) \| ", section, re.M) for message in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 40
    for message in messages:
        for phrase in re.split(r'\.\.\.|"?\b[A-Z]\b"?|\b(?:NAME|ADDRESS)\b|\b\d+\b|[:;(),"]', message):
            assert exists(phrase.strip()), f"{phrase!r} of {message!r}"


def test_durations_by_rule(rig):
    weir = rig.weir(rules=[{"name": 'slow "one"', "match": {"path": "/slow"}, "limits": "none"}, {"name": "rest", "limits": "none"}])
    get(weir.address, "/slow?ms=60")
    for _ in range(3):
        get(weir.address)
    rule = {"rule": r'slow \"one\"'}
    weir.counts(1, "weir_rule_duration_seconds_count", **rule)
    weir.counts(3, "weir_rule_duration_seconds_count", rule="rest")
    assert weir.metric("weir_rule_duration_seconds_bucket", le="0.03", **rule) == 0
    assert weir.metric("weir_rule_duration_seconds_bucket", le="+Inf", **rule) == 1
    assert 0.06 <= weir.metric("weir_rule_duration_seconds_sum", **rule) < 20
    assert weir.metric("process_threads") == 4, "main thread, log writer and two workers"


def test_access_log_lines_contain_the_trace_id(rig):
    weir = rig.weir(log={"access": "json"})
    good, bad = "4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"
    get(weir.address, "/good", headers={"Traceparent": f"00-{good}-00f067aa0ba902b7-01"})
    get(weir.address, "/bad", headers={"Traceparent": f"00-{bad}-00f067aa0ba902b7-01"})
    get(weir.address, "/none")
    weir.wait_for_output('"target":"(/good|/bad|/none)"', count=3)
    lines = {line["target"]: line for line in map(json.loads, re.findall(r"^\{.*\}$", weir.output(), re.M)) if "target" in line}
    assert lines["/good"]["trace_id"] == good
    assert "trace_id" not in lines["/bad"] and "trace_id" not in lines["/none"]
