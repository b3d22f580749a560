"""What requests cost: what is given back, learnt from requests and answers, or counted by status."""

import re

from rig import free_port
from scripted import Scripted
from wire import get

DAY = {"a": dict(script="token_bucket", limit=10, period="1d"), "b": dict(script="fixed_window", limit=20, period="1d")}


def left(response):
    """What remains, by limit."""
    return {name: int(r) for name, r in re.findall(r'"([^"]+)";r=(\d+)', response["RateLimit"])}


def test_what_the_upstream_never_received_is_given_back(rig):
    # One worker, so that a refund is behind its request's answer and before the next request.
    weir = rig.weir(workers=1, limits=DAY, upstreams={"api": {"servers": [rig.upstream().text]},
                                           "away": {"servers": [f"127.0.0.1:{free_port()}"]}},
                    rules=[{"match": {"path": "/away"}, "limits": ["a", "b"], "upstream": "away", "cost": 3},
                           {"limits": ["a", "b"]}])
    weir.expect_errors("upstream away")
    for _ in range(8):
        answer = get(weir.address, "/away")
        assert answer.status == 502
    assert left(get(weir.address)) == {"a": 9, "b": 19}


def test_what_the_upstream_received_stays_charged(rig):
    def closing(peer, _number):
        peer.read_request()
    api = Scripted(rig, closing)
    weir = rig.weir(limits=DAY, upstreams={"api": {"servers": [api.text]}})
    seen = [left(get(weir.address)) for _ in range(3)]
    assert [s["a"] for s in seen] == [9, 8, 7], seen
