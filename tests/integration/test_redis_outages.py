"""Log lines about Redis outages: one when an outage starts, and one with the true duration when all
workers are connected again."""

import re
import signal
import time

from rig import eventually, read_reply, timeout
from wire import connect, get

MANY = {"many": dict(script="gcra", limit=1000000, period="1h", lease="off")}
AGAIN = r"redis \S+: available again after ([\d.]+) s"


def weir_with(rig, workers=4, wait=True, **redis):
    weir = rig.weir(workers=workers, wait=wait, limits=MANY, redis={"on_failure": "allow", "timeout": "100ms", **redis})
    weir.expect_errors("^redis ")
    return weir


def lines(weir):
    """[level, message] of the log lines about Redis, without debug lines."""
    return [[level, message] for level, message in weir.log() if message.startswith("redis ") and level != "debug"]


def assert_errors_and_ends_alternate(weir, times):
    """One error line and one end line per outage, and no other lines."""
    assert [level for level, _ in lines(weir)] == ["error", "info"] * times, lines(weir)
    assert all("limits follow on_failure" in m for level, m in lines(weir) if level == "error")


def test_each_of_several_outages_without_traffic_has_two_lines(rig):
    """No calls are made meanwhile, so no reply shows that Redis is back."""
    weir = weir_with(rig)
    took = []
    for number in range(3):
        began = time.monotonic()
        rig.redis().kill()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
        time.sleep(0.3 * number)  # outages of different lengths
        rig.redis().start()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 4)
        weir.wait_for_output(AGAIN, count=number + 1)
        took.append((0.3 * number, time.monotonic() - began))
    assert_errors_and_ends_alternate(weir, 3)
    durations = [float(t) for t in weir.wait_for_output(AGAIN)]
    for (least, most), seconds in zip(took, durations):
        assert least - 0.1 <= seconds <= most + 0.1, (took, durations)


def first_connection(redis):
    """Connects to a Redis that has just started, before weir uses all connections."""
    def taken():
        try:
            connection = connect(redis.address)
            connection.sendall(b"*1\r\n$4\r\nPING\r\n")
            return read_reply(connection.makefile("rb")) == "PONG" and connection
        except (RuntimeError, OSError):
            return None
    return eventually(taken, what="the test's own connection")


def test_an_outage_ends_when_the_last_worker_has_reconnected(rig):
    """Redis first accepts five connections, one of them the test's, so at least one of five workers
    reconnects later."""
    weir = weir_with(rig, workers=5)
    redis = rig.redis()
    redis.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    redis.arguments += ["--maxclients", "5"]
    redis.is_up = lambda: True
    weir.signal(signal.SIGSTOP)
    redis.start()
    with first_connection(redis) as place:
        weir.signal(signal.SIGCONT)
        # the main thread has two connections
        eventually(lambda: weir.metric("weir_redis_ready_workers") >= 2)
        began = time.monotonic()
        # longer than a connection must stay READY to count as stable
        while time.monotonic() - began < 2.5:
            get(weir.address)
            time.sleep(0.05)
        assert weir.metric("weir_redis_ready_workers") < 5
        assert not re.search(AGAIN, weir.output()), lines(weir)
        place.sendall(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$10\r\nmaxclients\r\n$3\r\n100\r\n")
        assert read_reply(place.makefile("rb")) == "OK"
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 5)
    seconds = float(weir.wait_for_output(AGAIN)[0])
    assert seconds >= 2.5, "from the first disconnected worker to the last reconnected one"
    levels = [level for level, _ in lines(weir)]
    assert levels.count("error") == 1 and levels.count("info") == 1 and levels[-1] == "info", lines(weir)
    assert all("still unavailable after" in m for level, m in lines(weir) if level == "warn"), lines(weir)


