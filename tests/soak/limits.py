"""The limits of the soak and chaos tests, and how far the arrived requests exceed them."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import rig  # noqa: E402


def seconds(text):
    return float(text.removesuffix("s"))


LIMITS = {
    "log": {"script": "sliding_window_log", "limit": 60, "period": "10s"},
    "window": {"script": "fixed_window", "limit": 10, "period": "2s"},
    "bucket": {"script": "token_bucket", "limit": 5, "period": "1s", "burst": 10},
    "gcra": {"script": "gcra", "limit": 5, "period": "1s", "burst": 5},
    "pair": {"script": "rolling_window", "limit": 30, "period": "5s"},
    "pair-log": {"script": "sliding_window_log", "limit": 40, "period": "10s"},
    "held": {"script": "leaky_bucket", "limit": 20, "period": "1s", "burst": 20, "max_delay": "300ms"},
    "flight": {"script": "concurrency", "limit": 4, "lease": "5s"},
    "local": {"script": "gcra", "limit": 5, "period": "1s", "burst": 5, "on_failure": "local"},
}
RULES = {"log": ["log"], "window": ["window"], "bucket": ["bucket"], "gcra": ["gcra"], "two": ["pair", "pair-log"],
         "held": ["held"], "flight": ["flight"], "local": ["local"]}


# From the decision to the arrival of the request: redis.timeout, a connect, and the delay of a busy
# machine.
DELAY = 2.0 * rig.time_scale


def excess(limit, times):
    """How far the requests that arrived at these times exceed the limit for one client. 0: not at
    all."""
    period, most = seconds(limit["period"]), 0
    if "burst" in limit:  # between any two of them: the burst, and the units refilled meanwhile
        rate, least = limit["limit"] / period, float("inf")
        for i, at in enumerate(times):
            least = min(least, i - rate * at)
            most = max(most, i + 1 - rate * (at + DELAY) - least - limit["burst"] - 1)
        return most
    # Two windows that start at their first request can be adjacent: twice the limit in one period.
    # Logs never admit more than the limit.
    factor = 2 if limit["script"] == "fixed_window" else 1
    span, first = max(period - DELAY, period / 2), 0
    for i, at in enumerate(times):
        while times[first] <= at - span:
            first += 1
        most = max(most, i - first + 1 - factor * limit["limit"])
    total = limit["limit"] * ((times[-1] - times[0] + DELAY) // period + 1) if times else 0
    return max(most, len(times) - total)
