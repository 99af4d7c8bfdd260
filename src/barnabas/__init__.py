"""Barnabas: a streaming platform in Python that speaks the wire protocol of Apache Kafka.

The names in `__all__` are the public API. They are imported on first use, so that `import barnabas` stays fast. The
pytest plugin and `barnabas.spark` are public too. All other modules are private: they may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas import compiled

if TYPE_CHECKING:
    from barnabas.api.admin import Admin
    from barnabas.api.client import Client
    from barnabas.api.consumer import Consumer
    from barnabas.api.group_consumer import GroupConsumer
    from barnabas.api.producer import Delivery, Producer, RecordMetadata
    from barnabas.client.cluster import Unreachable
    from barnabas.client.config_admin import ConfigEntry
    from barnabas.client.consumer import ConsumedRecord
    from barnabas.client.group_admin import GroupView, MemberView
    from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
    from barnabas.cluster.local import LocalCluster
    from barnabas.errors import ApiError, BarnabasError, ClientClosed, ConfigError, ErrorCode
    from barnabas.model import TopicPartition

__all__ = [
    "Admin",
    "ApiError",
    "BarnabasError",
    "BrokerView",
    "Client",
    "ClientClosed",
    "ClusterView",
    "ConfigEntry",
    "ConfigError",
    "ConsumedRecord",
    "Consumer",
    "Delivery",
    "ErrorCode",
    "GroupConsumer",
    "GroupView",
    "LocalCluster",
    "MemberView",
    "PartitionView",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "TopicView",
    "Unreachable",
]
__version__ = "0.1.0"
code_mode = compiled.control_imports(__path__[0])
"""Whether this process runs compiled or interpreted code."""

_MODULES = {
    "api.admin": ("Admin",),
    "api.client": ("Client",),
    "api.consumer": ("Consumer",),
    "api.group_consumer": ("GroupConsumer",),
    "api.producer": ("Delivery", "Producer", "RecordMetadata"),
    "client.cluster": ("Unreachable",),
    "client.config_admin": ("ConfigEntry",),
    "client.consumer": ("ConsumedRecord",),
    "client.group_admin": ("GroupView", "MemberView"),
    "client.view": ("BrokerView", "ClusterView", "PartitionView", "TopicView"),
    "cluster.local": ("LocalCluster",),
    "errors": ("ApiError", "BarnabasError", "ClientClosed", "ConfigError", "ErrorCode"),
    "model": ("TopicPartition",),
}
"""The public names by module. `tests/unit/api` compares them with `__all__`."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            found = globals()[name] = getattr(import_module(f"barnabas.{module}"), name)
            return found
    raise AttributeError(f"module 'barnabas' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
