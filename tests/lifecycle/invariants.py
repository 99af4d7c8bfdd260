"""Invariants that hold at every moment, across all failures. Pure: fed with observations.

     1   there is one controller at a time; its epoch never decreases, and each election raises it by exactly one
     2   a partition's leader epoch never decreases during the topic's life; no two leaders share an epoch
     3   the leader is in the ISR or there is none; the ISR is not empty, and when written, a subset of the replicas:
         the cancellation of a reassignment removes replicas from the topic first, then from the ISR
     4   replicas are distinct; all partitions of a topic have the same number of them
     8   a controller elected after a topic was marked for deletion elects no leader for it; a broker that was sent
         the deletion gets no leader of the topic again
     9   the marker is removed last: then the topic and its settings are gone
    10   partitions are numbered from 0 without a gap, and their number never decreases, unless the topic is marked for
         deletion: then the controller may undo an expansion
    11   a request meant for an earlier registration of a broker has no effect on it

The registry is observed through a separate session, which may miss versions but keeps their order. Version numbers
compensate for that: a controller epoch equals the version of its znode exactly if each election raised it by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.errors import ErrorCode, RegistryError
from barnabas.metadata import znodes
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.control_plane import LEADER_DURING_DELETE
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from barnabas.world.ports import ZnodeStat
from tests.lifecycle.wire import Exchange

TOPIC = re.compile(r"/brokers/topics/([^/]+)")
STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
BROKER = re.compile(r"/brokers/ids/(\d+)")
MARKER = re.compile(r"/admin/delete_topics/([^/]+)")


@dataclass(slots=True)
class Topic:
    topic_id: UUID | None
    czxid: int
    mzxid: int
    replicas: dict[int, tuple[BrokerId, ...]]
    leaders: dict[tuple[int, int], BrokerId] = field(default_factory=dict)
    """By partition and leader epoch."""
    epochs: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, BrokerId]] = field(default_factory=dict)
    """The version of each partition's state that was seen last, and the leader in it."""


@dataclass(frozen=True, slots=True)
class Registration:
    at_ns: int
    broker_epoch: int


