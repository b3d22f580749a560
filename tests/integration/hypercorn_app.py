"""An application for hypercorn (Debian's python3-hypercorn, with HTTP/2 from python3-h2). /echo
returns the request content, /status/NNN responds with that status, /bytes/N returns N bytes."""


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    _, what, *value = scope["path"].split("/")
    status = int(value[0]) if what == "status" else 200
    if what == "bytes":
        content = b"x" * int(value[0])
    fields = [] if status in (204, 304) else [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fields, (b"x-http", scope["http_version"].encode())]})
    await send({"type": "http.response.body", "body": b"" if status in (204, 304) or scope["method"] == "HEAD" else content})
