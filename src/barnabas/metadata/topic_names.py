"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ApiError, ErrorCode

LENGTH_MAX = 249  # a directory is named <topic>-<partition>, and file names end at 255
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
STATE_CHANGES = "__state_changes"
"""The topic the history of the controllers is published to."""


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, with the reason, unless this could name a topic."""
    why = what_is_wrong_with(name)
    if why is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def what_is_wrong_with(name: str) -> str | None:
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named '{name}'"
    if len(name) > LENGTH_MAX:
        return f"the name has {len(name)} characters; at most {LENGTH_MAX} are allowed"
    if LEGAL.fullmatch(name) is None:
        return f"'{name}' may contain only letters, digits, '.', '_' and '-'"
    return None


class TakenNames:
    """Names of topics that exist, and who of them looks alike: in the names of metrics '.' and '_' are one."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: dict[str, None] = {}
        self.alike: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def add(self, name: str) -> None:
        if name not in self.names:
            self.names[name] = None
            self.alike.setdefault(name.replace(".", "_"), []).append(name)

    def colliding_with(self, name: str) -> list[str]:
        if "." not in name and "_" not in name:
            return []
        return sorted(self.alike.get(name.replace(".", "_"), ()))
