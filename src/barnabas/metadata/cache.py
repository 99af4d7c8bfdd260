"""What this broker knows of the cluster: the brokers, the topics, who leads each partition.

The controller tells it with UpdateMetadata, and nobody else does. The brokers and the controller are replaced as a
whole; partitions are merged, so a request that names none leaves them all; the leader -2 takes a partition out, and its
topic with the last one. Every broker hears of it in its own time: a topic known here may be unknown next door.

Each topic's part of a Metadata response is kept encoded until that topic or the list of brokers changes: a client that
asks for a thousand partitions gets a join of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, STATE_CHANGES, TRANSACTION_STATE
from barnabas.model import (
    NO_LEADER,
    ZERO_ID,
    Broker,
    BrokerId,
    Endpoint,
    LeaderEpoch,
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
"""Written by brokers only, and hidden from clients that subscribe to a pattern."""
NOT_PRODUCED_TO = INTERNAL_TOPICS
LISTENER_ERRORS_SINCE = 6  # before, a leader without the client's listener counted as not available
DOUBT_SECONDS = 0.5
FAREWELL_SECONDS = 2.0
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

Encode = Callable[[int, MetadataResponseTopic], bytes]
Condition = Callable[[], bool]


class PartitionMetadata(NamedTuple):
    """One partition as clients are told of it. `replicas[0]` is the preferred one."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    partition_epoch: ZnodeVersion = ZnodeVersion(0)


