"""The command line, start-up and its errors, standalone scripts, and the embedded Redis."""

import json
import os
import re
import shutil
import signal
import subprocess

from rig import Process, eventually, free_port, redis_program, weir_program
from wire import count, flood, get

LIMIT = {"each": dict(script="gcra", limit=3, period="1h")}


def test_a_secret_in_a_policy_that_all_users_can_read_is_reported(rig):
    policy = {**rig.policy(rules=[{"limits": []}]), "redis": {"address": "127.0.0.1:1", "password": "hunter2"}}
    file = rig.write("secret.yaml", json.dumps(policy, indent=1))
    os.chmod(file, 0o644)
    warned = rig.command("check", "-c", file).stderr
    assert re.search(r"secret.yaml:\d+:\d+: warning: redis.password: \S+secret.yaml can be read by all users .*chmod o=", warned), warned
    assert "hunter2" not in warned
    os.chmod(file, 0o640)
    assert "all users" not in rig.command("check", "-c", file).stderr
    os.chmod(rig.write("secret.yaml", json.dumps({**policy, "redis": {"address": "127.0.0.1:1", "password": "${SECRET}"}})), 0o644)
    assert "all users" not in rig.command("check", "-c", file, env={**os.environ, "SECRET": "hunter2"}).stderr


def test_signals_while_the_policy_is_read_take_effect_afterwards(rig):
    file = os.path.join(rig.directory, "token")
    os.mkfifo(file, 0o600)
    weir = rig.weir(admin={"address": "127.0.0.1:0", "token_file": file}, wait=False)
    for pattern in "weir .* worker", "is in effect":
        with open(file, "w", encoding="utf-8") as fifo:  # waits until weir reads
            if pattern != "is in effect":
                weir.signal(signal.SIGHUP)
                weir.signal(signal.SIGUSR1)
            fifo.write("secret-token-of-an-operator\n")
        weir.wait_for_output(pattern)


def test_version_and_help(rig):
    version = rig.command("--version")
    assert version.returncode == 0 and re.match(r"weir \d+\.\d+\.\d+", version.stdout), version
    usage = rig.command("--help")
    assert usage.returncode == 0
    for word in "check", "script", "-c", "--version":
        assert word in usage.stdout
    for command in re.findall(r"^ +weir ([a-z]+)", usage.stdout, re.M):
        helped = rig.command(command, "--help")
        assert helped.returncode == 0 and helped.stdout.startswith(f"usage: weir {command} "), helped
        assert max(map(len, helped.stdout.splitlines())) <= 110, helped.stdout
        assert rig.command("-c", "policy.yaml", command, "-h").stdout == helped.stdout


def test_usage_errors_exit_with_2(rig):
    for arguments in (["--no-such-option"], ["no-such-command"], ["-c"], ["script"], ["check", "surplus"], ["check", "-x"], ["check", "-c"], ["inspect"]):
        result = rig.command(*arguments)
        assert result.returncode == 2, (arguments, result)
        assert result.stderr and not result.stdout, (arguments, result)
    for arguments, option in ((["-xz"], "-x"), (["check", "-xz"], "-x"), (["check", "-z"], "-z"), (["replay", "--quiet", "-qxz", "a.log"], "-x"), (["replay", "-qx"], "-x"),
                              (["test", "--tap=1", "-q"], "--tap=1"), (["check", "--config"], "--config"), (["--help=x", "-h"], "--help=x"),
                              (["check", "--help=x", "-h"], "--help=x"), (["replay", "--quiet=x", "-q"], "--quiet=x"), (["replay", "--host=x", "-qc"], "-c")):
        assert f"is missing or not allowed: {option}\n" in rig.command(*arguments).stderr, arguments
    for arguments in (["policy.yaml"], ["check", "policy.yaml"]):
        assert "a policy is named by -c FILE" in rig.command(*arguments).stderr, arguments


