"""A group of the new consumer protocol without a broker: events change it, and its timers and log are lists."""

from __future__ import annotations

from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.groups.classic_members import (
    handle_classic_heartbeat,
    handle_classic_join,
    handle_classic_leave,
    handle_classic_sync,
)
from barnabas.groups.consumer_events import (
    ConsumerTransition,
    EnsureTimer,
    HeartbeatEvent,
    expire_consumer_timer,
    handle_consumer_heartbeat,
)
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.groups.consumer_records import (
    Assignment,
    ConsumerKey,
    ConsumerRecord,
    SubscribedTopic,
    encode_consumer_record,
    read_consumer_record,
    to_topics,
)
from barnabas.groups.group import AssignmentProtocol
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import CancelTimer, SetTimer, Timer
from barnabas.groups.heartbeat_checks import check_heartbeat
from barnabas.groups.offsets import GroupOffsets
from barnabas.wire.consumer_protocol import (
    ConsumerSubscription,
    TopicPartitions,
    encode_subscription,
)
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
SESSION_MS = 45_000
INTERVAL_MS = 5000
CLASSIC_SESSION_MS = 10_000
CLASSIC_REBALANCE_MS = 60_000


def parts(*partitions: int) -> frozenset[int]:
    return frozenset(partitions)


def subscription(*topics: str, owned: dict[str, tuple[int, ...]] | None = None) -> bytes:
    partitions = tuple(TopicPartitions(*each) for each in (owned or {}).items())
    return encode_subscription(ConsumerSubscription(topics, owned_partitions=partitions))


def join_event(
    member_id: str = "",
    *,
    owned: dict[str, tuple[int, ...]] | None = None,
    instance_id: str | None = None,
    protocol: str = "cooperative-sticky",
    requires_member_id: bool = False,
    protocol_type: str = "consumer",
) -> JoinEvent:
    return JoinEvent(
        member_id=member_id,
        instance_id=instance_id,
        new_member_id="classic",
        client_id="client",
        client_host="/host",
        session_timeout_ms=CLASSIC_SESSION_MS,
        rebalance_timeout_ms=CLASSIC_REBALANCE_MS,
        protocol_type=protocol_type,
        protocols=(AssignmentProtocol(protocol, subscription("a", owned=owned)),),
        requires_member_id=requires_member_id,
    )


class SimulatedConsumerGroup:
    """Topics a, b and c have the ids A, B and C."""

    def __init__(self, config: BrokerConfig | None = None, **topics: int) -> None:
        self.group = ConsumerGroup(group_id="app")
        self.config = config or BrokerConfig()
        self.topics: dict[str, SubscribedTopic] = {}
        self.topics_version = 0
        self.lookups = 0
        """Number of topics that events have looked up."""
        self.timers: dict[Timer, int] = {}
        self.log: list[ConsumerRecord] = []
        self.records: list[ConsumerRecord] = []
        """Records of the last event."""
        self.ensured: list[Timer] = []
        """Timers that the last request of a classic member started if they were not running."""
        for name, count in topics.items():
            self.set_topic(name, count)

    def set_topic(self, name: str, count: int) -> None:
        topic_id = {"a": A, "b": B, "c": C}[name]
        self.topics[name] = SubscribedTopic(topic_id, name, count)
        self.topics_version += 1

    def delete_topic(self, name: str) -> None:
        self.topics.pop(name, None)
        self.topics_version += 1

    def find_topic(self, name: str) -> SubscribedTopic | None:
        self.lookups += 1
        return self.topics.get(name)

    def transition(self) -> ConsumerTransition:
        return ConsumerTransition(self.group, self.config, self.find_topic, self.topics_version)

    def execute(self, transition: ConsumerTransition) -> None:
        self.records = transition.records
        for record in transition.records:
            self.log.append(read_consumer_record(*encode_consumer_record(record)))
            self.group.apply(self.log[-1])
        if transition.has_checked_topics:
            self.group.topics_version = transition.topics_version
        for effect in transition.timers:
            if isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.delay_ms
            else:
                assert isinstance(effect, CancelTimer)
                self.timers.pop(effect.timer, None)

    def send(
        self, request: ConsumerGroupHeartbeatRequest, new_member_id: str = "new"
    ) -> ConsumerGroupHeartbeatResponse:
        self.records = []
        check_heartbeat(request)
        transition = self.transition()
        response = handle_consumer_heartbeat(
            transition, HeartbeatEvent(request, new_member_id, "client", "/host")
        )
        self.execute(transition)
        return response

    def join(
        self,
        member_id: str,
        *topics: str,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="app",
                member_id=member_id,
                member_epoch=0,
                instance_id=instance_id,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=topics,
                server_assignor=assignor,
                topic_partitions=(),
            )
        )

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        owned: Assignment | None = None,
        *,
        topics: tuple[str, ...] | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = -1,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="app",
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=topics,
                topic_partitions=None
                if owned is None
                else tuple(HeartbeatTopicPartitions(*each) for each in to_topics(owned)),
            )
        )

    def leave(
        self, member_id: str, epoch: int = -1, *, instance_id: str | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        return self.heartbeat(member_id, epoch, instance_id=instance_id)

    def expire(self, timer: Timer) -> None:
        del self.timers[timer]
        transition = self.transition()
        expire_consumer_timer(transition, timer)
        self.execute(transition)

    def join_classic(self, event: JoinEvent) -> JoinGroupResponse:
        transition = self.transition()
        response = handle_classic_join(transition, event)
        self.execute(transition)
        return response

    def sync_classic(
        self,
        member_id: str,
        generation: int,
        *,
        protocol_type: str | None = "consumer",
        protocol: str | None = "cooperative-sticky",
    ) -> SyncGroupResponse:
        transition = self.transition()
        event = SyncEvent(member_id, None, generation, protocol_type, protocol, {})
        response = handle_classic_sync(transition, event)
        self.note_ensured(transition.timers)
        self.execute(transition)
        return response

    def heartbeat_classic(self, member_id: str, generation: int) -> ErrorCode:
        transition = self.transition()
        code = handle_classic_heartbeat(transition, member_id, None, generation)
        self.note_ensured(transition.timers)
        self.execute(transition)
        return code

    def leave_classic(self, *members: MemberIdentity) -> list[ErrorCode]:
        transition = self.transition()
        codes = handle_classic_leave(transition, members)
        self.execute(transition)
        return codes

    def note_ensured(self, timers: list[SetTimer | EnsureTimer | CancelTimer]) -> None:
        self.ensured = [each.timer for each in timers if isinstance(each, EnsureTimer)]
        timers[:] = [each for each in timers if not isinstance(each, EnsureTimer)]

    def member(self, member_id: str) -> ConsumerMember:
        return self.group.members[member_id]

    def key_names(self) -> list[str]:
        """Kinds of the records of the last event, with - for tombstones."""
        return [
            ("" if value is not None else "-") + type(key).__name__.removesuffix("Key")
            for key, value in self.records
        ]

    def restored(self) -> ConsumerGroup | None:
        """The group as another broker would load it from a compacted log."""
        by_key: dict[tuple[type, ConsumerKey], ConsumerRecord] = {}
        for record in self.log:
            by_key[type(record.key), record.key] = record
        kept = [each for each in by_key.values() if each.value is not None]
        return ConsumerGroup.restore("app", reversed(kept), GroupOffsets())


def assignment_of(response: ConsumerGroupHeartbeatResponse) -> dict[UUID, frozenset[int]] | None:
    if response.assignment is None:
        return None
    return {
        each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions
    }
