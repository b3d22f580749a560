"""Reads the fields RateLimit and RateLimit-Policy."""

import re


def items(field):
    """The members of a structured-field list of strings with integer parameters: {name: {parameter:
    number}}."""
    members = {}
    for member in re.split(r",\s*(?=\")", field):
        name, *parameters = member.split(";")
        members[name.strip('"')] = {k: int(v) if v.isdigit() else v for k, v in (p.split("=") for p in parameters)}
    return members