def test_options_can_precede_the_command(rig):
    policy = rig.write("policy.yaml", json.dumps(rig.policy(limits=LIMIT)))
    before, after = rig.command("-c", policy, "check"), rig.command("check", "-c", policy)
    assert before.returncode == 0 and before.stdout == after.stdout, before


def check(rig, text):
    policy = rig.write("policy.yaml", text)
    return rig.command("check", "-c", policy)


def test_check_prints_the_effective_policy(rig):
    policy = json.dumps(rig.policy(limits=LIMIT, redis={"address": "127.0.0.1:6379", "password": "hidden"}))
    result = check(rig, policy)
    assert result.returncode == 0, result.stderr
    for line in "gcra", "period: 1h", "each", "upstreams:":
        assert line in result.stdout, result.stdout
    assert "hidden" not in result.stdout
    again = check(rig, result.stdout)
    if "***" not in result.stdout:
        assert again.returncode == 0 and again.stdout == result.stdout, "the output of check is a valid policy"


def test_the_printed_policy_of_a_grpc_health_check_is_valid(rig):
    upstreams = {"api": {"servers": ["127.0.0.1:1"], "protocol": "http2", "health": {"grpc": ""}}}
    first = check(rig, json.dumps({**rig.policy(limits=LIMIT), "upstreams": upstreams}))
    again = check(rig, first.stdout)
    assert first.returncode == again.returncode == 0 and again.stdout == first.stdout, again.stderr
    for health in {"path": None}, {"path": None, "grpc": None}:
        upstreams["api"]["health"] = health
        assert "a health check needs either path or grpc" in check(rig, json.dumps({**rig.policy(), "upstreams": upstreams})).stderr


