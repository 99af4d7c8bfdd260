"""Barnabas: a streaming platform in Python that speaks the wire protocol of Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas import compiled

if TYPE_CHECKING:
    from barnabas.cluster.local import LocalCluster

__all__ = ["LocalCluster"]
__version__ = "0.1.0"
code_mode = compiled.control_imports(__path__[0])
"""Whether this process runs compiled or interpreted code."""


def __getattr__(name: str) -> Any:
    """Import LocalCluster on first use, so that `import barnabas` alone stays fast."""
    if name == "LocalCluster":
        from barnabas.cluster.local import LocalCluster

        return LocalCluster
    raise AttributeError(f"module 'barnabas' has no attribute '{name}'")
