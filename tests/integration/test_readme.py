"""README.md is correct: its policy runs, a rejection has the documented fields, the commands work,
and all other policy fragments are valid."""

import os
import re
import shutil

from rig import free_port, top
from wire import flood, get


def page():
    with open(os.path.join(top, "README.md"), encoding="utf-8") as readme:
        return readme.read()


def policies():
    """The policy, and the fragments that follow it."""
    return re.findall(r"^```yaml\n(.*?)^```$", page(), re.M | re.S)


def with_addresses(rig, text, redis):
    for old, new in (("0.0.0.0:8080", "127.0.0.1:0"), ("127.0.0.1:9180", "127.0.0.1:0"), ("127.0.0.1:6379", f'"{redis}"'),
                     ("127.0.0.1:3000", f'"{rig.upstream().text}"')):
        assert old in text, old
        text = text.replace(old, new)
    return text


def weir_of_readme(rig):
    return rig.weir(text=with_addresses(rig, policies()[0], rig.redis().text) + "log: { access: off }\n").wait_for_redis()


def test_the_policy_and_the_rejection_in_the_readme(rig):
    weir = weir_of_readme(rig)
    shown = re.search(r"^    HTTP/1\.1 429 .*?\n\n", page(), re.M | re.S)[0]
    shown = [tuple(line.strip().split(": ", 1)) for line in shown.strip().split("\n")[1:]]
    for attempt in range(5):  # a token arrives every 0.6 s
        answers = sorted(flood(weir.address, 21, connections=21, headers={"X-Client-Id": f"client-{attempt}"}), key=lambda answer: answer.status)
        if answers[-1].status == 429:
            break
    assert [answer.status for answer in answers] == [200] * 20 + [429]
    left_out = {"date", "content-length", "x-request-id", "keep-alive", "connection"}
    fields = [(name, value) for name, value in answers[-1].fields if name.lower() not in left_out]
    # differ by a second if the requests took that long
    drifting = {"RateLimit", "X-RateLimit-Reset", "X-Rate-Limit-Reset"}
    assert [f for f in fields if f[0] not in drifting] == [f for f in shown if f[0] not in drifting], fields
    assert {name for name, _ in fields} == {name for name, _ in shown}
    assert get(weir.address, "/healthz")["RateLimit"] is None


def test_the_commands_in_the_readme(rig):
    weir = weir_of_readme(rig)
    assert get(weir.address, headers={"X-Client-Id": "client-2"})["X-Rate-Limit-Used"] == "1"
    commands = [line.split("`")[1].replace("weir.yaml", weir.policy_file).split()[1:] for line in page().splitlines()
                if line.startswith("| `weir ")]
    assert [command[0] for command in commands] == ["check", "test", "-c", "explain", "inspect", "reset", "grant", "top", "replay"]
    rig.write("access.log", '192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1\\n')
    tests = re.search(r"^    policy: weir\.yaml\n(?:    .*\n)+", page(), re.M)[0].replace("weir.yaml", weir.policy_file)
    rig.write("weir.test.yaml", tests)
    for command in commands:
        if command[0] == "top":  # the admin port of the policy is 0 here
            command = ["top", "--once", "http://{}:{}".format(*weir.admin)]
        if command[0] != "-c":
            result = rig.command(*command)
            assert result.returncode == 0, (command, result)
    assert get(weir.address, headers={"X-Client-Id": "client-2"})["X-Rate-Limit-Used"] == "1", "the counter was reset"
    for script in re.findall(r"^\| `([a-z_]+)` \|", page(), re.M):
        assert "redis.call" in rig.command("script", script).stdout, script


def keys_of(text):
    """[(top-level key, its lines)]"""
    return [(block.partition(":")[0], block) for block in re.findall(r"^\w.*\n(?:[ \t].*\n)*", text, re.M)]


def test_every_policy_fragment_is_valid(rig):
    shutil.copy(os.path.join(top, "tests", "tls", "jwks.json"), rig.directory)
    shutil.copy(os.path.join(top, "lua", "lockout.lua"), os.path.join(rig.directory, "mine.lua"))
    closed = f"127.0.0.1:{free_port()}"
    main, *fragments = policies()
    assert len(fragments) >= 9, fragments
    for number, fragment in enumerate(fragments):
        policy = dict(keys_of(with_addresses(rig, main, closed)))
        fragment = re.sub(r"127\.0\.0\.1:6379|10\.0\.0\.\d:\d+", closed, fragment).replace("api.internal:", "localhost:")
        for key, block in keys_of(fragment):
            if key == "limits":  # added to the limits of the policy, which its rules name
                block = policy[key] + block.partition("\n")[2]
            policy[key] = block
        result = rig.command("check", "-c", rig.write(f"fragment-{number}.yaml", "".join(policy.values())),
                             env={**os.environ, "WEIR_HASH_KEY": "a secret"})
        assert result.returncode == 0, f"{fragment}\n{result.stderr}"
