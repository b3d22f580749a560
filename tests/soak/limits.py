"""The limits of the soak and the chaos test, and by how much what arrived exceeds what they may admit."""

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


# From a decision to the request's arrival: redis.timeout, a connect, and what a busy machine adds.
DELAY = 2.0 * rig.time_scale


def excess(limit, times):
    """By how many the requests that came at these times exceed what the limit may admit of one client: 0 is right."""
    period, most = seconds(limit["period"]), 0
    if "burst" in limit:  # between any two of them: the burst, and what came back meanwhile
        rate, least = limit["limit"] / period, float("inf")
        for i, at in enumerate(times):
            least = min(least, i - rate * at)
            most = max(most, i + 1 - rate * (at + DELAY) - least - limit["burst"] - 1)
        return most
    # Windows that begin with their first request may meet: twice the limit in one period. Logs never admit more than it.
    factor = 2 if limit["script"] == "fixed_window" else 1
    span, first = max(period - DELAY, period / 2), 0
    for i, at in enumerate(times):
        while times[first] <= at - span:
            first += 1
        most = max(most, i - first + 1 - factor * limit["limit"])
    total = limit["limit"] * ((times[-1] - times[0] + DELAY) // period + 1) if times else 0
    return max(most, len(times) - total)
