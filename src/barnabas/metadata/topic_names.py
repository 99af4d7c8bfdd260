"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ApiError, ErrorCode

LENGTH_MAX = 249  # a directory is named <topic>-<partition>, and file names end at 255
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


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


def colliding(name: str, existing: Iterable[str]) -> list[str]:
    """Existing topics whose metric names would be the same: '.' and '_' are one there."""
    if "." not in name and "_" not in name:
        return []
    flat = name.replace(".", "_")
    return sorted(other for other in existing if other.replace(".", "_") == flat)
