"""Validation of new topics and added partitions, and their replica assignment.

Error codes and their precedence are Kafka's:

    topic in the cache → null config → counts with an assignment → invalid counts → invalid name → marked for deletion
    → topic in the registry → name collision → unequal replica counts → duplicate replicas → gaps in the numbers
    → unknown brokers → no replicas → configs and policy

So a request with an invalid name and an invalid replication factor is rejected for the replication factor. Two checks
of manual assignments are stricter: Kafka accepts unknown brokers, and some gaps in the partition numbers. Partitions of
such topics might never get a leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from msgspec import Struct

from barnabas.config import TopicConfig
from barnabas.controller.assignment import (
    BrokerIds,
    assign_at_random,
    continue_assignment,
    is_being_reassigned,
)
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.metadata.topic_names import TakenNames, check_topic_name
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import Broker, BrokerId

USE_DEFAULT = -1
PARTITIONS_MAX = 50_000  # a larger topic znode would exceed ZooKeeper's packet limit


class TopicSpec(Struct, frozen=True, kw_only=True):
    """A topic as requested by a client. With `assignments`, both counts must be -1."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None]


class TopicDefaults(Struct, frozen=True, kw_only=True):
    """Partition count and replication factor of topics that are created without them."""

    partitions: int = 1
    replication_factor: int = 1


def check_new_topic(
    spec: TopicSpec,
    *,
    brokers: Sequence[Broker],
    in_cache: Collection[str],
    in_registry: TakenNames,
    marked_for_deletion: Collection[str],
    defaults: TopicDefaults,
    random: Random,
) -> tuple[BrokerIds, ...]:
    """Return the replicas of each partition. Raises ApiError.

    `brokers` are all registered brokers, including those shutting down. `in_cache` are the topics in this broker's
    metadata cache, `in_registry` those in the registry. The cache may be stale.
    """
    name = spec.name
    if name in in_cache:
        raise already_exists(name)
    for key, value in spec.configs.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{key}: the value is null; give a value")
    assigned: tuple[BrokerIds, ...] = ()
    if spec.assignments is None:
        assigned = assign_by_counts(spec, brokers, defaults, random)
    elif spec.partitions != USE_DEFAULT or spec.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "give either partitions and replication factor or an assignment, not both",
        )
    check_topic_name(name)
    if name in marked_for_deletion:
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is marked for deletion; retry later"
        )
    if name in in_registry:
        raise already_exists(name)
    collisions = in_registry.colliding_with(name)
    if collisions:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic '{name}' collides with {', '.join(collisions)}: '.' and '_' are treated as equal",
        )
    if spec.assignments is None:
        return assigned
    return check_manual_assignment(spec.assignments, {broker.id for broker in brokers})


def check_topic_configs(
    configs: Mapping[str, str | None], defaults: TopicConfig
) -> Mapping[str, str]:
    """Return the overrides of a topic. Raises INVALID_CONFIG. Null values are rejected by check_new_topic."""
    overrides = {key: value for key, value in configs.items() if value is not None}
    try:
        defaults.with_overrides(overrides)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return overrides


def already_exists(name: str) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")


def assign_by_counts(
    spec: TopicSpec, brokers: Sequence[Broker], defaults: TopicDefaults, random: Random
) -> tuple[BrokerIds, ...]:
    partitions = defaults.partitions if spec.partitions == USE_DEFAULT else spec.partitions
    replication_factor = spec.replication_factor
    if replication_factor == USE_DEFAULT:
        replication_factor = defaults.replication_factor
    check_partition_and_replica_counts(partitions, replication_factor, broker_count=len(brokers))
    return assign_at_random(
        brokers, partitions=partitions, replication_factor=replication_factor, random=random
    )


def check_partition_and_replica_counts(
    partitions: int, replication_factor: int, *, broker_count: int
) -> None:
    if partitions <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; at least 1 is required"
        )
    check_partition_limit(partitions)
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}; at least 1 is required",
        )
    if replication_factor > broker_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of brokers,"
            f" {broker_count}",
        )


def check_partition_limit(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions; a topic has at most {PARTITIONS_MAX}",
        )


def check_manual_assignment(
    assignments: Mapping[int, Sequence[int]], brokers: Collection[int]
) -> tuple[BrokerIds, ...]:
    """Return the replicas of partitions 0, 1, 2 and so on. Raises INVALID_REPLICA_ASSIGNMENT."""
    lists = assignments.values()
    why = None
    if not assignments:
        why = "an assignment needs at least one partition"
    elif len({len(replicas) for replicas in lists}) > 1:
        why = "every partition needs the same number of replicas"
    elif any(has_duplicates(replicas) for replicas in lists):
        why = "a broker occurs twice in the replicas of one partition"
    elif sorted(assignments) != list(range(len(assignments))):
        why = "partitions must be numbered 0, 1, 2 and so on without a gap"
    elif unknown := find_unknown_brokers(lists, brokers):
        why = f"there is no broker {unknown[0]}"
    elif not all(lists):
        why = "a partition needs at least one replica"
    if why is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return tuple(to_broker_ids(replicas) for _, replicas in sorted(assignments.items()))


def check_added_partitions(
    current: Mapping[int, ReplicaAssignment],
    *,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[Broker],
) -> tuple[BrokerIds, ...]:
    """Return the replicas of the partitions that are added to reach `count`. Raises ApiError.

    `current` is empty for a topic that does not exist. The caller rejects topics that are queued for deletion.
    """
    if not current:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
    if moving := sorted(each for each, held in current.items() if is_being_reassigned(held)):
        why = f"partition {moving[0]} is being reassigned; add partitions when it has moved"
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
    current_count = len(current)
    if count < current_count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {current_count} partitions, which is higher than the requested {count};"
            " partitions can only be added",
        )
    if count == current_count:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the topic already has {count} partitions")
    if 0 not in current:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "partition 0 is missing from the assignment")
    first_replicas = current[0].replicas
    if assignments is None:
        check_partition_and_replica_counts(count, len(first_replicas), broker_count=len(brokers))
        return continue_assignment(
            brokers, first_replicas=first_replicas, current=current_count, total=count
        )
    check_added_assignment(
        assignments,
        added=count - current_count,
        replication_factor=len(first_replicas),
        brokers={broker.id for broker in brokers},
    )
    check_partition_limit(count)
    return tuple(to_broker_ids(replicas) for replicas in assignments)


def check_added_assignment(
    assignments: Sequence[Sequence[int]],
    *,
    added: int,
    replication_factor: int,
    brokers: Collection[int],
) -> None:
    why = None
    if unknown := find_unknown_brokers(assignments, brokers):
        why = f"there is no broker {unknown[0]}"
    elif len(assignments) != added:
        why = f"{added} partitions are added, but {len(assignments)} assignments are given"
    elif not all(assignments):
        why = "a partition needs at least one replica"
    elif any(has_duplicates(replicas) for replicas in assignments):
        why = "a broker occurs twice in the replicas of one partition"
    elif any(len(replicas) != replication_factor for replicas in assignments):
        why = f"every partition needs {replication_factor} replicas, like partition 0"
    if why is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def has_duplicates(replicas: Sequence[int]) -> bool:
    return len(set(replicas)) != len(replicas)


def find_unknown_brokers(lists: Collection[Sequence[int]], brokers: Collection[int]) -> list[int]:
    return sorted({broker for replicas in lists for broker in replicas if broker not in brokers})


def to_broker_ids(replicas: Sequence[int]) -> BrokerIds:
    return tuple(BrokerId(broker) for broker in replicas)
