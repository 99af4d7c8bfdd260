"""Topic names: validation, collisions, and the internal topics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ApiError, ErrorCode

NAME_LENGTH_MAX = 249  # the directory <topic>-<partition> must fit into 255 bytes
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
STATE_CHANGES = "__state_changes"
"""The topic that the controller history is published to."""


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if the name is invalid."""
    why = topic_name_error(name)
    if why is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def topic_name_error(name: str) -> str | None:
    """Return why a topic name is invalid, or None if it is valid."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named '{name}'"
    if len(name) > NAME_LENGTH_MAX:
        return f"the name has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed"
    if LEGAL_NAME.fullmatch(name) is None:
        return f"'{name}' may contain only letters, digits, '.', '_' and '-'"
    return None


class TakenNames:
    """Names of existing topics. Names collide if they differ only in '.' and '_': metric names have '_' for both."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: dict[str, None] = {}
        self.by_metric_name: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def add(self, name: str) -> None:
        if name not in self.names:
            self.names[name] = None
            self.by_metric_name.setdefault(name.replace(".", "_"), []).append(name)

    def colliding_with(self, name: str) -> list[str]:
        """Return the existing names that collide with `name`, sorted."""
        if "." not in name and "_" not in name:
            return []
        return sorted(self.by_metric_name.get(name.replace(".", "_"), ()))
