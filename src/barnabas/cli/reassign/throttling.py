"""Throttles of a reassignment: set, show and remove the settings in barnabas/reassignment/throttles.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from barnabas.byte_units import bytes_text
from barnabas.cli.cluster_command import servers_hint
from barnabas.cli.terminal.output import join_numbers, plural, print_warning
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigEntry, ConfigResource
from barnabas.client.reassignment_admin import OngoingReassignment, ReassignmentAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.wording import join_with_and
from barnabas.model import TopicPartition
from barnabas.reassignment.layout import Assignment
from barnabas.reassignment.throttles import (
    RATES,
    TOPIC_THROTTLES,
    PartitionMove,
    is_all_replicas,
    remaining_list,
    throttled_brokers,
    to_move,
    topic_throttles,
)
from barnabas.wire.messages.describe_configs import ConfigSource, ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

Ongoing = Mapping[TopicPartition, OngoingReassignment]
BrokerRates = Mapping[int, Mapping[str, str]]
"""Broker → name → rate in bytes per second."""


class ThrottleState(Struct, frozen=True, kw_only=True):
    """Throttle settings of the cluster that are not defaults: topic → name → list, and broker → name → rate."""

    topics: dict[str, dict[str, str]]
    brokers: dict[int, dict[str, str]]

    @property
    def is_set(self) -> bool:
        return bool(self.topics or self.brokers)

    @property
    def has_own_list(self) -> bool:
        """Whether the operator throttles all replicas of a topic. The rates then are the operator's too."""
        return any(
            is_all_replicas(each) for lists in self.topics.values() for each in lists.values()
        )


def all_moves(
    ongoing: Ongoing, targets: Assignment, current: Assignment
) -> dict[TopicPartition, PartitionMove]:
    """Return the moves of reassignments in progress and of `targets`. A throttle must include both."""
    moves = {each: to_move(moving.origin, moving.target) for each, moving in ongoing.items()}
    for partition, target in targets.items():
        sources = moves[partition].sources if partition in moves else current[partition]
        moves[partition] = to_move(sources, target)
    return moves


def set_throttle(
    cluster: Cluster, moves: Mapping[TopicPartition, PartitionMove], rate: int
) -> None:
    """Limit the copies of these moves. A list `*` already includes all replicas, and stays as it is.

    The lists are set first: without them, a rate has no effect. Settings that have the right value are not sent.
    """
    wanted = {
        ConfigResource(ResourceType.TOPIC, topic): lists
        for topic, lists in topic_throttles(moves).items()
    }
    for broker in throttled_brokers(moves.values()):
        if broker in cluster.view.brokers:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            wanted[resource] = dict.fromkeys(RATES, str(rate))
    current = read_own_settings(cluster, list(wanted), (*TOPIC_THROTTLES, *RATES))
    changes: dict[ConfigResource, Sequence[ConfigChange]] = {}
    for resource, settings in wanted.items():
        known = current.get(resource, {})
        changed = [
            ConfigChange(name, value)
            for name, value in settings.items()
            if known.get(name) != value and not is_all_replicas(known.get(name, ""))
        ]
        if changed:
            changes[resource] = changed
    raise_first_error(alter_settings(cluster, changes))


def read_throttles(cluster: Cluster) -> ThrottleState:
    """Return the throttles of all topics and live brokers."""
    view = cluster.refresh(None)
    topics = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(view.topics)]
    brokers = [ConfigResource(ResourceType.BROKER, str(each)) for each in sorted(view.brokers)]
    return ThrottleState(
        topics={
            resource.name: values
            for resource, values in read_own_settings(cluster, topics, TOPIC_THROTTLES).items()
        },
        brokers={
            int(resource.name): values
            for resource, values in read_own_settings(cluster, brokers, RATES).items()
        },
    )


def read_own_settings(
    cluster: Cluster, resources: Sequence[ConfigResource], names: Sequence[str]
) -> dict[ConfigResource, dict[str, str]]:
    """Return those of the settings that were set for a resource itself. Resources with an error are left out."""
    found = {}
    if not resources:
        return {}
    for resource, entries in ConfigAdmin(cluster).describe_configs(resources, names=names).items():
        if not isinstance(entries, ApiError):
            values = {each.name: each.value or "" for each in entries if is_own_setting(each)}
            if any(values.values()):
                found[resource] = values
    return found


def is_own_setting(entry: ConfigEntry) -> bool:
    return entry.source in (ConfigSource.TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)


def remove_finished_throttles(
    cluster: Cluster, *, rates_before: BrokerRates | None = None
) -> list[str]:
    """Remove throttles of partitions that do not move any more. Returns what was removed, as texts.

    A failure is a warning: it must not hide the result of a command, or another error.
    """
    try:
        changes, removed = find_finished_throttles(cluster, rates_before)
        raise_first_error(alter_settings(cluster, changes))
    except ApiError as error:
        print_warning(
            f"the throttle could not be removed ({error}); `barnabas reassign status{servers_hint()}` removes it"
        )
        return []
    return removed


