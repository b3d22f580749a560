"""Calls of Envoy's rate limit service: weir with its listener, and clients over HTTP/2 and JSON."""

import json
import struct

import envoy_messages as envoy
from grpc_programs import run
from http2_wire import Http2
from rig import address_of
from wire import Connection, request_bytes

TYPE, TE = ("content-type", "application/grpc"), ("te", "trailers")


def weir_with_service(rig, domains, service=None, **more):
    """Starts a weir with the service beside its proxy. Returns weir and the address of the service."""
    section = {"listen": ["127.0.0.1:0"], "domains": domains, **(service or {})}
    weir = rig.weir(rate_limit_service=section, **more)
    return weir, listener_of(weir)


def listener_of(weir):
    return address_of(weir.wait_for_output(r"listening on (\S+) \(rate limit service\)$")[0])


def frame(message):
    return b"\0" + struct.pack(">I", len(message)) + message


def message_of(body):
    """The one message in the content of a gRPC response."""
    assert body[0] == 0 and struct.unpack(">I", body[1:5])[0] == len(body) - 5, body
    return body[5:]


class Refused(Exception):
    """A call that has failed: grpc-status and grpc-message."""

    def __init__(self, response):
        super().__init__(int(response["grpc-status"]), response["grpc-message"])
        self.code, self.message = self.args


class Caller:
    """A gRPC client on one HTTP/2 connection."""

    def __init__(self, address, **more):
        self.http2 = Http2(address, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http2.socket.close()

    def begin(self, path, body, fields=(TYPE, TE), end=True):
        stream = self.http2.put_request(path, method="POST", fields=fields, end=False)
        self.http2.send_body(stream, body, end=end)
        return stream

    def result(self, stream, message_class):
        response = self.http2.response(stream)
        assert response.status == 200 and response["content-type"] == "application/grpc", (response.status, response.fields)
        if response["grpc-status"] is not None:
            assert response.body == b"" and not response.trailers, "Trailers-Only"
            raise Refused(response)
        assert dict(response.trailers) == {"grpc-status": "0"}, response.trailers
        return message_class.FromString(message_of(response.body))

    def raw(self, body, path=envoy.SHOULD_RATE_LIMIT, fields=(TYPE, TE)):
        return self.result(self.begin(path, body, fields), envoy.RateLimitResponse)

    def call(self, *request, **more):
        """Arguments as envoy.request(). Returns the response."""
        message = request[0] if isinstance(request[0], envoy.RateLimitRequest) else envoy.request(*request, **more)
        return self.raw(frame(message.SerializeToString()))

    def code(self, *request, **more):
        return self.call(*request, **more).overall_code

    def health(self, service=""):
        message = envoy.HealthCheckRequest(service=service).SerializeToString()
        return self.result(self.begin(envoy.HEALTH_CHECK, frame(message)), envoy.HealthCheckResponse).status


def refusal(function, *arguments, **more):
    """The grpc-status of a call that fails."""
    try:
        response = function(*arguments, **more)
    except Refused as refused:
        return refused.code
    raise AssertionError(f"not refused: {response}")


def post_json(address, content, headers=None, path="/json", method="POST"):
    """POST /json over HTTP/1.1. Returns the status, and the response as JSON if it is."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with Connection(address) as connection:
        connection.send(request_bytes(path, method, headers or {}, body))
        response = connection.response()
        kind = response["Content-Type"] or ""
        return response.status, json.loads(response.body) if "json" in kind else response.body


def check_client(rig, language):
    """Calls of a real gRPC client, see grpc_client.py and tests/grpc-js/client.js."""
    limit = {"unit": "year", "requests_per_unit": 2}
    _, listener = weir_with_service(rig, {"edge": {"descriptors": [{"key": "user", "rate_limit": limit}]}})
    message = envoy.request("edge", {"user": "alice"}).SerializeToString().hex()
    *replies, refused = run(listener, "rate_limits", *[message] * 3, "", language=language)["calls"]
    statuses = [envoy.RateLimitResponse.FromString(bytes.fromhex(reply)) for reply in replies]
    assert [status.overall_code for status in statuses] == [envoy.OK, envoy.OK, envoy.OVER_LIMIT]
    assert [status.statuses[0].limit_remaining for status in statuses] == [1, 0, 0]
    assert refused == ["INVALID_ARGUMENT", "the call is malformed: the domain is empty"]
