"""The topics of a cluster of one broker: created, deleted and brought back after a restart.

With one broker there is nobody to elect and nobody to tell, so this stands where a controller will: it writes the same
znodes a controller would (so that the registry reads the same from the first day) and makes this broker lead every
partition it has a replica of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ConfigError, ErrorCode, NodeExists, NoNode, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.cache import (
    INTERNAL_TOPICS,
    MetadataCache,
    PartitionState,
    TopicState,
)
from barnabas.metadata.topic_names import check_topic_name, colliding, what_is_wrong_with
from barnabas.model import (
    NO_LEADER,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.log import Log
from barnabas.world.ports import Create, Delete, RegistrySession, World

logger = logging.getLogger("barnabas.topics")

USE_DEFAULT = -1
FIRST_EPOCH = LeaderEpoch(0)
PARTITIONS_MAX = 10_000  # per topic to be created, as Kafka's newer controller has it
OPENED_PER_TURN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as a client wishes it. With `assignments`, both counts are -1."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTopic:
    """A topic that may be created: what would be written."""

    name: str
    replicas: tuple[tuple[BrokerId, ...], ...]
    overrides: Mapping[str, str]
    config: TopicConfig


class Topics:
    """Every topic this broker knows of, with its settings."""

    def __init__(
        self,
        world: World,
        registry: RegistrySession,
        metadata: MetadataCache,
        *,
        broker_id: BrokerId,
        controller_epoch: ControllerEpoch,
        defaults: TopicConfig,
        partitions_default: int,
        replication_factor_default: int,
        adopts_logs: bool = False,
    ) -> None:
        self.world = world
        self.registry = registry
        self.metadata = metadata
        self.broker_id = broker_id
        self.controller_epoch = controller_epoch
        self.defaults = defaults
        self.partitions_default = partitions_default
        self.replication_factor_default = replication_factor_default
        self.adopts_logs = adopts_logs
        self.overrides: dict[str, Mapping[str, str]] = {}
        """What each topic sets for itself, over the broker's defaults."""
        self.creating: dict[str, None] = {}
        self.deleting: dict[str, None] = {}
        self.replicas: ReplicaManager

    # ---- bringing back

    async def read_overrides(self) -> None:
        """Learn what topics set for themselves; the logs are opened with it."""
        for name in await self.registry.children(znodes.TOPICS):
            path = znodes.topic_config_path(name)
            try:
                data, _ = await self.registry.get(path)
            except NoNode:
                continue
            self.overrides[name] = znodes.decode_config(path, data)

    async def load(self, replicas: ReplicaManager) -> None:
        """Lead everything the registry says is ours; finish deletions that were interrupted."""
        self.replicas = replicas
        for name in await self.registry.children(znodes.DELETE_TOPICS):
            await self.forget(name)
        topics = {}
        for name in await self.registry.children(znodes.TOPICS):
            topics[name] = await self.read_topic(name)
        assignments = {
            name: tuple(held.replicas for _, held in sorted(topic.partitions.items()))
            for name, topic in topics.items()
        }
        # Written together, the new states of all partitions share a few commits to the disk.
        states = iter(
            await asyncio.gather(
                *(
                    self.resume(TopicPartition(name, index), assigned)
                    for name, assignment in assignments.items()
                    for index, assigned in enumerate(assignment)
                )
            )
        )
        for name, assignment in assignments.items():
            topic_id = topics[name].topic_id
            assert topic_id is not None
            led = [next(states) for _ in assignment]
            await self.open(name, topic_id, assignment, led, self.config_of(name))
        if self.adopts_logs:
            await self.adopt_logs()
        self.set_strays_aside()

    async def adopt_logs(self) -> None:
        """Logs that another broker wrote become topics under the ids they bring; each goes on in its last epoch."""
        found: dict[str, dict[int, Log]] = {}
        for tp, log in sorted(self.replicas.logs.logs.items()):
            if tp.topic not in self.metadata.topics and tp.topic not in INTERNAL_TOPICS:
                found.setdefault(tp.topic, {})[tp.partition] = log
        for name, logs in found.items():
            ids = {log.topic_id for log in logs.values()}
            if what_is_wrong_with(name) or sorted(logs) != list(range(len(logs))) or len(ids) > 1:
                logger.error("cannot adopt topic=%s, it is not whole partitions=%s", name, [*logs])
                continue
            topic = CheckedTopic(
                name=name,
                replicas=((self.broker_id,),) * len(logs),
                overrides={},
                config=self.defaults,
            )
            states = [
                replace(
                    self.first_state((self.broker_id,)),
                    leader_epoch=LeaderEpoch(max(log.epochs.latest, FIRST_EPOCH)),
                )
                for _, log in sorted(logs.items())
            ]
            topic_id = ids.pop() or self.new_topic_id()
            await self.write(topic, topic_id, states)
            logger.info("adopted topic=%s partitions=%d id=%s", name, len(logs), topic_id)

    def set_strays_aside(self) -> None:
        """A log nobody assigned to us: its deletion had not reached the disk, or somebody copied it here. It would be
        taken for the log of the next topic of that name."""
        topics = self.metadata.topics
        for tp in list(self.replicas.logs.logs):
            if tp.topic not in topics or tp.partition >= len(topics[tp.topic].partitions):
                logger.warning("setting aside partition=%s, which no topic has", tp)
                self.replicas.logs.set_aside(tp)

    async def read_topic(self, name: str) -> znodes.TopicAssignment:
        """Topics written by old tools have no id yet; they get one, for good."""
        path = znodes.topic_path(name)
        data, stat = await self.registry.get(path)
        topic = znodes.decode_topic(name, data)
        if topic.topic_id is None:
            topic = replace(topic, topic_id=self.new_topic_id())
            await self.registry.set(path, znodes.encode_topic(topic), stat.version)
        return topic

    def new_topic_id(self) -> UUID:
        return UUID(int=self.world.random.getrandbits(128), version=4)

    def config_of(self, name: str) -> TopicConfig:
        """A setting that was legal when it was written must not keep a broker from starting."""
        config = self.defaults
        for key, value in self.overrides.get(name, {}).items():
            try:
                config = config.with_overrides({key: value})
            except ConfigError as error:
                logger.warning("ignoring setting topic=%s error=%s", name, error)
        return config

    async def resume(self, tp: TopicPartition, assigned: tuple[BrokerId, ...]) -> LeaderAndIsr:
        """The state a restarted broker leads with. If it led before nobody else can have in between, so its epoch goes
        on, as it does in Kafka when the only replica comes back."""
        path = znodes.state_path(tp)
        try:
            data, stat = await self.registry.get(path)
        except NoNode:
            # The broker died between writing the assignment and the state.
            state = self.first_state(assigned)
            for parent in (znodes.partitions_path(tp.topic), znodes.partition_path(tp)):
                await self.create_if_missing(parent)
            await self.registry.create(path, znodes.encode_state(state))
            return state
        before = znodes.decode_state(tp, data, version=stat.version)
        if self.broker_id not in assigned:
            return before
        if before.leader == self.broker_id and before.isr == (self.broker_id,):
            return before
        after = LeaderAndIsr(
            leader=self.broker_id,
            isr=(self.broker_id,),
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            controller_epoch=self.controller_epoch,
            partition_epoch=ZnodeVersion(stat.version + 1),
        )
        await self.registry.set(path, znodes.encode_state(after), stat.version)
        return after

    def first_state(self, assigned: tuple[BrokerId, ...]) -> LeaderAndIsr:
        ours = self.broker_id in assigned
        return LeaderAndIsr(
            leader=self.broker_id if ours else NO_LEADER,
            isr=(self.broker_id,) if ours else assigned,
            leader_epoch=FIRST_EPOCH,
            controller_epoch=self.controller_epoch,
        )

    async def create_if_missing(self, path: str) -> None:
        with suppress(NodeExists):
            await self.registry.create(path)

    async def open(
        self,
        name: str,
        topic_id: UUID,
        replicas: tuple[tuple[BrokerId, ...], ...],
        states: list[LeaderAndIsr],
        config: TopicConfig,
    ) -> None:
        """Lead the partitions that are ours, then show the topic to clients."""
        for index, (assigned, state) in enumerate(zip(replicas, states, strict=True)):
            if self.broker_id not in assigned:
                continue
            if index % OPENED_PER_TURN == OPENED_PER_TURN - 1:
                await asyncio.sleep(0)  # a large topic must not keep everybody else waiting
            tp = TopicPartition(name, index)
            try:
                self.replicas.lead(
                    tp,
                    topic_id,
                    config,
                    leader_epoch=state.leader_epoch,
                    replicas=assigned,
                    isr=state.isr,
                    partition_epoch=state.partition_epoch,
                )
            except (ApiError, StorageError) as error:
                logger.error("cannot open partition=%s error=%s", tp, error)
        self.metadata.put_topic(
            TopicState(
                name=name,
                topic_id=topic_id,
                partitions={
                    index: PartitionState(
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        replicas=assigned,
                    )
                    for index, (assigned, state) in enumerate(zip(replicas, states, strict=True))
                },
            )
        )

    # ---- creating

    def check(self, wish: NewTopic) -> CheckedTopic:
        """Everything that can be refused, in Kafka's order of precedence."""
        name = wish.name
        if name in self.metadata.topics or name in self.creating:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
        for key, value in wish.configs.items():
            if value is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{key}: null is not a value for a topic")
        overrides = {key: value for key, value in wish.configs.items() if value is not None}
        if wish.assignments is not None and (
            wish.partitions != USE_DEFAULT or wish.replication_factor != USE_DEFAULT
        ):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "give either numbers of partitions and replicas or an assignment, not both",
            )
        if wish.assignments is None:
            replicas = self.place(wish.partitions, wish.replication_factor)
            self.check_name(name)
        else:
            self.check_name(name)
            replicas = self.placed(wish.assignments)
        try:
            config = self.defaults.with_overrides(overrides)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return CheckedTopic(name=name, replicas=replicas, overrides=overrides, config=config)

    def place(self, partitions: int, replication_factor: int) -> tuple[tuple[BrokerId, ...], ...]:
        if partitions == USE_DEFAULT:
            partitions = self.partitions_default
        if replication_factor == USE_DEFAULT:
            replication_factor = self.replication_factor_default
        if partitions <= 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; it takes at least one"
            )
        if partitions > PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{partitions} partitions; a topic is created with at most {PARTITIONS_MAX}",
            )
        if replication_factor <= 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}; it takes at least one",
            )
        brokers = len(self.metadata.brokers)
        if replication_factor > brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor} is larger than the number of brokers,"
                f" {brokers}",
            )
        return ((self.broker_id,),) * partitions

    def placed(
        self, assignments: Mapping[int, tuple[int, ...]]
    ) -> tuple[tuple[BrokerId, ...], ...]:
        why = None
        if len({len(replicas) for replicas in assignments.values()}) > 1:
            why = "every partition needs the same number of replicas"
        elif any(len(set(replicas)) != len(replicas) for replicas in assignments.values()):
            why = "a broker stands twice in the replicas of one partition"
        elif sorted(assignments) != list(range(len(assignments))):
            why = "partitions must be numbered 0, 1, 2 and so on without a gap"
        elif unknown := sorted(
            {
                broker
                for replicas in assignments.values()
                for broker in replicas
                if broker not in self.metadata.brokers
            }
        ):
            why = f"there is no broker {unknown[0]}"
        elif not all(assignments.values()):
            why = "a partition needs at least one replica"
        if why is not None:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        return tuple(
            tuple(BrokerId(broker) for broker in replicas)
            for _, replicas in sorted(assignments.items())
        )

    def check_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self.deleting:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is marked for deletion; try again"
            )
        collisions = colliding(name, self.metadata.topics)
        if collisions:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{name}' collides with {', '.join(collisions)}: '.' and '_' count as one",
            )

    async def create(self, topic: CheckedTopic) -> UUID:
        """Write the znodes in one transaction, then lead."""
        name = topic.name
        if name in self.metadata.topics or name in self.creating or name in self.deleting:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
        self.creating[name] = None
        try:
            topic_id = self.new_topic_id()
            states = [self.first_state(assigned) for assigned in topic.replicas]
            await self.write(topic, topic_id, states)
        finally:
            del self.creating[name]
        logger.info("created topic=%s partitions=%d id=%s", name, len(topic.replicas), topic_id)
        return topic_id

    async def write(self, topic: CheckedTopic, topic_id: UUID, states: list[LeaderAndIsr]) -> None:
        name = topic.name
        assignment = znodes.TopicAssignment(
            topic_id=topic_id,
            partitions={
                index: znodes.ReplicaAssignment(replicas=assigned)
                for index, assigned in enumerate(topic.replicas)
            },
        )
        operations = [
            Create(path=znodes.topic_config_path(name), data=znodes.encode_config(topic.overrides)),
            Create(path=znodes.topic_path(name), data=znodes.encode_topic(assignment)),
            Create(path=znodes.partitions_path(name)),
        ]
        for index, state in enumerate(states):
            tp = TopicPartition(name, index)
            operations.append(Create(path=znodes.partition_path(tp)))
            operations.append(Create(path=znodes.state_path(tp), data=znodes.encode_state(state)))
        await self.registry.multi(operations)
        self.overrides[name] = topic.overrides
        await self.open(name, topic_id, topic.replicas, states, topic.config)

    async def create_automatically(self, name: str) -> None:
        """A client asked for a topic nobody has created. The cluster's own topics are made by who needs them."""
        if name in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self.create(self.check(NewTopic(name=name, configs={})))

    # ---- deleting

    async def delete(self, name: str) -> None:
        """Mark it, stop it, forget it: a crash in between is finished by the next start."""
        topic = self.metadata.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        if name in self.deleting:
            return
        self.deleting[name] = None
        try:
            await self.registry.create(znodes.delete_topic_path(name))
            self.metadata.remove_topic(name)
            self.overrides.pop(name, None)
            for index in range(len(topic.partitions)):
                self.replicas.stop(TopicPartition(name, index), delete=True)
            await self.forget(name)
        except NodeExists:
            return
        finally:
            self.deleting.pop(name, None)
        logger.info("deleted topic=%s id=%s", name, topic.topic_id)

    async def forget(self, name: str) -> None:
        """Remove what the registry knows of a topic. The marker goes last."""
        for tp in [tp for tp in self.replicas.logs.logs if tp.topic == name]:
            self.replicas.stop(tp, delete=True)
        operations: list[Delete] = []
        root = znodes.topic_path(name)
        if await self.registry.exists(root) is not None:
            operations += [Delete(path=path) for path in await self.descendants(root)]
        path = znodes.topic_config_path(name)
        if await self.registry.exists(path) is not None:
            operations.append(Delete(path=path))
        operations.append(Delete(path=znodes.delete_topic_path(name)))
        await self.registry.multi(operations)

    async def descendants(self, path: str) -> list[str]:
        """Children before their parents, as ZooKeeper wants them deleted."""
        found: list[str] = []
        for child in await self.registry.children(path):
            found += await self.descendants(f"{path}/{child}")
        return [*found, path]
