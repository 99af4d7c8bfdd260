"""Gathers the facts for explanations: metadata, brokers, settings, registry, history.

    metadata ─► brokers (in parallel) ─► settings of topics ─► registry ─► history

No part is required. If no broker answers, the registry is still read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from barnabas.cli.explain.history_reading import read_history
from barnabas.cli.explain.probe import PROBE_TIMEOUT_S, BrokerAnswer, Settings, probe_brokers
from barnabas.cli.explain.registry_facts import RegistryPlace, find_place, gather_registry_facts
from barnabas.cli.explain.transaction_gather import gather_open_transactions
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster, Unreachable
from barnabas.client.view import ClusterView, PartitionView
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.facts import (
    ClusterFacts,
    ClusterSettings,
    ControllerQueue,
    RegistryFacts,
    TopicSettings,
    parse_topic_settings,
)
from barnabas.explain.history_facts import HistoryFacts, summarize_history
from barnabas.history.event import AnyEvent
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import TopicPartition
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)

TOPIC_SETTINGS = (
    "min.insync.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
)
UNLIMITED = 2**63 - 1
"""Default of the throttled rates."""
ENDS_MAX = 2000
"""Log end offsets are requested for this many partitions, which keeps the requests small."""


class GatheredFacts(NamedTuple):
    """The facts, and the events that they are from. `unreachable` is set if no broker answers."""

    facts: ClusterFacts
    events: Sequence[AnyEvent] = ()
    unreachable: Unreachable | None = None


def gather_facts(
    cluster: Cluster,
    place: RegistryPlace,
    topics: Sequence[str] | None = None,
    *,
    events_max: int | None = None,
) -> GatheredFacts:
    """Gather the facts about these topics, or about all. `events_max` limits the events that are read; 0: none."""
    try:
        view = cluster.refresh(None)
    except Unreachable as error:
        return gather_without_brokers(place, error)
    wanted = (
        list(view.topics) if topics is None else [name for name in topics if name in view.topics]
    )
    answers = probe_brokers(view, wanted_ends(view, wanted), cluster.connection_security)
    settings = controller_settings(view, answers)
    registry, registry_error, registry_name = gather_registry(
        place, settings, view, topics, answers
    )
    silent = {broker for broker, answer in answers.items() if not answer.probe.is_responding}
    events = [] if events_max == 0 else read_history(cluster, events_max, silent)
    # Brokers read the settings of topics from the registry: without it, they do not answer.
    timeout_s = cluster.timeout_s if registry_error is None else PROBE_TIMEOUT_S
    topic_settings = read_topic_settings(cluster, wanted, timeout_s)
    facts = ClusterFacts(
        now_ms=now_ms(),
        view=view,
        probes={broker: answer.probe for broker, answer in answers.items()},
        topic_settings=topic_settings or {},
        settings=parse_settings(settings, answers),
        queue=next(
            (each.queue for each in answers.values() if each.queue is not ControllerQueue.UNKNOWN),
            ControllerQueue.UNKNOWN,
        ),
        reassignments=find_moves(answers, registry),
        ends=collect_ends(answers),
        transactions={}
        if topics is None
        else gather_open_transactions(cluster, view, wanted, silent),
        registry=registry,
        registry_error=registry_error,
        is_registry_lost=topic_settings is None,
        registry_name=registry_name,
        history=summarize_history(events) if events else HistoryFacts(),
        start_commands=find_start_commands(settings, view),
    )
    return GatheredFacts(facts, events)


def gather_without_brokers(place: RegistryPlace, error: Unreachable) -> GatheredFacts:
    """Read the registry only. Raises the error if its place is unknown."""
    if not place.is_given:
        raise error
    registry, registry_error = gather_registry_facts(place, {}, [], all_topics=True)
    facts = ClusterFacts(
        now_ms=now_ms(),
        view=ClusterView(),
        registry=registry,
        registry_error=registry_error,
        registry_name=place.name,
    )
    return GatheredFacts(facts, unreachable=error)


# ---- brokers --------------------------------------------------------------------------------------------------


def wanted_ends(view: ClusterView, topics: Iterable[str]) -> dict[int, list[TopicPartition]]:
    """Return broker → its replicas of partitions with a missing replica or without a leader."""
    wanted: dict[int, list[TopicPartition]] = {}
    count = 0
    for name in topics:
        for each in view.topics[name].partitions:
            if (each.is_under_replicated or each.is_offline) and count < ENDS_MAX:
                count += 1
                for broker in interesting_replicas(each):
                    wanted.setdefault(broker, []).append(TopicPartition(name, each.partition))
    return wanted


def interesting_replicas(seen: PartitionView) -> list[int]:
    """Return the leader and the replicas that are not in sync."""
    return [each for each in seen.replicas if each == seen.leader or each not in seen.isr]


def controller_settings(view: ClusterView, answers: Mapping[int, BrokerAnswer]) -> Settings:
    """Return the settings of the controller, or of another broker if the controller does not respond."""
    order = sorted(answers, key=lambda broker: (broker != view.controller, broker))
    return next((answers[each].settings for each in order if answers[each].settings), {})


def parse_settings(settings: Settings, answers: Mapping[int, BrokerAnswer]) -> ClusterSettings:
    default = ClusterSettings()
    return ClusterSettings(
        is_rebalance_enabled=settings.get("auto.leader.rebalance.enable", "true") == "true",
        imbalance_percentage=integer(
            settings, "leader.imbalance.per.broker.percentage", default.imbalance_percentage
        ),
        imbalance_check_s=integer(
            settings, "leader.imbalance.check.interval.seconds", default.imbalance_check_s
        ),
        is_delete_enabled=settings.get("delete.topic.enable", "true") == "true",
        offsets_replication_factor=integer(settings, "offsets.topic.replication.factor", 1),
        follower_rates=throttle_rates(answers, "follower.replication.throttled.rate"),
        leader_rates=throttle_rates(answers, "leader.replication.throttled.rate"),
    )


def throttle_rates(answers: Mapping[int, BrokerAnswer], name: str) -> dict[int, int]:
    rates = {broker: integer(answer.settings, name, -1) for broker, answer in answers.items()}
    return {broker: rate for broker, rate in rates.items() if 0 <= rate < UNLIMITED}


def find_start_commands(settings: Settings, view: ClusterView) -> dict[int, str]:
    """Return the commands for brokers that are down and whose properties file is on this machine.

    `barnabas up` writes broker-<id>.properties next to the log directories of a cluster with a ZooKeeper.
    """
    logs = Path((settings.get("log.dirs") or settings.get("log.dir") or "").split(",")[0].strip())
    files = sorted(logs.parent.glob("broker-*.properties")) if logs.is_absolute() else []
    ids = {path: path.stem.removeprefix("broker-") for path in files}
    return {
        int(number): f"barnabas broker {quote(str(path))}"
        for path, number in ids.items()
        if number.isdigit() and int(number) not in view.brokers
    }


def integer(settings: Settings, name: str, default: int) -> int:
    try:
        return int(settings[name])
    except (KeyError, ValueError):
        return default


def collect_ends(answers: Mapping[int, BrokerAnswer]) -> dict[tuple[TopicPartition, int], int]:
    return {
        (partition, broker): end
        for broker, answer in answers.items()
        for partition, end in answer.ends.items()
    }


# ---- topics ---------------------------------------------------------------------------------------------------


def read_topic_settings(
    cluster: Cluster, topics: Sequence[str], timeout_s: float
) -> dict[str, TopicSettings] | None:
    """Return the settings of topics; none if the request fails, None if it times out."""
    if not topics:
        return {}
    resources = tuple(
        DescribeConfigsResource(ResourceType.TOPIC, name, TOPIC_SETTINGS) for name in topics
    )
    try:
        response = cluster.any_connection().exchange(
            DescribeConfigsRequest(resources=resources),
            DescribeConfigsResponse,
            timeout_s=timeout_s,
        )
    except ApiError as error:
        return None if error.code is ErrorCode.REQUEST_TIMED_OUT else {}
    return {
        each.resource_name: parse_topic_settings({one.name: one.value for one in each.configs})
        for each in response.results
        if not each.error_code
    }


# ---- registry -------------------------------------------------------------------------------------------------


def gather_registry(
    place: RegistryPlace,
    settings: Settings,
    view: ClusterView,
    topics: Sequence[str] | None,
    answers: Mapping[int, BrokerAnswer],
) -> tuple[RegistryFacts | None, str | None, str]:
    """Return the facts of the registry, the reason if it does not answer, and its name."""
    chosen = place if place.is_given else find_place(settings)
    has_moves = any(answer.moves is not None for answer in answers.values())
    registry, error = gather_registry_facts(
        chosen, view.topics, list(topics or ()), all_topics=topics is None and not has_moves
    )
    if registry is not None and not place.is_given and registry.cluster_id != view.cluster_id:
        registry = None  # a directory with the same path, of another cluster: the brokers are on other machines
    return registry, error, chosen.name


def find_moves(
    answers: Mapping[int, BrokerAnswer], registry: RegistryFacts | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return the reassignments in progress, as the controller reports them, or else from the znodes of the topics."""
    for answer in answers.values():
        if answer.moves is not None:
            return dict(answer.moves)
    if registry is None:
        return {}
    return {
        TopicPartition(topic, number): each
        for topic, assignment in registry.topics.items()
        for number, each in assignment.partitions.items()
        if each.adding or each.removing
    }
