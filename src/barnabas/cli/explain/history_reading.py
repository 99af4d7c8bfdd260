"""Reads the last events of the history, deduplicated and in order."""

from __future__ import annotations

from collections.abc import Container

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer, FromEnd
from barnabas.errors import ApiError
from barnabas.history.event import AnyEvent, read_event
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition

EVENTS_MAX = 50_000
"""Events that are read at most. More take seconds, and older ones rarely explain the present."""
READ_TIMEOUT_S = 3.0


def read_history(
    cluster: Cluster, events_max: int | None = None, silent: Container[int] = ()
) -> list[AnyEvent]:
    """Return the last events. Returns none if there is no history, or if its leader is missing or silent."""
    topic = cluster.view.topics.get(STATE_CHANGES)
    if topic is None or any(each.is_offline or each.leader in silent for each in topic.partitions):
        return []
    found: dict[tuple[int, int], AnyEvent] = {}
    try:
        with cluster.with_new_connections(timeout_s=READ_TIMEOUT_S) as reading:
            start = FromEnd(EVENTS_MAX if events_max is None else events_max)
            consumer = Consumer(
                reading,
                {TopicPartition(STATE_CHANGES, 0): start},
                reset=Beginning(),
                fetch_wait_ms=100,
            )
            for record in consumer.records(stop_at_end=True):
                event = read_event(record.value)
                if event is not None:
                    found[event.key] = event
    except ApiError:
        return []  # an explanation without times is better than none
    return [found[key] for key in sorted(found)]
