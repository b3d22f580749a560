"""The Debian package, the container file and the shell completion match the source."""

import os
import re

from rig import top


def read(*path):
    with open(os.path.join(top, *path), encoding="utf-8") as file:
        return file.read()


def test_build_dependencies_are_listed_everywhere(rig):
    needed = re.search(r"need_for_building\(\) \{\s+need (.*)", read("tests/support/build.sh"))[1].split()
    libraries = {package for package in needed if re.fullmatch(r"(lib|zlib).*-dev", package)} - {"libc6-dev"}
    assert len(libraries) >= 7
    for path in ("debian", "control"), ("Containerfile",), ("README.md",):
        text = read(*path)
        assert not [library for library in libraries if not re.search(rf"\b{library}\b", text)], path


def test_the_version_is_the_same_everywhere(rig):
    version = re.search(r"AC_INIT\(\[weir\], \[([\d.]+)\]\)", read("configure.ac"))[1]
    assert re.match(rf"weir \({re.escape(version)}\)", read("debian/changelog"))
    assert re.search(rf"^## {re.escape(version)}\b", read("CHANGELOG.md"), re.M)
    assert f"weir_{version}_" in read("README.md")
    assert rig.command("--version").stdout.startswith(f"weir {version}\n")


def test_a_reload_by_an_older_systemd_reaches_weir(rig):
    """A failed command ends a reload: with the check first, weir would not know of the error."""
    reload = re.findall(r"^ExecReload=(.*)", read("systemd/weir.service.in"), re.M)
    assert "kill -HUP" in reload[0] and "weir check" in reload[1], reload


def test_the_installed_manual_names_the_files_that_the_unit_reads(rig):
    unit = re.findall(r"@sysconfdir@(/\S+)", read("systemd/weir.service.in"))
    replaced = re.findall(r"-e 's\|(/etc/\S+?)\|\$\(sysconfdir\)(\S+?)\|g'", read("Makefile.am"))
    named = set(re.findall(r"(?<![\w/])/etc/[\w./]+(?<!\.)", read("man", "weir.8")))
    assert all("/etc" + path in named for path in set(unit)), (unit, named)
    for path in named:
        assert any(path.startswith(old) and old == "/etc" + new for old, new in replaced), (path, replaced)


def test_the_completion_contains_every_command_and_option(rig):
    usage = set(re.findall(r"^ +weir ([a-z]+)", rig.command("--help").stdout, re.M))
    completion = read("contrib/bash-completion/weir")
    completed = set(re.search(r"commands='([^']*)'", completion)[1].split())
    assert usage == completed and len(usage) >= 5, usage ^ completed
    for command in "replay", "test", "explain", "top":
        options = re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", rig.command(command, "--help").stdout)
        completed = re.search(rf"\$command != {command} \]\] \|\| options='([^']*)'", completion)[1].split()
        assert set(options) == set(completed) - {"--help"}, (command, set(options) ^ set(completed))
