"""HTTP/2 to real servers: nginx, Caddy (Go), nghttpd (libnghttp2) and hypercorn (Python h2). With
HTTP/1.1 and HTTP/2 clients."""

import json
import os
import shutil
import signal
import threading
import zlib

from http2_wire import Http2
from ports import accepts
from rig import Process, eventually, free_port
from tls_server import CA
from tls_server import file as tls_file
from wire import get, run_in_threads

PATH = "/usr/sbin:/usr/bin:/bin"
SIZE = 1000000


def start(rig, name, arguments, port, **env):
    process = Process(rig, name, [shutil.which(arguments[0], path=PATH), *arguments[1:]],
                      env={"HOME": rig.directory, "XDG_DATA_HOME": rig.directory, "PATH": PATH, **env})
    eventually(lambda: accepts(("127.0.0.1", port)), what=f"{name} to listen")
    return process


def nginx(rig, port, master="off"):
    """nginx in front of the test's upstream."""
    temporary = " ".join(f"{kind}_temp_path {rig.directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    rig.write("nginx.conf", f"""daemon off; master_process {master}; user root; worker_processes 1; pid {rig.directory}/nginx.pid; error_log stderr; events {{}}
        http {{ access_log off; {temporary} client_max_body_size 0;
        server {{ listen 127.0.0.1:{port} http2; location / {{ proxy_pass http://{rig.upstream().text}; }} }} }}""")
    return start(rig, "nginx", ["nginx", "-c", f"{rig.directory}/nginx.conf"], port)


def caddy_config(rig, port, name, tls):
    """Caddy in front of the test's upstream."""
    certificate = f"tls {tls_file('server.pem')} {tls_file('server.key')}" if tls else ""
    rig.write("Caddyfile", f"""{{
        admin unix/{rig.directory}/admin
        auto_https off
        servers {{
            protocols h1 h2 h2c
        }}
    }}
    {"https" if tls else "http"}://:{port} {{
        {certificate}
        bind 127.0.0.1
        header X-Config {name}
        reverse_proxy {rig.upstream().text}
    }}
    """)


def caddy(rig, port, tls=False):
    caddy_config(rig, port, "first", tls)
    return start(rig, "caddy", ["caddy", "run", "--adapter", "caddyfile", "--config", f"{rig.directory}/Caddyfile"], port)


def hypercorn(rig, port):
    process = start(rig, "hypercorn", ["hypercorn", "--bind", f"127.0.0.1:{port}", "hypercorn_app:app"], port, PYTHONPATH=os.path.dirname(__file__))

    def stop():  # by SIGTERM, on which it stops its own processes
        process.signal(signal.SIGTERM)
        process.wait()
    rig.add_cleanup(stop)
    return process


def nghttpd(rig, port, *more):
    with open(os.path.join(rig.directory, "large"), "wb") as file:
        file.write(b"x" * SIZE)
    return start(rig, "nghttpd", ["nghttpd", "--no-tls", "--address=127.0.0.1", "--echo-upload", "-d", rig.directory, *more, str(port)], port)


def weir_before(rig, port, **more):
    weir = rig.weir(workers=1, upstreams={"api": {"servers": [f"127.0.0.1:{port}"], "protocol": "http2", **more}}, rules=[])
    weir.expect_errors("upstream|server")
    return weir


def fetch_by_http1_and_http2(weir, path, method="GET", headers=(), body=None):
    """The responses to a request over HTTP/1.1 and over HTTP/2."""
    yield get(weir.address, path, method=method, headers=dict(headers), body=body)
    with Http2(weir.address) as client:
        stream = client.start(path, method=method, fields=headers, end=body is None)
        if body is not None:
            client.send_within_windows(stream, body)
        yield client.response(stream)


def assert_serves(weir, received):
    """`received`: checks whether the response to POST /echo describes the content."""
    body = os.urandom(SIZE)
    for response in fetch_by_http1_and_http2(weir, f"/bytes/{SIZE}"):
        assert (response.status, len(response.body)) == (200, SIZE)
    for response in fetch_by_http1_and_http2(weir, "/bytes/1000", "HEAD"):
        assert (response.status, response.body, response["Content-Length"]) == (200, b"", "1000")
    for response in fetch_by_http1_and_http2(weir, "/echo", "POST", body=body):
        assert response.status == 200 and received(response, body)
    for status in 204, 304, 404, 503:
        for response in fetch_by_http1_and_http2(weir, f"/status/{status}"):
            assert response.status == status and (status > 400 or response.body == b""), status
    assert_no_protocol_errors(weir)


def assert_no_protocol_errors(weir):
    """No server violated the protocol, and all requests used at most two connections."""
    assert weir.metric("weir_upstream_http2_errors_total") == 0
    assert 0 < weir.metric("weir_upstream_connections_opened_total") <= 2


def matches_content(response, body):
    seen = json.loads(response.body)
    return (seen["content_length"], seen["content_crc32"]) == (len(body), zlib.crc32(body))


def test_nginx(rig):
    port = free_port()
    nginx(rig, port)
    assert_serves(weir_before(rig, port), matches_content)


def test_caddy(rig):
    port = free_port()
    caddy(rig, port)
    assert_serves(weir_before(rig, port), matches_content)


def test_hypercorn(rig):
    port = free_port()
    hypercorn(rig, port)
    weir = weir_before(rig, port)
    assert_serves(weir, lambda response, body: response.body == body)
    assert get(weir.address, "/echo")["X-Http"] == "2"


def test_nghttpd(rig):
    """Files, 304 to conditional requests, content in both directions, trailers."""
    port = free_port()
    nghttpd(rig, port, "--trailer=x-sum: 1")
    weir = weir_before(rig, port)
    body = os.urandom(SIZE)
    for response in fetch_by_http1_and_http2(weir, "/large"):
        assert (response.status, response.body) == (200, b"x" * SIZE)
        modified = response["Last-Modified"]
    assert response.trailers == [("x-sum", "1")]
    for response in fetch_by_http1_and_http2(weir, "/large", "HEAD"):
        assert (response.status, response.body, response["Content-Length"]) == (200, b"", str(SIZE))
    for response in fetch_by_http1_and_http2(weir, "/large", headers=[("if-modified-since", modified)]):
        assert (response.status, response.body) == (304, b"")
    for response in fetch_by_http1_and_http2(weir, "/large", "POST", body=body):
        assert (response.status, response.body) == (200, body)
    for response in fetch_by_http1_and_http2(weir, "/missing"):
        assert response.status == 404
    assert_no_protocol_errors(weir)


class Load:
    """HTTP/2 clients that send requests one after the other until stop()."""

    def __init__(self, weir, path, clients):
        self.weir, self.path, self.over, self.statuses, self.failure = weir, path, threading.Event(), [], None
        self.thread = threading.Thread(target=self.run, args=(clients,))
        self.thread.start()

    def run(self, clients):
        try:
            run_in_threads(self.client, clients)
        except Exception as failure:
            self.failure = failure

    def client(self, _number):
        with Http2(self.weir.address) as client:
            while not self.over.is_set():
                self.statuses.append(client.get(self.path).status)

    def wait_for_requests(self, count):
        eventually(lambda: len(self.statuses) >= count or not self.thread.is_alive(), 30, f"{count} requests")

    def stop(self):
        self.over.set()
        self.thread.join()
        if self.failure:
            raise self.failure
        assert set(self.statuses) == {200}, {status: self.statuses.count(status) for status in set(self.statuses)}


def assert_no_request_fails(weir, restart, path="/bytes/20000", clients=4):
    load = Load(weir, path, clients)
    for _ in range(3):
        load.wait_for_requests(len(load.statuses) + 50)
        restart()
    load.wait_for_requests(len(load.statuses) + 50)
    load.stop()


def test_nginx_reloads_fail_no_request(rig):
    """Old processes of nginx end their connections with GOAWAY: no request fails. nginx 1.22
    truncates responses that it has not written in one piece, so they are small here and sent one at
    a time."""
    port = free_port()
    server = nginx(rig, port, master="on")
    weir = weir_before(rig, port)

    def opened():
        return weir.metric("weir_upstream_connections_opened_total")

    def reload():
        before = opened()
        server.signal(signal.SIGHUP)
        eventually(lambda: opened() > before, what="the connection to the new process")
    assert_no_request_fails(weir, reload, "/bytes/100", clients=1)
    server.signal(signal.SIGTERM)
    server.wait()


def test_caddy_reloads_fail_no_request(rig):
    """Over TLS: without it, Caddy 2.6 keeps open connections with their old configuration."""
    port = free_port()
    caddy(rig, port, tls=True)
    weir = weir_before(rig, port, tls={"ca": CA})
    configs = iter(("second", "third", "fourth"))

    def reload():
        name = next(configs)
        caddy_config(rig, port, name, tls=True)
        start(rig, "caddy-reload", ["caddy", "reload", "--adapter", "caddyfile", "--config", f"{rig.directory}/Caddyfile",
                                    "--address", f"unix/{rig.directory}/admin"], port).wait()
        eventually(lambda: get(weir.address, "/bytes/1")["X-Config"] == name, what=f"config {name}")
    assert_no_request_fails(weir, reload)