def find_finished_throttles(
    cluster: Cluster, rates_before: BrokerRates | None = None
) -> tuple[dict[ConfigResource, Sequence[ConfigChange]], list[str]]:
    """Return the changes of `finished_throttles` for the cluster as it is."""
    state = read_throttles(cluster)
    if not state.is_set:
        return {}, []
    ongoing = ReassignmentAdmin(cluster).list_partition_reassignments()
    return finished_throttles(state, ongoing, rates_before)


def finished_throttles(
    state: ThrottleState, ongoing: Ongoing, rates_before: BrokerRates | None = None
) -> tuple[dict[ConfigResource, Sequence[ConfigChange]], list[str]]:
    """Return the changes that remove finished throttles, and what they remove, as texts.

    Broker rates are removed when no partition moves any more. A list `*` was not set by a reassignment: it stays. It
    needs the rates, so these become `rates_before` again; if that is None, they stay.
    """
    changes: dict[ConfigResource, Sequence[ConfigChange]] = {}
    removed: list[str] = []
    for topic, lists in state.topics.items():
        moving = [each.partition for each in ongoing if each.topic == topic]
        kept = {name: remaining_list(value, moving) for name, value in lists.items()}
        shrunk = [
            name for name, value in lists.items() if kept[name] != value or not any(kept.values())
        ]
        if shrunk:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            changes[resource] = [to_change(name, kept[name]) for name in shrunk]
        if not all(kept[name] for name in shrunk):
            removed.append(f"topic {topic}")
    if not ongoing:
        rates = finished_rates(state, rates_before)
        changes.update(rates)
        if rates and not state.has_own_list:
            noun = "broker" if len(rates) == 1 else "brokers"
            removed.append(f"{noun} {join_numbers(int(each.name) for each in rates)}")
    return changes, removed


def finished_rates(
    state: ThrottleState, rates_before: BrokerRates | None
) -> dict[ConfigResource, Sequence[ConfigChange]]:
    """Return the changes that remove the rates of brokers, or restore those of a list `*`."""
    restored: BrokerRates = {}
    if state.has_own_list:
        restored = state.brokers if rates_before is None else rates_before
    changes: dict[ConfigResource, Sequence[ConfigChange]] = {}
    for broker, rates in state.brokers.items():
        before = restored.get(broker, {})
        changed = [name for name, rate in rates.items() if rate != before.get(name)]
        if changed:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            changes[resource] = [to_change(name, before.get(name, "")) for name in changed]
    return changes


def to_change(name: str, value: str) -> ConfigChange:
    """Return the change that sets a value, or deletes the setting if the value is empty."""
    if value:
        return ConfigChange(name, value)
    return ConfigChange(name, None, ConfigOperation.DELETE)


def alter_settings(
    cluster: Cluster, changes: Mapping[ConfigResource, Sequence[ConfigChange]]
) -> dict[ConfigResource, ApiError | None]:
    return ConfigAdmin(cluster).incremental_alter_configs(changes) if changes else {}


def raise_first_error(outcomes: Mapping[ConfigResource, ApiError | None]) -> None:
    """Raise the first error, except for topics that were deleted meanwhile."""
    for resource, error in outcomes.items():
        if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            kind = resource.type.name.lower()
            raise ApiError(error.code, f"throttle of {kind} {resource.name}: {error.message}")


def throttle_document(state: ThrottleState) -> dict[str, Any]:
    return {
        "topics": [{"topic": name, **lists} for name, lists in state.topics.items()],
        "brokers": [{"broker": broker, **rates} for broker, rates in state.brokers.items()],
    }


def throttle_text(document: dict[str, Any]) -> str:
    """Return `throttle: 50 MB/s on brokers 1,2,4 for 2 topics`, or an empty text without a throttle."""
    brokers = document["brokers"]
    topics = document["topics"]
    if not brokers and not topics:
        return ""
    rates = sorted({int(rate) for row in brokers for name, rate in row.items() if name in RATES})
    shown = " and ".join(f"{bytes_text(rate)}/s" for rate in rates) or "no rate"
    numbers = join_numbers(row["broker"] for row in brokers)
    where = f" on {'broker' if len(brokers) == 1 else 'brokers'} {numbers}" if brokers else ""
    everything = any(is_all_replicas(each) for row in topics for each in row.values())
    suffix = " (all replicas: not set by a reassignment)" if everything else ""
    return f"throttle: {shown}{where} for {plural(len(topics), 'topic')}{suffix}"


def removed_text(removed: Sequence[str]) -> str:
    """Return `removed the throttle of topic orders and brokers 1,2,3`, or an empty text."""
    return f"removed the throttle of {join_with_and(removed)}" if removed else ""
