#!/usr/bin/env python3
"""What the limiters cost in Redis: CPU per decision and memory per client. Not a test; prints the table of docs/limiters.md.

tests/lua/cost.py [CALLS]      (default 50000 a figure; the best of three rounds counts)
"""
import re
import shutil
import sys

from in_redis import NAMES, Redis, driver_script

CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
CLIENTS, PIPELINE, MINUTE = 1000, 50, 60_000_000


def packed(*args):
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def cpu(redis):
    return sum(float(x) for x in re.findall(rb"used_cpu_(?:user|sys):([\d.]+)", redis.call("INFO", "cpu")))


def microseconds(redis, calls):
    """CPU of Redis per call; `calls` are packed commands that are sent over and over, pipelined."""
    batches = [calls[i:i + PIPELINE] for i in range(0, len(calls), PIPELINE)]
    best = None
    for _ in range(3):
        done, before = 0, cpu(redis)
        while done < CALLS:
            for batch in batches:
                redis.socket.sendall(b"".join(batch))
                for _ in batch:
                    redis.read()
                done += len(batch)
        spent = (cpu(redis) - before) / done * 1e6
        best = spent if best is None else min(best, spent)
    return best


def call(sha, keys, requests, limit):
    args = [""]
    for limits in requests:
        args.append(len(limits))
        for index, key in limits:
            args += [index, key, 1, 0, limit, limit]
    return packed("EVALSHA", sha, len(keys), *keys, *args)


def key(i, limit="per-client"):
    return f"weir:{{ip:198.51.{i // 250}.{i % 250}}}:l:{limit}"


def main():
    if not shutil.which("redis-server"):
        sys.exit("redis-server is not installed")
    redis = Redis()
    try:
        redis.call("SET", "k", "v")
        print(f"{'a script that does nothing':38}{microseconds(redis, [packed('EVAL', 'return 1', 1, 'k')] * 100):6.1f} µs")
        three = redis.call("SCRIPT", "LOAD", "redis.call('TIME') redis.call('MGET', KEYS[1]) redis.call('PSETEX', KEYS[1], '60000', '1790000000000000') return {1, 2, 3, 4, 5}")
        print(f"{'clock, read and write alone':38}{microseconds(redis, [packed('EVALSHA', three, 1, key(i)) for i in range(CLIENTS)]):6.1f} µs")
        print(f"{'':24}admitted   rejected   8 at once   memory of a client")
        for name in NAMES:
            option = 10 if name == "rolling_window" else None
            redis.call("FLUSHALL")
            sha = redis.call("SCRIPT", "LOAD", driver_script([(name, MINUTE, None, option)]))
            limit = 100 if name == "sliding_window_log" else 10**6
            keys = [key(i) for i in range(CLIENTS)]
            calls = [call(sha, [k], [[(1, 1)]], limit) for k in keys]
            if name == "sliding_window_log":       # one more of some fifty each time; the oldest ones leave
                sha_log = redis.call("SCRIPT", "LOAD", driver_script([(name, 2_000_000, None, None)]))
                calls = [call(sha_log, [k], [[(1, 1)]], 10**4) for k in keys]
            admitted = microseconds(redis, calls)
            redis.call("FLUSHALL")
            eight = [call(sha, keys[i:i + 8], [[(1, j + 1)] for j in range(8)], limit) for i in range(0, CLIENTS, 8)]
            at_once = microseconds(redis, eight) / 8
            redis.call("FLUSHALL")
            for i in range(100):                    # a client with a hundred requests behind it
                now = 1_790_000_000_000_000 + i * 300_000
                redis.call("EVALSHA", sha, 1, keys[0], now, 1, 1, 1, 1, 0, 100, 100)
            memory = redis.call("MEMORY", "USAGE", keys[0])
            tight = redis.call("SCRIPT", "LOAD", driver_script([(name, 31_622_400_000_000, None, option)]))
            redis.call("FLUSHALL")
            rejected = microseconds(redis, [call(tight, [k], [[(1, 1)]], 1) for k in keys])
            print(f"{name:24}{admitted:5.1f} µs   {rejected:5.1f} µs   {at_once:6.1f} µs   {memory:5} bytes")
        redis.call("FLUSHALL")
        sha = redis.call("SCRIPT", "LOAD", driver_script([("token_bucket", MINUTE, None, None), ("fixed_window", MINUTE, None, None), ("gcra", MINUTE, None, None)]))
        calls = [call(sha, [key(i), key(i, "quota"), key(i, "everyone")], [[(1, 1), (2, 2), (3, 3)]], 10**6) for i in range(CLIENTS)]
        print(f"{'three limits on one request':38}{microseconds(redis, calls):6.1f} µs")
        redis.call("FLUSHALL")
        redis.call("SET", key(0), 1790000000000000, "PX", 60000)
        print(f"{'the key and an integer alone':38}{redis.call('MEMORY', 'USAGE', key(0)):6} bytes")
    finally:
        redis.stop()


main()
