"""The cases: (class, description, bytes, mark, lines to show).

The mark is a part of the bytes: if it arrives on the other side, the message was forwarded unchanged.
The lines to show are a regular expression for other forwarded lines; "statuses": all statuses.
A response has three more entries: the request's version and method, and whether the server closes afterwards.
"""

FRAMING = r"content-length:|transfer-encoding:"
HOST = r"host:|\S+ \S+ HTTP/"
LINE = r"\S+ \S+ HTTP/"


def request(fields="", line="GET / HTTP/1.1", host="Host: a.test\r\n", body=""):
    return f"{line}\r\n{host}{fields}\r\n{body}".encode("latin-1")


def post(fields, body=""):
    return request(fields, "POST / HTTP/1.1", body=body)


def chunks(body):
    return post("Transfer-Encoding: chunked\r\n", body)


def coding(value, body="0\r\n\r\n"):
    return post(f"Transfer-Encoding{value}\r\n", body)


def length(value, body="hello"):
    return post(f"Content-Length{value}\r\n", body)


def r(kind, title, data, mark=None, show=LINE):
    return kind, title, data, mark.encode("latin-1") if isinstance(mark, str) else mark, show


HUGE = "9" * 40
REQUESTS = [
    # ---- where a request ends
    r("Length and coding", "Content-Length and Transfer-Encoding", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      "Content-Length: 5\r\nTransfer-Encoding: chunked", FRAMING),
    r("Length and coding", "`Transfer-Encoding: xchunked` with a length", post("Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n", "hello"),
      "Transfer-Encoding: xchunked", FRAMING),
    r("Length and coding", "`Transfer-Encoding : chunked`", coding(" : chunked"), "Transfer-Encoding : chunked", FRAMING),
    r("Length and coding", "`Transfer-Encoding:<VT>chunked`", coding(":\x0bchunked"), "\x0bchunked", FRAMING),
    r("Length and coding", "`chunked` in capitals", coding(": CHUNKED"), "CHUNKED", FRAMING),
    r("Length and coding", "`chunked, chunked`", coding(": chunked, chunked"), "chunked, chunked", FRAMING),
    r("Length and coding", "`gzip, chunked`", coding(": gzip, chunked"), "gzip, chunked", FRAMING),
    r("Length and coding", "`chunked, identity`", coding(": chunked, identity"), "chunked, identity", FRAMING),
    r("Length and coding", "two Transfer-Encoding fields", post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      "Transfer-Encoding: identity", FRAMING),
    r("Length and coding", "`\"chunked\"` in quotes", coding(': "chunked"'), '"chunked"', FRAMING),
    r("Length and coding", "an empty Transfer-Encoding", coding(":", ""), "Transfer-Encoding:", FRAMING),
    r("Length and coding", "`chunked` in HTTP/1.0", request("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0", body="0\r\n\r\n"),
      None, FRAMING + "|" + LINE),
    r("Length and coding", "two equal Content-Length", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
      "Content-Length: 5\r\nContent-Length: 5", FRAMING),
    r("Length and coding", "two differing Content-Length", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
      "Content-Length: 5\r\nContent-Length: 6", FRAMING),
    r("Length and coding", "`Content-Length: 5, 5`", length(": 5, 5"), "5, 5", FRAMING),
    r("Length and coding", "`Content-Length: +5`", length(": +5"), "+5", FRAMING),
    r("Length and coding", "`Content-Length: -5`", length(": -5"), "-5", FRAMING),
    r("Length and coding", "an empty Content-Length", length(":", ""), "Content-Length:", FRAMING),
    r("Length and coding", "`Content-Length: 0x5`", length(": 0x5"), "0x5", FRAMING),
    r("Length and coding", "a Content-Length of 40 digits", length(": " + HUGE), HUGE, FRAMING),
    r("Length and coding", "`Connection: Content-Length`", post("Connection: Content-Length\r\nContent-Length: 5\r\n", "hello"),
      "Connection: Content-Length", FRAMING + "|connection:"),
    # ---- chunks
    r("Chunks", "a size that overflows 64 bits", chunks("10000000000000005\r\nhello\r\n0\r\n\r\n"), "10000000000000005", FRAMING),
    r("Chunks", "size `0x5`", chunks("0x5\r\nhello\r\n0\r\n\r\n"), "0x5", FRAMING),
    r("Chunks", "size `+5`", chunks("+5\r\nhello\r\n0\r\n\r\n"), "+5", FRAMING),
    r("Chunks", "size `-5`", chunks("-5\r\nhello\r\n0\r\n\r\n"), "-5", FRAMING),
    r("Chunks", "a space before the size", chunks(" 5\r\nhello\r\n0\r\n\r\n"), " 5\r\n", FRAMING),
    r("Chunks", "a space after the size", chunks("5 \r\nhello\r\n0\r\n\r\n"), "5 \r\n", FRAMING),
    r("Chunks", "a size that ends with a bare LF", chunks("5\nhello\r\n0\r\n\r\n"), "5\nhello", FRAMING),
    r("Chunks", "an extension that holds a bare LF", chunks("5;a\nb\r\nhello\r\n0\r\n\r\n"), "5;a\nb", FRAMING),
    r("Chunks", "an extension that holds a bare CR", chunks("5;a\rb\r\nhello\r\n0\r\n\r\n"), "5;a\rb", FRAMING),
    r("Chunks", "a valid extension, `5;a=b`", chunks("5;a=b\r\nhello\r\n0\r\n\r\n"), "5;a=b", FRAMING),
    r("Chunks", "an extension of 20,000 bytes", chunks("5;" + "a" * 20000 + "\r\nhello\r\n0\r\n\r\n"), "a" * 100, FRAMING),
    r("Chunks", "data that end without CRLF", chunks("5\r\nhelloXX0\r\n\r\n"), "helloXX", FRAMING),
    r("Chunks", "a trailer `Content-Length: 9`", chunks("5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n"), "0\r\nContent-Length: 9",
      FRAMING),
    r("Chunks", "a trailer `X-Client-Id: forged`", chunks("5\r\nhello\r\n0\r\nX-Client-Id: forged\r\n\r\n"),
      "X-Client-Id: forged", FRAMING + "|x-client-id:"),
    # ---- bytes in a head
    r("Bytes of the head", "lines that end with a bare LF", b"GET / HTTP/1.1\nHost: a.test\n\n", "HTTP/1.1\nHost", HOST),
    r("Bytes of the head", "a bare CR in a value", request("X-A: b\rX-B: c\r\n"), "b\rX-B", "x-"),
    r("Bytes of the head", "a NUL in a value", request("X-A: b\0c\r\n"), "b\0c", "x-a"),
    r("Bytes of the head", "a control byte (0x01) in a value", request("X-A: b\x01c\r\n"), "b\x01c", "x-a"),
    r("Bytes of the head", "a folded line (obs-fold)", request("X-A: b\r\n c\r\n"), "b\r\n c", "x-a"),
    r("Bytes of the head", "a space before the colon", request("X-A : b\r\n"), "X-A : b", "x-a"),
    r("Bytes of the head", "an empty field name", request(": b\r\nX-A: b\r\n"), ": b\r\nX-A", "x-a|:"),
    r("Bytes of the head", "a line without a colon", request("X-A\r\nX-B: b\r\n"), "X-A\r\n", "x-"),
    r("Bytes of the head", "a space before the first field", request(host=" Host: a.test\r\n"), " Host: a.test", HOST),
    r("Bytes of the head", "a byte of 0x80 in a field name", request("X-\x80: b\r\n"), "X-\x80: b", "x-"),
    # ---- Host and target
    r("Host and target", "no Host in HTTP/1.1", request(host=""), None, HOST),
    r("Host and target", "two Host fields", request("Host: b.test\r\n"), "b.test", HOST),
    r("Host and target", "`Host: a.test/x`", request(host="Host: a.test/x\r\n"), "a.test/x", HOST),
    r("Host and target", "`Host: user@a.test`", request(host="Host: user@a.test\r\n"), "user@a.test", HOST),
    r("Host and target", "`Host: a.test:99999`", request(host="Host: a.test:99999\r\n"), "a.test:99999", HOST),
    r("Host and target", "`Host: a b`", request(host="Host: a b\r\n"), "Host: a b", HOST),
    r("Host and target", "absolute target, Host differs", request(line="GET http://b.test/ HTTP/1.1"), "Host: a.test", HOST),
    r("Host and target", "absolute target with userinfo", request(line="GET http://u:p@a.test/ HTTP/1.1"), "u:p@", HOST),
    r("Host and target", "absolute target, Host agrees", request(line="GET http://a.test/x HTTP/1.1"), "GET http://a.test/x", HOST),
    r("Host and target", "a fragment, `/x#y`", request(line="GET /x#y HTTP/1.1"), "/x#y"),
    r("Host and target", "`GET *`", request(line="GET * HTTP/1.1"), "GET *"),
    r("Host and target", "`CONNECT a.test:80`", request(line="CONNECT a.test:80 HTTP/1.1", host="Host: a.test:80\r\n"), "CONNECT"),
    r("Host and target", "a control byte in the target", request(line="GET /\x01 HTTP/1.1"), "/\x01"),
    r("Host and target", "a space in the target", request(line="GET /a b HTTP/1.1"), "/a b"),
    r("Host and target", "`Host: b.test,a.test`", request(host="Host: b.test,a.test\r\n"), "b.test,a.test", HOST),
    r("Host and target", "brackets, braces, `\\` and `^` in a path and a query", request(line="GET /x[y]\\|^{}?a[]|^{} HTTP/1.1"), "/x[y]\\|^{}?a[]|^{}", LINE),
    r("Host and target", "a byte above 0x7F in the target", request(line="GET /caf\xe9 HTTP/1.1"), "caf\xe9", LINE),
    r("Host and target", "`/a/../b`", request(line="GET /a/../b HTTP/1.1"), "/a/../b", LINE),
    r("Host and target", "`/a/..%2fb`, no rule having a path", request(line="GET /a/..%2fb HTTP/1.1"), "/a/..%2fb", LINE),
    r("Host and target", "`post /`", request(line="post / HTTP/1.1"), "post /", LINE),
    r("Host and target", "`TRACE /`", request(line="TRACE / HTTP/1.1"), "TRACE /", LINE),
    # ---- versions
    r("Versions", "HTTP/0.9, `GET /`", b"GET /\r\n", None),
    r("Versions", "HTTP/1.10", request(line="GET / HTTP/1.10"), "HTTP/1.10"),
    r("Versions", "HTTP/1.2", request(line="GET / HTTP/1.2"), "HTTP/1.2"),
    r("Versions", "HTTP/2.0 as text", request(line="GET / HTTP/2.0"), "HTTP/2.0"),
    r("Versions", "the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", "PRI *"),
    # ---- hop by hop
    r("Hop by hop", "`Connection: X-A` and X-A", request("Connection: X-A\r\nX-A: secret\r\n"), "X-A: secret", "connection:|x-a:"),
    r("Hop by hop", "`Connection: X-Client-Id` and X-Client-Id", request("Connection: X-Client-Id\r\nX-Client-Id: c1\r\n"),
      "Connection: X-Client-Id", "connection:|x-client-id:|x-weir-client:"),
    r("Hop by hop", "Keep-Alive, Proxy-Connection, TE", request("Keep-Alive: a\r\nProxy-Connection: b\r\nTE: gzip\r\n"), None,
      "keep-alive:|proxy-connection:|te:"),
    r("Hop by hop", "`Upgrade: h2c`", request("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"),
      "Upgrade: h2c", "connection:|upgrade:|http2"),
    r("Hop by hop", "Via is added", request("Via: 1.1 x\r\n"), None, "via:"),
    r("Hop by hop", "`Max-Forwards: 0` with TRACE", request("Max-Forwards: 0\r\n", "TRACE / HTTP/1.1"), "Max-Forwards: 0", "max-f|" + LINE),
    r("Hop by hop", "`Max-Forwards: 3` with OPTIONS", request("Max-Forwards: 3\r\n", "OPTIONS / HTTP/1.1"), "Max-Forwards: 3", "max-f"),
    # ---- identity
    r("Identity", "`X-Client-Id:<TAB>c1`", request("X-Client-Id:\tc1\r\n"), "X-Client-Id:\tc1", "x-client-id:|x-seen:|x-weir-client:"),
    r("Identity", "two X-Client-Id fields", request("X-Client-Id: c1\r\nX-Client-Id: c2\r\n"), "c1\r\nX-Client-Id: c2",
      "x-client-id:|x-seen:|x-weir-client:"),
    r("Identity", "a forged X-Forwarded-For", request("X-Forwarded-For: 203.0.113.9\r\n"), "X-Forwarded-For: 203.0.113.9\r\n",
      "x-forwarded-for:"),
    r("Identity", "`X_Client_Id: c1`", request("X_Client_Id: c1\r\n"), "X_Client_Id: c1", "x.client.id:|x-seen:|x-weir-client:"),
    r("Identity", "`X.Client.Id: c1`", request("X.Client.Id: c1\r\n"), "X.Client.Id: c1", "x.client.id:|x-seen:|x-weir-client:"),
    r("Identity", "a forged X-Real-IP", request("X-Real-IP: 203.0.113.9\r\n"), "X-Real-IP: 203.0.113.9", "x-real-ip:"),
    r("Identity", "`X-Original-URL: /admin`", request("X-Original-URL: /admin\r\n"), "X-Original-URL: /admin", "x-original-url:"),
    r("Identity", "`Expect: something`", request("Expect: something\r\n"), "Expect: something", "expect:"),
]

