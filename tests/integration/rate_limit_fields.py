"""Reads the fields RateLimit and RateLimit-Policy, and the table of all fields in the documents."""

import os
import re

from rig import top

KINDS = "bucket", "window", "concurrency"


def items(field):
    """The members of a structured-field list of strings with integer parameters: {name: {parameter:
    number}}."""
    members = {}
    for member in re.split(r",\s*(?=\")", field):
        name, *parameters = member.split(";")
        members[name.strip('"')] = {k: int(v) if v.isdigit() else v for k, v in (p.split("=") for p in parameters)}
    return members


def documented():
    """The table in README.md: {field: {kind of limit: text}}. The manual page must have the same."""
    with open(os.path.join(top, "README.md"), encoding="utf-8") as readme:
        rows = re.findall(r"^\| `((?:X-Rate|RateLimit|Retry)[\w-]*)` \| (.*) \|$", readme.read(), re.M)
    table = {field: dict(zip(KINDS, cells.replace("`", "").split(" | "))) for field, cells in rows}
    with open(os.path.join(top, "man", "weir.yaml.5"), encoding="utf-8") as manual:
        page = manual.read()
    for field, cells in table.items():
        entry = f".It Li {field}\n" + ";\n".join(f"{kind}: {cells[kind]}" for kind in KINDS) + "\n"
        assert entry in page, f"the manual page lacks:\n{entry}"
    return table


def parameters(cell):
    """Those of a structured field in the table: {"q": "burst", "w": ...}."""
    return dict(part.split(": ", 1) for part in cell.split("; "))
