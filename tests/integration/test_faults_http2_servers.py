"""HTTP/2 servers: reloads, responses that end with RST_STREAM, requests that are sent again."""

import struct
import threading

from http2_server import Http2Peer, Http2Server, respond_to_requests
from http2_wire import INITIAL_WINDOW_SIZE, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, WINDOW_UPDATE, Http2
from rig import eventually, free_port
from scripted import Scripted, respond_to_all
from tls_server import CA, TlsServer, context
from wire import Connection, IncompleteResponse, get, run_in_threads


def weir_before(rig, *servers, protocol="http2", **upstream):
    texts = [s if isinstance(s, str) else s.text for s in servers]
    weir = rig.weir(workers=1, upstreams={"api": {"servers": texts, "protocol": protocol, **upstream}}, rules=[])
    weir.expect_errors("upstream|server")
    return weir


# --- reloads ---

def test_requests_that_wait_for_a_connection_survive_a_reload(rig):
    """The connection opens after the reload, and has no stream until the waiting requests get it."""
    gate = threading.Event()
    rig.add_cleanup(gate.set)

    def script(peer, number):
        gate.wait()
        respond_to_requests(Http2Peer(peer), number)
    server = Scripted(rig, script)
    weir = weir_before(rig, server)
    statuses = []
    clients = threading.Thread(target=run_in_threads, args=(lambda _: statuses.append(get(weir.address).status), 8))
    clients.start()
    eventually(lambda: weir.metric("weir_requests_active") == 8 and server.accepted, what="the requests")
    weir.reload(log={"access": "off", "level": "info"})
    gate.set()
    clients.join()
    assert statuses == [200] * 8
    assert server.accepted <= 2, "no connection was dialed in vain"
    eventually(lambda: weir.metric("weir_upstream_connections") == 0, what="the close of the old connection")
