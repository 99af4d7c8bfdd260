"""Replicas whose log was lost with a disk while the controller still has them in the ISR.

    start with an empty directory ─► in the ISR, no log: lost ─► to lead: KAFKA_STORAGE_ERROR
                                                              └► to follow a live leader: no longer lost

A broker that lost its log must not lead the partition: the followers would truncate their logs to its empty one. Before
it registers, it waits for a controller to remove it from the ISRs (broker/startup/lost_logs.py). This does not help if
no other broker can be controller, or if this broker was the last in-sync replica, which stays in the ISR. Then it
rejects leadership and the partition is offline. The other replicas keep their records until an unclean leader election
is allowed (unclean.leader.election.enable).

A partition with a single replica restarts with an empty log, as in Kafka.
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

RETRY_SECONDS = (1.0, 10.0)
CHECK_SECONDS = 600.0


class LostReplicas:
    def __init__(self, broker_id: BrokerId, metadata: MetadataCache, logs: LogManager) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.logs = logs
        self.topic_ids: dict[tuple[str, int], UUID] = {}
        """Topic id by lost partition. A later topic of the same name has another id and is not lost."""

    def register(self, lost: dict[tuple[str, int], UUID]) -> None:
        """Set the lost partitions. The next start finds them again, unless their records were copied by then."""
        self.topic_ids = lost
        for tp in lost:
            logger.error(
                "records lost partition=%s: this broker was in sync and its log is missing. Another replica must lead;"
                " if none is in sync, the partition is offline until unclean.leader.election.enable allows another one",
                TopicPartition(*tp),
            )
        if lost:
            self.logs.mark_blank_directories()
        else:
            self.logs.unmark_blank_directories()

    def must_reject(self, tp: TopicPartition, topic_id: UUID, leader: int) -> bool:
        """Return whether to reject a LeaderAndIsr. If another live broker leads, the partition is no longer lost."""
        if self.topic_ids[tp] == topic_id and (
            leader == self.broker_id or not self.metadata.is_alive(leader)
        ):
            return True
        self.remove(tp)
        return False

    def remove(self, tp: TopicPartition) -> None:
        if self.topic_ids.pop(tp, None) is not None and not self.topic_ids:
            self.logs.unmark_blank_directories()

    async def request_assignments(self, request: Callable[[], None]) -> None:
        """Call `request` when a lost partition has a new leader, so that the controller sends LeaderAndIsr again.

        The controller does not send it again by itself to a replica that has rejected it.
        """
        backoff = Backoff(*RETRY_SECONDS, random=Random(self.broker_id))
        while self.topic_ids:
            if await self.metadata.wait_until(self.has_new_leader, CHECK_SECONDS):
                request()
                await backoff.wait()

    def has_new_leader(self) -> bool:
        topics = self.metadata.topics
        return any(
            topic in topics
            and (state := topics[topic].partitions.get(index)) is not None
            and state.leader != self.broker_id
            and self.metadata.is_alive(state.leader)
            for topic, index in self.topic_ids
        )
