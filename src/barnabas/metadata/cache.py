"""Metadata cache of a broker: the brokers, the topics and the leader of each partition.

Only UpdateMetadata requests of the controller change it. Each request replaces the list of brokers and the controller.
Its partitions are merged: partitions that it does not name stay as they are. Leader -2 removes a partition. A topic is
removed with its last partition. Brokers apply updates at different times, so a topic that one broker knows may be
unknown to another.

Each topic is cached in its encoded form for Metadata responses, until it or the list of brokers changes. So a large
response only joins cached bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, STATE_CHANGES, TRANSACTION_STATE
from barnabas.model import (
    NO_LEADER,
    ZERO_ID,
    Broker,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    SecurityProtocol,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.wire.messages.control_plane import LEADER_DURING_DELETE
from barnabas.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, STATE_CHANGES})
"""Only brokers write to internal topics. Clients that subscribe with a pattern exclude them by default."""
LISTENER_ERRORS_SINCE = 6  # older versions report LEADER_NOT_AVAILABLE instead
SUSPECT_SECONDS = 0.5
"""How long a broker is suspect after its connection broke."""
DEPARTED_SECONDS = 2.0
"""How long Metadata responses list a broker after it is no longer alive."""

Encode = Callable[[int, MetadataResponseTopic], bytes]
Condition = Callable[[], bool]


class PartitionMetadata(NamedTuple):
    """A partition as clients see it. `replicas[0]` is the preferred leader."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    partition_epoch: ZnodeVersion = ZnodeVersion(0)


