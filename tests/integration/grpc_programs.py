"""Runs gRPC servers and clients as separate programs. python3-grpcio requires Debian's Python;
tests/grpc-js/run installs @grpc/grpc-js."""

import json
import os
import subprocess

from rig import Process, top

HERE = os.path.dirname(os.path.abspath(__file__))
NODE_MODULES = os.path.join(top, "build", "grpc-js", "node_modules")


def program(language, part):
    """The command line of a client or server. `language`: python or js."""
    if language == "python":
        return ["/usr/bin/python3", os.path.join(HERE, f"grpc_{part}.py")]
    return ["/usr/bin/env", "NODE_PATH=" + NODE_MODULES, "node", os.path.join(top, "tests", "grpc-js", f"{part}.js")]


class GrpcServer(Process):
    def __init__(self, rig, language="python"):
        super().__init__(rig, f"grpc-{len(rig.processes)}", program(language, "server"))
        self.text = self.wait_for_output(r"^listening on (\S+)$")[0]


def begin(address, *scenario, language="python", tls=None):
    """`tls`: the files with the trusted certificates and, if the client has them, its key and its certificate."""
    environment = {**os.environ, "WEIR_TEST_TLS": ":".join(tls or ())}
    return subprocess.Popen([*program(language, "client"), "%s:%d" % address, *scenario],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def run(address, *scenario, language="python", tls=None):
    client = begin(address, *scenario, language=language, tls=tls)
    out, _ = client.communicate(timeout=60)
    assert client.returncode == 0
    return json.loads(out)