class Invariants:
    """Checks observations. `broken` lists the violations, each with the number of its invariant."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.sightings = 0
        self.states_seen = 0
        self.states_missed = 0
        self.versions: dict[TopicPartition, tuple[int, int]] = {}
        self.controller_epoch = (0, 0)
        self.elections: dict[int, int] = {}
        """The zxid of each controller election, by epoch."""
        self.controllers: dict[int, tuple[BrokerId, int]] = {}
        self.commanders: dict[int, int] = {}
        self.topics: dict[str, Topic] = {}
        self.registrations: dict[BrokerId, list[Registration]] = {}
        self.marked: dict[str, int] = {}
        """Topics marked for deletion, with the czxid of their marker."""
        self.edited: set[str] = set()
        self.deletion_epochs: dict[tuple[int, UUID], int] = {}
        """By port and topic id: the epoch of the controller that sent the deletion to the broker."""

    def fail(self, number: int, what: str) -> None:
        self.broken.append(f"invariant {number}: {what}")

    # ---- the registry

    def see(self, path: str, data: bytes, stat: ZnodeStat, at_ns: int) -> None:
        """Check a node as it was read. Brokers never write unreadable data."""
        self.sightings += 1
        try:
            if path == znodes.CONTROLLER:
                self.see_controller(znodes.decode_controller(data), stat)
            elif path == znodes.CONTROLLER_EPOCH:
                self.see_controller_epoch(znodes.decode_controller_epoch(data), stat)
            elif found := STATE.fullmatch(path):
                partition = TopicPartition(found[1], int(found[2]))
                state = znodes.decode_state(partition, data, version=stat.version)
                self.see_state(partition, state, stat)
            elif found := TOPIC.fullmatch(path):
                self.see_topic(found[1], znodes.decode_topic(found[1], data), stat)
            elif found := MARKER.fullmatch(path):
                self.marked[found[1]] = stat.czxid
            elif found := BROKER.fullmatch(path):
                self.see_broker(BrokerId(int(found[1])), stat, at_ns)
        except RegistryError as error:
            self.broken.append(f"unreadable: {error}")

    def see_controller(self, broker: BrokerId, stat: ZnodeStat) -> None:
        held = self.controllers.setdefault(stat.czxid, (broker, stat.ephemeral_owner))
        if held != (broker, stat.ephemeral_owner):
            self.fail(1, f"/controller passed from {held} to {broker} without an election")

    def see_controller_epoch(self, epoch: int, stat: ZnodeStat) -> None:
        before, version = self.controller_epoch
        if epoch < before or stat.version < version:
            self.fail(1, f"/controller_epoch fell from {before} to {epoch}")
        if epoch != stat.version:
            self.fail(1, f"/controller_epoch is {epoch} after {stat.version} elections")
        self.controller_epoch = epoch, stat.version
        self.elections.setdefault(epoch, stat.mzxid)

    def see_broker(self, broker: BrokerId, stat: ZnodeStat, at_ns: int) -> None:
        lives = self.registrations.setdefault(broker, [])
        if not lives or lives[-1].broker_epoch != stat.czxid:
            lives.append(Registration(at_ns, stat.czxid))

    def see_topic(self, name: str, seen: znodes.TopicAssignment, stat: ZnodeStat) -> None:
        replicas = {index: held.replicas for index, held in seen.partitions.items()}
        if len({len(held) for held in replicas.values()}) > 1:
            self.fail(4, f"partitions of {name} have different numbers of replicas: {replicas}")
        if sorted(replicas) != list(range(len(replicas))):
            self.fail(10, f"partitions of {name} are {sorted(replicas)}")
        before = self.topics.get(name)
        if before is None or before.czxid != stat.czxid:
            self.topics[name] = Topic(seen.topic_id, stat.czxid, stat.mzxid, replicas)
            return
        lost = seen.topic_id is None and name in self.edited
        if before.topic_id not in (None, seen.topic_id) and not lost:
            self.fail(2, f"the id of {name} changed from {before.topic_id} to {seen.topic_id}")
        may_shrink = name in self.edited or self.marked.get(name, stat.mzxid) < stat.mzxid
        if len(replicas) < len(before.replicas) and not may_shrink:
            zxids = f"mzxid {before.mzxid} and {stat.mzxid}"
            self.fail(
                10, f"{name} had {len(before.replicas)} partitions, now {len(replicas)}: {zxids}"
            )
        before.topic_id, before.replicas = seen.topic_id or before.topic_id, replicas
        before.mzxid = stat.mzxid

    def is_shrunk(self, path: str, data: bytes) -> bool:
        """Whether this is a topic with fewer partitions than when it was last read."""
        found = TOPIC.fullmatch(path)
        before = self.topics.get(found[1]) if found else None
        if found is None or before is None:
            return False
        try:
            return len(znodes.decode_topic(found[1], data).partitions) < len(before.replicas)
        except RegistryError:
            return False

    def see_state(self, partition: TopicPartition, state: LeaderAndIsr, stat: ZnodeStat) -> None:
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self.fail(3, f"{partition} is led by {state.leader}, its ISR is {state.isr}")
        if not state.isr:
            self.fail(3, f"the ISR of {partition} is empty")
        self.count_versions(partition, stat)
        topic = self.topics.get(partition.topic)
        if topic is None:
            return
        replicas = topic.replicas.get(partition.partition, ())
        if stat.mzxid >= topic.mzxid and not set(state.isr) <= set(replicas):
            self.fail(3, f"the ISR of {partition} is {state.isr}, its replicas are {replicas}")
        known = topic.epochs.get(partition.partition, state.leader_epoch)
        if state.leader_epoch < known:
            self.fail(2, f"the epoch of {partition} fell from {known} to {state.leader_epoch}")
        topic.epochs[partition.partition] = state.leader_epoch
        self.see_election(topic, partition, state, stat)
        self.see_leader(partition, state.leader_epoch, state.leader)

    def see_leader(self, partition: TopicPartition, epoch: int, leader: BrokerId) -> None:
        topic = self.topics.get(partition.topic)
        if topic is None or leader == NO_LEADER:
            return
        known = topic.leaders.setdefault((partition.partition, epoch), leader)
        if known != leader:
            self.fail(2, f"{known} and {leader} both lead {partition} in epoch {epoch}")

    def see_election(
        self, topic: Topic, partition: TopicPartition, state: LeaderAndIsr, stat: ZnodeStat
    ) -> None:
        """Check an election if the previous leader is known, that is if no version was missed. A controller elected
        before the marker may have decided before it learned of the marker."""
        version, leader = topic.last.get(partition.partition, (-1, state.leader))
        topic.last[partition.partition] = stat.version, state.leader
        marked = self.marked.get(partition.topic)
        is_elected = state.leader not in (NO_LEADER, leader) and stat.version == version + 1
        in_office = self.elections.get(state.controller_epoch, 0)
        if is_elected and marked is not None and in_office > marked:
            self.fail(8, f"{state.leader} was elected for {partition}, which is to be deleted")

    def see_unmarked(self, topic: str, left: Mapping[str, ZnodeStat]) -> None:
        """A marker was removed and these nodes exist: they must belong to a newer topic."""
        marked = self.marked.pop(topic, 0)
        for path, stat in left.items():
            if stat.czxid < marked:
                self.fail(9, f"{path} exists after its marker was removed")

    def count_versions(self, partition: TopicPartition, stat: ZnodeStat) -> None:
        """Count the observed and missed versions, for the table."""
        czxid, version = self.versions.get(partition, (stat.czxid, -1))
        if czxid != stat.czxid:  # the name belongs to a new topic now
            czxid, version = stat.czxid, -1
        if stat.version > version:
            self.states_seen += 1
            self.states_missed += stat.version - version - 1
            self.versions[partition] = czxid, stat.version

    def allow_edits(self, topic: str) -> None:
        """Allow hand-written changes of a topic: it may lose its id, and shrink back if it is marked."""
        self.edited.add(topic)

    # ---- the wire

    def check_exchanges(self, exchanges: Iterable[Exchange], ports: Mapping[int, BrokerId]) -> None:
        """Check requests against earlier requests and the registry."""
        for each in exchanges:
            request = each.request
            held = self.commanders.setdefault(request.controller_epoch, request.controller_id)
            if held != request.controller_id:
                self.fail(
                    1, f"{held} and {request.controller_id} are controller in one epoch: {request}"
                )
            if isinstance(request, LeaderAndIsrRequest):
                self.check_leaders(request)
            elif isinstance(request, UpdateMetadataRequest):
                self.check_metadata(request, each.port)
            self.check_broker_epoch(each, ports[each.port])

    def check_leaders(self, request: LeaderAndIsrRequest) -> None:
        for topic in request.topic_states:
            known = self.topics.get(topic.topic_name)
            if known is None or known.topic_id != topic.topic_id:
                continue
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                self.see_leader(partition, state.leader_epoch, BrokerId(state.leader))

    def check_metadata(self, request: UpdateMetadataRequest, port: int) -> None:
        """Check in order: a broker receives its requests one after the other."""
        for topic in request.topic_states:
            key = port, topic.topic_id
            goes = any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states)
            if goes:
                self.deletion_epochs[key] = request.controller_epoch
            elif (
                self.deletion_epochs.get(key, request.controller_epoch + 1)
                <= request.controller_epoch
            ):
                self.fail(8, f"{topic.topic_name} was announced as deleted, but is back: {request}")

    def check_broker_epoch(self, exchange: Exchange, broker: BrokerId) -> None:
        """A broker that had registered again before the request was sent must have rejected it."""
        own = max(
            (
                life.broker_epoch
                for life in self.registrations.get(broker, ())
                if life.at_ns < exchange.at_ns
            ),
            default=0,
        )
        meant_for = exchange.request.broker_epoch
        if meant_for < own and exchange.error_code not in (None, ErrorCode.STALE_BROKER_EPOCH):
            self.fail(
                11, f"broker {broker} of epoch {own} executed a request meant for {meant_for}"
            )
