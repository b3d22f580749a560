"""Records iterations of weir's event loop with tests/support/loop_iterations.c, to separate weir's
delays from those of the machine."""

import bisect
import glob
import os
import struct
import subprocess

import rig as the_rig

# wake-up and end, µs of the wall clock; CPU time, run delay, run delay before wake-up, µs; events
RECORD = struct.Struct("<QQIIII")
SOURCE = os.path.join(the_rig.top, "tests", "support", "loop_iterations.c")


class LoopIterations:
    """Start weir with `environment`. Does not work with a sanitizer, whose library must be loaded
    first."""

    def __init__(self, rig):
        library = os.path.join(rig.directory, "libloop_iterations.so")
        subprocess.run([*os.environ.get("CC", "cc").split(), "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"],
                       check=True)
        self.files = os.path.join(rig.directory, "iterations")
        self.environment = {"LD_PRELOAD": library, "LOOP_ITERATIONS": self.files}

    def worker(self):
        """The iterations of the thread with the most events, in order. By CPU time, it could be the
        thread that has read the policy."""
        threads = []
        for name in glob.glob(self.files + ".*"):
            with open(name, "rb") as file:
                data = file.read()
            threads.append(list(RECORD.iter_unpack(data[:len(data) - len(data) % RECORD.size])))
        return max(threads, key=lambda iterations: sum(events for *_, events in iterations))


def longest_cpu_us(iterations, since_us=0, until_us=1 << 62):
    """The longest CPU time of one iteration."""
    return max((i[2] for i in iterations if since_us <= i[0] < until_us), default=0)


class RunDelays:
    """How long weir's thread was runnable without a core, within any span of time."""

    def __init__(self, iterations):
        self.spans = []  # begin, end, waiting time within
        for woken, end, _cpu, delay, wake, _events in iterations:
            if wake:
                self.spans.append((woken - wake, woken, wake))
            if delay:
                self.spans.append((woken, end, delay))
        self.spans.sort()
        self.ends = [end for _, end, _ in self.spans]

    def within(self, begin_us, end_us):
        """It is unknown when the thread waited during an iteration. The result is an upper
        bound."""
        waited = 0
        for begin, end, wait in self.spans[bisect.bisect_right(self.ends, begin_us):]:
            if begin >= end_us:
                break
            waited += min(wait, min(end, end_us) - max(begin, begin_us))
        return waited
