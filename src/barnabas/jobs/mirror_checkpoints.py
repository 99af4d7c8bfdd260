"""Checkpoints of mirrored partitions, in a compacted topic of the target cluster.

A group's offsets would be deleted a week after the last commit. The topic keeps the last checkpoint of each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec
from msgspec import Struct

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.producer import Producer
from barnabas.errors import ApiError, ErrorCode
from barnabas.jobs.errors import JobRefused
from barnabas.model import TopicPartition

CHECKPOINT_TOPIC = "barnabas-mirror-checkpoints"


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The record at `source_offset` of the source, or the next one after it, gets `target_offset` in the target."""

    topic_id: UUID
    """Id of the source topic."""
    source_offset: int
    target_offset: int
    target_id: UUID | None = None
    """Id of the target topic. Earlier versions stored none."""


class CheckpointKey(Struct, frozen=True, kw_only=True):
    """A partition of a source cluster, and the topic that mirrors it."""

    source: str
    topic: str
    partition: int
    target: str


class CheckpointStore:
    """The checkpoints of one source cluster."""

    def __init__(self, cluster: Cluster, source_id: str) -> None:
        self.cluster = cluster
        self.source_id = source_id

    def load(self, topic: str, target: str) -> dict[int, Checkpoint]:
        """Return the checkpoints of a topic, by partition. Raises ApiError, and JobRefused for unreadable ones."""
        found: dict[int, Checkpoint] = {}
        try:
            partition = TopicPartition(CHECKPOINT_TOPIC, 0)
            consumer = Consumer(self.cluster, {partition: Beginning()})
            stored = [(each.key, each.value) for each in consumer.records(stop_at_end=True)]
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return {}
        for key, value in stored:
            try:
                place = msgspec.json.decode(key or b"", type=CheckpointKey)
                checkpoint = msgspec.json.decode(value or b"", type=Checkpoint)
            except msgspec.DecodeError as error:
                hint = "delete the topic, and the mirrored topics, and mirror them again"
                raise JobRefused(
                    f"topic {CHECKPOINT_TOPIC} has a record that is no checkpoint ({error}); {hint}"
                ) from None
            if (place.source, place.topic, place.target) == (self.source_id, topic, target):
                found[place.partition] = checkpoint
        return found

    def save(self, topic: str, target: str, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Write checkpoints. The topic is created if it does not exist. Raises ApiError."""
        if not checkpoints:
            return
        self.ensure_topic()
        with Producer(self.cluster, acks=-1) as producer:
            for partition, checkpoint in checkpoints.items():
                key = CheckpointKey(
                    source=self.source_id, topic=topic, partition=partition, target=target
                )
                producer.send(
                    CHECKPOINT_TOPIC,
                    msgspec.json.encode(checkpoint),
                    key=msgspec.json.encode(key),
                    partition=0,
                )

    def ensure_topic(self) -> None:
        new = NewTopic(
            name=CHECKPOINT_TOPIC,
            partitions=1,
            replication_factor=-1,
            configs={"cleanup.policy": "compact"},
        )
        (outcome,) = Admin(self.cluster).create_topics([new])
        if outcome.error and outcome.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome.error