def test_an_unstable_connection_is_one_outage(rig):
    weir = weir_with(rig, workers=2)
    for _ in range(6):
        rig.redis().command("CLIENT", "KILL", "TYPE", "normal")
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 2)

    def ended():
        levels = [level for level, _ in lines(weir)]
        return levels and levels.count("error") == levels.count("info") and lines(weir)
    durations = eventually(ended, what="the end of each outage")
    # If the machine stalls for a second in between, it can be two outages.
    assert len(durations) <= 4 and [level for level, _ in durations] == ["error", "info"] * (len(durations) // 2), durations


def test_the_shortest_outage_has_a_duration(rig):
    weir = weir_with(rig, workers=1)
    rig.redis().command("CLIENT", "KILL", "TYPE", "normal")
    weir.wait_for_output(AGAIN + ", and stable since")
    assert float(weir.wait_for_output(AGAIN)[0]) > 0.02, lines(weir)


def test_a_frozen_redis_with_little_traffic(rig):
    weir = weir_with(rig, workers=2)
    for number in range(2):
        rig.redis().freeze()
        began = time.monotonic()

        def is_down():
            get(weir.address)
            return weir.metric("weir_redis_ready_workers") == 0
        eventually(is_down, what="both workers to notice")
        # weir gives up the connection and a new one gets no reply: all of that is one outage
        time.sleep(2.5)
        rig.redis().thaw()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 2)
        durations = [float(t) for t in weir.wait_for_output(AGAIN, count=number + 1)]
        most = time.monotonic() - began
        assert 2.5 <= durations[number] <= most + 0.1, (durations, most)
    assert_errors_and_ends_alternate(weir, 2)


def test_a_reload_during_an_outage_is_part_of_it(rig):
    weir = weir_with(rig, workers=2)
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    weir.reload(limits={"many": {**MANY["many"], "limit": 999999}})
    assert [level for level, _ in lines(weir)] == ["error"], lines(weir)
    rig.redis().start()
    weir.wait_for_output(AGAIN)
    assert_errors_and_ends_alternate(weir, 1)


@timeout(120)
def test_rejected_calls_on_a_stable_connection(rig):
    """The connection stays up. An error line must be followed by a line about its end."""
    weir = weir_with(rig, workers=2, timeout="5s")
    redis = rig.redis()
    redis.command("CONFIG", "SET", "maxmemory", "1")
    for _ in range(20):
        get(weir.address)
    weir.wait_for_output(r"error redis \S+: Redis is out of memory: .*on_failure applies to such requests; raise maxmemory in Redis")
    redis.command("CONFIG", "SET", "maxmemory", "0")

    def errors_ended():
        get(weir.address)
        return re.findall(r"info +redis \S+: calls succeed again after ([\d.]+) s of errors", weir.output())
    assert float(eventually(errors_ended, 30)[0]) < 10
    assert [level for level, _ in lines(weir)] == ["error", "info"], lines(weir)


def test_a_reload_with_the_right_password_ends_the_outage(rig):
    """Connections with the wrong password are never ready. They end with the old policy."""
    rig.redis().command("CONFIG", "SET", "requirepass", "right")
    weir = weir_with(rig, workers=2, wait="listening", password="wrong")
    weir.wait_for_output(r"error redis \S+: the login was refused")
    weir.reload(redis={**weir.policy["redis"], "password": "right"})
    weir.wait_for_output(AGAIN)
    assert_errors_and_ends_alternate(weir, 1)


def test_another_cause_during_an_outage_is_logged(rig):
    weir = weir_with(rig, workers=2, wait="listening", password="right")
    # The test's Redis has no password, so authentication fails. Then Redis is killed, perhaps during
    # another login.
    weir.wait_for_output(r"error redis \S+: the login was refused")
    rig.redis().kill()
    weir.wait_for_output(r"warn +redis \S+: still unavailable after [\d.]+ s: (could not connect|the connection was lost)")
    assert [level for level, _ in lines(weir)] == ["error", "warn"], lines(weir)
