"""The access log in both formats, and the log file."""

import json
import os
import re
import resource
import signal

from rig import address_of, eventually
from wire import Connection, get, request_bytes

LIMIT = {"few": dict(script="gcra", limit=2, period="1h")}


def lines_of(rig, count, access, **more):
    """Starts weir, sends requests of one client, and returns the lines of the access log."""
    path = os.path.join(rig.directory, "access.log")
    # With one worker: lines of several workers are not ordered.
    weir = rig.weir(workers=1, limits=LIMIT, log={"access": access, "file": path}, wait=False, **more)
    weir.log_path = path

    def look():
        try:
            with open(path, encoding="utf-8") as log:
                return log.read()
        except FileNotFoundError:
            return ""
    eventually(lambda: " ready" in look() or " ready" in weir.output(), what="weir ready")
    text = look() + weir.output()
    weir.address = address_of(re.search(r"listening on (\S+)", text)[1])
    weir.admin = address_of(re.search(r"admin on (\S+)", text)[1])
    for target in ["/a?b=1", '/"quoted"\\x', "/c"][:count]:
        with Connection(weir.address) as connection:
            connection.send(request_bytes(target.replace('"', "%22").replace("\\", "%5C"),
                                          headers={"X-Client-Id": "client-7", "User-Agent": 'an "agent" \\ \u00e9',
                                                   "Referer": "http://ref.test/"}))
            connection.response()
    mark = "{" if access == "json" else "HTTP/1.1\""

    def written():
        lines = [line for line in look().splitlines() if (line.startswith(mark) if access == "json" else mark in line)]
        return len(lines) >= count and lines
    return weir, eventually(written, what="the access log lines")


def test_the_json_format(rig):
    _, lines = lines_of(rig, 3, "json")
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 3
    flat = [{str(v) for v in entry.values()} for entry in entries]
    assert "200" in flat[0] and "429" in flat[2]
    assert any("/a?b=1" in value for value in flat[0])
    assert any("client-7" in value for value in flat[0])
    assert any("GET" == value for value in flat[0])
    assert any("127.0.0.1" in value for value in flat[0])
    assert any("few" in json.dumps(entry) for entry in entries[2:]), "the limit that rejected"


def test_a_sample_of_the_rejections_is_logged(rig):
    """At least one line per second in which there are rejections, and no line of admitted requests is missing."""
    weir = rig.weir(workers=1, limits=LIMIT, log={"access": "json", "sample": 1}, rules=[{"match": {"path": "/limited"}, "limits": ["few"]},
                                                                                       {"limits": "none"}])
    with Connection(weir.address) as connection:
        for _ in range(200):
            connection.send(request_bytes("/limited"))
            connection.response()
        for _ in range(20):
            connection.send(request_bytes("/free"))
            connection.response()
    weir.counts(220, "weir_request_duration_seconds_count")
    weir.wait_for_output('"target":"/free"', count=20)
    lines = [json.loads(line) for line in re.findall(r"^\{.*\}$", weir.output(), re.M) if '"target"' in line]
    rejected = [line for line in lines if line["status"] == 429]
    left_out = weir.metric("weir_access_lines_left_out_total")
    assert len(rejected) + left_out == 198 and 1 <= len(rejected) < 100, (len(rejected), left_out)
    assert sum(line.get("left_out", 0) for line in rejected) <= left_out
    assert len([line for line in lines if line["status"] == 200]) == 22


def test_the_combined_format(rig):
    _, lines = lines_of(rig, 3, "combined")
    pattern = (r'127\.0\.0\.1 - (\S+) \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] '
               r'"GET (\S+) HTTP/1\.1" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"')
    found = [re.match(pattern, line) for line in lines]
    assert all(found), lines
    assert [f[3] for f in found] == ["200", "200", "429"]
    assert found[0][5] == "http://ref.test/"


def test_sigusr1_reopens_the_log_file(rig):
    weir, _ = lines_of(rig, 1, "json")
    path = weir.log_path
    os.rename(path, path + ".1")
    weir.signal(signal.SIGUSR1)
    eventually(lambda: os.path.exists(path), what="a new log file")

    def in_the_new_file():
        get(weir.address, "/after-rotation")
        with open(path, encoding="utf-8") as log:
            return "/after-rotation" in log.read()
    eventually(in_the_new_file)


def test_a_log_that_cannot_be_opened_again_is_reported_on_stderr(rig):
    """Its directory is gone, and with it the file that is still open."""
    directory = os.path.join(rig.directory, "logs")
    os.mkdir(directory)
    weir = rig.weir(log={"file": os.path.join(directory, "weir.log")}, wait=False)
    path = os.path.join(directory, "weir.log")
    eventually(lambda: os.path.exists(path) and " ready" in open(path, encoding="utf-8").read(), what="weir ready")
    os.rename(directory, directory + ".old")
    weir.expect_errors("cannot reopen")
    weir.signal(signal.SIGUSR1)
    weir.wait_for_output("log: cannot reopen .*: No such file or directory; still writing to the old file")


