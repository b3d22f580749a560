"""The turns of weir's event loop, watched from outside (tests/support/turns.c): what of a delay is weir's, and what the machine's."""

import bisect
import glob
import os
import struct
import subprocess

import rig as the_rig

TURN = struct.Struct("<QQIIII")  # woken and end, µs of the wall clock; CPU, run delay, run delay before waking, µs; events
SOURCE = os.path.join(the_rig.top, "tests", "support", "turns.c")


class Turns:
    """weir is to be started with `environment`. Not with a sanitizer, which wants to be loaded first."""

    def __init__(self, rig):
        library = os.path.join(rig.directory, "libturns.so")
        subprocess.run([*os.environ.get("CC", "cc").split(), "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"],
                       check=True)
        self.files = os.path.join(rig.directory, "turns")
        self.environment = {"LD_PRELOAD": library, "WEIR_TURNS": self.files}

    def worker(self):
        """The turns of the thread that did most, in order."""
        threads = []
        for name in glob.glob(self.files + ".*"):
            with open(name, "rb") as file:
                data = file.read()
            threads.append(list(TURN.iter_unpack(data[:len(data) - len(data) % TURN.size])))
        return max(threads, key=lambda turns: sum(t[2] for t in turns))


def longest_cpu_us(turns, since_us=0, until_us=1 << 62):
    """The most that one turn computed."""
    return max((t[2] for t in turns if since_us <= t[0] < until_us), default=0)


class Waits:
    """Of any span of time, how long weir's thread was ready to run in it and the kernel had no core for it."""

    def __init__(self, turns):
        self.spans = []  # begin, end, of that: waited
        for woken, end, _cpu, delay, wake, _events in turns:
            if wake:
                self.spans.append((woken - wake, woken, wake))
            if delay:
                self.spans.append((woken, end, delay))
        self.spans.sort()
        self.ends = [end for _, end, _ in self.spans]

    def within(self, begin_us, end_us):
        """Where in a turn it waited is not known: as much of it as fits counts."""
        waited = 0
        for begin, end, wait in self.spans[bisect.bisect_right(self.ends, begin_us):]:
            if begin >= end_us:
                break
            waited += min(wait, min(end, end_us) - max(begin, begin_us))
        return waited
