"""Shared by in_redis.py and calendar.py: the directory of the limiters, the seed, and the counts of
passed and failed checks."""
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
LUADIR = os.environ.get("LUADIR") or os.path.join(HERE, "..", "..", "lua")
SEED = int(os.environ.get("SEED") or random.randrange(10**6))

passed = failed = 0


def check(ok, *what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        if failed <= 10:
            print("FAILED", *what, f"(SEED={SEED})")


def summary():
    """Prints the summary line and returns the exit status."""
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
