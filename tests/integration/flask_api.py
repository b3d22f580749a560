"""Runs weir in front of a real Flask application."""

import json
import os

from rig import Process, address_of
from wire import get


class FlaskApi(Process):
    """`address`, `text`: its listener."""

    def __init__(self, rig):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flask_server.py")
        super().__init__(rig, f"flask-{len(rig.processes)}", ["/usr/bin/python3", script])
        self.text = self.wait_for_output(r"^listening on (\S+)$")[0]
        self.address = address_of(self.text)


def weir_before_flask(rig, *rules, **more):
    """Starts weir in front of a Flask application. Each rule is a dict with `match` and `limits`.
    Every limit admits one request per day."""
    names = sorted({name for rule in rules for name in rule.get("limits", [])})
    return rig.weir(upstreams={"api": {"servers": [FlaskApi(rig).text]}}, rules=list(rules),
                    limits={name: {"script": "gcra", "limit": 1, "period": "1d"} for name in names}, **more)


def fetch(address, target, method="GET", **more):
    """The status and the JSON of the application; None if weir sent the response itself."""
    response = get(address, target, method=method, **more)
    if not (response["Content-Type"] or "").startswith("application/json"):
        return response.status, None
    return response.status, json.loads(response.body)
