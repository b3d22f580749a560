"""What the log says of Redis' outages: a line for each that begins and one when all workers are back, with its true duration."""

import re
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
    """[level, message] of every line about Redis but those of debugging."""
    return [[level, message] for level, message in weir.log() if message.startswith("redis ") and level != "debug"]


def alternate(weir, times):
    """An error and the end of it, in turn, and nothing else."""
    assert [level for level, _ in lines(weir)] == ["error", "info"] * times, lines(weir)
    assert all("limits follow on_failure" in m for level, m in lines(weir) if level == "error")


def test_each_of_several_outages_without_traffic_has_its_two_lines(rig):
    """Nothing is asked of Redis meanwhile: no answer of a call tells that it is back."""
    weir = weir_with(rig)
    took = []
    for number in range(3):
        began = time.monotonic()
        rig.redis().kill()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
        time.sleep(0.3 * number)  # outages of different lengths
        rig.redis().start()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 4)
        took.append((0.3 * number, time.monotonic() - began))
        weir.wait_for_output(AGAIN, count=number + 1)
    alternate(weir, 3)
    told = [float(t) for t in weir.wait_for_output(AGAIN)]
    for (least, most), seconds in zip(took, told):
        assert least - 0.1 <= seconds <= most + 0.1, (took, told)


def first_place(redis):
    """A connection to a Redis that has just started, before weir has taken all places."""
    def taken():
        try:
            connection = connect(redis.address)
            connection.sendall(b"*1\r\n$4\r\nPING\r\n")
            return read_reply(connection.makefile("rb")) == "PONG" and connection
        except (RuntimeError, OSError):
            return None
    return eventually(taken, what="a place for the test's own connection")


def test_it_is_over_when_the_last_worker_is_back(rig):
    """Redis takes five connections at first, one of them the test's, so that of five workers one at least comes back later."""
    weir = weir_with(rig, workers=5)
    redis = rig.redis()
    redis.kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    redis.arguments += ["--maxclients", "5"]
    redis.is_up = lambda: True
    redis.start()
    with first_place(redis) as place:
        eventually(lambda: weir.metric("weir_redis_ready_workers") >= 2)  # the main thread has two connections of its own
        began = time.monotonic()
        while time.monotonic() - began < 2.5:  # longer than a link is READY before it counts as good
            get(weir.address)
            time.sleep(0.05)
        assert weir.metric("weir_redis_ready_workers") < 5
        assert not re.search(AGAIN, weir.output()), lines(weir)
        place.sendall(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$10\r\nmaxclients\r\n$3\r\n100\r\n")
        assert read_reply(place.makefile("rb")) == "OK"
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 5)
    seconds = float(weir.wait_for_output(AGAIN)[0])
    assert seconds >= 2.5, "from the first worker that lost it to the last that is back"
    levels = [level for level, _ in lines(weir)]
    assert levels.count("error") == 1 and levels.count("info") == 1 and levels[-1] == "info", lines(weir)
    assert all("still unavailable after" in m for level, m in lines(weir) if level == "warn"), lines(weir)


def test_a_connection_that_flaps_is_one_outage(rig):
    weir = weir_with(rig, workers=2)
    for _ in range(6):
        rig.redis().command("CLIENT", "KILL", "TYPE", "normal")
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 2)
    weir.wait_for_output(AGAIN)
    told = lines(weir)
    # On a machine that stands still for a second between two of them it may be two.
    assert len(told) <= 4 and [level for level, _ in told] == ["error", "info"] * (len(told) // 2), told


def test_a_frozen_redis_with_little_traffic(rig):
    weir = weir_with(rig, workers=2)
    for number in range(2):
        rig.redis().freeze()
        began = time.monotonic()

        def away():
            get(weir.address)
            return weir.metric("weir_redis_ready_workers") == 0
        eventually(away, what="both workers know")
        time.sleep(2.5)  # the connection is given up, and a new one is not answered: all of that is one outage
        rig.redis().thaw()
        eventually(lambda: weir.metric("weir_redis_ready_workers") == 2)
        most = time.monotonic() - began
        told = [float(t) for t in weir.wait_for_output(AGAIN, count=number + 1)]
        assert 2.5 <= told[number] <= most + 0.1, (told, most)
    alternate(weir, 2)


def test_a_reload_during_an_outage_neither_ends_nor_repeats_it(rig):
    weir = weir_with(rig, workers=2)
    rig.redis().kill()
    eventually(lambda: weir.metric("weir_redis_ready_workers") == 0)
    weir.reload(limits={"many": {**MANY["many"], "limit": 999999}})
    assert [level for level, _ in lines(weir)] == ["error"], lines(weir)
    rig.redis().start()
    weir.wait_for_output(AGAIN)
    alternate(weir, 1)


@timeout(120)
def test_calls_that_are_refused_and_no_more(rig):
    """The connection is good all the while: what begins with an error line has to end with another line."""
    weir = weir_with(rig, workers=2)
    redis = rig.redis()
    redis.command("CONFIG", "SET", "maxmemory", "1")
    for _ in range(20):
        get(weir.address)
    weir.wait_for_output(r"error redis \S+: Redis is out of memory: .*on_failure applies to such requests; raise maxmemory in Redis")
    redis.command("CONFIG", "SET", "maxmemory", "0")

    def over():
        get(weir.address)
        return re.findall(r"info +redis \S+: calls succeed again after ([\d.]+) s of errors", weir.output())
    assert float(eventually(over, 30)[0]) < 10
    assert [level for level, _ in lines(weir)] == ["error", "info"], lines(weir)


def test_a_reload_that_mends_the_password_ends_the_outage(rig):
    """The connections with the wrong one are never good: they go with the policy before."""
    rig.redis().command("CONFIG", "SET", "requirepass", "right")
    weir = weir_with(rig, workers=2, wait="listening", password="wrong")
    weir.wait_for_output(r"error redis \S+: the login was refused")
    weir.reload(redis={**weir.policy["redis"], "password": "right"})
    weir.wait_for_output(AGAIN)
    alternate(weir, 1)


def test_another_cause_is_told_in_the_same_outage(rig):
    weir = weir_with(rig, workers=2, wait="listening", password="right")
    # The test's Redis has no password: the login is refused. Then it dies.
    weir.wait_for_output(r"error redis \S+: the login was refused")
    rig.redis().kill()
    weir.wait_for_output(r"warn +redis \S+: still unavailable after [\d.]+ s: could not connect")
    assert [level for level, _ in lines(weir)] == ["error", "warn"], lines(weir)