class TopicMetadata(Struct, frozen=True, kw_only=True):
    """A topic; replaced as a whole when one of its partitions changes."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionMetadata]


class Merged(NamedTuple):
    """The live brokers of an UpdateMetadata, the new state of the topics it names, and the partitions that are gone. A
    topic without partitions is gone itself."""

    brokers: dict[BrokerId, Broker]
    topics: dict[str, TopicMetadata]
    removed: tuple[TopicPartition, ...]


class MetadataCache:
    """This broker's view of the cluster."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.brokers: dict[BrokerId, Broker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.names: dict[UUID, str] = {}
        self.encoded: dict[str, dict[tuple[int, str | None], bytes]] = {}
        # Thousands of partitions share a handful of replica lists.
        self.shared: dict[tuple[int, ...], tuple[BrokerId, ...]] = {}
        self.waiting: list[tuple[Condition, asyncio.Future[bool]]] = []
        self.in_doubt: dict[BrokerId, asyncio.TimerHandle] = {}
        """Their connection has just broken: who leads what they lead is probably about to change."""
        self.departed: dict[BrokerId, tuple[Broker, asyncio.TimerHandle]] = {}

    # ---- being told

    def update(self, request: UpdateMetadataRequest) -> tuple[TopicPartition, ...]:
        """Take over what the controller says; the partitions that are gone."""
        return self.take_over(request, self.merged(request))

    def merged(self, request: UpdateMetadataRequest) -> Merged:
        """Compute the new state. Changes nothing, and is safe to call in a thread."""
        brokers = {BrokerId(each.id): broker_of(each) for each in request.live_brokers}
        topics: dict[str, TopicMetadata] = {}
        removed: dict[TopicPartition, None] = {}
        for topic in request.topic_states or grouped(request.ungrouped_partition_states):
            before = topics.get(topic.topic_name) or self.topics.get(topic.topic_name)
            topics[topic.topic_name] = self.merged_topic(before, topic, removed)
        return Merged(brokers, topics, tuple(removed))

    def merged_topic(
        self,
        before: TopicMetadata | None,
        told: UpdateMetadataTopicState,
        removed: dict[TopicPartition, None],
    ) -> TopicMetadata:
        name = told.topic_name
        partitions = dict(before.partitions) if before is not None else {}
        share = self.share
        # Thousands of partitions are in a handful of states.
        alike: dict[PartitionMetadata, PartitionMetadata] = {}
        for state in told.partition_states:
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
            partitions[index] = alike.setdefault(found, found)
        return TopicMetadata(name=name, topic_id=told.topic_id, partitions=partitions)

    def take_over(
        self, request: UpdateMetadataRequest, merged: Merged
    ) -> tuple[TopicPartition, ...]:
        if merged.brokers != self.brokers:
            self.encoded.clear()
            self.see_off(merged.brokers)
        self.brokers = merged.brokers
        self.controller_id = BrokerId(max(request.controller_id, NO_LEADER))
        for name, topic in merged.topics.items():
            if topic.partitions:
                self.put_topic(topic)
            else:
                self.remove_topic(name)
        self.wake()
        return merged.removed

    def see_off(self, staying: Mapping[BrokerId, Broker]) -> None:
        for broker in [each for each in self.departed if each in staying]:
            self.departed.pop(broker)[1].cancel()
        for broker in [each for each in self.brokers if each not in staying]:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(FAREWELL_SECONDS, self.departed.pop, broker, None)
            self.departed[broker] = self.brokers[broker], timer

    def share(self, brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
        found = self.shared.get(brokers)
        if found is None:
            found = self.shared[brokers] = tuple(map(BrokerId, brokers))
        return found

    def put_topic(self, topic: TopicMetadata) -> None:
        before = self.topics.get(topic.name)
        if before is not None and before.topic_id != topic.topic_id:
            self.names.pop(before.topic_id, None)
        self.encoded.pop(topic.name, None)
        self.topics[topic.name] = topic
        if topic.topic_id != ZERO_ID:
            self.names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)
            self.encoded.pop(name, None)

    # ---- waiting for what one is told

    async def wait_until(self, condition: Condition, timeout_s: float) -> bool:
        """Whether it came true in time; looked at now and after every update."""
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
        still = []
        for condition, future in self.waiting:
            if future.done():
                continue
            try:
                met = condition()
            except Exception as error:  # noqa: BLE001 - it belongs to who waits, not to who tells
                future.set_exception(error)
                continue
            if met:
                future.set_result(True)
            else:
                still.append((condition, future))
        self.waiting = still

    def doubt(self, broker: BrokerId) -> None:
        """For a moment. If it is gone, the controller will say so; if not, it will be there again."""
        if broker in self.brokers and broker not in self.in_doubt:
            loop = asyncio.get_running_loop()
            self.in_doubt[broker] = loop.call_later(DOUBT_SECONDS, self.trust, broker)

    def trust(self, broker: BrokerId) -> None:
        self.in_doubt.pop(broker).cancel()
        self.wake()

    async def wait_for_news(self, topics: Iterable[str]) -> None:
        """While one of them is led by a broker in doubt. A client that was told the old leader would find nobody there,
        and some take a second before they ask again."""
        asked = tuple(topics)
        await self.wait_until(lambda: not any(map(self.is_in_doubt, asked)), DOUBT_SECONDS)

    def is_in_doubt(self, topic: str) -> bool:
        found = self.topics.get(topic)
        return found is not None and any(
            state.leader in self.in_doubt for state in found.partitions.values()
        )

    # ---- being asked

    def brokers_and_departed(self) -> list[Broker]:
        """With those who went a moment ago. librdkafka loses the new leader of a partition when the answer that names
        it no longer has the old one, and looks again only a second later."""
        return [*self.brokers.values(), *(broker for broker, _ in self.departed.values())]

    def knows(self, topic: str, index: int) -> bool:
        state = self.topics.get(topic)
        return state is not None and index in state.partitions

    def is_alive(self, broker: int) -> bool:
        return broker in self.brokers

    def endpoint(self, broker: Broker, listener: str) -> Endpoint | None:
        """Where a client that came in through `listener` finds this broker."""
        return next((e for e in broker.endpoints if e.listener == listener), None)

    def endpoint_of(self, broker_id: int, listener: str) -> Endpoint | None:
        """The same by id; None as well if that broker is not alive."""
        broker = self.brokers.get(BrokerId(broker_id))
        return self.endpoint(broker, listener) if broker is not None else None

    def encoded_topic(
        self, name: str, version: int, encode: Encode, listener: str | None = None
    ) -> bytes:
        by_version = self.encoded.get(name)
        if by_version is None:
            by_version = self.encoded[name] = {}
        data = by_version.get((version, listener))
        if data is None:
            data = encode(version, self.describe(name, version, listener))
            by_version[version, listener] = data
        return data

    async def prepare(self, name: str, version: int, encode: Encode, listener: str | None) -> None:
        """Have a large topic encoded in a thread, for `encoded_topic` to find it. Unless it changes meanwhile."""
        topic, brokers = self.topics[name], self.brokers
        if (version, listener) in self.encoded.get(name, {}):
            return
        data = await asyncio.to_thread(
            lambda: encode(version, self.described(topic, version, listener))
        )
        if self.topics.get(name) is topic and self.brokers is brokers:
            self.encoded.setdefault(name, {})[version, listener] = data

    def describe(
        self, name: str, version: int, listener: str | None = None
    ) -> MetadataResponseTopic:
        """The topic as a client that came in through `listener` is told of it; None: through any."""
        return self.described(self.topics[name], version, listener)

    def described(
        self, topic: TopicMetadata, version: int, listener: str | None
    ) -> MetadataResponseTopic:
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
            # The oldest clients cannot be told of brokers they cannot look up.
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


def grouped(
    states: Iterable[UpdateMetadataPartitionState],
) -> Iterable[UpdateMetadataTopicState]:
    """The flat list of the oldest versions, by topic."""
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    for state in states:
        by_topic.setdefault(state.topic_name, []).append(state)
    return [
        UpdateMetadataTopicState(topic_name=name, partition_states=tuple(found))
        for name, found in by_topic.items()
    ]


def broker_of(told: UpdateMetadataBroker) -> Broker:
    """Old versions name no listeners: a listener is then called as its security protocol."""
    endpoints = tuple(
        Endpoint(
            listener=each.listener or SECURITY_PROTOCOLS[each.security_protocol],
            host=each.host,
            port=each.port,
        )
        for each in told.endpoints
    )
    if not endpoints and told.v0_host:
        endpoints = (
            Endpoint(listener=SECURITY_PROTOCOLS[0], host=told.v0_host, port=told.v0_port),
        )
    return Broker(id=BrokerId(told.id), endpoints=endpoints, rack=told.rack)
