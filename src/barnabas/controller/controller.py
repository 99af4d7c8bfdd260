"""The controller of a broker: takes part in controller elections and, if elected, handles all controller events.

Every broker runs a Controller. On most brokers it only watches /controller. On the elected broker, events come from
registry watches, from responses of brokers and from requests of brokers. They are handled one at a time. Each handler
reads the current state, makes a plan and runs it (execution.py).

A controller that has been replaced learns it from its next write, which the registry rejects (store.py). It then drops
its state and sends nothing more. If a takeover fails, the broker resigns, so that another broker can try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from barnabas.config import BrokerConfig
from barnabas.controller import deletion, events, plans, reassignment, znode_requests
from barnabas.controller.assignment import is_being_reassigned
from barnabas.controller.channels import Channels
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.events import Event
from barnabas.controller.execution import Execution
from barnabas.controller.queue import EventQueue, preempt
from barnabas.controller.request_batch import RequestBatch, UnsentRequestsError
from barnabas.controller.requests import handle_client_request
from barnabas.controller.responses import needs_handling, plan_for_response
from barnabas.controller.states import PartitionState
from barnabas.controller.store import ControllerElection, ControllerStore
from barnabas.errors import ControllerMoved, ErrorCode, RegistryError, RegistrySessionExpired
from barnabas.history.recorder import EventSink, Recorder, Response, SentRequest
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, TopicPartition
from barnabas.retry import Backoff
from barnabas.tasks import Tasks, in_chunks
from barnabas.wire.codec import Message
from barnabas.world.ports import Clock, Network, SetData, WatchEvent, WatchKind

logger = logging.getLogger("barnabas.controller")

FIRST_BALANCE_CHECK_SECONDS = 5.0
TAKE_OVER_PAUSE_SECONDS = (0.5, 5.0)  # first and longest
PARTITIONS_PER_TURN = 2000  # then other tasks run
EVENTS_BY_PATH: Mapping[str, Event] = {
    znodes.CONTROLLER: events.ControllerChanged(),
    znodes.CONTROLLER_EPOCH: events.ControllerGone(),  # watched only while it is invalid
    znodes.BROKER_IDS: events.BrokersChanged(),
    znodes.TOPICS: events.TopicsChanged(),
    znodes.DELETE_TOPICS: events.TopicsMarked(),
    znodes.LOG_DIR_EVENTS: events.LogDirFailed(),
    znodes.ISR_CHANGES: events.IsrsChanged(),
    znodes.PREFERRED_REPLICA_ELECTION: events.PreferredElectionRequested(),
    znodes.REASSIGN_PARTITIONS: events.ReassignmentRequested(),
}


class Controller:
    """Controller of one broker; active while this broker is the elected controller."""

    def __init__(
        self,
        broker_id: BrokerId,
        registry: RegistryClient,
        network: Network,
        clock: Clock,
        random: Random,
        *,
        config: BrokerConfig,
        history: EventSink,
        register: Callable[[], Awaitable[None]],
    ) -> None:
        """`register` registers the broker again after its registry session expired."""
        self.broker_id = broker_id
        self.registry = registry
        self.clock = clock
        self.config = config
        self.history = history
        self.register = register
        self.context = ControllerContext()
        self.batch = RequestBatch(broker_id, self.context, config.inter_broker_listener)
        self.store = ControllerStore(registry, broker_id, random)
        self.channels = Channels(
            network,
            broker_id,
            listener=config.control_plane_listener,
            timeout_s=config.controller_socket_timeout_ms / 1000,
            on_response=self.on_response,
        )
        self.queue = EventQueue(self.handle)
        self.tasks = Tasks()
        self.take_over_backoff = Backoff(*TAKE_OVER_PAUSE_SECONDS, random=Random(broker_id))
        self.controller_id: BrokerId | None = None
        """The current controller, as last read from the registry."""
        self.execution: Execution | None = None
        """Set while this broker is the controller."""
        self.has_taken_over = False
        self.ignored_topics: set[str] = set()
        """Topics whose znode is invalid. They are read again when the znode changes."""
        self.rebalance_timer: asyncio.TimerHandle | None = None
        self.unclean_elections = 0
        """Since the start of this broker."""

    # ---- interface

    @property
    def is_active(self) -> bool:
        return self.execution is not None

    @property
    def epoch(self) -> ControllerEpoch:
        """Epoch of this controller; 0 while it is not active."""
        return self.context.epoch

    @property
    def is_settled(self) -> bool:
        """Whether this broker has taken over as controller, with no event waiting and no request to itself pending."""
        return (
            self.has_taken_over
            and self.queue.is_idle
            and not self.channels.has_pending(self.broker_id)
        )

    def start(self) -> None:
        self.registry.on_expired = self.on_expired
        self.registry.on_new_session = lambda: self.queue.put(events.SessionOpened())
        self.tasks.start("controller", self.queue.run())
        self.queue.put(events.Startup())

    async def stop(self) -> None:
        """Stop. Requests that wait for an answer get NOT_CONTROLLER. /controller is deleted when the session ends."""
        self.registry.on_expired = None
        self.registry.on_new_session = None
        await self.tasks.stop()
        for queued in self.queue.waiting:
            preempt(queued.event)
        await self.resign("stop")

    async def on_expired(self) -> None:
        """Drop the waiting events, and return when the current handler has ended: none continues in the new session."""
        await self.queue.clear_and_put(events.SessionExpired())

    def on_watch(self, event: WatchEvent) -> None:
        """Queue the event that belongs to a changed znode."""
        parent, _, name = event.path.rpartition("/")
        if event.path == znodes.CONTROLLER and event.kind is WatchKind.DELETED:
            self.queue.put(events.ControllerGone())
        elif event.path in EVENTS_BY_PATH:
            self.queue.put(EVENTS_BY_PATH[event.path])
        elif event.kind is not WatchKind.CHANGED:
            return  # the watch on the parent reports creations and deletions
        elif parent == znodes.BROKER_IDS and name.isdecimal():
            self.queue.put(events.BrokerModified(BrokerId(int(name))))
        elif parent == znodes.TOPICS:
            self.queue.put(events.PartitionsModified(name))

    def on_response(self, sent: SentRequest, response: Message) -> None:
        """Record a response of a broker, and queue it if it needs handling."""
        execution = self.execution
        if execution is None:
            return
        assert isinstance(response, Response)
        execution.recorder.record_response(sent, response)
        if response.error_code:
            code = ErrorCode(response.error_code).name
            logger.warning(
                "broker rejected a request broker=%d cause=%s error=%s",
                *(sent.broker, sent.cause, code),
            )
        if needs_handling(self.context, sent, response):
            self.queue.put(events.RequestAnswered(sent.broker, sent.request, response))

    def reconfigure(self, before: BrokerConfig, config: BrokerConfig) -> None:
        """Use new settings. If unclean elections are allowed now, elect leaders for offline partitions."""
        self.config = config
        if self.execution is not None:
            self.execution.unclean_by_default = config.unclean_leader_election_enable
            if config.unclean_leader_election_enable and not before.unclean_leader_election_enable:
                self.queue.put(events.UncleanLeaderElectionEnable())

    def allow_unclean_elections(self, topic: str) -> None:
        """Elect leaders for the offline partitions of a topic, whose settings now allow unclean elections."""
        if self.execution is not None:
            self.queue.put(events.TopicUncleanLeaderElectionEnable(topic))

    # ---- events

    async def handle(self, event: Event, cause: str) -> None:
        """Handle one event of the queue. Resign if another broker is the controller."""
        try:
            await self.dispatch(event, cause)
        except ControllerMoved as moved:
            logger.info(
                "another broker is the controller, resigning cause=%s reason=%s", cause, moved
            )
            preempt(event)
            await self.resign(cause)
            await self.read_controller_id()
        except RegistrySessionExpired:
            preempt(event)  # the event SessionExpired follows
        except UnsentRequestsError as error:
            # Some broker may have missed a request. A new controller sends the full state to all brokers.
            logger.error("requests were not sent, resigning cause=%s error=%s", cause, error)
            preempt(event)
            await self.store.delete_controller()
            await self.resign(cause)

    async def dispatch(self, event: Event, cause: str) -> None:
        """Handle the events that concern every broker. Pass the others on if this broker is the controller."""
        match event:
            case events.Startup():
                await self.elect(cause)
            case events.ControllerChanged():
                await self.resign_if_replaced(cause)
                if self.controller_id is None:
                    await self.elect(cause)  # the znode is gone again
            case events.ControllerGone():
                await self.resign_if_replaced(cause)
                await self.elect(cause)
            case events.SessionExpired():
                self.controller_id = None
                await self.resign(cause)
            case events.SessionOpened():
                await self.register()
                await self.resign_if_replaced(cause)
                await self.elect(cause)
            case _:
                if self.execution is None:
                    preempt(event)
                    return
                await self.handle_as_controller(self.execution, event, cause)
                if not isinstance(event, events.ReassignmentsProgressed):
                    self.queue_progress()

    async def handle_as_controller(
        self, execution: Execution, event: events.ControllerEvent, cause: str
    ) -> None:
        match event:
            case events.BrokersChanged():
                execution.registrations = await self.store.read_brokers(self.on_watch)
                plan = plans.plan_broker_changes(self.context, execution.registrations)
                await execution.run_plan(plan, cause)
            case events.BrokerModified(broker):
                await self.handle_broker_modified(execution, broker, cause)
            case events.TopicsChanged():
                await self.handle_topics_changed(execution, cause)
            case events.PartitionsModified(topic):
                await self.handle_partitions_modified(execution, topic, cause)
            case events.TopicsMarked():
                await self.handle_topics_marked(execution, cause)
            case (
                events.LogDirFailed()
                | events.IsrsChanged()
                | events.PreferredElectionRequested()
                | events.ReassignmentRequested()
            ):
                await znode_requests.handle_znode_request(execution, event, cause)
            case events.RequestAnswered():
                await execution.run_plan(plan_for_response(self.context, event), cause)
            case events.ReassignmentsProgressed():
                plan = reassignment.complete_ready_reassignments(self.context)
                await execution.run_plan(plan, cause)
            case events.UncleanLeaderElectionEnable():
                await execution.run_plan(plans.plan_allowed_elections(self.context), cause)
            case events.TopicUncleanLeaderElectionEnable(topic):
                plan = plans.plan_allowed_elections(self.context, topic)
                await execution.run_plan(plan, cause)
            case events.LeadersUnbalanced():
                await self.rebalance_leaders(execution, cause)
            case _:
                await handle_client_request(execution, event, cause)

    # ---- election and resignation

    async def read_controller_id(self) -> None:
        """Read and watch /controller."""
        self.controller_id = await self.store.controller_id(self.on_watch)

    async def resign_if_replaced(self, cause: str) -> None:
        """Read /controller. Resign if this broker was the controller and the znode no longer names it."""
        await self.read_controller_id()
        if self.is_active and self.controller_id != self.broker_id:
            await self.resign(cause)

    async def elect(self, cause: str) -> None:
        """Try to become the controller if there is none. If the takeover fails, resign and wait."""
        await self.read_controller_id()
        if self.controller_id is not None:
            return
        try:
            election = await self.store.elect(self.clock.now_ms(), self.on_watch)
        except ControllerMoved:
            await self.read_controller_id()
            return
        self.controller_id = self.broker_id
        logger.info("elected as controller broker=%d epoch=%d", self.broker_id, election.epoch)
        try:
            await self.take_over(election, cause)
            self.take_over_backoff.reset()
        except (ControllerMoved, RegistrySessionExpired):
            raise
        except Exception:
            logger.exception("takeover failed, resigning epoch=%d", election.epoch)
            await self.store.delete_controller()
            await self.resign(cause)
            # Another broker can try now. The pause keeps a persistent error from causing a fast loop of elections.
            await self.take_over_backoff.wait()

    async def take_over(self, election: ControllerElection, cause: str) -> None:
        """Read the cluster from the registry and start to control it.

        The order is Kafka's: set watches before reading, send metadata before LeaderAndIsr, change replica states
        before elections.
        """
        context, store = self.context, self.store
        context.reset()
        context.epoch = election.epoch
        store.take_over(election)
        recorder = Recorder(self.broker_id, election.epoch, self.clock, self.history)
        self.execution = execution = Execution(
            context,
            store,
            self.batch,
            self.channels,
            recorder,
            watch=self.on_watch,
            unclean_by_default=self.config.unclean_leader_election_enable,
        )
        execution.on_unclean_election = self.count_unclean_election
        self.ignored_topics.clear()
        recorder.record_election(cause=cause)
        topic_names = await self.registry.children(znodes.TOPICS, self.on_watch)
        marked = await self.registry.children(znodes.DELETE_TOPICS, self.on_watch)
        for notifications in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            names = await self.registry.children(notifications, self.on_watch)
            await store.delete_children(notifications, names)  # the states are read below
        execution.registrations = await store.read_brokers(self.on_watch)
        topics = await store.read_topics(topic_names, self.on_watch)
        self.ignored_topics.update(name for name in topic_names if name not in topics)
        last_zxids: dict[TopicPartition, int] = {}
        states = await store.read_states(
            [
                TopicPartition(name, each)
                for name, topic in topics.items()
                for each in topic.partitions
            ],
            last_zxids,
        )
        valid = {tp: state for tp, state in states.items() if isinstance(state, LeaderAndIsr)}
        store.topics_with_partitions_znode.update(partition.topic for partition in states)
        restarted = plans.find_unnoticed_restarts(execution.registrations, valid, last_zxids)
        if restarted:
            logger.warning(
                "brokers restarted while there was no controller, treated as failed first brokers=%s",
                sorted(restarted),
            )
            execution.registrations = {
                broker: registration
                for broker, registration in execution.registrations.items()
                if broker not in restarted
            }
            self.queue.put(events.BrokersChanged())
        for error in plans.load_context(
            context, brokers=execution.registrations, topics=topics, states=valid
        ):
            logger.error("topic ignored error=%s", error)
        self.channels.start(each.broker for _, each in sorted(execution.registrations.items()))
        if self.config.delete_topic_enable:
            plans.queue_deletions_in_progress(context, marked)
        else:
            await store.delete_children(znodes.DELETE_TOPICS, marked)
        await execution.run_plan(plans.plan_failover(context), cause)
        # The requests in the registry first: they replace those in progress.
        started = frozenset(await znode_requests.start_reassignments(execution, cause))
        resumed = tuple(p for p in context.partitions_being_reassigned if p not in started)
        await execution.run_plan(reassignment.continue_reassignments(context, resumed), cause)
        await znode_requests.elect_preferred_leaders(execution, cause)
        for broker in sorted(execution.registrations):
            await store.read_broker(broker, self.on_watch)
        self.has_taken_over = True
        self.schedule_rebalance(FIRST_BALANCE_CHECK_SECONDS)
        logger.info(
            "took over as controller broker=%d epoch=%d brokers=%d partitions=%d",
            *(self.broker_id, election.epoch, len(context.brokers), len(context.all_partitions)),
        )

    def count_unclean_election(self) -> None:
        self.unclean_elections += 1

    async def resign(self, cause: str) -> None:
        """Drop all state and send nothing more. /controller is not deleted."""
        execution, self.execution = self.execution, None
        self.has_taken_over = False
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
        await self.channels.stop_all()
        self.batch.clear()
        self.context.reset()
        if execution is not None:
            execution.recorder.record_resignation(cause=cause)
            logger.info(
                "resigned as controller broker=%d epoch=%d",
                *(self.broker_id, execution.recorder.epoch),
            )

    # ---- brokers

    async def handle_broker_modified(
        self, execution: Execution, broker: BrokerId, cause: str
    ) -> None:
        """Send requests to the new endpoints of a broker, and the new list of brokers to all."""
        before = self.context.brokers.get(broker)
        found = await self.store.read_broker(broker, self.on_watch)
        if found is None or before is None or found.broker == before:
            return
        if found.epoch != self.context.broker_epochs.get(broker):
            return  # a restart, which BrokersChanged handles
        self.context.set_broker(found.broker, found.epoch)
        execution.registrations = {**execution.registrations, broker: found}
        await self.channels.reconnect(found.broker)
        await execution.run_step(SendUpdateMetadata(), cause)

    # ---- reassignments

    def queue_progress(self) -> None:
        """After a change of ISRs, complete the reassignments that waited for it.

        As an event of its own, since one covers all ISR changes that are waiting in the queue before it.
        """
        if self.context.reassigned_with_new_isr:
            self.queue.put(events.ReassignmentsProgressed())

    # ---- topics

    async def handle_topics_changed(self, execution: Execution, cause: str) -> None:
        """Bring new topics online and forget deleted ones."""
        context = self.context
        names = await self.registry.children(znodes.TOPICS, self.on_watch)
        existing = set(names)
        for deleted in [topic for topic in context.all_topics if topic not in existing]:
            context.remove_topic(deleted)
        self.ignored_topics &= existing
        new = [n for n in names if n not in context.all_topics and n not in self.ignored_topics]
        found = await self.store.read_topics(new, self.on_watch)
        self.ignored_topics.update(name for name in new if name not in found)
        added: list[TopicPartition] = []
        for name, topic in found.items():
            try:
                context.add_topic(name, topic.topic_id)
            except RegistryError as error:
                logger.error("topic ignored error=%s", error)
                self.ignored_topics.add(name)
                continue
            added += await self.add_partitions(name, topic)
        await execution.run_plan(plans.plan_new_partitions(context, tuple(added)), cause)

    async def add_partitions(
        self, name: str, topic: znodes.TopicAssignment
    ) -> list[TopicPartition]:
        """Add the partitions that are not known yet and return them. Known partitions keep their assignment."""
        added = []
        known = self.context.assignments.get(name, {})
        async for chunk in in_chunks(tuple(sorted(topic.partitions.items())), PARTITIONS_PER_TURN):
            for index, replicas in chunk:
                partition = TopicPartition(name, index)
                if partition not in known:
                    self.context.set_assignment(partition, replicas)
                    if is_being_reassigned(replicas):
                        self.context.partitions_being_reassigned[partition] = None
                    added.append(partition)
        return added

    async def handle_partitions_modified(
        self, execution: Execution, topic: str, cause: str
    ) -> None:
        """Bring added partitions online. Undo the addition if the topic is queued for deletion."""
        context = self.context
        if topic not in context.all_topics:
            # New, or ignored before because its znode was invalid.
            self.ignored_topics.discard(topic)
            await self.handle_topics_changed(execution, cause)
            return
        topic_id = context.topic_ids.get(topic)
        found = await self.store.read_topic(topic, self.on_watch, known_id=topic_id)
        if found is None:
            return
        known = context.assignments.get(topic, {})
        if not context.is_topic_queued_for_deletion(topic):
            added = await self.add_partitions(topic, found)
            await execution.run_plan(plans.plan_new_partitions(context, tuple(added)), cause)
        elif any(TopicPartition(topic, index) not in known for index in found.partitions):
            # A topic queued for deletion does not grow: restore the known assignment.
            before = znodes.TopicAssignment(
                topic_id=topic_id,
                partitions={partition.partition: held for partition, held in known.items()},
            )
            path = znodes.topic_path(topic)
            await self.store.write_fenced([SetData(path=path, data=znodes.encode_topic(before))])

    async def handle_topics_marked(self, execution: Execution, cause: str) -> None:
        """Start the deletion of marked topics. Remove the markers of unknown topics, or all if deletion is disabled."""
        marked = await self.registry.children(znodes.DELETE_TOPICS, self.on_watch)
        plan, rejected = deletion.plan_marked_topics(
            self.context, marked, deletion_enabled=self.config.delete_topic_enable
        )
        await self.store.delete_children(znodes.DELETE_TOPICS, rejected)
        await execution.run_plan(plan, cause)

    # ---- leader balance

    def schedule_rebalance(self, seconds: float) -> None:
        """Check the leader balance after this many seconds, if auto.leader.rebalance.enable is set."""
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
        if self.config.auto_leader_rebalance_enable:
            loop = asyncio.get_running_loop()
            self.rebalance_timer = loop.call_later(
                seconds, lambda: self.queue.put(events.LeadersUnbalanced())
            )

    async def rebalance_leaders(self, execution: Execution, cause: str) -> None:
        """Move leaderships back to preferred leaders where the imbalance is too large."""
        self.schedule_rebalance(self.config.leader_imbalance_check_interval_seconds)
        partitions = plans.find_unbalanced_partitions(
            self.context, percentage=self.config.leader_imbalance_per_broker_percentage
        )
        if partitions:
            await execution.move_partitions(
                partitions, PartitionState.ONLINE, cause, Strategy.PREFERRED
            )
