"""The commit log of the exactly-once sink: a compacted topic with the last decided batch of each sink.

    CommitLog(cluster, scope)     fences other drivers of the same sink, and aborts what they were writing
    last()                        the last record of the sink
    append(record)                in a transaction: it fails if another driver has been here since the first step
    delete()                      for a sink that is never used again

So at most one driver decides a batch, even if an old one continues after a pause.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.retry import Backoff
from barnabas.spark.commit_records import (
    COMMIT_TOPIC,
    CommitRecord,
    commit_log_id,
    decode_record,
    encode_record,
)
from barnabas.spark.fetching import read_range
from barnabas.spark.ranges import OffsetRange, parse_fetch_settings

LOG = TopicPartition(COMMIT_TOPIC, 0)
LOG_REPLICAS_MAX = 3
LOG_CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(4 << 20),
}
SAFE_LOG_CONFIGS = {"min.insync.replicas": "2"}
"""With LOG_REPLICAS_MAX replicas: the loss of one broker neither loses a record nor stops the sinks."""
LOG_TIMEOUT_MS = 30_000
"""Timeout of the transaction of one record. If a driver is killed while it writes, other sinks wait this long. It is
longer than the failover of a broker (zookeeper.session.timeout.ms, 18 s): that must not abort the record and fail the
batch."""
TAIL_OFFSETS = 64
"""Number of offsets that are read from the end. If they have no record of the sink, twice as many are read, and so on.
"""


class CommitLog:
    """The records of one sink, for the driver that commits now. Methods raise ApiError."""

    def __init__(self, cluster: Cluster, scope: str, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.scope = scope
        self.settings = parse_fetch_settings(
            {**settings, "isolation.level": "read_committed"}, ("key", "value")
        )
        ensure_commit_topic(cluster)
        self.producer = TransactionalProducer(
            cluster, commit_log_id(scope), timeout_ms=LOG_TIMEOUT_MS
        )

    def last(self) -> CommitRecord | None:
        """Return the last record of this sink, or None.

        No driver can write another one meanwhile without fencing this one.
        """
        end = self.stable_end()
        first = earliest_offsets(self.cluster, [LOG])[LOG]
        length = TAIL_OFFSETS
        while end > first:
            start = max(first, end - length)
            data = self.read_last(start, end)
            if data is not None:
                return decode_record(self.scope, data)
            if start == first:
                break
            length *= 2
        return None

    def stable_end(self) -> int:
        """Return the high watermark. Waits until no transaction before it is open: other sinks write here too."""
        end = latest_offsets(self.cluster, [LOG])[LOG]
        deadline = Deadline(self.cluster.timeout_s + 2 * LOG_TIMEOUT_MS / 1000)
        backoff = Backoff(0.005, 0.2, random=self.cluster.random)
        while latest_offsets(self.cluster, [LOG], committed=True)[LOG] < end:
            if deadline.passed:
                why = f"a transaction in {COMMIT_TOPIC} stays open; see barnabas transactions list"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
            pause(backoff.next_s())
        return end

    def read_last(self, start: int, end: int) -> bytes | None:
        key, found = self.scope.encode(), None
        wanted = OffsetRange(topic=LOG.topic, partition=LOG.partition, start=start, end=end)
        for batch in read_range(wanted, self.settings):
            keys, values = (batch.column(index).to_pylist() for index in (0, 1))
            for each, value in zip(keys, values, strict=True):
                if each == key:
                    found = value
        return found

    def append(self, record: CommitRecord) -> None:
        """Write a record. If this raises, it is unknown whether the log has it: a new CommitLog can tell."""
        self.write(encode_record(self.scope, record))

    def delete(self) -> None:
        """Write a tombstone. The brokers then delete the record of the sink, and the tombstone too."""
        self.write(None)

    def write(self, value: bytes | None) -> None:
        self.producer.begin()
        self.producer.send(LOG.topic, value, key=self.scope.encode(), partition=LOG.partition)
        self.producer.commit()


def ensure_commit_topic(cluster: Cluster) -> None:
    """Create the topic if it does not exist. Raises ApiError."""
    view = cluster.retry(lambda: cluster.refresh([COMMIT_TOPIC]), refresh=False)
    if COMMIT_TOPIC in view.topics:
        return
    replicas = min(LOG_REPLICAS_MAX, len(view.brokers))
    topic = NewTopic(
        name=COMMIT_TOPIC,
        partitions=1,
        replication_factor=replicas,
        configs=LOG_CONFIGS | (SAFE_LOG_CONFIGS if replicas == LOG_REPLICAS_MAX else {}),
    )
    (outcome,) = Admin(cluster).create_topics([topic])
    if outcome.error is not None and outcome.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome.error
    cluster.fetch_topic(COMMIT_TOPIC)
