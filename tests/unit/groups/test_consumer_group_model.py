"""Random runs of clients in a group of the new consumer protocol.

Invariants: no partition is consumed by two clients, the group equals the one that its log describes, and after some
heartbeats without changes every partition is consumed by a subscriber.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroupState
from barnabas.groups.group_transition import session_timer
from barnabas.wire.consumer_protocol import decode_assignment
from barnabas.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from tests.unit.groups.simulated_consumer_group import (
    SimulatedConsumerGroup,
    assignment_of,
    join_event,
)

TOPICS = st.sets(st.sampled_from("abc"), min_size=1).map(lambda each: tuple(sorted(each)))


class Client:
    """A consumer of `owned`. As real clients, it sends all fields again after it missed a response."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.has_missed_response = False

    def receive(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.has_missed_response = False
        self.epoch = response.member_epoch
        assigned = assignment_of(response)
        if assigned is not None:
            self.owned = assigned


class ClassicClient:
    """A consumer of the classic protocol. An eager one gives up all partitions before it rejoins."""

    def __init__(self, sim: SimulatedConsumerGroup, *, is_eager: bool) -> None:
        self.sim = sim
        self.is_eager = is_eager
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}

    def poll(self, name: str) -> None:
        """Send a heartbeat, and rejoin once if the group rebalances."""
        code = self.sim.heartbeat_classic(name, self.epoch)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin(name)

    def rejoin(self, name: str) -> None:
        if self.is_eager:
            self.owned = {}
        names = {topic.topic_id: each for each, topic in self.sim.topics.items()}
        owned = {
            names[each]: tuple(partitions)
            for each, partitions in self.owned.items()
            if each in names
        }
        self.epoch = self.sim.join_classic(join_event(name, owned=owned)).generation_id
        response = self.sim.sync_classic(name, self.epoch)
        if response.error_code == ErrorCode.NONE:
            ids = {each: topic.topic_id for each, topic in self.sim.group.subscription.items()}
            assigned = decode_assignment(response.assignment).assigned_partitions
            self.owned = {ids[each]: frozenset(partitions) for each, partitions in assigned}


class ConsumerGroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sim = SimulatedConsumerGroup(a=3, b=2)
        self.clients: dict[str, Client] = {}
        self.classic_clients: dict[str, ClassicClient] = {}
        self.joined = 0

    @property
    def all_clients(self) -> list[Client | ClassicClient]:
        return [*self.clients.values(), *self.classic_clients.values()]

    @rule(is_eager=st.booleans())
    def join_classic(self, is_eager: bool) -> None:
        if self.clients and len(self.classic_clients) < 2:
            self.joined += 1
            name = f"c{self.joined}"
            self.classic_clients[name] = ClassicClient(self.sim, is_eager=is_eager)
            self.classic_clients[name].rejoin(name)

    @rule(data=st.data())
    def poll_classic(self, data: st.DataObject) -> None:
        if self.classic_clients:
            name = data.draw(st.sampled_from(sorted(self.classic_clients)))
            self.classic_clients[name].poll(name)

    @rule(data=st.data())
    def leave_classic(self, data: st.DataObject) -> None:
        if self.classic_clients:
            name = data.draw(st.sampled_from(sorted(self.classic_clients)))
            del self.classic_clients[name]
            assert self.sim.leave_classic(MemberIdentity(name)) == [ErrorCode.NONE]

    def run_heartbeat(
        self, name: str, *, topics: tuple[str, ...] | None = None, is_lost: bool = False
    ) -> None:
        client = self.clients[name]
        client.topics = topics or client.topics
        is_full = client.has_missed_response
        try:
            response = self.sim.heartbeat(
                name,
                client.epoch,
                client.owned,
                topics=client.topics if is_full else topics,
                rebalance_timeout_ms=300_000 if is_full else -1,
            )
        except ApiError as error:
            assert error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            del self.clients[name]
            self.expire_session(name)
            return
        client.has_missed_response = is_lost
        if not is_lost:
            client.receive(response)

    @rule(topics=TOPICS, is_lost=st.booleans())
    def join(self, topics: tuple[str, ...], is_lost: bool) -> None:
        if len(self.clients) < 4:
            self.joined += 1
            name = f"m{self.joined}"
            if is_lost:
                self.sim.join(name, *topics)
            self.clients[name] = Client(topics)
            self.clients[name].receive(self.sim.join(name, *topics))

    @rule(data=st.data(), is_lost=st.booleans())
    def heartbeat(self, data: st.DataObject, is_lost: bool) -> None:
        if self.clients:
            self.run_heartbeat(data.draw(st.sampled_from(sorted(self.clients))), is_lost=is_lost)

    @rule(data=st.data(), topics=TOPICS)
    def subscribe(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        if self.clients:
            self.run_heartbeat(data.draw(st.sampled_from(sorted(self.clients))), topics=topics)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.clients:
            name = data.draw(st.sampled_from(sorted(self.clients)))
            del self.clients[name]
            self.sim.leave(name)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        if self.clients:
            name = data.draw(st.sampled_from(sorted(self.clients)))
            del self.clients[name]
            self.expire_session(name)

    def expire_session(self, name: str) -> None:
        if name in self.sim.group.members:
            self.sim.expire(session_timer(name))

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 5))
    def change_topic(self, name: str, count: int) -> None:
        known = self.sim.topics.get(name)
        if known is None or known.partition_count < count:
            self.sim.set_topic(name, count)

    @rule(name=st.sampled_from("abc"))
    def delete_topic(self, name: str) -> None:
        self.sim.delete_topic(name)

    @rule()
    def fail_over(self) -> None:
        restored = self.sim.restored()
        if restored is not None:
            self.sim.group = restored

    @rule()
    def settle(self) -> None:
        for _ in range(12):
            for name in sorted(self.clients):
                if name in self.clients:
                    self.run_heartbeat(name)
            for name, client in sorted(self.classic_clients.items()):
                client.poll(name)
        if not self.all_clients:
            return
        assert self.sim.group.state is ConsumerGroupState.STABLE
        consumed = {
            (topic_id, partition)
            for client in self.all_clients
            for topic_id, partitions in client.owned.items()
            for partition in partitions
        }
        subscribed = {
            name for each in self.sim.group.members.values() for name in each.subscribed_topics
        }
        assert consumed == {
            (topic.topic_id, partition)
            for name, topic in self.sim.topics.items()
            if name in subscribed
            for partition in range(topic.partition_count)
        }

    @invariant()
    def no_partition_has_two_consumers(self) -> None:
        consumed = [
            (topic_id, partition)
            for client in self.all_clients
            for topic_id, partitions in client.owned.items()
            for partition in partitions
        ]
        assert len(consumed) == len(set(consumed))

    @invariant()
    def group_equals_its_log(self) -> None:
        group, restored = self.sim.group, self.sim.restored()
        if restored is None:
            assert not group.members
            return
        assert restored.members == group.members
        assert restored.owners == group.owners
        assert restored.targets == group.targets
        assert restored.topic_counts == group.topic_counts
        if group.topics_version == self.sim.topics_version:
            assert group.subscription == {
                name: topic for name, topic in self.sim.topics.items() if name in group.topic_counts
            }
        assert (restored.epoch, restored.target_epoch) == (group.epoch, group.target_epoch)


TestConsumerGroupModel = ConsumerGroupModel.TestCase
TestConsumerGroupModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
