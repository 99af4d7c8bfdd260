"""What the cluster has, asked from the driver: which partitions a subscription means, and where their logs stand.

A source asks often: with nothing to read Spark comes back every few milliseconds. Topics are looked at anew when what
is known of them is older than `metadata_age_ms_max`; offsets are asked for every time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
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
from barnabas.spark.client_settings import COMMITTED, number
from barnabas.spark.options import ReadOptions, Subscription
from barnabas.spark.planning import Span, listed

log = logging.getLogger("barnabas.spark")

T = TypeVar("T")


class UnreachableBrokers(ConfigError):
    """No broker of kafka.bootstrap.servers could be reached: the addresses are wrong, or the cluster is down."""


class Lookup:
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.subscription = options.subscription
        self.cluster = connect(options.bootstrap_servers, options.client)
        # Where tasks leave out open transactions, a plan that ends behind one could never be read to its end.
        self.reads_committed = options.client.get("isolation.level", "").lower() == COMMITTED
        self.topics: dict[str, TopicView] = {}
        self.fresh = Deadline(0)

    def close(self) -> None:
        self.cluster.close()

    # ---- partitions -----------------------------------------------------------------------------------------------

    def partitions(self, *, strict: bool) -> list[TopicPartition]:
        """What is read, in order. `strict`: ConfigError for a topic that was named and is not there."""
        if strict or self.fresh.passed:
            self.look_again(strict=strict)
        if self.subscription.partitions:
            return [partition for partition in self.subscription.partitions if self.has(partition)]
        return sorted(
            TopicPartition(topic.name, found.partition)
            for topic in self.topics.values()
            for found in topic.partitions
        )

    def topic_id(self, topic: str) -> UUID | None:
        """None where the broker does not tell (before Kafka 2.8)."""
        known = self.topics.get(topic)
        return None if known is None or known.id == ZERO_ID else known.id

    def has(self, partition: TopicPartition) -> bool:
        known = self.topics.get(partition.topic)
        return known is not None and partition.partition < len(known.partitions)

    def look_again(self, *, strict: bool) -> None:
        names = topic_names(self.subscription)

        def look() -> ClusterView:
            view = self.cluster.refresh(names)
            for name, error in view.errors.items():
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in (names or ()):
                    raise error
            return view

        view = self.attempt(lambda: self.cluster.retry(look, refresh=False))
        self.topics = chosen(self.subscription, view)
        self.fresh = Deadline(self.options.metadata_age_ms_max / 1000)
        if strict:
            self.check_all_there()

    def check_all_there(self) -> None:
        option = option_of(self.subscription)
        for name in topic_names(self.subscription) or ():
            if name not in self.topics:
                raise ConfigError(option, no_topic(name, self.cluster))
        missing = [found for found in self.subscription.partitions if not self.has(found)]
        if missing:
            count = len(self.topics[missing[0].topic].partitions)
            why = (
                f"there is no {listed(missing)}; {missing[0].topic} has partitions 0 to {count - 1}"
            )
            raise ConfigError(option, why)
        if not self.topics:
            why = f"no topic matches {self.subscription.pattern!r}; change the pattern"
            raise ConfigError(option, why)

    # ---- offsets --------------------------------------------------------------------------------------------------

    def spans(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        asked = list(partitions)
        earliest, latest = self.earliest(asked), self.latest(asked)
        return {
            partition: Span(earliest[partition], max(earliest[partition], latest[partition]))
            for partition in asked
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        asked = list(partitions)
        return self.attempt(lambda: earliest_offsets(self.cluster, asked)) if asked else {}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        asked = list(partitions)
        if not asked:
            return {}
        return self.attempt(
            lambda: latest_offsets(self.cluster, asked, committed=self.reads_committed)
        )

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """-1 where no record is as young."""
        if not timestamps:
            return {}
        found = self.attempt(
            lambda: list_offsets(self.cluster, timestamps, committed=self.reads_committed)
        )
        return {partition: answer.offset for partition, answer in found.items()}

    def attempt(self, ask: Callable[[], T]) -> T:
        """fetchOffset.numRetries times, with fetchOffset.retryIntervalMs between."""
        pause_s = self.options.look_up_pause_ms / 1000
        backoff = Backoff(pause_s, pause_s, random=self.cluster.random)
        for left in range(self.options.look_up_attempts - 1, -1, -1):
            try:
                return ask()
            except ApiError as error:
                # A topic that is gone stays gone; the client has waited for it already.
                gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if left == 0 or gone or not error.code.retriable:
                    raise explained(error) from None
                log.info("asking again for offsets: %s", error)
            pause(backoff.next_s())
        raise AssertionError("the last attempt returns or raises")


def connect(bootstrap_servers: str, settings: Mapping[str, str]) -> Cluster:
    return Cluster(
        bootstrap_servers,
        client_id=settings.get("client.id", "barnabas-spark"),
        timeout_s=number(settings, "request.timeout.ms", 30_000) / 1000,
        connect_timeout_s=number(settings, "socket.connection.setup.timeout.ms", 5_000) / 1000,
    )


def topic_names(subscription: Subscription) -> list[str] | None:
    """None: all topics are to be looked at."""
    if subscription.pattern is not None:
        return None
    return list(
        subscription.topics or dict.fromkeys(found.topic for found in subscription.partitions)
    )


def chosen(subscription: Subscription, view: ClusterView) -> dict[str, TopicView]:
    names = topic_names(subscription)
    if names is not None:
        return {name: view.topics[name] for name in names if name in view.topics}
    # Anywhere in the name, as Spark's own source matches it.
    wanted = re.compile(subscription.pattern or "")
    return {
        name: topic
        for name, topic in sorted(view.topics.items())
        if not topic.is_internal and wanted.search(name)
    }


def option_of(subscription: Subscription) -> str:
    if subscription.pattern is not None:
        return "subscribePattern"
    return "subscribe" if subscription.topics else "assign"


def no_topic(name: str, cluster: Cluster) -> str:
    """The words for a topic that is not there, with the name that may have been meant."""
    try:
        near = get_close_matches(name, cluster.refresh(None).topics, n=1, cutoff=0.6)
    except ApiError:
        near = []
    hint = f"did you mean {near[0]}?" if near else f"create it: barnabas topics create {name}"
    return f"there is no topic {name}; {hint}"


def explained(error: ApiError) -> Exception:
    if isinstance(error, Unreachable):
        tried = "; ".join(f"{address} ({why})" for address, why in error.tried)
        hint = "start a broker there (barnabas up), or correct the address"
        return UnreachableBrokers("kafka.bootstrap.servers", f"no broker reached: {tried}; {hint}")
    return error
