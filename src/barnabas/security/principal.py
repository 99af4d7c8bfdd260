"""Principals: who sends a request."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A user, as in Kafka's ACLs: `User:alice`."""

    name: str
    type: str = "User"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
"""The principal of a connection without a login and without a client certificate."""


def parse_principal(text: str) -> Principal:
    """Parse `User:alice`. Raises ValueError.

    >>> parse_principal("User:CN=a,O=b:c")
    Principal(name='CN=a,O=b:c', type='User')
    """
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError(f"{text!r} is not of the form User:name")
    return Principal(name, kind)
