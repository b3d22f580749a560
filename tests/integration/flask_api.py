"""A real Flask application behind weir."""

import json
import os

from rig import Process, address_of
from wire import get


class FlaskApi(Process):
    """address, text: where it listens."""

    def __init__(self, rig):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flask_server.py")
        super().__init__(rig, f"flask-{len(rig.processes)}", ["/usr/bin/python3", script])
        self.text = self.announced(r"^listening on (\S+)$")[0]
        self.address = address_of(self.text)


def before_flask(rig, *rules, **more):
    """weir before a Flask application: each rule is a dict with `match` and `limits`; every limit named admits one request a day."""
    names = sorted({name for rule in rules for name in rule.get("limits", [])})
    return rig.weir(upstreams={"api": {"servers": [FlaskApi(rig).text]}}, rules=list(rules),
                    limits={name: {"script": "gcra", "limit": 1, "period": "1d"} for name in names}, **more)


def ask(address, target, method="GET", **more):
    """The status, and what the application saw: None where weir answered itself."""
    response = get(address, target, method=method, **more)
    if not (response["Content-Type"] or "").startswith("application/json"):
        return response.status, None
    return response.status, json.loads(response.body)
