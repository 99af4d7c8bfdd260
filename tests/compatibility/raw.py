"""Hand-made requests, for everything that no client library can be made to send."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.waiting import eventually
from tests.raw_connection import M, RawConnection, frame

TIMEOUT_SECONDS = 60
SPREAD_SECONDS = 30.0
TIMESTAMP = 1_700_000_000_000


class Raw(RawConnection):
    """A connection that numbers its requests. Requests use the newest version unless a test passes another."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        super().__init__((host, int(port)), TIMEOUT_SECONDS)
        self.correlation_id = 0

    def ask(self, request: Message, response: type[M], version: int | None = None) -> M:
        return self.answer(response, *self.begin(request, version))

    def begin(self, request: Message, version: int | None = None) -> tuple[int, int]:
        """Send without waiting; returns (version, correlation id) for `answer`."""
        if version is None:
            version = APIS[request.API_KEY].versions[-1]
        self.correlation_id += 1
        self.send(frame(request, version, self.correlation_id))
        return version, self.correlation_id

    # ---- shortcuts

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> UUID:
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(CreatableTopicConfig(*pair) for pair in (configs or {}).items()),
        )
        answer = self.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
        (result,) = answer.topics
        assert result.error_code == ErrorCode.NONE, result
        return result.topic_id

    def topic_id(self, topic: str) -> UUID:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
        (found,) = self.ask(request, MetadataResponse).topics
        return found.topic_id

    def produce(
        self,
        topic: str,
        batch: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, batch, partition=partition, acks=acks)
        answer = self.ask(request, ProduceResponse, version)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, version: int = 12, **options: Any) -> PartitionData:
        """Fetch one partition without waiting."""
        response = self.ask(fetch_request(topic, {0: offset}, **options), FetchResponse, version)
        assert response.error_code == ErrorCode.NONE
        return response.responses[0].partitions[0]

    def list_offset(
        self, topic: str, timestamp: int, *, version: int | None = None, count: int = 1, **more: int
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(0, timestamp=timestamp, max_num_offsets=count, **more)
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(topic, (wanted,)),))
        return self.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]


def wait_until_known(addresses: Iterable[str], topic: str) -> None:
    """Wait until each of these brokers knows the topic's leader, and so has the replicas assigned to it.

    CreateTopics returns as soon as the controller's broker knows the topic. The other brokers learn of it later.
    """
    wanted = (MetadataRequestTopic(name=topic),)
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    for address in addresses:
        with Raw(address) as raw:
            eventually(lambda: is_led(raw.ask(request, MetadataResponse)), topic, SPREAD_SECONDS)


def is_led(answer: MetadataResponse) -> bool:
    (topic,) = answer.topics
    return bool(topic.partitions) and all(each.leader_id >= 0 for each in topic.partitions)


def batch_of(*values: bytes | None, timestamp: int = TIMESTAMP, **options: Any) -> bytes:
    """Build a batch like a producer does."""
    return build_batch(
        [Record(index, timestamp, None, value) for index, value in enumerate(values)], **options
    )


def recent_batch_of(*values: bytes | None, **options: Any) -> bytes:
    """`batch_of` with a current timestamp, for clusters with retention enabled."""
    return batch_of(*values, timestamp=time.time_ns() // 1_000_000, **options)


def produce_request(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = TopicProduceData(topic, (PartitionProduceData(partition, batch),))
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=(data,))


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    topic_id: UUID = ZERO_ID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    forget: Sequence[int] = (),
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> FetchRequest:
    """Build a fetch of one topic's partitions from these offsets, without a session unless one is given."""
    partitions = tuple(
        FetchPartition(
            index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
        )
        for index, offset in offsets.items()
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic, topic_id, partitions),) if partitions else (),
        forgotten_topics_data=(ForgottenTopic(topic, topic_id, tuple(forget)),) if forget else (),
    )


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    """The partitions of a fetch response for one topic."""
    topics: tuple[FetchableTopicResponse, ...] = response.responses
    assert len(topics) <= 1
    return {found.partition_index: found for topic in topics for found in topic.partitions}


def values_in(fetched: PartitionData) -> list[bytes | None]:
    data = memoryview(fetched.records or b"")
    return [
        record.value
        for at, header in batch_headers(data)
        for record in records(data[at : at + header.size])
    ]
