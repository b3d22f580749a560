"""A real HTTP/2 server of Node: it resets streams with more than 128 fields, and ends responses with
RST_STREAM(NO_ERROR)."""

from http2_wire import Http2
from rig import Process
from wire import get

SERVER = """
const server = require('http2').createServer();
server.on('stream', (stream, headers) => {
  stream.respond({':status': 200});
  if (headers[':path'] === '/close') { stream.write('x'.repeat(10000)); stream.close(); }
  else stream.end('ok');
});
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));
"""


def weir_before_node(rig, servers):
    ports = [Process(rig, f"node-{n}", ["node", "-e", SERVER]).wait_for_output(r"^port (\d+)$")[0] for n in range(servers)]
    upstream = {"servers": [f"127.0.0.1:{port}" for port in ports], "protocol": "http2"}
    weir = rig.weir(workers=1, upstreams={"api": upstream}, rules=[], identity={"from": ["ip"], "trusted_proxies": ["127.0.0.1"]})
    weir.expect_errors("upstream|server")
    return weir


def test_node_is_not_blamed_for_requests_with_many_fields(rig):
    weir = weir_before_node(rig, 2)
    for number in range(24):
        fields = [("X-Forwarded-For", f"192.0.2.{number}"), *((f"X-{n}", "1") for n in range(122))]
        assert get(weir.address, headers=fields).status == 502
    weir.counts(24, "weir_errors_total", cause="upstream_refused_request")
    assert weir.metric("weir_upstream_ejections_total") == 0 and weir.metric("weir_upstream_retries_total") == 0
    assert get(weir.address).body == b"ok"


def test_a_stream_that_node_closes_is_a_complete_response(rig):
    weir = weir_before_node(rig, 1)
    assert get(weir.address, "/close").body == b"x" * 10000
    with Http2(weir.address) as client:
        assert client.response(client.start("/close")).body == b"x" * 10000
