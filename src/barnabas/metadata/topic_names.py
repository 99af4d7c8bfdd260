"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ApiError, ErrorCode

LENGTH_MAX = 249  # a directory is named <topic>-<partition>, and file names end at 255
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, with the reason, unless this could name a topic."""
    if not name:
        why = "a topic name cannot be empty"
    elif name in (".", ".."):
        why = f"a topic cannot be named '{name}'"
    elif len(name) > LENGTH_MAX:
        why = f"the name has {len(name)} characters; at most {LENGTH_MAX} are allowed"
    elif LEGAL.fullmatch(name) is None:
        why = f"'{name}' may contain only letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def colliding(name: str, existing: Iterable[str]) -> list[str]:
    """Existing topics whose metric names would be the same: '.' and '_' are one there."""
    if "." not in name and "_" not in name:
        return []
    flat = name.replace(".", "_")
    return sorted(other for other in existing if other.replace(".", "_") == flat)
