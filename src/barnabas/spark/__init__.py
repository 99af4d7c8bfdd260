"""Topics as Spark sources and sinks, `session()`, which starts Spark, and `expect()`, which splits off invalid rows.

Importing this package does not import Spark: its names are loaded on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.expectations import expect
    from barnabas.spark.launcher import session

__all__ = ["expect", "session"]


def __getattr__(name: str) -> Any:
    if name == "session":
        from barnabas.spark.launcher import session

        return session
    if name == "expect":
        from barnabas.spark.expectations import expect

        return expect
    raise AttributeError(f"module 'barnabas.spark' has no attribute '{name}'")
