"""Throttles of a reassignment: set, show and remove the settings in barnabas/reassignment/throttles.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from barnabas.cli.terminal.output import join_numbers, plural
from barnabas.cli.terminal.units import bytes_text
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigEntry, ConfigResource
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.reassignment.throttles import (
    ALL_REPLICAS,
    RATES,
    TOPIC_THROTTLES,
    PartitionMove,
    remaining_list,
    throttled_brokers,
    topic_throttles,
)
from barnabas.wire.messages.describe_configs import ConfigSource, ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

Ongoing = Mapping[TopicPartition, OngoingReassignment]


class ThrottleState(Struct, frozen=True, kw_only=True):
    """Throttle settings of the cluster that are not defaults: topic → name → list, and broker → name → rate."""

    topics: dict[str, dict[str, str]]
    brokers: dict[int, dict[str, str]]

    @property
    def is_set(self) -> bool:
        return bool(self.topics or self.brokers)


def set_throttle(
    cluster: Cluster, moves: Mapping[TopicPartition, PartitionMove], rate: int
) -> None:
    """Limit the copies of these moves. The lists are set first: without them, a rate has no effect."""
    changes: dict[ConfigResource, Sequence[ConfigChange]] = {}
    for topic, settings in topic_throttles(moves).items():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        changes[resource] = [ConfigChange(*item) for item in settings.items()]
    for broker in throttled_brokers(moves.values()):
        if broker in cluster.view.brokers:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            changes[resource] = [ConfigChange(name, str(rate)) for name in RATES]
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


def remove_finished_throttles(cluster: Cluster, ongoing: Ongoing) -> list[str]:
    """Remove throttles of partitions that do not move any more. Returns what was removed, as texts.

    Broker rates are removed when no partition is throttled any more. A list `*` was not set by a reassignment: it
    stays, and so do the rates.
    """
    state = read_throttles(cluster)
    if not state.is_set:
        return []
    changes, removed = finished_throttles(state, ongoing)
    raise_first_error(alter_settings(cluster, changes))
    return removed


def finished_throttles(
    state: ThrottleState, ongoing: Ongoing
) -> tuple[dict[ConfigResource, Sequence[ConfigChange]], list[str]]:
    """Return the changes that remove finished throttles, and what they remove, as texts."""
    changes: dict[ConfigResource, Sequence[ConfigChange]] = {}
    removed: list[str] = []
    is_still_throttled = False
    for topic, lists in state.topics.items():
        moving = [each.partition for each in ongoing if each.topic == topic]
        kept = {name: remaining_list(value, moving) for name, value in lists.items()}
        is_still_throttled = is_still_throttled or any(kept.values())
        shrunk = [
            name for name, value in lists.items() if kept[name] != value or not any(kept.values())
        ]
        if shrunk:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            changes[resource] = [to_change(name, kept[name]) for name in shrunk]
            removed.append(f"topic {topic}")
    if state.brokers and not is_still_throttled and not ongoing:
        for broker, rates in state.brokers.items():
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            changes[resource] = [to_change(name, "") for name in rates]
        noun = "broker" if len(state.brokers) == 1 else "brokers"
        removed.append(f"{noun} {join_numbers(state.brokers)}")
    return changes, removed


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
    everything = any(ALL_REPLICAS in row.values() for row in topics)
    suffix = " (all replicas: not set by a reassignment)" if everything else ""
    return f"throttle: {shown}{where} for {plural(len(topics), 'topic')}{suffix}"


def removed_text(removed: Iterable[str]) -> str:
    """Return `removed the throttle of topic orders and brokers 1,2,3`, or an empty text."""
    *most, last = [*removed] or [""]
    return (
        f"removed the throttle of {', '.join(most)}{' and ' if most else ''}{last}" if last else ""
    )
