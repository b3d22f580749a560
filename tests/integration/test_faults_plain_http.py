"""Plain HTTP on a TLS port gets a response that names the mistake, as in nginx."""

import json

from tls_client import TlsConnection, weir_with_tls
from wire import Connection, request_bytes


def test_plain_http_on_a_tls_port_gets_400(rig):
    weir = weir_with_tls(rig)
    for method in "GET", "POST", "DELETE", "OPTIONS", "PROPFIND":
        with Connection(weir.address) as connection:
            connection.send(request_bytes("/a/path", method, body=b"x" * 100_000 if method == "POST" else None))
            response = connection.response()
            assert response.status == 400 and response["Connection"] == "close"
            assert "TLS port" in json.loads(response.body)["detail"]
            assert connection.is_closed()
    weir.counts(5, "weir_tls_handshake_errors_total")
    weir.counts(5, "weir_errors_total", cause="bad_request")
    with TlsConnection(weir.address) as connection:
        assert connection.request().status == 200
