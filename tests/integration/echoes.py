"""Reads requests back as the upstream received them."""

import json

from wire import get


def echo(address, *arguments, **more):
    response = get(address, "/echo", *arguments, **more)
    assert response.status == 200, response
    return json.loads(response.body)


def fields_of(echoed, name):
    return [value for n, value in echoed["fields"] if n.lower() == name.lower()]
