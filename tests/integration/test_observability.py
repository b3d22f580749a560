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


def test_rules_and_dashboard_use_existing_metrics(rig):
    sources = "".join(open(os.path.join(directory, file), encoding="utf-8").read()
                      for directory, _, files in os.walk(os.path.join(top, "src")) for file in files if file.endswith((".c", ".h")))
    # in the tables of base/metric.h and in metrics*.c
    families = set(re.findall(r'"((?:weir|process)_[a-z_]+)\b', sources))
    with open(os.path.join(CONTRIB, "grafana/weir.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    with open(os.path.join(CONTRIB, "prometheus/weir.rules.yml"), encoding="utf-8") as file:
        rules = file.read()
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used = set(re.findall(r"\b(?:weir|process)_[a-z_]+\b", " ".join(expressions) + rules))
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert len(used) > 30 and used <= families, used - families
    groups = {"groups": [{"name": "dashboard", "rules": [
        {"record": f"panel:{number}", "expr": filled(expression)} for number, expression in enumerate(expressions)]}]}
    promtool("check", "rules", rig.write("dashboard.yml", json.dumps(groups)))


def test_every_alert_is_documented(rig):
    with open(os.path.join(CONTRIB, "prometheus/weir.rules.yml"), encoding="utf-8") as file:
        alerts = set(re.findall(r"- alert: (\w+)", file.read()))
    with open(os.path.join(top, "docs/operations.md"), encoding="utf-8") as file:
        assert set(re.findall(r"^#### (Weir\w+)$", file.read(), re.M)) == alerts


def test_durations_by_rule(rig):
    weir = rig.weir(rules=[{"name": 'slow "one"', "match": {"path": "/slow"}, "limits": "none"}, {"name": "rest", "limits": "none"}])
    get(weir.address, "/slow?ms=60")
    for _ in range(3):
        get(weir.address)
    rule = {"rule": r'slow \"one\"'}
    weir.counts(1, "weir_rule_duration_seconds_count", **rule)
    weir.counts(3, "weir_rule_duration_seconds_count", rule="rest")
    assert weir.metric("weir_rule_duration_seconds_bucket", le="0.05", **rule) == 0
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
