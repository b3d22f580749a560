"""A wall clock that is ahead of the others; the monotonic clock is not."""

import mmap
import os
import struct
import subprocess

SHIM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *ahead;
__attribute__((constructor)) static void begin(void)
{
    int fd = open(getenv("CLOCK_FILE"), O_RDONLY);
    ahead = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && ahead)
        now->tv_sec += *ahead;
    return result;
}
"""


class ShiftedClock:
    """`environment`: for the program that uses the clock."""

    def __init__(self, rig):
        source, library, file = (os.path.join(rig.directory, "clock" + end) for end in (".c", ".so", ".file"))
        with open(source, "w", encoding="ascii") as out:
            out.write(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        with open(file, "wb") as out:
            out.write(bytes(8))
        with open(file, "r+b") as out:
            self.ahead = mmap.mmap(out.fileno(), 8)
        self.environment = {"LD_PRELOAD": library, "CLOCK_FILE": file}

    def shift(self, seconds):
        self.ahead[:] = struct.pack("q", seconds)
