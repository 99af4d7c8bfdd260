"""What may be refused before a topic is created or grows, and where its replicas go. Kafka's codes, in Kafka's order.

    exists → null configs → counts and assignment → counts → name → marked for deletion → exists in the registry
           → collision → numbers of replicas → duplicates → numbering → brokers → empty        then configs and policy

So an illegal name with an impossible replication factor is told about the factor. In two places we are stricter than
Kafka, which accepts partition numbers of the right sum, and brokers it has never seen: partitions of such topics may
never get a leader, and nobody means that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from msgspec import Struct

from barnabas.config import TopicConfig
from barnabas.controller.assignment import (
    Replicas,
    assign_at_random,
    continue_assignment,
    target_replicas,
)
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.metadata.topic_names import TakenNames, check_topic_name
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import Broker, BrokerId

USE_DEFAULT = -1
PARTITIONS_MAX = 50_000  # with more, the topic's znode would not fit a packet of ZooKeeper's


class TopicWish(Struct, frozen=True, kw_only=True):
    """A topic as a client wishes it. With `assignments`, both counts are -1."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None]


class TopicDefaults(Struct, frozen=True, kw_only=True):
    partitions: int = 1
    replication_factor: int = 1


def check_new_topic(
    wish: TopicWish,
    *,
    brokers: Sequence[Broker],
    in_cache: Collection[str],
    in_registry: TakenNames,
    marked_for_deletion: Collection[str],
    defaults: TopicDefaults,
    random: Random,
) -> tuple[Replicas, ...]:
    """The replicas of each partition, or ApiError. `brokers` are all that are registered, shutting down or not.

    `in_cache` are the topics this broker knows of, `in_registry` those that exist; the first are often a little behind.
    """
    name = wish.name
    if name in in_cache:
        raise already_exists(name)
    for key, value in wish.configs.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{key}: null is not a value for a topic")
    placed: tuple[Replicas, ...] = ()
    if wish.assignments is None:
        placed = place(wish, brokers, defaults, random)
    elif wish.partitions != USE_DEFAULT or wish.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "give either numbers of partitions and replicas or an assignment, not both",
        )
    check_topic_name(name)
    if name in marked_for_deletion:
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is marked for deletion; try again"
        )
    if name in in_registry:
        raise already_exists(name)
    collisions = in_registry.colliding_with(name)
    if collisions:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic '{name}' collides with {', '.join(collisions)}: '.' and '_' count as one",
        )
    if wish.assignments is None:
        return placed
    return check_manual_assignment(wish.assignments, {broker.id for broker in brokers})


def check_topic_configs(
    configs: Mapping[str, str | None], defaults: TopicConfig
) -> Mapping[str, str]:
    """What a topic sets for itself, over the broker's `defaults`. Nulls are refused before."""
    overrides = {key: value for key, value in configs.items() if value is not None}
    try:
        defaults.with_overrides(overrides)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return overrides


def already_exists(name: str) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")


def place(
    wish: TopicWish, brokers: Sequence[Broker], defaults: TopicDefaults, random: Random
) -> tuple[Replicas, ...]:
    partitions = defaults.partitions if wish.partitions == USE_DEFAULT else wish.partitions
    replication_factor = wish.replication_factor
    if replication_factor == USE_DEFAULT:
        replication_factor = defaults.replication_factor
    check_counts(partitions, replication_factor, broker_count=len(brokers))
    return assign_at_random(
        brokers, partitions=partitions, replication_factor=replication_factor, random=random
    )


def check_counts(partitions: int, replication_factor: int, *, broker_count: int) -> None:
    if partitions <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; it takes at least one"
        )
    check_most(partitions)
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}; it takes at least one",
        )
    if replication_factor > broker_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of brokers,"
            f" {broker_count}",
        )


def check_most(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions; a topic has at most {PARTITIONS_MAX}",
        )


def check_manual_assignment(
    assignments: Mapping[int, Sequence[int]], brokers: Collection[int]
) -> tuple[Replicas, ...]:
    """The replicas of partitions 0, 1, 2 and so on, or INVALID_REPLICA_ASSIGNMENT."""
    lists = assignments.values()
    why = None
    if not assignments:
        why = "an assignment needs at least one partition"
    elif len({len(replicas) for replicas in lists}) > 1:
        why = "every partition needs the same number of replicas"
    elif any(has_duplicates(replicas) for replicas in lists):
        why = "a broker stands twice in the replicas of one partition"
    elif sorted(assignments) != list(range(len(assignments))):
        why = "partitions must be numbered 0, 1, 2 and so on without a gap"
    elif unknown := unknown_brokers(lists, brokers):
        why = f"there is no broker {unknown[0]}"
    elif not all(lists):
        why = "a partition needs at least one replica"
    if why is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return tuple(as_replicas(replicas) for _, replicas in sorted(assignments.items()))


def check_added_partitions(
    current: Mapping[int, ReplicaAssignment],
    *,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[Broker],
) -> tuple[Replicas, ...]:
    """The replicas of the partitions by which a topic grows to `count`, or ApiError.

    `current` is empty for a topic that does not exist. That it is queued for deletion is checked before.
    """
    if not current:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    size = len(current)
    if count < size:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {size} partitions, which is higher than the {count} asked for;"
            " partitions can only be added",
        )
    if count == size:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the topic has {size} partitions already")
    if 0 not in current:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "partition 0 is missing in the assignment")
    # Without the brokers that an unfinished reassignment removes, or new partitions would get too many replicas.
    first = target_replicas(current[0]) or current[0].replicas
    if assignments is None:
        check_counts(count, len(first), broker_count=len(brokers))
        return continue_assignment(brokers, first_replicas=first, current=size, total=count)
    check_added_assignment(
        assignments,
        added=count - size,
        replication_factor=len(first),
        brokers={broker.id for broker in brokers},
    )
    check_most(count)
    return tuple(as_replicas(replicas) for replicas in assignments)


def check_added_assignment(
    assignments: Sequence[Sequence[int]],
    *,
    added: int,
    replication_factor: int,
    brokers: Collection[int],
) -> None:
    why = None
    if unknown := unknown_brokers(assignments, brokers):
        why = f"there is no broker {unknown[0]}"
    elif len(assignments) != added:
        why = f"{added} partitions are added, but {len(assignments)} assignments given"
    elif not all(assignments):
        why = "a partition needs at least one replica"
    elif any(has_duplicates(replicas) for replicas in assignments):
        why = "a broker stands twice in the replicas of one partition"
    elif any(len(replicas) != replication_factor for replicas in assignments):
        why = f"partition 0 has {replication_factor} replicas, and so must all"
    if why is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def has_duplicates(replicas: Sequence[int]) -> bool:
    return len(set(replicas)) != len(replicas)


def unknown_brokers(lists: Collection[Sequence[int]], brokers: Collection[int]) -> list[int]:
    return sorted({broker for replicas in lists for broker in replicas if broker not in brokers})


def as_replicas(replicas: Sequence[int]) -> Replicas:
    return tuple(BrokerId(broker) for broker in replicas)
