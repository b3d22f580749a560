"""A gRPC server (Debian's python3-grpcio) for test_grpc_calls.py. Messages are plain bytes. Run it
with /usr/bin/python3. It prints its address and the cancelled calls. SIGTERM stops it
gracefully."""

import signal
import threading
from concurrent import futures

import grpc

health = {"status": b"\x08\x01"}


def say(request, context):
    context.set_trailing_metadata((("x-trailer", "1"), ("x-bin", b"\0\1")))
    return request + b"!"


def count(request, _context):
    for i in range(int(request)):
        yield str(i).encode()


def total(requests, _context):
    return str(sum(int(request) for request in requests)).encode()


def chat(requests, _context):
    for request in requests:
        yield request.upper()


def fail(_request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "none: 100 % \u00e4")


def wait(_request, context):
    over = threading.Event()
    if not context.add_callback(over.set):
        over.set()
    print("waiting", flush=True)
    over.wait(30)
    print("cancelled" if not context.is_active() else "finished", flush=True)
    return b""


def set_health(request, _context):
    health["status"] = request
    return b""


def check(request, context):
    if request not in (b"", b"\n\4echo"):
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return health["status"]


one = grpc.unary_unary_rpc_method_handler
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((
    grpc.method_handlers_generic_handler("t.Echo", {
        "Say": one(say), "Fail": one(fail), "Wait": one(wait), "SetHealth": one(set_health),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Sum": grpc.stream_unary_rpc_method_handler(total),
        "Chat": grpc.stream_stream_rpc_method_handler(chat)}),
    grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": one(check)})))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
signal.signal(signal.SIGTERM, lambda *_: server.stop(20))  # GOAWAY; calls may finish
print(f"listening on 127.0.0.1:{port}", flush=True)
server.wait_for_termination()
