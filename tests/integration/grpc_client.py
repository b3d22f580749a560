"""A gRPC client (Debian's python3-grpcio) for test_grpc_calls.py: grpc_client.py ADDRESS SCENARIO
prints the results as JSON. Run it with /usr/bin/python3."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import grpc

address, scenario = sys.argv[1:3]
RETRIES = json.dumps({"methodConfig": [{"name": [{"service": "t.Echo"}], "retryPolicy": {
    "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]})


def connect():
    """Over TLS if WEIR_TEST_TLS names files: see grpc_programs.begin()."""
    files = os.environ.get("WEIR_TEST_TLS")
    if files:
        contents = [Path(file).read_bytes() for file in files.split(":")]
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(*contents), [("grpc.ssl_target_name_override", "one.test")])
    return grpc.insecure_channel(address, [("grpc.service_config", RETRIES)] if scenario == "retries" else [])


channel = connect()


def outcome(error):
    trailing = {key: value if isinstance(value, str) else value.hex() for key, value in error.trailing_metadata() or ()}
    return [error.code().name, error.details(), trailing]


def say(message=b"hi", **more):
    try:
        reply, call = channel.unary_unary("/t.Echo/Say").with_call(message, timeout=10, **more)
        return [reply.decode(), outcome(call)[2]]
    except grpc.RpcError as error:
        return outcome(error)


def calls():
    yield "unary", say()
    large = channel.unary_unary("/t.Echo/Say")(b"x" * 1000000, timeout=20)
    yield "large", len(large)
    yield "server stream", [reply.decode() for reply in channel.unary_stream("/t.Echo/Count")(b"5", timeout=10)]
    yield "client stream", channel.stream_unary("/t.Echo/Sum")(iter([b"1", b"2", b"3"]), timeout=10).decode()
    ping = []

    def messages():  # sends the next message after the reply to the previous one
        for i in range(3):
            while len(ping) < i:
                time.sleep(0.001)
            yield b"m%d" % i
    for reply in channel.stream_stream("/t.Echo/Chat")(messages(), timeout=10):
        ping.append(reply.decode())
    yield "both", ping
    for name, timeout in ("Fail", 10), ("Wait", 2), ("None", 10):
        try:
            channel.unary_unary("/t.Echo/" + name)(b"", timeout=timeout)
        except grpc.RpcError as error:
            yield name, outcome(error)


def cancel():
    call = channel.unary_unary("/t.Echo/Wait").future(b"", timeout=30)
    sys.stdin.readline()  # waits until the server has the call
    call.cancel()
    yield "cancelled", call.cancelled()


def limits():
    yield "calls", [say(), say()]


def load():
    """Makes calls from eight threads until a line is read. Yields the number of calls, and the
    failed calls."""
    over, results = threading.Event(), []

    def call():
        while not over.is_set():
            results.append(say())
    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    print(flush=True)
    sys.stdin.readline()
    over.set()
    for thread in threads:
        thread.join()
    yield "count", len(results)
    yield "failed", [result for result in results if result[0] != "hi!"]


def rate_limits():
    """Calls with the messages of the arguments, in hexadecimal digits. Yields the replies."""
    method = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    results = []
    for message in sys.argv[3:]:
        try:
            results.append(method(bytes.fromhex(message), timeout=10).hex())
        except grpc.RpcError as error:
            results.append(outcome(error)[:2])
    yield "calls", results


def rate_limit_load():
    """Calls from 64 clients, each with a connection of its own, to the addresses in turn: as many as
    sys.argv[4]. If it is 0, until a line is read, with pauses, which leave the processor to Redis.
    Yields the number of replies by their text."""
    addresses, message, left = address.split(","), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
    over, lock, results = threading.Event(), threading.Lock(), {}
    each = left // 64

    def call(number):
        own = grpc.insecure_channel(addresses[number % len(addresses)], [("grpc.use_local_subchannel_pool", 1)])
        method = own.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        made = 0
        while made < each if left else not over.is_set():
            try:
                # Field 1, overall_code: the reply differs in other fields.
                result = {b"\x08\x01": "OK", b"\x08\x02": "OVER_LIMIT"}[method(message, timeout=30, wait_for_ready=True)[:2]]
            except grpc.RpcError as error:
                result = error.code().name + ": " + error.details()
            made += 1
            with lock:
                results[result] = results.get(result, 0) + 1
            if not left:
                over.wait(0.05)
    threads = [threading.Thread(target=call, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    print(flush=True)
    if not left:
        sys.stdin.readline()
        over.set()
    for thread in threads:
        thread.join()
    yield "results", results


def retries():
    began = time.monotonic()
    yield "calls", [say(), say()]
    yield "took", time.monotonic() - began


def health():
    channel.unary_unary("/t.Echo/SetHealth")(bytes.fromhex(sys.argv[3]), timeout=10)
    yield "set", True


print(json.dumps(dict(globals()[scenario]())))
