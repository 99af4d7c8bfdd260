"""Topics as Spark sources and sinks, and `session()`, which starts Spark.

Importing this package does not import Spark: `barnabas.spark.session` is loaded on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.launcher import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    if name == "session":
        from barnabas.spark.launcher import session

        return session
    raise AttributeError(f"module 'barnabas.spark' has no attribute '{name}'")
