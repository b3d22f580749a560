"""Requests that weir and a server could read as those of different clients."""

import http.cookies
import json
import random

from wire import get

EACH = {"each": dict(script="fixed_window", limit=100000, period="1d")}


def charged(weir, headers=None, target="/echo"):
    """The status, and the identity that was charged, from the field that the upstream received."""
    response = get(weir.address, target, headers=headers)
    if response.status != 200:
        return response.status, None
    fields = json.loads(response.body)["fields"]
    return 200, next(value for name, value in fields if name.lower() == "x-weir-client")


# --- cookies
# ----------------------------------------------------------------------------------------

def test_a_cookie_behind_a_blank_is_refused(rig):
    """Python's http.cookies separates cookies by blanks too."""
    weir = rig.weir(limits=EACH, identity={"from": ["cookie:session", "ip"], "headers_from": "anyone"})
    for cookies in ("session=R1; a=b session=REAL", "session=R1; a=b\tsession = REAL", "a=b  session=REAL",
                    'a="b" session=REAL'):
        assert http.cookies.SimpleCookie(cookies)["session"].value == "REAL", cookies
        assert charged(weir, {"Cookie": cookies}) == (400, None), cookies
    assert charged(weir, {"Cookie": "session=R1; note=my session"})[1].startswith("cookie:")
