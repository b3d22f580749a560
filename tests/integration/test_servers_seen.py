"""What weir shows of each server: metrics, access lines, snapshots, weir top."""

import json
import os
import re
import subprocess
import threading

from rig import eventually, free_port, text_of, weir_program
from scripted import OK, Scripted
from wire import Connection, count, flood, get, request_bytes

ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


def server(rig, answer):
    """A server whose answer depends on the request's header: answer(head) sends it to the peer."""
    def serve(peer, _number):
        while (request := peer.read_request()) is not None:
            if answer(peer, request[0] if isinstance(request, tuple) else request) is False:
                return
    return Scripted(rig, serve).text


def start(rig, servers, **more):
    return rig.weir(upstreams={"api": {"servers": servers, "retry": {"on": ["connect"]}, **more}},
                    rules=[{"upstream": "api", "limits": "none"}], log={"access": "json"})


def lines(weir, count):
    weir.wait_for_output('"target"', count=count)
    return [json.loads(line) for line in re.findall(r"^\{.*\}$", weir.output(), re.M) if '"target"' in line]


def test_a_failing_server_is_visible(rig):
    bad = server(rig, lambda peer, _head: peer.send(ERROR))
    weir = start(rig, [bad])
    for _ in range(4):
        assert get(weir.address).status == 500
    labels = {"upstream": "api", "server": bad}
    weir.counts(4, "weir_upstream_responses_total", **labels, **{"class": "5xx"})
    weir.counts(0, "weir_upstream_responses_total", **labels, **{"class": "2xx"})
    weir.counts(4, "weir_upstream_duration_seconds_count", **labels, part="first")
    weir.counts(4, "weir_upstream_duration_seconds_count", **labels, part="last")
    weir.counts(0, "weir_upstream_in_flight", **labels)
    line = lines(weir, 4)[0]
    assert (line["upstream"], line["server"], line["status"]) == ("api", bad, 500)


def test_a_server_of_upgrades_has_requests(rig):
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    weir = start(rig, [server(rig, lambda peer, _head: peer.send(switching))])
    with Connection(weir.address) as connection:
        connection.send(request_bytes(headers={"Connection": "upgrade", "Upgrade": "websocket"}))
        assert connection.read_head().status == 101
        weir.counts(1, "weir_upstream_responses_total", **{"class": "1xx"})


def test_a_server_without_a_usual_time_is_not_slow(rig):
    """After a start, the first responses of a slow API are all that weir knows."""
    weir = start(rig, [rig.upstream().text])
    connections = [Connection(weir.address) for _ in range(8)]
    for connection in connections:
        connection.send(request_bytes("/slow?ms=1100"))
    for connection in connections:
        assert connection.response().status == 200
        connection.close()
    weir.counts(8, "weir_upstream_duration_seconds_count", part="first")
    assert weir.metric("weir_upstream_problem", problem="server_slow") == 0


def test_errors_of_a_server_have_their_causes(rig):
    def answer(peer, head):
        if b"/malformed" in head:
            peer.send(b"nonsense\r\n\r\n")
        elif b"/close" not in head:
            peer.send(OK)
        return b"/malformed" not in head and b"/close" not in head
    at, gone = server(rig, answer), f"127.0.0.1:{free_port()}"
    weir = start(rig, [at])
    assert get(weir.address, "/close").status == 502
    assert get(weir.address, "/malformed").status == 502
    weir.counts(1, "weir_upstream_errors_total", server=at, cause="closed")
    weir.counts(1, "weir_upstream_errors_total", server=at, cause="bad_response")
    dead = start(rig, [gone])
    assert get(dead.address).status == 502
    dead.counts(1, "weir_upstream_errors_total", server=gone, cause="connect")
    dead.counts(0, "weir_upstream_errors_total", server=gone, cause="tls")


def test_a_server_of_another_protocol_is_a_bad_response(rig):
    """It waits for an answer to its first bytes, and ends no line."""
    gate = threading.Event()
    rig.add_cleanup(gate.set)

    def serve(peer, _number):
        peer.send(b"SSH-2.0-")
        gate.wait()
    weir = start(rig, [Scripted(rig, serve).text], response_timeout="60s")
    answer = get(weir.address)
    assert (answer.status, json.loads(answer.body)["detail"]) == (502, "the server's response is malformed: not HTTP")
    weir.counts(1, "weir_upstream_errors_total", cause="bad_response")


