"""Request handlers, one module per API: ApiKey.ELECT_LEADERS is handled by `elect_leaders.handle`.

Several handlers share controller_queue, current_leader and registry_offsets. A handler is imported on first access, so
that a broker does not load handlers that it never needs.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = [
    "alter_partition",
    "api_versions",
    "controlled_shutdown",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "elect_leaders",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "init_producer_id",
    "join_group",
    "leader_and_isr",
    "leave_group",
    "list_groups",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "stop_replica",
    "sync_group",
    "update_metadata",
]

if TYPE_CHECKING:
    from barnabas.broker.handlers import (
        alter_partition,
        api_versions,
        controlled_shutdown,
        create_partitions,
        create_topics,
        delete_groups,
        delete_records,
        delete_topics,
        describe_cluster,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        elect_leaders,
        fetch,
        find_coordinator,
        heartbeat,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_groups,
        list_offsets,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        stop_replica,
        sync_group,
        update_metadata,
    )
else:

    def __getattr__(name: str) -> ModuleType:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
