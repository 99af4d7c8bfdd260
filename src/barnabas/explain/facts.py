"""Facts about a cluster, from metadata, brokers, registry and history. Immutable; the rules read nothing else.

Every part but the metadata is optional. A rule that needs a missing fact finds nothing, or names a more general cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from barnabas.client.view import ClusterView
from barnabas.explain.history_facts import HistoryFacts
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import TopicPartition

FULL_BYTES = 1 << 20
"""A log directory with less free space is full: it may not have room for one batch."""


class LogDirFacts(Struct, frozen=True, kw_only=True):
    """A log directory of a broker. `usable_bytes` is -1 if unknown."""

    path: str
    is_failed: bool = False
    usable_bytes: int = -1

    @property
    def is_full(self) -> bool:
        return 0 <= self.usable_bytes < FULL_BYTES


class Probe(Struct, frozen=True, kw_only=True):
    """Result of a request to a registered broker. `error` is the reason if it does not respond."""

    is_responding: bool
    is_refused: bool = False
    """Nothing listens at the broker's address."""
    error: str = ""
    log_dirs: tuple[LogDirFacts, ...] = ()


class TopicSettings(Struct, frozen=True, kw_only=True):
    min_insync_replicas: int = 1
    throttled_followers: str = ""
    """follower.replication.throttled.replicas: `*`, or `partition:broker,…`."""
    throttled_leaders: str = ""
    """leader.replication.throttled.replicas, in the same format."""


def parse_topic_settings(values: Mapping[str, str | None]) -> TopicSettings:
    minimum = values.get("min.insync.replicas") or ""
    return TopicSettings(
        min_insync_replicas=int(minimum) if minimum.isdigit() else 1,
        throttled_followers=values.get("follower.replication.throttled.replicas") or "",
        throttled_leaders=values.get("leader.replication.throttled.replicas") or "",
    )


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Settings of the controller that decide what happens without a request."""

    is_rebalance_enabled: bool = True
    imbalance_percentage: int = 10
    imbalance_check_s: int = 300
    is_delete_enabled: bool = True
    offsets_replication_factor: int = 1
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    """follower.replication.throttled.rate in bytes per second, of brokers that have one."""
    leader_rates: Mapping[int, int] = field(default_factory=dict)
    """leader.replication.throttled.rate, likewise."""


class ControllerQueue(StrEnum):
    """Whether the controller handles events: a request through its queue was answered, or not in time."""

    UNKNOWN = "unknown"
    WORKING = "working"
    STUCK = "stuck"


class RegistryFacts(Struct, frozen=True, kw_only=True):
    """State in the registry. Times are in milliseconds."""

    name: str
    """`the registry in DIR`, or `the ZooKeeper at HOST:PORT`."""
    cluster_id: str | None = None
    controller: int | None = None
    brokers: Mapping[int, int] = field(default_factory=dict)
    """Registered broker → time of its registration."""
    topics: Mapping[str, TopicAssignment] = field(default_factory=dict)
    """Topics that are explained, moved, deleted or not in the metadata."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Topic marked for deletion → time of the mark."""
    requested_moves: frozenset[TopicPartition] = frozenset()
    """Partitions in /admin/reassign_partitions."""
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Topic whose znode cannot be decoded → the reason."""


class OpenTransactionFacts(Struct, frozen=True, kw_only=True):
    """The oldest open transaction of a partition. The last fields are empty if no coordinator has the transaction."""

    start_offset: int
    waiting: int
    """Offsets from there to the high watermark."""
    producer_id: int
    last_record_ms: int
    transactional_id: str | None = None
    state: str = ""
    start_ms: int | None = None
    timeout_ms: int = 0


class ClusterFacts(Struct, frozen=True, kw_only=True):
    """All facts. `ends` has the log end offset of each replica (partition and broker) that reported one."""

    now_ms: int
    view: ClusterView
    probes: Mapping[int, Probe] = field(default_factory=dict)
    topic_settings: Mapping[str, TopicSettings] = field(default_factory=dict)
    settings: ClusterSettings = ClusterSettings()
    queue: ControllerQueue = ControllerQueue.UNKNOWN
    reassignments: Mapping[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    ends: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)
    transactions: Mapping[TopicPartition, OpenTransactionFacts] = field(default_factory=dict)
    """Open transactions of the topics that are explained by name."""
    registry: RegistryFacts | None = None
    registry_error: str | None = None
    """Why the registry cannot be read, if it should be readable: its ZooKeeper does not answer."""
    is_registry_lost: bool = False
    """The brokers do not answer requests that need the registry either."""
    registry_name: str = ""
    start_commands: Mapping[int, str] = field(default_factory=dict)
    """Broker that is not registered → command that starts it, if its properties file is on this machine."""
    history: HistoryFacts = HistoryFacts()

    def is_registered(self, broker: int) -> bool:
        """Whether the broker is registered. Without a controller, the metadata keeps brokers that are gone."""
        if self.registry is not None and broker not in self.registry.brokers:
            return False
        return broker in self.view.brokers

    def is_silent(self, broker: int) -> bool:
        """Whether a registered broker does not respond."""
        probe = self.probes.get(broker)
        return self.is_registered(broker) and probe is not None and not probe.is_responding

    def is_led_by_silent_broker(self, partition: TopicPartition) -> bool:
        return self.is_silent(self.view.partition(partition).leader)

    def failed_dirs(self, broker: int) -> list[str]:
        probe = self.probes.get(broker)
        return [] if probe is None else [each.path for each in probe.log_dirs if each.is_failed]

    def full_dirs(self, broker: int) -> list[str]:
        probe = self.probes.get(broker)
        return [] if probe is None else [each.path for each in probe.log_dirs if each.is_full]

    @property
    def controller(self) -> int | None:
        """The controller; None if there is none, or if its broker is not registered."""
        found = self.view.controller if self.registry is None else self.registry.controller
        return found if found is not None and self.is_registered(found) else None
