"""Counters of all topics with a replica on this broker, and their totals. Totals never decrease."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.replication.partition import TopicTraffic

COUNTERS = (
    *("records_in", "bytes_in", "bytes_out", "produces", "failed_produces", "fetches"),
    *("failed_fetches", "replication_bytes_in", "replication_bytes_out"),
)
"""The attributes of TopicTraffic."""


class Traffic:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.others = TopicTraffic()
        """Counters of removed topics, and of failed requests for topics that have no replica here."""

    def add(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic with a replica on this broker."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def find(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic. Names from requests are not added: there may be any number of them."""
        return self.topics.get(topic, self.others)

    def remove(self, topics: Collection[str]) -> None:
        for topic in topics:
            removed = self.topics.pop(topic, None)
            if removed is not None:
                for name in COUNTERS:
                    setattr(self.others, name, getattr(self.others, name) + getattr(removed, name))

    def total(self, name: str) -> int:
        """Return the sum of a counter over all topics."""
        each = (getattr(topic, name) for topic in (self.others, *self.topics.values()))
        return sum(each)