def test_an_upload_that_a_server_breaks_off_is_its_error(rig):
    """It ejects no server, since the client has not sent all content."""
    servers = [Scripted(rig, lambda peer, _number: peer.read_until(b"\r\n\r\n", "a head")).text for _ in range(2)]
    weir = start(rig, servers, eject={"failures": 1})
    for number in range(4):
        with Connection(weir.address, source=f"127.0.0.{2 + number}") as connection:
            connection.send(request_bytes(method="POST", headers={"Content-Length": "60"}) + b"0123456789")
            assert connection.response().status == 502
    weir.counts(4, "weir_upstream_errors_total", cause="closed")
    weir.counts(0, "weir_upstream_ejections_total")


def test_each_request_that_waits_in_vain_for_an_http2_connection_is_an_error(rig):
    """Each connection is for many requests, and gets no SETTINGS."""
    silent = Scripted(rig, lambda peer, _number: eventually(lambda: not peer.socket.recv(65536), 60))
    weir = start(rig, [silent.text], protocol="http2", connect_timeout="200ms")
    assert count(flood(weir.address, 10, connections=10)) == {504: 10}
    weir.counts(10, "weir_upstream_errors_total", server=silent.text, cause="connect_timeout")


def test_a_retried_request_is_counted_at_both_servers(rig):
    bad = server(rig, lambda peer, _head: peer.send(ERROR.replace(b"500", b"503")))
    good = server(rig, lambda peer, _head: peer.send(OK))
    weir = start(rig, [bad, good], retry={"on": ["connect", "503"], "budget": "100%"})
    for _ in range(4):
        assert get(weir.address).status == 200
    weir.counts(4, "weir_upstream_responses_total", server=good, **{"class": "2xx"})
    failed = weir.metric("weir_upstream_responses_total", server=bad, **{"class": "5xx"})
    assert failed > 0
    weir.counts(failed, "weir_upstream_server_retries_total", server=bad)
    assert {line["server"] for line in lines(weir, 4)} == {good}
    weir.counts(0, "weir_upstream_in_flight", upstream="api")


def test_a_slow_body_is_not_blamed_on_weir(rig):
    go_on = threading.Event()
    rig.add_cleanup(go_on.set)

    def answer(peer, _head):
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
        go_on.wait(20)
        peer.send(b"b")
    at = server(rig, answer)
    weir = start(rig, [at])
    client = Connection(weir.address)
    client.send(request_bytes())
    client.read_until(b"\r\n\r\na", "the head and the first byte")
    weir.counts(1, "weir_upstream_in_flight", server=at)
    weir.counts(1, "weir_upstream_duration_seconds_count", server=at, part="first")
    assert not weir.metric("weir_upstream_duration_seconds_count", server=at, part="last")
    go_on.set()
    client.read_exactly(1, "the last byte")
    weir.counts(1, "weir_upstream_duration_seconds_count", server=at, part="last")
    weir.counts(0, "weir_upstream_in_flight", server=at)
    line = lines(weir, 1)[0]
    assert line["upstream_us"] <= line["upstream_total_us"] <= line["duration_us"] + 1000, line


def test_a_request_without_a_server_names_none(rig):
    weir = rig.weir(limits={"none-left": {"script": "fixed_window", "limit": 1, "period": "1h"}}, log={"access": "json"},
                    rules=[{"limits": ["none-left"]}], workers=1)
    assert [get(weir.address).status for _ in range(2)] == [200, 429]
    admitted, rejected = lines(weir, 2)
    assert "server" in admitted and "upstream_total_us" in admitted
    assert "server" not in rejected and "upstream" not in rejected


def test_top_names_the_failing_server_at_80_columns(rig):
    bad = server(rig, lambda peer, _head: peer.send(ERROR))
    weir = start(rig, [bad])
    stop = threading.Event()

    def load():
        while not stop.is_set():
            get(weir.address)
    thread = threading.Thread(target=load)
    thread.start()
    rig.add_cleanup(lambda: (stop.set(), thread.join()))
    weir.counts(0, "weir_upstream_responses_total", server=bad, **{"class": "2xx"})
    eventually(lambda: weir.metric("weir_upstream_responses_total", server=bad, **{"class": "5xx"}) > 0)

    def screen():
        return subprocess.run([weir_program, "top", "--once", "http://%s" % text_of(weir.admin)], capture_output=True, text=True,
                              timeout=30, env={**os.environ, "COLUMNS": "80"}, check=True).stdout
    shown = screen()
    for _ in range(10):  # on a busy machine, top may see no response between its two readings
        if re.search(r"5xx [1-9]", shown):
            break
        shown = screen()
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    row = re.search(r"^127\.0\.0\.1:\S+ .*$", shown.split("SERVERS")[1], re.M)[0].split()
    assert re.search(r"5xx [1-9][\d.k]*/s", shown), shown
    numbers = [value for value in row[1:] if re.fullmatch(r"[\d.]+k?", value)]
    assert numbers[0] == numbers[1] != "0" and numbers[2] == "0", (row, shown)
