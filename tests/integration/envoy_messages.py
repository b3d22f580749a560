"""The messages of Envoy's rate limit service and of gRPC health checking, for Python's protobuf
library (Debian's python3-protobuf): built at run time, with the public names and field numbers."""

import os
import sys

sys.path.append("/usr/lib/python3/dist-packages")
# Its compiled part is for Debian's Python only.
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
from google.protobuf import (  # noqa: E402
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    wrappers_pb2,
)

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "uint32": _FIELD.TYPE_UINT32,
    "bool": _FIELD.TYPE_BOOL,
}

_CODES = {"UNKNOWN": 0, "OK": 1, "OVER_LIMIT": 2}
_UNITS = {"UNKNOWN": 0, "SECOND": 1, "MINUTE": 2, "HOUR": 3, "DAY": 4, "MONTH": 5, "YEAR": 6, "WEEK": 7}
_SERVING = {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}

_ENVOY = ".envoy.service.ratelimit.v3."
_MESSAGES = {
    "Entry": [("key", 1, "string"), ("value", 2, "string")],
    "Override": [("requests_per_unit", 1, "uint32"), ("unit", 2, _ENVOY + "Unit")],
    "RateLimitDescriptor": [
        ("entries", 1, "*" + _ENVOY + "Entry"),
        ("limit", 2, _ENVOY + "Override"),
        ("hits_addend", 3, ".google.protobuf.UInt64Value"),
        ("is_negative_hits", 4, "bool"),
    ],
    "RateLimitRequest": [
        ("domain", 1, "string"),
        ("descriptors", 2, "*" + _ENVOY + "RateLimitDescriptor"),
        ("hits_addend", 3, "uint32"),
    ],
    "RateLimit": [("name", 3, "string"), ("requests_per_unit", 1, "uint32"), ("unit", 2, _ENVOY + "Unit")],
    "DescriptorStatus": [
        ("code", 1, _ENVOY + "Code"),
        ("current_limit", 2, _ENVOY + "RateLimit"),
        ("limit_remaining", 3, "uint32"),
        ("duration_until_reset", 4, ".google.protobuf.Duration"),
    ],
    "HeaderValue": [("key", 1, "string"), ("value", 2, "string")],
    "RateLimitResponse": [
        ("overall_code", 1, _ENVOY + "Code"),
        ("statuses", 2, "*" + _ENVOY + "DescriptorStatus"),
        ("response_headers_to_add", 3, "*" + _ENVOY + "HeaderValue"),
        ("raw_body", 5, "bytes"),
        ("dynamic_metadata", 6, ".google.protobuf.Struct"),
    ],
    "HealthCheckRequest": [("service", 1, "string")],
    "HealthCheckResponse": [("status", 1, _ENVOY + "ServingStatus")],
}


def _build():
    file = descriptor_pb2.FileDescriptorProto(
        name="weir/envoy_messages.proto", package="envoy.service.ratelimit.v3", syntax="proto3"
    )
    pool = descriptor_pool.DescriptorPool()
    for library in (duration_pb2, struct_pb2, wrappers_pb2):
        library_file = descriptor_pb2.FileDescriptorProto()
        library.DESCRIPTOR.CopyToProto(library_file)
        pool.Add(library_file)
        file.dependency.append(library.DESCRIPTOR.name)
    # Values of an enumeration are names of the package: a prefix keeps those of several apart.
    for name, values, prefix in (("Code", _CODES, ""), ("Unit", _UNITS, "U_"), ("ServingStatus", _SERVING, "S_")):
        enumeration = file.enum_type.add(name=name)
        for value, number in values.items():
            enumeration.value.add(name=prefix + value, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            field = message.field.add(name=field_name, number=number)
            field.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type_name = kind
                is_enum = kind in (_ENVOY + "Code", _ENVOY + "Unit", _ENVOY + "ServingStatus")
                field.type = _FIELD.TYPE_ENUM if is_enum else _FIELD.TYPE_MESSAGE
    pool.Add(file)
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {
        name: make(pool.FindMessageTypeByName("envoy.service.ratelimit.v3." + name)) for name in _MESSAGES
    }


_classes = _build()
RateLimitRequest = _classes["RateLimitRequest"]
RateLimitResponse = _classes["RateLimitResponse"]
HealthCheckRequest = _classes["HealthCheckRequest"]
HealthCheckResponse = _classes["HealthCheckResponse"]
OK, OVER_LIMIT = _CODES["OK"], _CODES["OVER_LIMIT"]
UNITS, SERVING = _UNITS, _SERVING

SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HEALTH_CHECK, HEALTH_WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


def request(domain, *descriptors, hits_addend=0):
    """A call. A descriptor is a dict from keys to values, or a list of pairs."""
    call = RateLimitRequest(domain=domain, hits_addend=hits_addend)
    for descriptor in descriptors:
        entries = call.descriptors.add().entries
        for key, value in descriptor.items() if isinstance(descriptor, dict) else descriptor:
            entries.add(key=key, value=value)
    return call