def test_output_that_is_lost_is_an_error(rig):
    file = rig.write("policy.yaml", json.dumps(rig.policy(limits={"each": {"script": "gcra", "limit": 3, "period": "1h"}})))
    for command in ("check", "-c", file), ("inspect", "-c", file, "a"), ("explain", "-c", file, "/"), ("script", "gcra"), ("check", "--help"), ("--version",), ("--help",):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([weir_program, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        assert done.returncode == 1 and "weir: the output cannot be written: No space left" in done.stderr, (command, done)
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", weir_program, *command], stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        assert done.returncode == 1 and "weir: the output cannot be written: Bad file descriptor" in done.stderr, (command, done)
    tests = rig.write("test.yaml", json.dumps({"policy": "policy.yaml", "tests": [{"name": "one", "requests": [{"path": "/", "expect": "admitted"}]}]}))
    for command in ("script", "gcra"), ("test", tests):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as broken:
            done = subprocess.run([weir_program, *command], stdout=broken, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (1, ""), "a reader that wants no more"


def test_errors_are_reported_with_their_location(rig):
    result = check(rig, """\
upstreams:
  api: { servers: [ 127.0.0.1:3000 ] }
limits:
  per-client: { script: token_bucket, limit: 10, period: 1m, brust: 3 }
  other: { script: gcra, limit: many, period: 20 }
rules:
  - { limits: [ per-clinet ], upstream: api }
""")
    assert result.returncode == 1
    assert re.search(r"policy\.yaml:4:\d+: .*brust.*burst", result.stderr), result.stderr
    assert len(re.findall(r"policy\.yaml:5:\d+: ", result.stderr)) == 2, result.stderr
    assert re.search(r"policy\.yaml:7:\d+: .*per-clinet", result.stderr), result.stderr


def test_an_invalid_policy_does_not_start(rig):
    result = rig.command("-c", rig.write("bad.yaml", "limits: [ 1 ]\n"))
    assert result.returncode == 1 and re.search(r"bad\.yaml:1:\d+: ", result.stderr), result
    result = rig.command("-c", os.path.join(rig.directory, "absent.yaml"))
    assert result.returncode == 1 and "absent.yaml" in result.stderr and "No such file" in result.stderr


def test_closed_standard_descriptors_are_not_reused(rig):
    log = os.path.join(rig.directory, "weir.log")
    policy = rig.write("policy.yaml", json.dumps(rig.policy(log={"file": log})))
    weir = Process(rig, "weir", ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', weir_program, policy])
    eventually(lambda: os.path.exists(log) and " ready\n" in open(log, encoding="utf-8").read(), what="weir ready")
    assert [os.readlink(f"/proc/{weir.pid}/fd/{number}") for number in range(3)] == ["/dev/null"] * 3
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0


def assert_start_fails(rig, *words, **keys):
    weir = rig.weir(wait=False, **keys)
    weir.expected_exit = 1
    weir.expect_errors(".")
    assert weir.wait() == 1
    for word in words:
        assert word in weir.output(), (word, weir.output())


def test_a_port_in_use_is_reported(rig):
    taken = rig.upstream().text
    assert_start_fails(rig, taken, "Address already in use; stop the process", listen=[taken])
    assert_start_fails(rig, taken, admin=taken)


def test_if_one_of_two_listeners_fails_weir_does_not_start(rig):
    free = free_port()
    assert_start_fails(rig, rig.upstream().text, listen=[f"127.0.0.1:{free}", rig.upstream().text])


def test_a_missing_script_is_reported(rig):
    assert_start_fails(rig, "no_such_script", limits={"each": dict(script="no_such_script", limit=1, period="1s")})
    assert_start_fails(rig, "/nowhere/mine.lua", limits={"each": dict(script="/nowhere/mine.lua", limit=1, period="1s")})


def test_a_lua_syntax_error_is_reported(rig):
    broken = rig.write("broken.lua", "return function(state, now)\n  retrun 1\nend\n")
    assert_start_fails(rig, "broken.lua:2:", limits={"each": dict(script=broken, limit=1, period="1s")})


def test_a_script_that_fails_at_run_time_is_refused(rig):
    failing = rig.write("failing.lua", "return function(state, now) return nil + 1 end\n")
    assert_start_fails(rig, "failing.lua:1: attempt to perform arithmetic", limits={"each": dict(script=failing, limit=1, period="1s")})


def test_standalone_scripts_run_in_redis(rig):
    redis = rig.redis()
    for name in ("token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log",
                 "sliding_window_counter", "gcra"):
        script = rig.command("script", name)
        assert script.returncode == 0 and script.stdout, script
        file = rig.write(name + ".lua", script.stdout)

        def call(cost="1", now=""):
            arguments = ["redis-cli", "-s", redis.address, "--json", "--eval", file, "state-of-" + name, ",",
                         "3", "60000000", "3", cost, "0", "", "", now]
            answer = subprocess.run(arguments, capture_output=True, text=True, timeout=20)
            assert answer.returncode == 0, answer
            return json.loads(answer.stdout)
        granted = [call()[0] for _ in range(4)]
        assert granted == [1, 1, 1, 0], (name, granted)
        last = call()
        assert last[1] == 0 and 0 < last[2] <= last[3] <= 120000000, (name, last)


def test_script_with_an_unknown_name(rig):
    for name in ("no_such_thing", "driver"):
        result = rig.command("script", name)
        assert result.returncode == 1 and name in result.stderr and "use one of token_bucket, " in result.stderr, result


def test_check_warns_about_a_redis_that_evicts_keys(rig):
    redis = rig.redis()
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    policy = json.dumps(rig.policy(limits=LIMIT))
    for maxmemory, warned in (("100mb", True), ("0", False)):
        redis.command("CONFIG", "SET", "maxmemory", maxmemory)
        result = rig.checked(rig.write("policy.yaml", policy))
        assert result.returncode == 0 and ("maxmemory-policy is allkeys-lru" in result.stderr) == warned, result
    redis.kill()
    assert check(rig, policy).returncode == 0, "also without Redis"


def test_check_warns_about_a_redis_without_persistence(rig):
    """No warning if Redis has persistence, or if the user has no permission to query it."""
    redis = rig.redis()
    limits = {"each": dict(script="gcra", limit=1, period="1s")}
    policy = rig.write("policy.yaml", json.dumps(rig.policy(limits=limits)))

    def is_warned():
        result = rig.checked(policy)
        assert result.returncode == 0, result
        return "has no persistence" in result.stderr
    assert is_warned()
    redis.command("CONFIG", "SET", "save", "3600 1")
    assert not is_warned()
    redis.command("CONFIG", "SET", "save", "")
    redis.command("CONFIG", "SET", "appendonly", "yes")
    assert not is_warned()
    redis.command("CONFIG", "SET", "appendonly", "no")
    assert is_warned()
    redis.command("ACL", "SETUSER", "default", "-config")
    assert not is_warned()


def test_check_warns_about_an_embedded_redis_without_persistence(rig):
    limits = {"each": dict(script="gcra", limit=1, period="1s")}
    policy = rig.write("policy.yaml", json.dumps(rig.policy(limits=limits, redis={"address": "embedded"})))
    assert "the embedded Redis has no persistence" in rig.command("check", "-c", policy).stderr


def test_a_redis_url_with_password_and_database(rig):
    redis = rig.redis(tcp=True, arguments=["--requirepass", "a@b"])
    host, port = redis.address
    url = f"redis://:a%40b@{host}:{port}/3"
    weir = rig.weir(limits={"each": dict(script="gcra", limit=1, period="1d")}, redis={"address": url})
    weir.wait_for_redis()
    assert [get(weir.address).status for _ in range(2)] == [200, 429]
    assert "a@b" not in weir.output() and "a%40b" not in weir.output()


def test_check_warns_about_an_unwritable_log_file(rig):
    for file, warned in (("stderr", False), (os.path.join(rig.directory, "new.log"), False), ("/nowhere/weir.log", True), (rig.directory, True)):
        result = check(rig, json.dumps(rig.policy(limits=LIMIT, log={"file": file})))
        assert result.returncode == 0 and ("cannot be written" in result.stderr) == warned, result
    assert not os.path.exists(os.path.join(rig.directory, "new.log"))


def redis_servers_of(weir):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{entry}/cmdline", "rb") as command:
                    name = os.path.basename(re.split(rb"[\0 ]", command.read())[0])
                if int(fields[1]) == weir.pid and name.startswith(redis_program.encode()):
                    found.append(int(entry))
            except OSError:
                pass
    return found


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_embedded_redis(rig):
    weir = rig.weir(redis={"address": "embedded"}, limits=LIMIT).wait_for_redis()
    assert count(flood(weir.address, 10, connections=4)) == {200: 3, 429: 7}
    (server,) = redis_servers_of(weir)
    weir.signal(signal.SIGTERM)
    assert weir.wait() == 0
    assert not is_running(server)


def test_embedded_redis_exits_with_weir_even_after_sigkill(rig):
    weir = rig.weir(redis={"address": "embedded"}, limits=LIMIT)
    (server,) = redis_servers_of(weir)
    weir.expected_exit = -signal.SIGKILL
    weir.kill()
    eventually(lambda: not is_running(server), what="the embedded Redis to exit")
    # weir could not remove the directory
    shutil.rmtree(re.search(r"embedded Redis: .* in (\S+)$", weir.output(), re.M)[1])


def test_embedded_redis_is_restarted_after_a_crash(rig):
    weir = rig.weir(redis={"address": "embedded", "on_failure": "allow", "timeout": "200ms"}, limits=LIMIT)
    weir.expect_errors("[Rr]edis")
    (server,) = redis_servers_of(weir)
    os.kill(server, signal.SIGKILL)
    eventually(lambda: redis_servers_of(weir) not in ([], [server]), 15, "a new redis-server")
    eventually(lambda: "x-ratelimit-limit" in get(weir.address).names(), 15, "decisions by the new redis-server")


def test_the_sample_policy_is_valid(rig):
    sample = os.path.join(os.path.dirname(os.environ["WEIR_LUA_DIR"]), "conf", "weir.yaml")
    result = subprocess.run([weir_program, "check", "-c", sample], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