def test_lines_before_the_file_is_open_are_in_it(rig):
    """From the first line on, and warnings of the policy. stderr has them too."""
    path = os.path.join(rig.directory, "weir.log")
    weir = rig.weir(identity={"from": ["header:X-Client-Id", "ip"]}, log={"file": path}, wait=False)

    def look():
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as log:
                text = log.read()
        return " ready\n" in text and text.splitlines()
    lines = eventually(look, what="weir ready")
    assert " info  weir " in lines[0], lines
    assert sum(" warn " in line and "trusted_proxies" in line for line in lines) == 1, lines
    early = weir.output().splitlines()
    assert early and lines[:len(early)] == early, "the same lines, once"


def test_every_line_of_a_json_log_is_json(rig):
    """From start to end: start, a policy warning, a rejected reload, a successful reload, access
    log lines."""
    policy = rig.policy(workers=1, limits=LIMIT, log={"format": "json"}, rules=[])
    weir = rig.weir(text=json.dumps(policy), wait=False)
    address = address_in_log(weir)
    assert get(address, "/x").status == 200

    def reload(text):
        rig.write(os.path.basename(weir.policy_file), text)
        weir.signal(signal.SIGHUP)
    reload("limits: [ 1 ]\n")
    weir.wait_for_output("the current policy stays in effect")
    reload(json.dumps({**policy, "rules": [{"limits": ["few"]}]}))
    weir.wait_for_output("is in effect")
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0
    entries = [json.loads(line) for line in weir.output().splitlines()]
    events = [entry for entry in entries if "level" in entry]
    assert {tuple(event) for event in events} == {("time", "level", "message")}, events
    messages = [(event["level"], event["message"]) for event in events]
    assert messages[0][1].startswith("weir ") and messages[-1] == ("info", "stopped"), messages
    for level, words in [("warn", "no rule uses this limit"), ("info", "ready"), ("error", ".yaml:1:9: limits"),
                         ("error", "the current policy stays in effect"), ("info", "is in effect")]:
        assert any(level == l and words in message for l, message in messages), (level, words, messages)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"]) for event in events)
    assert [entry["target"] for entry in entries if "level" not in entry] == ["/x"]


def address_in_log(weir):
    eventually(lambda: '"ready"' in weir.output(), what="weir ready")
    return address_of(re.search(r"listening on ([^\s\"]+)", weir.output())[1])


def test_an_invalid_policy_is_reported_in_json(rig):
    weir = rig.weir(text="log: { format: json }\nlimits: [ 1 ]\n", wait=False)
    weir.expected_exit = 1
    assert weir.wait() == 1
    entries = [json.loads(line) for line in weir.output().splitlines()]
    assert any(e["level"] == "error" and ":2:9: limits" in e["message"] for e in entries), entries


def test_a_reload_changes_the_log_format(rig):
    weir = rig.weir(workers=1, log={"access": "off"})
    weir.reload(log={"access": "off", "format": "json"})
    entry = json.loads(eventually(lambda: [line for line in weir.output().splitlines() if "is in effect" in line])[0])
    assert entry["level"] == "info", entry


