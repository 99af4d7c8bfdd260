"""Execution of plans: decide, commit, apply, announce. Items with a stale state are retried.

    decide     the state machines return a Decision (pure)
    commit     store.commit writes it, fenced by the controller epoch
    apply      the committed part goes into the context
    announce   the committed part goes into the request batch, and from there to the brokers

Each transition and each request is in the history before it is sent to a broker.

A step may concern 50,000 partitions. So that it does not block the event loop, it runs in chunks through all four
phases. While the registry writes one chunk, the next is decided. This does not change the result: the context has no
other writer, and the transitions of different partitions are independent. LeaderAndIsr is sent after each chunk.
UpdateMetadata is sent at the end of the step, so that clients never see half a topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from barnabas.controller import partition_machine, replica_machine
from barnabas.controller.assignment_store import remove_reassignment_requests, write_assignments
from barnabas.controller.channels import Channels
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    FailureReason,
    PartitionDecision,
    PartitionOutcome,
    ReplicaOutcome,
    SendUpdateMetadata,
    StateReadResult,
)
from barnabas.controller.elections import Strategy
from barnabas.controller.plans import Registration
from barnabas.controller.request_batch import RequestBatch
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DelayRequests,
    DeleteTopicZnodes,
    MovePartitions,
    MoveReplicas,
    Plan,
    RaiseLeaderEpochs,
    RegistryStep,
    RemoveReassignmentRequests,
    SendDelayedRequests,
    StartSenders,
    Step,
    StopSenders,
    WatchBrokers,
    WriteAssignments,
    YieldToEventLoop,
    next_plan_step,
)
from barnabas.controller.store import ControllerStore
from barnabas.errors import ControllerMoved
from barnabas.history.recorder import Recorder, Request, SentRequest
from barnabas.metadata import znodes
from barnabas.model import BrokerId, Replica, TopicPartition
from barnabas.tasks import in_thread_if_large, run_overlapping
from barnabas.world.ports import Watch

logger = logging.getLogger("barnabas.controller")

UNCLEAN_ELECTION_CONFIG = "unclean.leader.election.enable"
FAILURES_LOGGED_MAX = 20  # per chunk
TRANSITIONS_PER_CHUNK = 250
OFFLINE_REASONS = (FailureReason.NO_LIVE_REPLICA, FailureReason.NO_ELIGIBLE_LEADER)
"""Normal while brokers are offline, and visible in the metadata of the topic."""


class Execution:
    """Runs plans and steps for one controller in one epoch."""

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
        self.on_unclean_election: Callable[[], None] = lambda: None
        self.registrations: Mapping[BrokerId, Registration] = {}
        """Registered brokers, as last read. A sender starts with these, before its broker is in the context."""

    async def run_plan(self, plan: Plan, cause: str) -> None:
        """Run all steps of a plan. `cause` names the event in the history."""
        elected: int | None = None
        while (step := next_plan_step(plan, elected)) is not None:
            elected = await self.run_step(step, cause)

    async def run_step(self, step: Step, cause: str) -> int:
        """Run one step. Returns the number of successful elections."""
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
                await self.send_batch(cause)
            case DelayRequests():
                self.batch.delay(step.partitions)
            case SendDelayedRequests():
                self.batch.release_delayed()
                await self.send_batch(cause)
            case StartSenders():
                self.channels.start(self.registrations[each].broker for each in step.brokers)
            case StopSenders():
                self.record_undelivered(await self.channels.stop(step.brokers))
            case RaiseLeaderEpochs():
                await self.raise_leader_epochs(step.partitions, cause)
            case YieldToEventLoop():
                await asyncio.sleep(0)
            case _:
                await self.run_registry_step(step, cause)
        return 0

    async def run_registry_step(self, step: RegistryStep, cause: str) -> None:
        match step:
            case WatchBrokers():
                for broker in step.brokers:
                    await self.store.read_broker(broker, self.watch)
            case DeleteTopicZnodes():
                await self.store.delete_topics(step.topics)
            case WriteAssignments():
                step.errors.update(await write_assignments(self.store, step.assignments))
                written = {tp: a for tp, a in step.assignments.items() if tp not in step.errors}
                self.recorder.record_assignments(written, cause=cause)
            case RemoveReassignmentRequests():
                await remove_reassignment_requests(self.store, step.partitions)
            case _:
                assert_never(step)

    async def move_partitions(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        cause: str,
        strategy: Strategy | None = None,
    ) -> int:
        """Move partitions to a state, in chunks. Returns the number of elections that replaced or restored a leader."""
        self.batch.new_batch()
        elected = await run_overlapping(
            partitions,
            TRANSITIONS_PER_CHUNK,
            lambda chunk: self.move_partition_chunk(chunk, target, cause, strategy),
        )
        await self.send_batch(cause)
        return sum(elected)

    async def move_partition_chunk(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        cause: str,
        strategy: Strategy | None,
    ) -> int:
        context = self.context
        elected = 0
        is_stale = False
        while partitions:
            states = await self.read_leadership(
                partition_machine.partitions_for_elections(context, partitions, target),
                is_stale=is_stale,
            )
            decision = partition_machine.decide_partition_transitions(
                context,
                partitions,
                target,
                cause=cause,
                strategy=strategy,
                states=states,
                unclean=await self.read_unclean_settings(
                    partition_machine.topics_for_unclean_check(context, states)
                ),
            )
            outcome = await self.commit_partitions(decision)
            elected += sum(
                each.write is not None and each.before is not PartitionState.NEW
                for each in outcome.committed.transitions
            )
            partitions, is_stale = outcome.to_retry, True
        self.send_requests(self.batch.flush_leaders(), cause)
        return elected

    async def raise_leader_epochs(self, partitions: tuple[TopicPartition, ...], cause: str) -> None:
        self.batch.new_batch()
        await run_overlapping(
            partitions, TRANSITIONS_PER_CHUNK, lambda chunk: self.raise_epoch_chunk(chunk, cause)
        )
        await self.send_batch(cause)

    async def raise_epoch_chunk(self, partitions: tuple[TopicPartition, ...], cause: str) -> None:
        is_stale = False
        while partitions:
            states = await self.read_leadership(partitions, is_stale=is_stale)
            decision = partition_machine.decide_epoch_raises(
                self.context, partitions, states, cause=cause
            )
            outcome = await self.commit_partitions(decision)
            partitions, is_stale = outcome.to_retry, True
        self.send_requests(self.batch.flush_leaders(), cause)

    async def commit_partitions(self, decision: PartitionDecision) -> PartitionOutcome:
        """Commit, apply and record a decision, and add its requests to the batch."""
        outcome = decision.outcome_of(await self.store.commit(decision.writes))
        partition_machine.apply_partition_transitions(self.context, outcome.committed)
        self.record_outcome(outcome)
        self.batch.add(outcome.committed.requests)
        return outcome

    async def move_replicas(
        self, replicas: tuple[Replica, ...], target: ReplicaState, cause: str
    ) -> None:
        self.batch.new_batch()
        # Replicas of one partition must leave its ISR one after the other, so a chunk has replicas of one broker only.
        groups = group_by_broker(replicas) if target is ReplicaState.OFFLINE else (replicas,)
        for group in groups:
            await run_overlapping(
                group,
                TRANSITIONS_PER_CHUNK,
                lambda chunk: self.move_replica_chunk(chunk, target, cause),
            )
        await self.send_batch(cause)

    async def move_replica_chunk(
        self, replicas: tuple[Replica, ...], target: ReplicaState, cause: str
    ) -> None:
        context = self.context
        is_stale = False
        while replicas:
            states = await self.read_leadership(
                replica_machine.partitions_for_isr_removal(context, replicas, target),
                is_stale=is_stale,
            )
            decision = replica_machine.decide_replica_transitions(
                context, replicas, target, cause=cause, states=states
            )
            outcome = decision.outcome_of(await self.store.commit(decision.writes))
            replica_machine.apply_replica_transitions(context, outcome.committed)
            self.record_outcome(outcome)
            self.batch.add(outcome.committed.requests)
            replicas, is_stale = outcome.to_retry, True
        self.send_requests(self.batch.flush_leaders(), cause)

    async def read_leadership(
        self, partitions: tuple[TopicPartition, ...], *, is_stale: bool
    ) -> dict[TopicPartition, StateReadResult]:
        """Return the leadership of partitions, from the context or, if it has none, from the registry.

        The context is normally up to date, because all changes go through this controller. If it is not, the write
        fails with a version conflict. The retry passes `is_stale` and reads the registry.
        """
        known = self.context.leadership
        found: dict[TopicPartition, StateReadResult] = {}
        if not is_stale:
            found.update((each, known[each]) for each in partitions if each in known)
        found.update(
            await self.store.read_states([each for each in partitions if each not in found])
        )
        return found

    def record_outcome(self, outcome: PartitionOutcome | ReplicaOutcome) -> None:
        """Write the outcome to the history and log its failures. Raises ControllerMoved for a newer controller."""
        self.recorder.record_transitions(
            outcome.committed.transitions, outcome.failures, replicas_of=self.context.replicas
        )
        for each in outcome.committed.transitions:
            if each.is_unclean and each.leadership is not None:
                self.on_unclean_election()
                logger.warning(
                    "unclean election partition=%s leader=%d: records that the leader does not have are lost",
                    each.item,
                    each.leadership.leader,
                )
        for failure in outcome.failures[:FAILURES_LOGGED_MAX]:
            level = logging.INFO if failure.reason in OFFLINE_REASONS else logging.WARNING
            logger.log(level, "state transition failed %s cause=%s", failure, failure.cause)
        if len(outcome.failures) > FAILURES_LOGGED_MAX:
            logger.info("state transitions failed count=%d", len(outcome.failures))
        if outcome.has_newer_controller:
            raise ControllerMoved(znodes.TOPICS, "a newer controller wrote a partition state")

    async def send_batch(self, cause: str) -> None:
        """Send all requests of the batch, except the delayed ones."""
        self.send_requests(await in_thread_if_large(self.batch.size, self.batch.flush), cause)

    def send_requests(self, requests: Iterable[tuple[BrokerId, Request]], cause: str) -> None:
        for broker, request in requests:
            sent = self.recorder.record_request(broker, request, cause=cause)
            if not self.channels.send(sent):
                self.record_undelivered([sent])
        self.recorder.forget_topics()

    def record_undelivered(self, dropped: Iterable[SentRequest]) -> None:
        """Record that these requests get no response."""
        for sent in dropped:
            self.recorder.record_missing_response(sent, f"broker {sent.broker} is gone")

    async def read_unclean_settings(self, topics: tuple[str, ...]) -> dict[str, bool]:
        """Return whether each topic allows unclean elections. Topics with an unreadable config are left out."""
        configs = await self.store.read_topic_configs(topics)
        return {
            topic: config[UNCLEAN_ELECTION_CONFIG].strip().lower() == "true"
            if UNCLEAN_ELECTION_CONFIG in config
            else self.unclean_by_default
            for topic, config in configs.items()
        }


def group_by_broker(replicas: tuple[Replica, ...]) -> list[tuple[Replica, ...]]:
    by_broker: dict[BrokerId, list[Replica]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.broker, []).append(replica)
    return [tuple(group) for _, group in sorted(by_broker.items())]
