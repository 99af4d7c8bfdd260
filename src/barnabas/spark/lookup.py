"""Lookup of partitions and offsets in the driver.

Spark polls an idle stream every few milliseconds. So topics are refreshed only if their metadata is older than
`metadata_age_ms_max`, or if the call is `strict`. Offsets are looked up every time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar
from uuid import UUID

from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster, Unreachable
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.client.view import ClusterView, TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import ZERO_ID, TopicPartition
from barnabas.retry import Backoff
from barnabas.security.client_settings import parse_client_security
from barnabas.spark.client_settings import (
    BOOTSTRAP,
    client_id,
    integer_setting,
    reads_committed,
)
from barnabas.spark.commit_records import COMMIT_TOPIC
from barnabas.spark.options import ReadOptions, TopicSelection
from barnabas.spark.planning import LogSpan, summarize_partitions

logger = logging.getLogger("barnabas.spark")

T = TypeVar("T")

RETRY_S = 0.1
"""Pause between two attempts of a sink to reach the cluster."""


class UnreachableBrokers(ConfigError):
    """No broker of kafka.bootstrap.servers could be reached: the addresses are wrong, or the cluster is down."""


class Lookup:
    """Partitions and offsets of the selected topics. With `strict`, methods raise ConfigError for a missing topic."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.selection = options.selection
        self.cluster = connect(options.client)
        # A read_committed task stops at the first open transaction, so a batch must not end after it.
        self.reads_committed = reads_committed(options.client)
        self.topics: dict[str, TopicView] = {}
        self.metadata_deadline = Deadline(0)

    def close(self) -> None:
        self.cluster.close()

    # ---- partitions -----------------------------------------------------------------------------------------------

    def partitions(self, *, strict: bool) -> list[TopicPartition]:
        """Return the selected partitions that exist, sorted."""
        if strict or self.metadata_deadline.passed:
            self.refresh_topics(strict=strict)
        if self.selection.partitions:
            return [each for each in self.selection.partitions if self.has_partition(each)]
        return sorted(
            TopicPartition(topic.name, found.partition)
            for topic in self.topics.values()
            for found in topic.partitions
        )

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic, or None if it is unknown. Brokers before Kafka 2.8 report no ids."""
        known = self.topics.get(topic)
        return None if known is None or known.id == ZERO_ID else known.id

    def deleted_topics(self, earlier: Iterable[str]) -> set[str]:
        """Return the topics of `earlier` that the query selects and that do not exist."""
        return {
            name
            for name in earlier
            if name not in self.topics and is_selected(name, self.selection)
        }

    def has_partition(self, partition: TopicPartition) -> bool:
        known = self.topics.get(partition.topic)
        return known is not None and partition.partition < len(known.partitions)

    def refresh_topics(self, *, strict: bool) -> None:
        names = topic_names(self.selection)

        def refresh() -> ClusterView:
            view = self.cluster.refresh(names)
            for name, error in view.errors.items():
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in (names or ()):
                    raise error
            return view

        view = self.retry(lambda: self.cluster.retry(refresh, refresh=False))
        self.topics = select_topics(self.selection, view)
        self.metadata_deadline = Deadline(self.options.metadata_age_ms_max / 1000)
        if strict:
            self.check_topics_exist()

    def check_topics_exist(self) -> None:
        """Raise ConfigError if a selected topic or partition does not exist, or if the pattern matches no topic."""
        option = selection_option(self.selection)
        for name in topic_names(self.selection) or ():
            if name not in self.topics:
                raise ConfigError(option, describe_missing_topic(name, self.cluster))
        missing = [each for each in self.selection.partitions if not self.has_partition(each)]
        if missing:
            count = len(self.topics[missing[0].topic].partitions)
            why = (
                f"there is no {summarize_partitions(missing)}; "
                f"{missing[0].topic} has partitions 0 to {count - 1}"
            )
            raise ConfigError(option, why)
        if not self.topics:
            why = f"no topic matches {self.selection.pattern!r}; change the pattern"
            raise ConfigError(option, why)

    # ---- offsets --------------------------------------------------------------------------------------------------

    def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogSpan]:
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        return {
            partition: LogSpan(earliest[partition], max(earliest[partition], latest[partition]))
            for partition in partitions
        }

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self.retry(lambda: earliest_offsets(self.cluster, partitions))

    def latest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self.retry(
            lambda: latest_offsets(self.cluster, partitions, committed=self.reads_committed)
        )

    def latest_after(
        self, begin: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the end offsets for a batch that starts at `begin`.

        The last stable offset may be before `begin` if the query was read_uncommitted until now. Then there is nothing
        to read until the open transaction ends.
        """
        found = self.latest(partitions)
        earlier = [each for each in partitions if found[each] < begin.get(each, 0)]
        if earlier and self.reads_committed:
            ends = self.retry(lambda: latest_offsets(self.cluster, earlier))
            found |= {each: begin[each] for each in earlier if ends[each] >= begin[each]}
        return found

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after each timestamp; -1 if there is none."""
        if not timestamps:
            return {}
        found = self.retry(
            lambda: list_offsets(self.cluster, timestamps, committed=self.reads_committed)
        )
        return {partition: result.offset for partition, result in found.items()}

    def retry(self, request: Callable[[], T]) -> T:
        """Call `request` up to fetchOffset.numRetries times, with pauses of fetchOffset.retryIntervalMs."""
        pause_s = self.options.look_up_pause_ms / 1000
        backoff = Backoff(pause_s, pause_s, random=self.cluster.random)
        for left in range(self.options.look_up_attempts - 1, -1, -1):
            try:
                return request()
            except ApiError as error:
                # The client has retried an unknown topic already.
                is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if left == 0 or is_unknown or not error.code.retriable:
                    raise explain_error(error) from None
                logger.info("retrying a lookup error=%s", error)
            pause(backoff.next_s())
        raise AssertionError("the last attempt returns or raises")


def connect(settings: Mapping[str, str], *, timeout_s: float | None = None) -> Cluster:
    """Return a client with these settings. `timeout_s` is used instead of request.timeout.ms."""
    return Cluster(
        settings[BOOTSTRAP],
        client_id=client_id(settings),
        timeout_s=timeout_s or integer_setting(settings, "request.timeout.ms", 30_000) / 1000,
        connect_timeout_s=integer_setting(settings, "socket.connection.setup.timeout.ms", 5_000)
        / 1000,
        security=parse_client_security(settings),
    )


def wait_until_reachable(cluster: Cluster) -> None:
    """Fetch the brokers. Network errors are retried until the request timeout, because the driver has reached them."""
    deadline = Deadline(cluster.timeout_s)
    backoff = Backoff(RETRY_S, RETRY_S, random=cluster.random)
    while True:
        try:
            cluster.refresh([])
            return
        except ApiError as error:
            if error.code is not ErrorCode.NETWORK_EXCEPTION or deadline.passed:
                raise explain_error(error) from None
        pause(backoff.next_s())


def topic_names(selection: TopicSelection) -> list[str] | None:
    """Return the names of the selected topics, or None for a pattern."""
    if selection.pattern is not None:
        return None
    return list(selection.topics or dict.fromkeys(found.topic for found in selection.partitions))


def select_topics(selection: TopicSelection, view: ClusterView) -> dict[str, TopicView]:
    names = topic_names(selection)
    if names is not None:
        return {name: view.topics[name] for name in names if name in view.topics}
    return {
        name: topic
        for name, topic in sorted(view.topics.items())
        if not topic.is_internal and name != COMMIT_TOPIC and is_selected(name, selection)
    }


def is_selected(topic: str, selection: TopicSelection) -> bool:
    names = topic_names(selection)
    if names is not None:
        return topic in names
    # The pattern may match anywhere in the name, as in Spark's Kafka source.
    return re.search(selection.pattern or "", topic) is not None


def selection_option(selection: TopicSelection) -> str:
    if selection.pattern is not None:
        return "subscribePattern"
    return "subscribe" if selection.topics else "assign"


def describe_missing_topic(name: str, cluster: Cluster) -> str:
    """Return an error text for a missing topic, with a similar name if there is one."""
    try:
        similar = get_close_matches(name, cluster.refresh(None).topics, n=1, cutoff=0.6)
    except ApiError:
        similar = []
    hint = f"did you mean {similar[0]}?" if similar else f"create it: barnabas topics create {name}"
    return f"there is no topic {name}; {hint}"


def explain_error(error: ApiError) -> Exception:
    """Return an UnreachableBrokers error with a hint if no broker was reached, else the error itself."""
    if isinstance(error, Unreachable):
        tried = "; ".join(f"{address} ({why})" for address, why in error.tried)
        hint = "start a broker there (barnabas up), or correct the address"
        return UnreachableBrokers("kafka.bootstrap.servers", f"no broker reached: {tried}; {hint}")
    return error
