"""Findings: what the rules return. A finding has a cause and its facts, but no text (see text.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum, unique

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.model import TopicPartition


class Severity(IntEnum):
    """ERROR: something is unavailable. WARNING: less redundant or delayed. NOTE: not as configured, but harmless."""

    ERROR = 0
    WARNING = 1
    NOTE = 2


@unique
class Cause(StrEnum):
    """Every cause that the rules can name. The values are stable: programs read them in JSON."""

    # partitions without a leader
    NEVER_LED = "never_led"
    ALL_REPLICAS_DOWN = "all_replicas_down"
    IN_SYNC_REPLICAS_DOWN = "in_sync_replicas_down"
    IN_SYNC_LOG_DIR_FAILED = "in_sync_log_dir_failed"
    ELECTION_PENDING = "election_pending"
    LEADER_SILENT = "leader_silent"
    # partitions with too few in-sync replicas
    FOLLOWER_DOWN = "follower_down"
    FOLLOWER_STOPPED = "follower_stopped"
    FOLLOWER_NEVER_SEEN = "follower_never_seen"
    FOLLOWER_SHUTTING_DOWN = "follower_shutting_down"
    FOLLOWER_SILENT = "follower_silent"
    FOLLOWER_LOG_DIR_FAILED = "follower_log_dir_failed"
    FOLLOWER_DISK_FULL = "follower_disk_full"
    FOLLOWER_THROTTLED = "follower_throttled"
    FOLLOWER_LAGGING = "follower_lagging"
    ISR_CHANGE_PENDING = "isr_change_pending"
    BELOW_MIN_ISR = "below_min_isr"
    MIN_ISR_ABOVE_REPLICAS = "min_isr_above_replicas"
    # transactions
    TRANSACTION_OPEN = "transaction_open"
    TRANSACTION_ENDING = "transaction_ending"
    TRANSACTION_HANGING = "transaction_hanging"
    # leaders that are not the preferred replica
    PREFERRED_NOT_IN_SYNC = "preferred_not_in_sync"
    PREFERRED_REBALANCE_DISABLED = "preferred_rebalance_disabled"
    PREFERRED_BELOW_THRESHOLD = "preferred_below_threshold"
    PREFERRED_WAITS_FOR_CHECK = "preferred_waits_for_check"
    # reassignments
    MOVE_TARGET_DOWN = "move_target_down"
    MOVE_TARGET_SILENT = "move_target_silent"
    MOVE_TARGET_LOG_DIR_FAILED = "move_target_log_dir_failed"
    MOVE_TARGET_DISK_FULL = "move_target_disk_full"
    MOVE_THROTTLED = "move_throttled"
    MOVE_CATCHING_UP = "move_catching_up"
    MOVE_FINISHING = "move_finishing"
    MOVE_REQUESTED = "move_requested"
    THROTTLE_LEFT = "throttle_left"
    # deletions and topics
    DELETION_WAITS_FOR_BROKER = "deletion_waits_for_broker"
    DELETION_WAITS_FOR_SILENT_BROKER = "deletion_waits_for_silent_broker"
    DELETION_WAITS_FOR_LOG_DIR = "deletion_waits_for_log_dir"
    DELETION_WAITS_FOR_CONTROLLER = "deletion_waits_for_controller"
    DELETION_DISABLED = "deletion_disabled"
    DELETION_RUNNING = "deletion_running"
    MARKER_WITHOUT_TOPIC = "marker_without_topic"
    TOPIC_NAMES_COLLIDE = "topic_names_collide"
    TOPIC_ZNODE_INVALID = "topic_znode_invalid"
    # brokers
    BROKER_DOWN = "broker_down"
    BROKER_STOPPED = "broker_stopped"
    BROKER_NEVER_SEEN = "broker_never_seen"
    BROKER_SILENT = "broker_silent"
    BROKER_UNREACHABLE = "broker_unreachable"
    BROKER_ADDRESS_SHARED = "broker_address_shared"
    LOG_DIR_FAILED = "log_dir_failed"
    DISK_FULL = "disk_full"
    # the cluster
    NO_BROKER_ANSWERS = "no_broker_answers"
    NO_CONTROLLER = "no_controller"
    CONTROLLER_SILENT = "controller_silent"
    CONTROLLER_STUCK = "controller_stuck"
    REGISTRY_DOWN = "registry_down"
    OFFSETS_TOPIC_IMPOSSIBLE = "offsets_topic_impossible"
    # groups
    GROUP_EMPTY = "group_empty"
    GROUP_WAITS_FOR_MEMBERS = "group_waits_for_members"
    GROUP_WAITS_FOR_ASSIGNMENT = "group_waits_for_assignment"
    COORDINATOR_OFFLINE = "coordinator_offline"
    COORDINATOR_SILENT = "coordinator_silent"
    COORDINATOR_LOADING = "coordinator_loading"
    NEVER_COMMITTED = "never_committed"
    NOT_COMMITTING = "not_committing"
    LAGGING = "lagging"
    OFFSET_BELOW_START = "offset_below_start"
    OFFSET_BEYOND_END = "offset_beyond_end"
    READS_OFFLINE_PARTITION = "reads_offline_partition"
    READS_FROM_SILENT_BROKER = "reads_from_silent_broker"
    READS_DELETED_TOPIC = "reads_deleted_topic"
    IDLE_MEMBERS = "idle_members"


class Finding(Struct, frozen=True, kw_only=True):
    """A problem of some partitions, a broker, a group or the cluster.

    `brokers` are the brokers that are waited for, or that cause the problem. `values` are the other facts of the text.
    """

    cause: Cause
    severity: Severity
    topic: str | None = None
    topics: tuple[str, ...] = ()
    """The topics of a finding about several topics as a whole."""
    partitions: tuple[TopicPartition, ...] = ()
    group: str | None = None
    brokers: tuple[int, ...] = ()
    since_ms: int | None = None
    lag: int | None = None
    """Records that are missing: on a follower, or in a group's committed offsets."""
    values: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Findings with the same key have the same text, apart from topics, partitions, lag and time."""
        return (
            *(self.cause, self.severity, self.topic, self.group, self.brokers),
            *sorted(self.values.items()),
        )


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings with the same key: all topics and partitions, the largest lag, the earliest time.

    Sorted by severity.
    """
    merged: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        merged.setdefault(finding.key, []).append(finding)
    found = [merge_same(same) for same in merged.values()]
    return sorted(found, key=lambda each: each.severity)


def merge_same(same: list[Finding]) -> Finding:
    if len(same) == 1:
        return same[0]
    times = [each.since_ms for each in same if each.since_ms is not None]
    lags = [each.lag for each in same if each.lag is not None]
    return replace(
        same[0],
        topics=tuple(sorted({each for one in same for each in one.topics})),
        partitions=tuple(sorted({each for one in same for each in one.partitions})),
        since_ms=min(times, default=None),
        lag=max(lags, default=None),
    )
