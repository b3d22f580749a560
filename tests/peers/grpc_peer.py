"""A gRPC server and client on Debian's python3-grpcio; run it with /usr/bin/python3. Messages are
plain bytes.

    grpc_peer.py server              prints its address
    grpc_peer.py client ADDRESS WHAT makes calls; exits with status 1 and a message if one fails
"""

import sys
from concurrent import futures

import grpc

PIECE, PIECES, SMALL = bytes(65536), 512, 20000


def send(request, _context):
    size, count = map(int, request.split())
    for _ in range(count):
        yield bytes(size)


def count(requests, _context):
    return str(sum(map(len, requests))).encode()


def copy(requests, _context):
    yield from requests


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(20))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("peer.Peer", {
        "Send": grpc.unary_stream_rpc_method_handler(send),
        "Count": grpc.stream_unary_rpc_method_handler(count),
        "Copy": grpc.stream_stream_rpc_method_handler(copy)})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def call(channel, what):
    def total(request):
        return sum(map(len, channel.unary_stream("/peer.Peer/Send")(request)))

    def upload(size, pieces):
        return int(channel.stream_unary("/peer.Peer/Count")(bytes(size) for _ in range(pieces)))
    copied = channel.stream_stream("/peer.Peer/Copy")
    large = len(PIECE) * PIECES
    if what == "download":
        return total(b"%d %d" % (len(PIECE), PIECES)), large
    if what == "download-small":  # a PING for the bandwidth at each chance
        return total(b"10 %d" % SMALL), 10 * SMALL
    if what == "upload":
        return upload(len(PIECE), PIECES), large
    if what == "upload-small":
        return upload(10, SMALL), 10 * SMALL
    if what == "both":
        return sum(map(len, copied(PIECE for _ in range(PIECES)))), large
    if what == "both-small":
        return sum(map(len, copied(b"0123456789" for _ in range(SMALL)))), 10 * SMALL
    for _ in range(200):  # "cancelled"
        responses = channel.unary_stream("/peer.Peer/Send")(b"%d %d" % (len(PIECE), PIECES), timeout=30)
        next(responses)
        responses.cancel()
    return 0, 0


def main():
    if sys.argv[1] == "server":
        serve()
    with grpc.insecure_channel(sys.argv[2], [("grpc.max_receive_message_length", -1)]) as channel:
        try:
            result, expected = call(channel, sys.argv[3])
        except grpc.RpcError as error:
            sys.exit(str(error))
        if result != expected:
            sys.exit(f"{result} bytes of {expected}")


main()