P = "HTTP/1.1 200 OK\r\n"
RESPONSES = [
    ("End of the response", "Content-Length and Transfer-Encoding", P + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: 5",
     FRAMING, "1.1", "GET", False),
    ("End of the response", "two differing Content-Length", P + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!", "Content-Length: 3", FRAMING, "1.1", "GET", True),
    ("End of the response", "`Content-Length: +2`", P + "Content-Length: +2\r\n\r\nok", "+2", FRAMING, "1.1", "GET", True),
    ("End of the response", "`Transfer-Encoding: gzip`", P + "Transfer-Encoding: gzip\r\n\r\nok", "gzip", FRAMING, "1.1", "GET", True),
    ("End of the response", "a chunk size `-1`, with the head", P + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n-1\r\n", None, FRAMING, "1.1", "GET", True),
    ("End of the response", "a chunk size with a bare LF", P + "Transfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n", "2\nok", FRAMING, "1.1", "GET", False),
    ("End of the response", "closed before Content-Length", P + "Content-Length: 10\r\n\r\nok", None, FRAMING, "1.1", "GET", True),
    ("End of the response", "closed within chunks", P + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", None, FRAMING, "1.1", "GET", True),
    ("End of the response", "until the close, to HTTP/1.1", P + "\r\nok", None, FRAMING + "|connection:", "1.1", "GET", True),
    ("End of the response", "chunked, to HTTP/1.0", P + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "2\r\nok", FRAMING, "1.0", "GET", False),
    ("End of the response", "204 with content", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nPOISON", "POISON", FRAMING, "1.1", "GET", False),
    ("End of the response", "HEAD with content", P + "Content-Length: 6\r\n\r\nPOISON", "POISON", FRAMING, "1.1", "HEAD", False),
    ("End of the response", "a second response after the first", P + "Content-Length: 2\r\n\r\nok" + P + "Content-Length: 6\r\n\r\nPOISON", "POISON", FRAMING, "1.1", "GET",
     False),
    ("Head of the response", "garbage", "this is not HTTP\r\n\r\n", "this is not HTTP", LINE, "1.1", "GET", True),
    ("Head of the response", "status 099", "HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nok", " 099", LINE, "1.1", "GET", False),
    ("Head of the response", "status 600", "HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\nok", " 600", LINE, "1.1", "GET", False),
    ("Head of the response", "status 2000", "HTTP/1.1 2000 X\r\nContent-Length: 2\r\n\r\nok", " 2000", LINE, "1.1", "GET", False),
    ("Head of the response", "a control byte in the reason", "HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\nok", "O\x01K", LINE, "1.1", "GET", False),
    ("Head of the response", "a bare CR in the reason", "HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nok", "O\rK", LINE, "1.1", "GET", False),
    ("Head of the response", "a NUL in a value", P + "X-A: b\0c\r\nContent-Length: 2\r\n\r\nok", "b\0c", "x-a", "1.1", "GET", False),
    ("Head of the response", "a folded line", P + "X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", "b\r\n c", "x-a", "1.1", "GET", False),
    ("Head of the response", "a space before the colon", P + "X-A : b\r\nContent-Length: 2\r\n\r\nok", "X-A : b", "x-a", "1.1", "GET", False),
    ("Head of the response", "an empty field name", P + ": b\r\nContent-Length: 2\r\n\r\nok", "\n: b", ":", "1.1", "GET", False),
    ("Head of the response", "lines that end with a bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "OK\nContent", LINE, "1.1", "GET", False),
    ("Head of the response", "`Connection: X-A` and X-A", P + "Connection: X-A\r\nX-A: secret\r\nContent-Length: 2\r\n\r\nok", "X-A: secret", "connection:|x-a:", "1.1",
     "GET", False),
    ("Head of the response", "a response in HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0 200", r"HTTP/1\S+ \d+", "1.1", "GET", True),
    ("Interim responses", "103 to HTTP/1.1", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + P + "Content-Length: 2\r\n\r\nok", " 103 ", "statuses",
     "1.1", "GET", False),
    ("Interim responses", "103 to HTTP/1.0", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + P + "Content-Length: 2\r\n\r\nok", " 103 ", "statuses",
     "1.0", "GET", False),
    ("Interim responses", "101 without a request for an upgrade", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nPOISON", " 101 ",
     "statuses", "1.1", "GET", False),
    ("Interim responses", "101 without a request for an upgrade, to HTTP/1.0",
     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nPOISON", " 101 ", "statuses", "1.0", "GET", False),
    ("Interim responses", "1,000 times 103", "HTTP/1.1 103 Early Hints\r\n\r\n" * 1000 + P + "Content-Length: 2\r\n\r\nok", " 103 ", "statuses", "1.1", "GET", False),
]
