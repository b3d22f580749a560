"""One Idempotency-Key makes a bounded number of repeats of one request free, and nothing else."""

from rig import eventually
from wire import Connection, get, request_bytes


def post(connection, path, key="x", method="POST"):
    """Sends the bytes of the attack."""
    connection.send(f"{method} {path} HTTP/1.1\r\nHost: api.test\r\nIdempotency-Key: {key}\r\nContent-Length: 2\r\n\r\nhi".encode())
    return connection.response()


def limited(rig, **more):
    limits = {"orders": dict(script="fixed_window", limit=5, period="1d", **more)}
    return rig.weir(limits=limits, workers=1)


def test_a_key_does_not_make_other_requests_free(rig):
    for dedup in "Idempotency-Key", {"header": "Idempotency-Key"}, {"header": "Idempotency-Key", "repeats": 1000}:
        rig.redis().command("FLUSHALL")
        weir = limited(rig, dedup=dedup)
        with Connection(weir.address) as connection:
            statuses = [post(connection, f"/orders/{number}").status for number in range(40)]
        assert statuses == [200] * 5 + [429] * 35, statuses


def test_a_repeat_has_the_same_method_and_path_but_any_query(rig):
    weir = limited(rig, dedup={"header": "Idempotency-Key"})
    with Connection(weir.address) as connection:
        seen = [post(connection, path, method=method)["X-RateLimit-Remaining"] for path, method in [
            ("/a", "POST"), ("/a", "POST"), ("/a", "PUT"), ("/a?b", "POST"), ("/a/", "POST"), ("/A", "POST"), ("/a", "PUT"), ("/%61", "POST")]]
    assert seen == ["4", "4", "3", "4", "2", "1", "3", "0"], seen


def test_repeats_are_separate_per_client_and_host(rig):
    weir = limited(rig, per="all", dedup={"header": "Idempotency-Key"})
    seen = []
    with Connection(weir.address) as connection:
        for client, host in ("a", "x.test"), ("a", "x.test"), ("b", "x.test"), ("a", "y.test"), ("b", "x.test"):
            connection.send(request_bytes("/orders", "POST", {"Idempotency-Key": "x", "X-Client-Id": client}, b"hi", host=host))
            seen.append(connection.response()["X-RateLimit-Remaining"])
    assert seen == ["4", "4", "3", "2", "3"], seen


def test_the_number_of_repeats_is_limited(rig):
    for dedup, repeats in ("Idempotency-Key", 10), ({"header": "Idempotency-Key"}, 10), ({"header": "Idempotency-Key", "repeats": 2}, 2):
        rig.redis().command("FLUSHALL")
        weir = limited(rig, dedup=dedup)
        with Connection(weir.address) as connection:
            statuses = [post(connection, "/orders").status for _ in range(5 * (repeats + 1) + 5)]
        assert statuses == [200] * 5 * (repeats + 1) + [429] * 5, statuses


def test_a_repeat_shows_the_current_reset_time(rig):
    weir = rig.weir(limits={"short": dict(script="gcra", limit=1, period="1h", dedup={"header": "Idempotency-Key", "repeats": 1000})}, workers=1)
    key = {"Idempotency-Key": "x"}
    first = get(weir.address, headers=key)
    assert (first.status, first.number("X-RateLimit-Reset")) == (200, 3600)
    resets = []

    def repeat():
        answer = get(weir.address, headers={**key, "X-Filler": "y"})
        assert answer.status == 200
        resets.append(answer.number("X-RateLimit-Reset"))
        return resets[-1] < 3600
    eventually(repeat, what="a lower reset time")
    assert resets == sorted(resets, reverse=True), resets
