"""The gRPC server and client of the tests, in programs of their own: python3-grpcio is of Debian's Python."""

import json
import os
import subprocess

from rig import Process

HERE = os.path.dirname(os.path.abspath(__file__))


class GrpcServer(Process):
    def __init__(self, rig):
        super().__init__(rig, f"grpc-{len(rig.processes)}", ["/usr/bin/python3", os.path.join(HERE, "grpc_server.py")])
        self.text = self.announced(r"^listening on (\S+)$")[0]


def begin(address, *scenario):
    return subprocess.Popen(["/usr/bin/python3", os.path.join(HERE, "grpc_client.py"), "%s:%d" % address, *scenario],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(address, *scenario):
    client = begin(address, *scenario)
    out, _ = client.communicate(timeout=60)
    assert client.returncode == 0
    return json.loads(out)
