#!/usr/bin/env python3
"""Numbers of up to 15 digits: muldiv and the four limiters that count them, in plain Lua, compared
with exact fractions. Usage: large.py [STEPS]"""
import os
import random
import subprocess
import sys
from fractions import Fraction
from math import ceil, floor

from checks import LUADIR, SEED, check, summary

MOST = 999_999_999_999_999
REFILL = 2**52  # µs
START = 1_790_000_000_000_000
NAMES = ("gcra", "leaky_bucket", "token_bucket", "fixed_window")


def number(most):
    """A number from 1 to `most`, of any size."""
    return random.choice([random.randint(1, most), random.randint(1, min(most, 10 ** random.randint(1, 15))), most, max(1, most - 1)])


class Bucket:
    """As many units as have not yet leaked; an exact fraction."""

    def __init__(self):
        self.level, self.at = Fraction(0), START

    def decide(self, now, limit, period, burst, cost, mode):
        self.level, self.at = max(Fraction(0), self.level - Fraction((now - self.at) * limit, period)), now
        left, granted, retry_after = burst - ceil(self.level), 0, 0
        if cost > 0 and (left >= cost or mode == 2):
            granted = cost
        elif cost > 0 and mode == 1 and left >= 1:
            granted = left
        elif cost < 0:
            granted = cost
        if granted == 0:
            least = 1 if mode == 1 else cost
            retry_after = -1 if least > burst else ceil((self.level - (burst - least)) * period / limit)
        self.level = max(Fraction(0), self.level + granted)
        return [granted, max(0, burst - ceil(self.level)), retry_after, ceil(self.level * period / limit)]


class Window:
    def __init__(self):
        self.since, self.used = None, 0

    def decide(self, now, limit, period, burst, cost, mode):
        if self.since is None or now - self.since >= period:
            self.since, self.used = now, 0
        left, granted = limit - self.used, 0
        if cost < 0 or left >= cost or mode == 2:
            granted = cost
        elif mode == 1 and left >= 1:
            granted = left
        self.used = max(0, self.used + granted)
        ends = self.since + period - now
        retry_after = 0 if granted else -1 if (1 if mode == 1 else cost) > limit else ends
        answer = [granted, max(0, limit - self.used), retry_after, ends if self.used else 0]
        if self.used == 0:
            self.since = None  # the state is deleted
        return answer


def schedule(name, length):
    """Calls with exact answers. The level stays below the largest debt."""
    while True:
        limit, period = number(MOST), random.choice([1000, 1_000_000, 60_000_000, 86_400_000_000, 31_622_400_000_000, random.randint(1000, 31_622_400_000_000)])
        burst = limit if name == "fixed_window" else number(MOST)
        if burst * period // limit < REFILL // 8:
            break
    model, now, calls = (Window if name == "fixed_window" else Bucket)(), START, []
    for _ in range(length):
        now += random.choice([0, 1, random.randint(0, ceil(period / limit) + 1), random.randint(0, period), ceil(Fraction(burst * period, limit)) // 2])
        cost = random.choice([1, number(burst), number(burst), max(1, burst // 3), burst, min(MOST, burst + 1)])
        mode = random.choice([0, 0, 0, 1, 2])
        if mode == 2 and (name == "fixed_window" and model.used > 2 * MOST or name != "fixed_window" and model.level > 2 * burst):
            mode = 0
        if random.random() < 0.15 and (name == "fixed_window" and model.used or name != "fixed_window" and model.level):
            cost, mode = -cost, 0
        calls.append(((name, now, limit, period, burst, cost, mode), model.decide(now, limit, period, burst, cost, mode)))
    return calls


def large_numbers():
    """Limit and burst of 14 or 15 digits for a period that fills the bucket in time."""
    limit = random.randint(10**13, MOST)
    return limit, random.randint(10**13, min(MOST, limit * 4))


def changes(name):
    """Calls before and after a change of limit and burst: as many units are used as before."""
    period, used = random.choice([60_000_000, 86_400_000_000, 2_592_000_000_000]), random.randint(1, 10**13)
    first, second = large_numbers(), large_numbers()
    return [((name, START, first[0], period, first[1], used, 0), used), ((name, START, second[0], period, second[1], 1, 0), used + 1),
            ((name, START, first[0], period, first[1], 1, 0), used + 2)]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    random.seed(SEED)
    lines, expected = [], []
    for _ in range(steps):
        c, a = number(MOST), number(2**53 - 1)
        b = random.randint(0, min(2**53 - 1, (2**53 - 1) * c // a))
        lines.append(f"m {a} {b} {c}")
        expected.append(([a, b, c], list(divmod(a * b, c))))
    for i in range(steps // 20):
        lines.append("new")
        for call, answer in schedule(NAMES[i % len(NAMES)], 20):
            lines.append(" ".join(str(word) for word in call))
            expected.append((call, answer))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "large.lua")
    for i in range(steps // 20):
        lines.append("new")
        for call, used in changes(NAMES[i % 3]):
            lines.append(" ".join(str(word) for word in call))
            expected.append((call, used))
    run = subprocess.run(["lua5.1", program, LUADIR, " ".join(NAMES)], input="\n".join(lines) + "\n", capture_output=True, text=True)
    check(run.returncode == 0, run.stderr)
    answers = [[int(word) for word in line.split()] for line in run.stdout.splitlines()]
    check(len(answers) == len(expected), len(answers), "answers instead of", len(expected))
    for (call, answer), got in zip(expected, answers):
        if isinstance(answer, int):  # rounded up at each change
            check(got[0] == call[5] and 0 <= call[4] - got[1] - answer <= 2, call, "gives", got, "with", answer, "units used")
        else:
            check(got == answer, call, "gives", got, "instead of", answer)
    return summary()


sys.exit(main())
