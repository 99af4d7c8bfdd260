"""The topics that `consume` reads: names, or regular expressions that must match whole names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.topics.lookup import find_topic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import PARTITION_CHECK_S, ConsumedRecord, Consumer
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ConfigError

Patterns = Sequence[re.Pattern[str]]


def compile_patterns(texts: Iterable[str]) -> Patterns:
    """Raises ConfigError for a text that is not a regular expression."""
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            why = f"{text!r} is not a regular expression: {error}; try 'web-.*'"
            raise ConfigError("--regex", why) from None
    return patterns


def matching_topics(topics: Iterable[TopicView], patterns: Patterns) -> list[str]:
    """Return the topics whose whole name matches one of the patterns, sorted. Internal topics never match."""
    return sorted(
        topic.name
        for topic in topics
        if not topic.is_internal and any(each.fullmatch(topic.name) for each in patterns)
    )


def select_topics(cluster: Cluster, names: Sequence[str], patterns: Patterns) -> list[str]:
    """Return the named topics, or those that match. Raises an error if a name, or all patterns, match no topic."""
    if not patterns:
        return [find_topic(cluster, name).name for name in dict.fromkeys(names)]
    found = matching_topics(cluster.refresh(None).topics.values(), patterns)
    if not found:
        texts = " or ".join(repr(each.pattern) for each in patterns)
        hint = "the expression must match the whole name; see `barnabas topics list`"
        raise CommandError(f"no topic matches {texts}", hint)
    return found


class MatchingConsumer:
    """Consumer of all topics that match. It adds topics that are created later, and drops deleted topics.

    `consumer` must watch `topics`, which this class changes.
    """

    def __init__(self, consumer: Consumer, topics: list[str], patterns: Patterns) -> None:
        self.consumer = consumer
        self.topics = topics
        self.patterns = patterns
        self.next_check = Deadline(PARTITION_CHECK_S)

    @property
    def at_end(self) -> bool:
        return self.consumer.at_end

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        if self.next_check.passed:
            self.next_check = Deadline(PARTITION_CHECK_S)
            # If no broker answers, the consumer reports it.
            with suppress(ApiError):
                self.update_topics()
        return self.consumer.poll(timeout_s)

    def update_topics(self) -> None:
        known = self.consumer.cluster.refresh(None).topics
        self.topics[:] = matching_topics(known.values(), self.patterns)
        kept = {each for each in self.consumer.positions if each.topic in self.topics}
        for partition in self.consumer.positions.keys() - kept:
            del self.consumer.positions[partition]
        self.consumer.add_new_partitions()
