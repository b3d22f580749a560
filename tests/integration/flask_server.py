"""A Flask application on Werkzeug (Debian packages), to test how real WSGI applications read
methods and paths. Run it with /usr/bin/python3. Each response contains the name of the handler and
the request as the handler sees it."""

from flask import Flask, jsonify, request
from werkzeug.serving import WSGIRequestHandler, make_server

app = Flask(__name__)
METHODS = ["GET", "POST", "PUT", "DELETE"]


def describe(handler):
    parameters = {"format": request.args["format"]} if "format" in request.args else {}
    return jsonify(handler=handler, method=request.method, path=request.path, target=request.environ["REQUEST_URI"], **parameters)


@app.route("/healthz")
def healthz():
    return describe("healthz")


@app.route("/login", methods=METHODS, strict_slashes=False)
def login():
    return describe("login"), 401


@app.route("/caf\u00e9")
def cafe():
    return describe("caf\u00e9")


@app.route("/v1/<path:rest>", methods=METHODS)
def v1(rest):
    return describe("v1")


@app.route("/", defaults={"rest": ""}, methods=METHODS)
@app.route("/<path:rest>", methods=METHODS)
def other(rest):
    return describe("other")


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(f"listening on 127.0.0.1:{server.port}", flush=True)
    server.serve_forever()
