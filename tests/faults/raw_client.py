"""A client that sends hand-made frames that no library would send, and counts the responses."""

from __future__ import annotations

import time
from typing import Any

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.raw_connection import M, RawConnection, frame

PRODUCE_VERSION, FETCH_VERSION, LATEST = 9, 12, -1


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce_frame(
    topic: str, partition: int, values: list[bytes], acks: int = -1, **batch: int
) -> bytes:
    packed = build_batch(
        [Record(at, now_ms(), None, value) for at, value in enumerate(values)],
        **batch,  # type: ignore[arg-type]
    )
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=(TopicProduceData(topic, (PartitionProduceData(partition, packed),)),),
    )
    return frame(request, PRODUCE_VERSION)


def fetch_frame(
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
) -> bytes:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
    )
    return frame(request, FETCH_VERSION)


class RawClient(RawConnection):
    """Sends one request at a time unless a test sends frames itself."""

    def exchange(self, request: Message, version: int, response: type[M]) -> M:
        self.send(frame(request, version))
        return self.answer(response, version)

    # ---- shortcuts

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> int:
        """Create a topic; returns the error code."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
        return self.exchange(request, 5, CreateTopicsResponse).topics[0].error_code

    def delete_topic(self, name: str) -> int:
        request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=30_000)
        return self.exchange(request, 5, DeleteTopicsResponse).responses[0].error_code

    def produce(
        self, topic: str, partition: int, *values: bytes, **batch: int
    ) -> PartitionProduceResponse:
        self.send(produce_frame(topic, partition, list(values), **batch))
        return self.produced()

    def produced(self) -> PartitionProduceResponse:
        answer = self.answer(ProduceResponse, PRODUCE_VERSION)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, **options: int) -> list[Record]:
        self.send(fetch_frame(topic, partition, offset, **options))
        return self.fetched()

    def fetched(self) -> list[Record]:
        answer = self.answer(FetchResponse, FETCH_VERSION)
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, found
        return decode_records(found.records)

    def end_offset(self, topic: str, partition: int) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=(
                ListOffsetsTopic(
                    name=topic, partitions=(ListOffsetsPartition(partition, timestamp=LATEST),)
                ),
            ),
        )
        found = self.exchange(request, 5, ListOffsetsResponse).topics[0].partitions[0]
        assert found.error_code == 0, found
        return found.offset

    def read_all(self, topic: str, partition: int, max_bytes: int = 1 << 20) -> list[Record]:
        """Read every record of a partition. Offsets must start at 0 and have no gaps."""
        found: list[Record] = []
        end = self.end_offset(topic, partition)
        while len(found) < end:
            batches = self.fetch(topic, partition, len(found), max_bytes=max_bytes)
            got = [record for record in batches if record.offset >= len(found)]
            assert got, f"{topic}-{partition} ends at {end}, nothing to read at {len(found)}"
            assert [r.offset for r in got] == list(range(len(found), len(found) + len(got)))
            found += got
        return found


def decode_records(data: Any) -> list[Record]:
    """Decode all complete batches; a fetch may truncate the last one."""
    view = memoryview(data or b"")
    return [
        record
        for at, header in batch_headers(view)
        for record in records(view[at : at + header.size])
    ]


def all_requests() -> list[tuple[type[Message], int]]:
    return [(api.request, version) for api in APIS.values() for version in api.versions]
