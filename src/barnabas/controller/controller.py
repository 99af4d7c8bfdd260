"""One broker in charge: elected, until it resigns, is deposed or dies.

Every broker has this part and most of the time it only watches /controller. In the one that was elected, events come
from the registry's watches, from brokers' answers and from brokers' requests; they are handled one at a time, and each
handler reads what is, makes a plan and has it carried out (execution.py).

Deposed, a controller finds out by its next write, which is refused (store.py): it forgets everything at once and says
nothing more to anybody. Anything unexpected while it takes over makes it resign, so that somebody else tries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import assert_never

from msgspec import Struct

from barnabas.controller import deletion, events, plans, znode_requests
from barnabas.controller.balance import unbalanced
from barnabas.controller.channels import Channels
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.events import Event
from barnabas.controller.execution import Execution
from barnabas.controller.queue import EventQueue, preempt
from barnabas.controller.request_batch import RequestBatch, RequestsLeftOver
from barnabas.controller.requests import alter_partition, controlled_shutdown, elect_leaders
from barnabas.controller.states import PartitionState
from barnabas.controller.steps import MovePartitions, Plan, StartSenders
from barnabas.controller.store import ControllerStore, Won
from barnabas.errors import ControllerMoved, ErrorCode, RegistryError, RegistrySessionExpired
from barnabas.history.recorder import EventSink, Recorder, Response, SentRequest
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, Replica, TopicPartition
from barnabas.retry import Backoff
from barnabas.tasks import Tasks, in_turns
from barnabas.wire.codec import Message
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataResponse
from barnabas.world.ports import Clock, Network, SetData, WatchEvent, WatchKind

logger = logging.getLogger("barnabas.controller")

FIRST_BALANCE_SECONDS = 5.0
TAKE_OVER_PAUSE_SECONDS = 0.5
TAKE_OVER_PAUSE_SECONDS_MAX = 5.0
ADDED_AT_ONCE = 2000


class ControllerSettings(Struct, frozen=True, kw_only=True):
    listener: str
    """By which brokers reach each other."""
    socket_timeout_s: float
    delete_topic_enable: bool
    unclean_leader_election_enable: bool
    auto_leader_rebalance_enable: bool
    imbalance_check_s: float
    imbalance_percentage: int


class Controller:
    def __init__(
        self,
        broker_id: BrokerId,
        registry: RegistryClient,
        network: Network,
        clock: Clock,
        random: Random,
        *,
        settings: ControllerSettings,
        history: EventSink,
        register: Callable[[], Awaitable[None]],
    ) -> None:
        """`register` announces the broker anew, after its session was lost."""
        self.broker_id = broker_id
        self.registry = registry
        self.clock = clock
        self.settings = settings
        self.history = history
        self.register = register
        self.context = ControllerContext()
        self.batch = RequestBatch(broker_id, self.context, settings.listener)
        self.store = ControllerStore(registry, broker_id, random)
        self.channels = Channels(
            network,
            broker_id,
            listener=settings.listener,
            timeout_s=settings.socket_timeout_s,
            on_answer=self.on_answer,
        )
        self.queue = EventQueue(self.handle)
        self.tasks = Tasks()
        self.take_over_backoff = Backoff(
            TAKE_OVER_PAUSE_SECONDS, TAKE_OVER_PAUSE_SECONDS_MAX, random=Random(broker_id)
        )
        self.controller_id: BrokerId | None = None
        """Who is in charge, as far as this broker knows."""
        self.execution: Execution | None = None
        self.has_taken_over = False
        self.unreadable: set[str] = set()
        self.balancing: asyncio.TimerHandle | None = None

    # ---- from outside

    @property
    def is_active(self) -> bool:
        return self.execution is not None

    @property
    def epoch(self) -> ControllerEpoch:
        """Ours, while we are in charge; 0 otherwise."""
        return self.context.epoch

    @property
    def is_settled(self) -> bool:
        """In charge, with nothing left to do or to tell this very broker."""
        return self.has_taken_over and self.queue.is_idle and not self.channels.owes(self.broker_id)

    def start(self) -> None:
        self.registry.on_expired = self.on_expired
        self.registry.on_new_session = lambda: void(self.queue.put(events.SessionOpened()))
        self.tasks.start("controller", self.queue.run())
        self.queue.put(events.Startup())

    async def stop(self) -> None:
        """Whoever waits is told; /controller goes with the session."""
        self.registry.on_expired = None
        self.registry.on_new_session = None
        await self.tasks.stop()
        for queued in self.queue.waiting:
            preempt(queued.event)
        await self.resign("stop")

    async def on_expired(self) -> None:
        """No new session before we have stopped believing in the old one."""
        await self.queue.clear_and_put(events.SessionExpired())

    def on_watch(self, event: WatchEvent) -> None:
        path = event.path
        parent, _, name = path.rpartition("/")
        if path == znodes.CONTROLLER:
            gone = event.kind is WatchKind.DELETED
            self.queue.put(events.ControllerGone() if gone else events.ControllerChanged())
        elif path == znodes.CONTROLLER_EPOCH:
            self.queue.put(events.ControllerGone())  # nobody could be elected; now perhaps
        elif path == znodes.BROKER_IDS:
            self.queue.put(events.BrokersChanged())
        elif path == znodes.TOPICS:
            self.queue.put(events.TopicsChanged())
        elif path == znodes.DELETE_TOPICS:
            self.queue.put(events.TopicsMarked())
        elif path == znodes.LOG_DIR_EVENTS:
            self.queue.put(events.LogDirFailed())
        elif path == znodes.ISR_CHANGES:
            self.queue.put(events.IsrsChanged())
        elif path == znodes.PREFERRED_REPLICA_ELECTION:
            self.queue.put(events.PreferredElectionRequested())
        elif path == znodes.REASSIGN_PARTITIONS:
            self.queue.put(events.ReassignmentRequested())
        elif event.kind is not WatchKind.CHANGED:
            return  # what goes is told by its parent
        elif parent == znodes.BROKER_IDS and name.isdecimal():
            self.queue.put(events.BrokerModified(BrokerId(int(name))))
        elif parent == znodes.TOPICS:
            self.queue.put(events.PartitionsModified(name))

    def on_answer(self, sent: SentRequest, response: Message) -> None:
        execution = self.execution
        if execution is None:
            return
        assert isinstance(
            response, LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
        )
        execution.recorder.record_response(sent, response)
        if response.error_code:
            code = ErrorCode(response.error_code).name
            logger.warning("refused broker=%d cause=%s error=%s", sent.broker, sent.cause, code)
        if self.matters(sent, response):
            self.queue.put(events.RequestAnswered(sent.broker, sent.request, response))

    def matters(self, sent: SentRequest, response: Response) -> bool:
        """Deletions that are done or not, and broken disks. Most answers only say that all is well."""
        if isinstance(response, StopReplicaResponse):
            return bool(self.context.topics_to_be_deleted) and bool(response.partition_errors)
        if isinstance(response, LeaderAndIsrResponse):
            return sent.broker in self.context.replicas_on_offline_dirs or any(
                each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                for topic in response.topics
                for each in topic.partition_errors
            )
        return False

    # ---- one event

    async def handle(self, event: Event, cause: str) -> None:
        try:
            await self.react(event, cause)
        except ControllerMoved as moved:
            logger.info("deposed cause=%s reason=%s", cause, moved)
            preempt(event)
            await self.resign(cause)
            await self.look_who_is_in_charge()
        except RegistrySessionExpired:
            preempt(event)  # the event that says so comes next
        except RequestsLeftOver as error:
            # Some broker may have missed a decision. A new controller tells everybody everything.
            logger.error("resigning cause=%s error=%s", cause, error)
            preempt(event)
            await self.store.resign()
            await self.resign(cause)

    async def react(self, event: Event, cause: str) -> None:
        match event:
            case events.Startup():
                await self.elect(cause)
            case events.ControllerChanged():
                await self.resign_unless_in_charge(cause)
                if self.controller_id is None:
                    await self.elect(cause)  # it came and went before we could look
            case events.ControllerGone():
                await self.resign_unless_in_charge(cause)
                await self.elect(cause)
            case events.SessionExpired():
                self.controller_id = None
                await self.resign(cause)
            case events.SessionOpened():
                await self.register()
                await self.resign_unless_in_charge(cause)
                await self.elect(cause)
            case _:
                if self.execution is None:
                    preempt(event)
                    return
                await self.govern(self.execution, event, cause)

    async def govern(self, execution: Execution, event: Event, cause: str) -> None:
        """What only the one in charge does."""
        match event:
            case events.BrokersChanged():
                execution.registered = await self.store.read_brokers(self.on_watch)
                plan = plans.brokers_changed(self.context, execution.registered)
                await execution.follow(plan, cause)
            case events.BrokerModified(broker):
                await self.broker_modified(execution, broker, cause)
            case events.TopicsChanged():
                await self.topics_changed(execution, cause)
            case events.PartitionsModified(topic):
                await self.partitions_modified(execution, topic, cause)
            case events.TopicsMarked():
                await self.topics_marked(execution, cause)
            case (
                events.LogDirFailed()
                | events.IsrsChanged()
                | events.PreferredElectionRequested()
                | events.ReassignmentRequested()
            ):
                await znode_requests.handle(execution, event, cause)
            case events.RequestAnswered():
                await execution.follow(self.answered(event), cause)
            case events.AlterPartitionReceived():
                await alter_partition(execution, event, cause)
            case events.ControlledShutdownReceived():
                await controlled_shutdown(execution, event, cause)
            case events.ElectLeadersReceived():
                await elect_leaders(execution, event, cause)
            case events.LeadersUnbalanced():
                await self.balance(execution, cause)
            case (
                events.Startup()
                | events.ControllerChanged()
                | events.ControllerGone()
                | events.SessionExpired()
                | events.SessionOpened()
            ):
                raise AssertionError(f"{event} is for everybody")
            case _:
                assert_never(event)

    # ---- coming and going

    async def look_who_is_in_charge(self) -> None:
        self.controller_id = await self.store.controller_id(self.on_watch)

    async def resign_unless_in_charge(self, cause: str) -> None:
        await self.look_who_is_in_charge()
        if self.is_active and self.controller_id != self.broker_id:
            await self.resign(cause)

    async def elect(self, cause: str) -> None:
        await self.look_who_is_in_charge()
        if self.controller_id is not None:
            return
        try:
            won = await self.store.elect(self.clock.now_ms(), self.on_watch)
        except ControllerMoved:
            await self.look_who_is_in_charge()
            return
        self.controller_id = self.broker_id
        logger.info("elected broker=%d epoch=%d", self.broker_id, won.epoch)
        try:
            await self.take_over(won, cause)
            self.take_over_backoff.reset()
        except (ControllerMoved, RegistrySessionExpired):
            raise
        except Exception:
            logger.exception("cannot take over epoch=%d, resigning", won.epoch)
            await self.store.resign()
            await self.resign(cause)
            # Somebody else may be luckier; what fails again and again should at least not do so without a pause.
            await self.take_over_backoff.wait()

    async def take_over(self, won: Won, cause: str) -> None:
        """The order is Kafka's: watches before what they watch, metadata before leaders, replicas before elections."""
        context, store = self.context, self.store
        context.reset()
        context.epoch = won.epoch
        store.take_over(won)
        recorder = Recorder(self.broker_id, won.epoch, self.clock, self.history)
        self.execution = execution = Execution(
            context,
            store,
            self.batch,
            self.channels,
            recorder,
            watch=self.on_watch,
            unclean_by_default=self.settings.unclean_leader_election_enable,
        )
        self.unreadable.clear()
        recorder.record_election(cause=cause)
        topics = await self.registry.children(znodes.TOPICS, self.on_watch)
        marked = await self.registry.children(znodes.DELETE_TOPICS, self.on_watch)
        for notifications in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            await self.registry.children(notifications, self.on_watch)
            await store.delete_children(notifications)  # all states are read below
        execution.registered = await store.read_brokers(self.on_watch)
        found = await store.read_topics(topics, self.on_watch)
        self.unreadable.update(name for name in topics if name not in found)
        znode_requests.warn_of_reassignments(found)
        written_at: dict[TopicPartition, int] = {}
        states = await store.read_states(
            [
                TopicPartition(name, each)
                for name, topic in found.items()
                for each in topic.partitions
            ],
            written_at,
        )
        known = {tp: state for tp, state in states.items() if isinstance(state, LeaderAndIsr)}
        store.parents.update(partition.topic for partition in states)
        returned = plans.returned_unnoticed(execution.registered, known, written_at)
        if returned:
            logger.warning("taken for dead first, as nobody noticed: brokers=%s", sorted(returned))
            execution.registered = {
                broker: found
                for broker, found in execution.registered.items()
                if broker not in returned
            }
            self.queue.put(events.BrokersChanged())
        for error in plans.load(context, brokers=execution.registered, topics=found, states=known):
            logger.error("left out error=%s", error)
        await execution.do(StartSenders(brokers=tuple(sorted(execution.registered))), cause)
        if self.settings.delete_topic_enable:
            plans.queue_deletions_in_progress(context, marked)
        else:
            await self.remove_markers(marked)
        await execution.follow(plans.failover(context), cause)
        await znode_requests.report_reassignment(execution, cause)
        await znode_requests.elect_preferred_leaders(execution, cause)
        for broker in sorted(execution.registered):
            await store.read_broker(broker, self.on_watch)
        self.has_taken_over = True
        self.balance_after(FIRST_BALANCE_SECONDS)
        logger.info(
            "in charge broker=%d epoch=%d brokers=%d partitions=%d",
            *(self.broker_id, won.epoch, len(context.brokers), len(context.all_partitions)),
        )

    async def resign(self, cause: str) -> None:
        """Forget everything; say nothing more to anybody."""
        execution, self.execution = self.execution, None
        self.has_taken_over = False
        if self.balancing is not None:
            self.balancing.cancel()
        await self.channels.stop_all()
        self.batch.clear()
        self.context.reset()
        if execution is not None:
            execution.recorder.record_resignation(cause=cause)
            logger.info("resigned broker=%d epoch=%d", self.broker_id, execution.recorder.epoch)

    # ---- brokers

    async def broker_modified(self, execution: Execution, broker: BrokerId, cause: str) -> None:
        before = self.context.brokers.get(broker)
        found = await self.store.read_broker(broker, self.on_watch)
        if found is None or before is None or found.broker == before:
            return
        if found.epoch != self.context.broker_epochs.get(broker):
            return  # another life of it: that it came back is told by the list of brokers
        self.context.set_broker(found.broker, found.epoch)
        execution.registered = {**execution.registered, broker: found}
        await self.channels.move(found.broker)
        await execution.do(SendUpdateMetadata(), cause)

    def answered(self, event: events.RequestAnswered) -> Plan:
        request, response = event.request, event.response
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            yield from self.stop_replica_answered(event.broker, request, response)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(
            response, LeaderAndIsrResponse
        ):
            yield from self.leader_and_isr_answered(event.broker, response)

    def stop_replica_answered(
        self, broker: BrokerId, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> Plan:
        asked = {
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
            if each.delete_partition
        }
        errors = {
            partition: ErrorCode(response.error_code or each.error_code)
            for each in response.partition_errors
            if (partition := TopicPartition(each.topic_name, each.partition_index)) in asked
        }
        yield from deletion.stop_replica_answered(self.context, broker, errors)

    def leader_and_isr_answered(self, broker: BrokerId, response: LeaderAndIsrResponse) -> Plan:
        newly_offline: list[Replica] = []
        for topic in response.topics:
            name = self.context.topic_names.get(topic.topic_id)
            if name is None:
                continue
            for each in topic.partition_errors:
                replica = Replica(TopicPartition(name, each.partition_index), broker)
                broken = self.context.replicas_on_offline_dirs.get(broker, {})
                if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    if replica.partition not in broken:
                        newly_offline.append(replica)
                    self.context.set_replica_dir_offline(replica, offline=True)
                elif not each.error_code:
                    self.context.set_replica_dir_offline(replica, offline=False)
        if newly_offline:
            yield from plans.replicas_become_offline(self.context, tuple(newly_offline))

    # ---- topics

    async def topics_changed(self, execution: Execution, cause: str) -> None:
        context = self.context
        names = await self.registry.children(znodes.TOPICS, self.on_watch)
        there = set(names)
        for gone in [topic for topic in context.all_topics if topic not in there]:
            context.remove_topic(gone)
        self.unreadable &= there
        new = [n for n in names if n not in context.all_topics and n not in self.unreadable]
        found = await self.store.read_topics(new, self.on_watch)
        self.unreadable.update(name for name in new if name not in found)
        znode_requests.warn_of_reassignments(found)
        added: list[TopicPartition] = []
        for name, topic in found.items():
            try:
                context.add_topic(name, topic.topic_id)
            except RegistryError as error:
                logger.error("left out error=%s", error)
                self.unreadable.add(name)
                continue
            added += await self.add_partitions(name, topic)
        await execution.follow(plans.new_partitions(context, tuple(added)), cause)

    async def add_partitions(
        self, name: str, topic: znodes.TopicAssignment
    ) -> list[TopicPartition]:
        """Those not known yet. Others are left alone, whatever the znode says of them."""
        added = []
        known = self.context.assignments.get(name, {})
        async for some in in_turns(tuple(sorted(topic.partitions.items())), ADDED_AT_ONCE):
            for index, replicas in some:
                partition = TopicPartition(name, index)
                if partition not in known:
                    self.context.set_assignment(partition, replicas)
                    added.append(partition)
        return added

    async def partitions_modified(self, execution: Execution, topic: str, cause: str) -> None:
        context = self.context
        if topic not in context.all_topics:
            # Left out before, because nobody could understand it; or not known yet.
            self.unreadable.discard(topic)
            await self.topics_changed(execution, cause)
            return
        topic_id = context.topic_ids.get(topic)
        found = await self.store.read_topic(topic, self.on_watch, known_id=topic_id)
        if found is None:
            return
        known = context.assignments.get(topic, {})
        if not context.is_topic_queued_for_deletion(topic):
            added = await self.add_partitions(topic, found)
            await execution.follow(plans.new_partitions(context, tuple(added)), cause)
        elif any(TopicPartition(topic, index) not in known for index in found.partitions):
            # A topic that goes does not grow: back to what it was.
            before = znodes.TopicAssignment(
                topic_id=topic_id,
                partitions={partition.partition: held for partition, held in known.items()},
            )
            path = znodes.topic_path(topic)
            await self.store.fenced([SetData(path=path, data=znodes.encode_topic(before))])

    async def topics_marked(self, execution: Execution, cause: str) -> None:
        marked = await self.registry.children(znodes.DELETE_TOPICS, self.on_watch)
        plan, useless = deletion.topics_marked(
            self.context, marked, deletion_enabled=self.settings.delete_topic_enable
        )
        await self.remove_markers(useless)
        await execution.follow(plan, cause)

    async def remove_markers(self, topics: list[str] | tuple[str, ...]) -> None:
        for topic in topics:
            await self.store.delete_if_there(znodes.delete_topic_path(topic))

    # ---- balance

    def balance_after(self, seconds: float) -> None:
        if self.balancing is not None:
            self.balancing.cancel()
        if self.settings.auto_leader_rebalance_enable:
            loop = asyncio.get_running_loop()
            self.balancing = loop.call_later(
                seconds, lambda: void(self.queue.put(events.LeadersUnbalanced()))
            )

    async def balance(self, execution: Execution, cause: str) -> None:
        self.balance_after(self.settings.imbalance_check_s)
        partitions = unbalanced(self.context, percentage=self.settings.imbalance_percentage)
        if partitions:
            step = MovePartitions(
                partitions=partitions, target=PartitionState.ONLINE, strategy=Strategy.PREFERRED
            )
            await execution.do(step, cause)


def void(_: object) -> None:
    """For callbacks whose result nobody wants."""