def test_access_log_lines_contain_the_client_behind_a_trusted_proxy(rig):
    weir = rig.weir(workers=1, limits=LIMIT, log={"access": "json"}, identity={"from": "ip", "trusted_proxies": ["127.0.0.1"]})
    get(weir.address, "/1", headers={"X-Forwarded-For": "192.0.2.1, 203.0.113.7"})
    get(weir.address, "/2")
    get(weir.address, "/3", headers={"X-Forwarded-For": "2001:db8::17"})

    def entries():
        found = [json.loads(line) for line in weir.output().splitlines() if line.startswith("{")]
        return len(found) == 3 and found
    seen = [(entry["peer"], entry["client_ip"]) for entry in eventually(entries)]
    assert seen == [("127.0.0.1", "203.0.113.7"), ("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "2001:db8::17")]


def test_a_full_disk_loses_lines_and_logs_their_number(rig):
    weir, _ = lines_of(rig, 1, "json")
    weir.expect_errors("cannot be written: No space left on device")
    later = weir.log_path + ".2"

    def move_to(target):
        os.remove(weir.log_path)
        os.symlink(target, weir.log_path)
        weir.signal(signal.SIGUSR1)
    move_to("/dev/full")

    def error_count():
        assert get(weir.address, "/lost").status in (200, 429), "requests are still served"
        return weir.output().count("cannot be written: No space left on device")
    eventually(error_count, what="an error on stderr")
    assert error_count() == 1, "one error for all lost lines"
    eventually(lambda: weir.metric("weir_log_lines_dropped_total") >= 2, what="two lost lines")
    move_to(later)

    def lost_line_messages():
        get(weir.address, "/kept")
        with open(later, encoding="utf-8") as log:
            return re.findall(r"Z warn  log: (\d+) lines? (?:was|were) lost: No space left on device\n", log.read())
    notes = eventually(lambda: os.path.exists(later) and lost_line_messages(), what="a message about the lost lines in the log")
    assert len(notes) == 1 and int(notes[0]) >= 2, notes
    with open(later, encoding="utf-8") as log:
        assert "/lost" not in log.readline(), "the message precedes the next lines"


def test_a_file_size_limit_does_not_stop_weir(rig):
    weir, _ = lines_of(rig, 1, "json")

    def size_above_stderr():  # the limit applies to stderr as well
        get(weir.address)
        size = os.path.getsize(weir.log_path)
        return size > len(weir.output()) + 1000 and size
    size = eventually(size_above_stderr, what="the log file to be larger than stderr")
    weir.expect_errors("cannot be written: File too large")
    resource.prlimit(weir.pid, resource.RLIMIT_FSIZE, (size, size))
    eventually(lambda: get(weir.address).status in (200, 429) and "cannot be written: File too large" in weir.output())
    assert get(weir.address).status in (200, 429)


def test_log_lines_cannot_be_forged(rig):
    weir, _ = lines_of(rig, 1, "json")
    get(weir.address, "/x", headers={"User-Agent": 'a","status":200,"x":"\\u000a', "X-Client-Id": '"}\\{"'})

    def look():
        with open(weir.log_path, encoding="utf-8") as log:
            lines = [line for line in log.read().splitlines() if line.startswith("{")]
        return len(lines) >= 2 and [json.loads(line) for line in lines]
    entries = eventually(look)
    assert any(value == 'a","status":200,"x":"\\u000a' for value in entries[1].values()), entries[1]
    assert any('id:"}\\{"' == value for value in entries[1].values()), entries[1]


def test_long_values_are_cut(rig):
    """Each at its own length, so that a client cannot hide its target behind other values. Characters
    that the format escapes have less room."""
    for access, user_agent, referer in ("json", "\ufffd80" * 204, '\\\"' * 512), ("combined", "\\x80" * 256, "\\x22" * 256):
        weir = rig.weir(workers=1, log={"access": access})
        assert get(weir.address, "/" + "t" * 2000, host="h" * 300, headers={"User-Agent": "\x80" * 1100, "Referer": '"' * 1100}).status == 200
        line = weir.wait_for_output(r'^(.*ttt.*)\n')[0]
        assert line.count("t" * 1000) == 1 and "/" + "t" * 1023 in line and "t" * 1024 not in line, line
        assert f'"{user_agent}"' in line and f'"{referer}"' in line, line
        assert access == "combined" or json.loads(line)["host"] == "h" * 256


def test_access_off_writes_no_access_log(rig):
    weir = rig.weir(limits=LIMIT, log={"access": "off"})
    assert get(weir.address, "/not-to-be-seen").status == 200
    weir.finish()  # writes all lines
    assert "/not-to-be-seen" not in weir.output()


def test_a_blocked_log_stops_neither_the_admin_listener_nor_reload_and_shutdown(rig):
    """The log is a pipe whose reader stops reading."""
    fifo, other = os.path.join(rig.directory, "fifo"), os.path.join(rig.directory, "other.log")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    rig.add_cleanup(lambda: os.close(reader))
    weir = rig.weir(workers=1, log={"access": "json", "file": fifo}, wait=False)
    seen = bytearray()

    def read_more():
        try:
            seen.extend(os.read(reader, 65536))
        except BlockingIOError:
            pass
        return seen
    eventually(lambda: b" ready\n" in read_more(), what="weir ready")
    text = seen.decode()
    weir.address = address_of(re.search(r"listening on (\S+)", text)[1])
    weir.admin = address_of(re.search(r"admin on (\S+)", text)[1])
    with Connection(weir.address) as connection:
        def drops_lines():
            for _ in range(200):
                connection.send(request_bytes("/" + "x" * 6000))
                assert connection.response().status == 200
            return weir.metric("weir_log_lines_dropped_total")
        eventually(drops_lines, what="dropped lines")
    # The main thread logs the problem, too.
    eventually(lambda: b"log lines are lost" in get(weir.admin, "/readyz").body, what="the problem")
    assert get(weir.admin, "/healthz").status == 200
    rig.write(os.path.basename(weir.policy_file), json.dumps({**weir.policy, "log": {"access": "json", "file": other}}))
    weir.signal(signal.SIGHUP)
    eventually(lambda: weir.metric("weir_reload_total", result="success"), what="the reload")
    assert get(weir.address).status == 200
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0


def test_a_fifo_that_no_process_reads_is_refused(rig):
    fifo = os.path.join(rig.directory, "fifo")
    os.mkfifo(fifo)
    weir = rig.weir(log={"file": fifo}, wait=False)
    weir.expected_exit = 1
    assert weir.wait() == 1
    assert f"cannot open the log {fifo}: it is a FIFO that no process reads" in weir.output()