class TopicMetadata(Struct, frozen=True, kw_only=True):
    """A topic. It is immutable: a change of a partition replaces the whole topic."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionMetadata]


class MetadataUpdate(NamedTuple):
    """Result of merging an UpdateMetadata: live brokers, new state of the named topics, removed partitions.

    A topic in `topics` without partitions no longer exists.
    """

    brokers: dict[BrokerId, Broker]
    topics: dict[str, TopicMetadata]
    removed: tuple[TopicPartition, ...]


class MetadataCache:
    """A broker's view of the cluster."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.brokers: dict[BrokerId, Broker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_version = 0
        """Grows when a topic changes."""
        self.names: dict[UUID, str] = {}
        """Topic names by topic id."""
        self.encoded_topics: dict[str, dict[tuple[int, str | None], bytes]] = {}
        """Encoded topics, by name, then by version and listener."""
        self.shared_ids: dict[tuple[int, ...], tuple[BrokerId, ...]] = {}
        """Replica lists. Thousands of partitions share a few of them."""
        self.waiting: list[tuple[Condition, asyncio.Future[bool]]] = []
        self.suspects: dict[BrokerId, asyncio.TimerHandle] = {}
        """Brokers whose connection broke in the last SUSPECT_SECONDS. The partitions they lead may soon move."""
        self.departed: dict[BrokerId, tuple[Broker, asyncio.TimerHandle]] = {}
        """Brokers that were removed in the last DEPARTED_SECONDS."""

    # ---- updates

    def update(self, request: UpdateMetadataRequest) -> tuple[TopicPartition, ...]:
        """Merge and apply a request. Returns the removed partitions."""
        return self.apply(request, self.merge(request))

    def merge(self, request: UpdateMetadataRequest) -> MetadataUpdate:
        """Compute the new state without applying it. Can run in a thread while the event loop reads the cache."""
        brokers = {BrokerId(each.id): to_broker(each) for each in request.live_brokers}
        topics: dict[str, TopicMetadata] = {}
        removed: dict[TopicPartition, None] = {}
        for topic in request.topic_states or group_update_by_topic(
            request.ungrouped_partition_states
        ):
            before = topics.get(topic.topic_name) or self.topics.get(topic.topic_name)
            topics[topic.topic_name] = self.merge_topic(before, topic, removed)
        return MetadataUpdate(brokers, topics, tuple(removed))

    def merge_topic(
        self,
        before: TopicMetadata | None,
        update: UpdateMetadataTopicState,
        removed: dict[TopicPartition, None],
    ) -> TopicMetadata:
        """Return the topic after the update. Adds removed partitions to `removed`."""
        name = update.topic_name
        partitions = dict(before.partitions) if before is not None else {}
        share = self.share
        # Thousands of partitions have the same few states, and share them.
        shared: dict[PartitionMetadata, PartitionMetadata] = {}
        for state in update.partition_states:
            (_, index, _, leader, leader_epoch, isr, partition_epoch, replicas, offline) = state
            if leader == LEADER_DURING_DELETE:
                partitions.pop(index, None)
                removed[TopicPartition(name, index)] = None
                continue
            if removed:
                removed.pop(TopicPartition(name, index), None)
            found = PartitionMetadata(
                BrokerId(leader),
                LeaderEpoch(leader_epoch),
                share(isr),
                share(replicas),
                share(offline),
                ZnodeVersion(partition_epoch),
            )
            partitions[index] = shared.setdefault(found, found)
        return TopicMetadata(name=name, topic_id=update.topic_id, partitions=partitions)

    def apply(
        self, request: UpdateMetadataRequest, merged: MetadataUpdate
    ) -> tuple[TopicPartition, ...]:
        """Apply a merged request and wake waiting tasks. Returns the removed partitions."""
        if merged.brokers != self.brokers:
            self.encoded_topics.clear()
            self.keep_departed(merged.brokers)
        self.brokers = merged.brokers
        self.controller_id = BrokerId(max(request.controller_id, NO_LEADER))
        for name, topic in merged.topics.items():
            if topic.partitions:
                self.put_topic(topic)
            else:
                self.remove_topic(name)
        self.wake()
        return merged.removed

    def keep_departed(self, live: Mapping[BrokerId, Broker]) -> None:
        """Keep brokers that are no longer live as departed for DEPARTED_SECONDS. Drop those that are live again."""
        for broker in [each for each in self.departed if each in live]:
            self.departed.pop(broker)[1].cancel()
        for broker in [each for each in self.brokers if each not in live]:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(DEPARTED_SECONDS, self.departed.pop, broker, None)
            self.departed[broker] = self.brokers[broker], timer

    def share(self, brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
        """Return the one shared tuple that equals `brokers`."""
        found = self.shared_ids.get(brokers)
        if found is None:
            found = self.shared_ids[brokers] = tuple(map(BrokerId, brokers))
        return found

    def put_topic(self, topic: TopicMetadata) -> None:
        before = self.topics.get(topic.name)
        if before is not None and before.topic_id != topic.topic_id:
            self.names.pop(before.topic_id, None)
        self.encoded_topics.pop(topic.name, None)
        self.topics[topic.name] = topic
        self.topics_version += 1
        if topic.topic_id != ZERO_ID:
            self.names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.topics_version += 1
            self.names.pop(topic.topic_id, None)
            self.encoded_topics.pop(name, None)

    # ---- waiting for updates

    async def wait_until(self, condition: Condition, timeout_s: float) -> bool:
        """Wait until the condition is true. It is checked now and after every update. Returns False on timeout."""
        if condition():
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (condition, future)
        self.waiting.append(entry)
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                return await future
        except TimeoutError:
            return False
        finally:
            if entry in self.waiting:
                self.waiting.remove(entry)

    def wake(self) -> None:
        """Check the conditions of all waiting tasks."""
        unmet = []
        for condition, future in self.waiting:
            if future.done():
                continue
            try:
                is_met = condition()
            except Exception as error:  # noqa: BLE001 - raised in the waiting task
                future.set_exception(error)
                continue
            if is_met:
                future.set_result(True)
            else:
                unmet.append((condition, future))
        self.waiting = unmet

    def mark_suspect(self, broker: BrokerId) -> None:
        """Treat a broker as suspect for SUSPECT_SECONDS. If it has failed, an update of the controller follows."""
        if broker in self.brokers and broker not in self.suspects:
            loop = asyncio.get_running_loop()
            self.suspects[broker] = loop.call_later(SUSPECT_SECONDS, self.clear_suspect, broker)

    def clear_suspect(self, broker: BrokerId) -> None:
        self.suspects.pop(broker).cancel()
        self.wake()

    async def wait_for_suspect_leaders(self, topics: Iterable[str]) -> None:
        """Wait while a suspect broker leads a partition of these topics, at most SUSPECT_SECONDS.

        Otherwise the client would get the old leader, fail to connect, and perhaps wait a second before it retries.
        """
        requested = tuple(topics)
        await self.wait_until(
            lambda: not any(map(self.is_led_by_suspect, requested)), SUSPECT_SECONDS
        )

    def is_led_by_suspect(self, topic: str) -> bool:
        found = self.topics.get(topic)
        return found is not None and any(
            state.leader in self.suspects for state in found.partitions.values()
        )

    # ---- queries

    def brokers_and_departed(self) -> list[Broker]:
        """Return the live brokers and the departed ones.

        librdkafka ignores a new leader if the same Metadata response does not list the old one. It then waits a second
        before the next request.
        """
        return [*self.brokers.values(), *(broker for broker, _ in self.departed.values())]

    def has_partition(self, topic: str, index: int) -> bool:
        state = self.topics.get(topic)
        return state is not None and index in state.partitions

    def is_alive(self, broker: int) -> bool:
        return broker in self.brokers

    def endpoint(self, broker: Broker, listener: str) -> Endpoint | None:
        """Return the endpoint of a broker for clients of `listener`, or None if it does not have this listener."""
        return next((e for e in broker.endpoints if e.listener == listener), None)

    def endpoint_of(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the endpoint of a broker by id, or None if it is not alive or does not have this listener."""
        broker = self.brokers.get(BrokerId(broker_id))
        return self.endpoint(broker, listener) if broker is not None else None

    def encoded_topic(
        self, name: str, version: int, encode: Encode, listener: str | None = None
    ) -> bytes:
        """Return the topic as encoded for a Metadata response."""
        by_version = self.encoded_topics.get(name)
        if by_version is None:
            by_version = self.encoded_topics[name] = {}
        data = by_version.get((version, listener))
        if data is None:
            data = encode(version, self.describe(self.topics[name], version, listener))
            by_version[version, listener] = data
        return data

    async def encode_ahead(
        self, name: str, version: int, encode: Encode, listener: str | None
    ) -> None:
        """Encode a large topic in a thread and cache it for `encoded_topic`, unless the topic changes meanwhile."""
        topic, brokers = self.topics[name], self.brokers
        if (version, listener) in self.encoded_topics.get(name, {}):
            return
        data = await asyncio.to_thread(
            lambda: encode(version, self.describe(topic, version, listener))
        )
        if self.topics.get(name) is topic and self.brokers is brokers:
            self.encoded_topics.setdefault(name, {})[version, listener] = data

    def describe(
        self, topic: TopicMetadata, version: int, listener: str | None = None
    ) -> MetadataResponseTopic:
        """Return the topic for a Metadata response to a client of `listener`; None means any listener."""
        reachable = frozenset(
            broker.id
            for broker in self.brokers.values()
            if listener is None or self.endpoint(broker, listener) is not None
        )
        return MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(
                self.describe_partition(index, state, version, reachable)
                for index, state in sorted(topic.partitions.items())
            ),
        )

    def describe_partition(
        self, index: int, state: PartitionMetadata, version: int, reachable: frozenset[BrokerId]
    ) -> MetadataResponsePartition:
        replicas, isr, error = state.replicas, state.isr, ErrorCode.NONE
        if version == 0:
            # In version 0, the response must list every replica as a broker.
            replicas = tuple(broker for broker in replicas if broker in reachable)
            isr = tuple(broker for broker in isr if broker in reachable)
        if state.leader not in self.brokers:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif state.leader not in reachable:
            error = (
                ErrorCode.LISTENER_NOT_FOUND
                if version >= LISTENER_ERRORS_SINCE
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
        elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=state.leader if state.leader in reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=state.offline_replicas,
        )


def group_update_by_topic(
    states: Iterable[UpdateMetadataPartitionState],
) -> Iterable[UpdateMetadataTopicState]:
    """Group the partitions of old request versions, which are a flat list, by topic."""
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    for state in states:
        by_topic.setdefault(state.topic_name, []).append(state)
    return [
        UpdateMetadataTopicState(topic_name=name, partition_states=tuple(found))
        for name, found in by_topic.items()
    ]


def to_broker(update: UpdateMetadataBroker) -> Broker:
    """Convert a broker of a request. In old versions, the security protocol is the name of the listener."""
    endpoints = tuple(
        Endpoint(
            listener=each.listener or to_protocol(each.security_protocol).name,
            host=each.host,
            port=each.port,
            protocol=to_protocol(each.security_protocol),
        )
        for each in update.endpoints
    )
    if not endpoints and update.v0_host:
        endpoints = (
            Endpoint(
                listener=SecurityProtocol.PLAINTEXT.name, host=update.v0_host, port=update.v0_port
            ),
        )
    return Broker(id=BrokerId(update.id), endpoints=endpoints, rack=update.rack)


def to_protocol(number: int) -> SecurityProtocol:
    try:
        return SecurityProtocol(number)
    except ValueError:
        raise RemoteWireError(f"unknown security protocol {number}") from None
