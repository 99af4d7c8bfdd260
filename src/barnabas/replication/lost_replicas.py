"""Replicas whose records went with a disk, while the controller still counts them in sync.

    start with a blank directory ─► in the ISR, no log: lost ─► told to lead: KAFKA_STORAGE_ERROR
                                                             └► told to follow a leader that lives: no longer lost

A broker that comes back empty must not lead what it was in sync for: all others would cut their logs to its empty one.
It waits for a controller to take it out of the ISRs before it registers (broker/startup/lost_logs.py). That comes to
nothing if no other broker is there to be controller, or if it was the last one in sync, which stays in the ISR for
ever. Then it refuses, and nobody leads: the partition is offline, and the others keep what they have until somebody
decides that it is enough (unclean.leader.election.enable).

With a single replica there is nothing that anybody could keep: it begins anew, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from uuid import UUID

from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger("barnabas.replicas")

ASK_AGAIN_SECONDS = (1.0, 10.0)
LOOK_AGAIN_SECONDS = 600.0


class LostReplicas:
    def __init__(self, broker_id: BrokerId, metadata: MetadataCache, logs: LogManager) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.logs = logs
        self.topics: dict[tuple[str, int], UUID] = {}
        """The lost partitions by the id their topic had: a later topic of that name is another matter."""

    def take(self, lost: dict[tuple[str, int], UUID]) -> None:
        """As found at the start; the next start finds the same ones, unless they were copied again meanwhile."""
        self.topics = lost
        for tp in lost:
            logger.error(
                "records lost partition=%s: this broker was in sync, and its log is gone. Another replica has to lead;"
                " if none is in sync, it stays offline until unclean.leader.election.enable lets one that is not",
                TopicPartition(*tp),
            )
        if lost:
            self.logs.keep_blank()
        else:
            self.logs.end_blank()

    def must_refuse(self, tp: TopicPartition, topic_id: UUID, leader: int) -> bool:
        """Unless somebody else who lives leads it: then all there is is copied from there."""
        if self.topics[tp] == topic_id and (
            leader == self.broker_id or not self.metadata.is_alive(leader)
        ):
            return True
        self.forget(tp)
        return False

    def forget(self, tp: TopicPartition) -> None:
        if self.topics.pop(tp, None) is not None and not self.topics:
            self.logs.end_blank()

    async def ask_for(self, ask: Callable[[], None]) -> None:
        """Who refused a partition is left out of its affairs; when somebody leads it, have the controller tell us."""
        backoff = Backoff(*ASK_AGAIN_SECONDS, random=Random(self.broker_id))
        while self.topics:
            if await self.metadata.wait_until(self.is_one_led, LOOK_AGAIN_SECONDS):
                ask()
                await backoff.wait()

    def is_one_led(self) -> bool:
        known = self.metadata.topics
        return any(
            topic in known
            and (state := known[topic].partitions.get(index)) is not None
            and state.leader != self.broker_id
            and self.metadata.is_alive(state.leader)
            for topic, index in self.topics
        )
