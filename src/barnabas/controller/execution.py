"""Plans carried out: decide, commit, apply, announce, and again for whoever lost a race.

    decide     partition_machine.move, replica_machine.move      pure, a Decision
    commit     store.commit                                       under the check of the controller's epoch
    apply      what won goes into the context
    announce   what won goes into the batch, and from there to the brokers

Each transition and each request is in the history before anybody is told of it.

A step may be about fifty thousand partitions, and the loop is everybody's. So it is done some of them at a time, all
four verbs, with a turn for others in between; and while the registry writes, the next ones are decided. Nobody else
touches the context, and moves of different partitions stand or fall alone: to cut a step changes nothing but when it is
told. Brokers hear who leads as it is decided; clients hear of it, by the
metadata, when the step is done: nobody is shown half a topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import assert_never

from barnabas.controller import partition_machine, replica_machine
from barnabas.controller.channels import Channels
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    FailureReason,
    PartitionOutcome,
    ReplicaOutcome,
    SendUpdateMetadata,
    StateRead,
)
from barnabas.controller.elections import Strategy
from barnabas.controller.plans import Registration
from barnabas.controller.request_batch import Request, RequestBatch
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DeleteTopicZnodes,
    HoldBack,
    LeaveTurn,
    MovePartitions,
    MoveReplicas,
    Plan,
    ResumeReassignments,
    StartSenders,
    Step,
    StopSenders,
    TellHeldBack,
    UnwatchBrokers,
    UnwatchTopics,
    WatchBrokers,
    next_step,
)
from barnabas.controller.store import ControllerStore
from barnabas.errors import ControllerMoved
from barnabas.history.recorder import Recorder, SentRequest
from barnabas.metadata import znodes
from barnabas.model import BrokerId, Replica, TopicPartition
from barnabas.tasks import aside, overlapping
from barnabas.world.ports import Watch

logger = logging.getLogger("barnabas.controller")

UNCLEAN = "unclean.leader.election.enable"
FAILURES_LOGGED_MAX = 20
MOVED_AT_ONCE = 250
NOBODY_CAN_LEAD = (FailureReason.NO_LIVE_REPLICA, FailureReason.NO_ELIGIBLE_LEADER)


class Execution:
    """What one controller does in one epoch."""

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: RequestBatch,
        channels: Channels,
        recorder: Recorder,
        *,
        watch: Watch,
        unclean_by_default: bool,
    ) -> None:
        self.context = context
        self.store = store
        self.batch = batch
        self.channels = channels
        self.recorder = recorder
        self.watch = watch
        self.unclean_by_default = unclean_by_default
        self.registered: Mapping[BrokerId, Registration] = {}
        """As last read: a sender is started before its broker is in the context."""
        self.reported_reassignment: int | None = None
        """mzxid of the last request for a reassignment that was logged."""

    async def follow(self, plan: Plan, cause: str) -> None:
        elected: int | None = None
        while (step := next_step(plan, elected)) is not None:
            elected = await self.do(step, cause)

    async def do(self, step: Step, cause: str) -> int:
        match step:
            case MovePartitions():
                return await self.move_partitions(
                    step.partitions, step.target, cause, step.strategy
                )
            case MoveReplicas():
                await self.move_replicas(step.replicas, step.target, cause)
            case SendUpdateMetadata():
                self.batch.new_batch()
                self.batch.add([step])
                await self.announce(cause)
            case HoldBack():
                self.batch.hold_back(step.partitions)
            case TellHeldBack():
                self.batch.release()
                await self.announce(cause)
            case StartSenders():
                self.channels.start(self.registered[each].broker for each in step.brokers)
            case StopSenders():
                self.give_up(await self.channels.stop(step.brokers))
            case WatchBrokers():
                for broker in step.brokers:
                    await self.store.read_broker(broker, self.watch)
            case DeleteTopicZnodes():
                await self.store.delete_topics(step.topics)
            case LeaveTurn():
                await asyncio.sleep(0)
            case ResumeReassignments():
                logger.warning("not resumed reassignments=%d", len(step.partitions))
            case UnwatchBrokers() | UnwatchTopics():
                pass  # a watch is gone with its znode, and one that fires too late finds nothing to do
            case _:
                assert_never(step)
        return 0

    async def move_partitions(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        cause: str,
        strategy: Strategy | None = None,
    ) -> int:
        """How many elections were won."""
        self.batch.new_batch()
        elected = await overlapping(
            partitions,
            MOVED_AT_ONCE,
            lambda some: self.move_some_partitions(some, target, cause, strategy),
        )
        await self.announce(cause)
        return sum(elected)

    async def move_some_partitions(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        cause: str,
        strategy: Strategy | None,
    ) -> int:
        context = self.context
        elected = 0
        lost = False
        while partitions:
            states = await self.states(
                partition_machine.states_to_read(context, partitions, target), lost=lost
            )
            decision = partition_machine.move(
                context,
                partitions,
                target,
                cause=cause,
                strategy=strategy,
                states=states,
                unclean=await self.unclean(partition_machine.configs_to_read(context, states)),
            )
            outcome = decision.committed(await self.store.commit(decision.writes))
            partition_machine.apply(context, outcome.won)
            self.take_note(outcome)
            self.batch.add(outcome.won.requests)
            elected += sum(
                move.write is not None and move.before is not PartitionState.NEW
                for move in outcome.won.moves
            )
            partitions, lost = outcome.again, True
        self.tell(self.batch.flush_leaders(), cause)
        return elected

    async def move_replicas(
        self, replicas: tuple[Replica, ...], target: ReplicaState, cause: str
    ) -> None:
        self.batch.new_batch()
        # Two replicas of one partition leave its ISR one after the other, and no two are on one broker.
        parts = by_broker(replicas) if target is ReplicaState.OFFLINE else (replicas,)
        for part in parts:
            await overlapping(
                part, MOVED_AT_ONCE, lambda some: self.move_some_replicas(some, target, cause)
            )
        await self.announce(cause)

    async def move_some_replicas(
        self, replicas: tuple[Replica, ...], target: ReplicaState, cause: str
    ) -> None:
        context = self.context
        lost = False
        while replicas:
            states = await self.states(
                replica_machine.states_to_read(context, replicas, target), lost=lost
            )
            decision = replica_machine.move(context, replicas, target, cause=cause, states=states)
            outcome = decision.committed(await self.store.commit(decision.writes))
            replica_machine.apply(context, outcome.won)
            self.take_note(outcome)
            self.batch.add(outcome.won.requests)
            replicas, lost = outcome.again, True
        self.tell(self.batch.flush_leaders(), cause)

    async def states(
        self, partitions: tuple[TopicPartition, ...], *, lost: bool
    ) -> dict[TopicPartition, StateRead]:
        """As the context has them, and as the registry has those it lacks. Every change goes through this controller,
        so the context is right; if not, a write on the ground of it fails, and then (`lost`) they are read."""
        known = self.context.leadership
        found: dict[TopicPartition, StateRead] = {}
        if not lost:
            found.update((each, known[each]) for each in partitions if each in known)
        found.update(
            await self.store.read_states([each for each in partitions if each not in found])
        )
        return found

    def take_note(self, outcome: PartitionOutcome | ReplicaOutcome) -> None:
        self.recorder.record_transitions(
            outcome.won.moves, outcome.failures, replicas_of=self.context.replicas
        )
        for move in outcome.won.moves:
            if move.is_unclean and move.leadership is not None:
                logger.warning(
                    "unclean election partition=%s leader=%d: what it lacks is lost",
                    move.item,
                    move.leadership.leader,
                )
        for failure in outcome.failures[:FAILURES_LOGGED_MAX]:
            # That nobody can lead is how things are, and told to whoever asks for the topic; the rest is trouble.
            level = logging.INFO if failure.reason in NOBODY_CAN_LEAD else logging.WARNING
            logger.log(level, "not moved %s cause=%s", failure, failure.cause)
        if len(outcome.failures) > FAILURES_LOGGED_MAX:
            logger.info("not moved, all told: %d", len(outcome.failures))
        if outcome.moved:
            raise ControllerMoved(znodes.TOPICS, "a state was written by a newer controller")

    async def announce(self, cause: str) -> None:
        """Everything in the batch, in the order of the batch."""
        self.tell(await aside(self.batch.size, self.batch.flush), cause)

    def tell(self, requests: Iterable[tuple[BrokerId, Request]], cause: str) -> None:
        for broker, request in requests:
            sent = self.recorder.record_request(broker, request, cause=cause)
            if not self.channels.send(sent):
                self.give_up([sent])
        self.recorder.forget_topics()

    def give_up(self, dropped: Iterable[SentRequest]) -> None:
        """Of a request that nobody will answer, that is the result."""
        for sent in dropped:
            self.recorder.record_missing_response(sent, f"broker {sent.broker} is gone")

    async def unclean(self, topics: tuple[str, ...]) -> dict[str, bool]:
        """Whether each allows the election of a replica that is not in sync."""
        configs = await self.store.read_topic_configs(topics)
        return {
            topic: config[UNCLEAN].strip().lower() == "true"
            if UNCLEAN in config
            else self.unclean_by_default
            for topic, config in configs.items()
        }


def by_broker(replicas: tuple[Replica, ...]) -> list[tuple[Replica, ...]]:
    held: dict[BrokerId, list[Replica]] = {}
    for replica in replicas:
        held.setdefault(replica.broker, []).append(replica)
    return [tuple(of_broker) for _, of_broker in sorted(held.items())]
