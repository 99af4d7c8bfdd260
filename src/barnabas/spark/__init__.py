"""Topics as Spark sources and sinks, and the session everything of ours runs in.

Importing this package imports no Spark: `barnabas.spark.session` is fetched when it is asked for.
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
