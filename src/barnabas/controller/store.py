"""Registry access of the controller. Every write is fenced: it fails if another broker has become the controller.

    check /controller_epoch has the version of our election
    create /brokers/topics/t/partitions/0/state …
    set /brokers/topics/t/partitions/1/state …         many writes in one transaction, all or none

If the check fails, ControllerMoved is raised. If another write of the transaction fails, the writes are repeated one by
one, so that one bad partition does not affect the others. Invalid znodes are logged with their path. Invalid brokers,
topics and configs are left out. An invalid partition state becomes UnreadableState.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.controller.decision import (
    CreateState,
    StateReadResult,
    UnreadableState,
    Write,
    WriteRejection,
    WriteResult,
)
from barnabas.controller.plans import Registration
from barnabas.errors import (
    BadVersion,
    ControllerMoved,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    RegistryError,
    RegistrySessionExpired,
)
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import topic_name_error
from barnabas.model import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition, ZnodeVersion
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.tasks import in_thread_if_large
from barnabas.world.ports import CheckVersion, Create, Delete, Op, SetData, Watch, ZnodeStat

logger = logging.getLogger("barnabas.controller")

# ZooKeeper's limit for a packet is 1 MB. The sizes of operations are estimates, so this leaves a margin.
BATCH_BYTES_MAX = 400 * 1024
OP_OVERHEAD_BYTES = 64
CALLS_IN_FLIGHT_MAX = 500
STATES_PER_READ = 500
BYTES_PER_PARTITION = 10  # lower bound, in the znode of a topic
UNKNOWN_CONTROLLER = BrokerId(-1)

REJECTIONS: dict[type[RegistryError], WriteRejection] = {
    BadVersion: WriteRejection.BAD_VERSION,
    NodeExists: WriteRejection.NODE_EXISTS,
    NoNode: WriteRejection.NO_NODE,
}

T = TypeVar("T")
R = TypeVar("R")


class ControllerElection(Struct, frozen=True, kw_only=True):
    """A won controller election: the new epoch, and the version of /controller_epoch that fences all writes."""

    epoch: ControllerEpoch
    version: ZnodeVersion


class ControllerStore:
    """Reads and fenced writes of one controller."""

    def __init__(self, registry: RegistryClient, broker_id: BrokerId, random: Random) -> None:
        self.registry = registry
        self.broker_id = broker_id
        self.random = random
        self.epoch_version = ZnodeVersion(0)
        """Version of /controller_epoch after the election of this controller."""
        self.topics_with_partitions_znode: set[str] = set()
        """Topics whose `partitions` znode exists, or is created by a transaction that `build_ops` has prepared."""
        self.logged_errors: set[str] = set()

    def take_over(self, election: ControllerElection) -> None:
        """Fence all further writes by this election."""
        self.epoch_version = election.version
        self.topics_with_partitions_znode.clear()
        self.logged_errors.clear()

    # ---- controller election

    async def controller_id(self, watch: Watch) -> BrokerId | None:
        """Return the controller or None; UNKNOWN_CONTROLLER if its znode is invalid and has another owner.

        The watch is set in all cases.
        """
        if await self.registry.exists(znodes.CONTROLLER, watch) is None:
            return None
        try:
            data, stat = await self.registry.get(znodes.CONTROLLER)
        except NoNode:
            return None
        try:
            return znodes.decode_controller(data)
        except RegistryError as error:
            # The owner of the znode still shows whether this broker is the controller.
            self.log_once("invalid controller znode", error)
            return (
                self.broker_id if stat.ephemeral_owner == self.registry.id else UNKNOWN_CONTROLLER
            )

    async def elect(self, now_ms: int, watch: Watch | None = None) -> ControllerElection:
        """Become the controller.

        Raises ControllerMoved if another broker was faster, or if /controller_epoch is invalid. In the second case no
        broker can be elected, and `watch` fires when the znode changes.
        """
        epoch, version = await self.read_epoch(watch)
        next_epoch = ControllerEpoch(epoch + 1)
        ops: list[Op] = [
            Create(
                path=znodes.CONTROLLER,
                data=znodes.encode_controller(self.broker_id, timestamp_ms=now_ms),
                ephemeral=True,
            ),
            SetData(
                path=znodes.CONTROLLER_EPOCH,
                data=znodes.encode_controller_epoch(next_epoch),
                version=version,
            ),
        ]
        try:
            _, stat = await self.registry.multi(ops)
        except MultiFailed as error:
            if not isinstance(error.error, NodeExists | BadVersion):
                raise
            return await self.confirm_election(next_epoch, version)
        assert isinstance(stat, ZnodeStat)
        return ControllerElection(epoch=next_epoch, version=ZnodeVersion(stat.version))

    async def confirm_election(self, epoch: ControllerEpoch, version: int) -> ControllerElection:
        """Return the election if an earlier attempt won it and its response was lost. Else raises ControllerMoved."""
        try:
            _, stat = await self.registry.get(znodes.CONTROLLER)
            current, _ = await self.read_epoch()
        except NoNode:
            raise ControllerMoved(
                znodes.CONTROLLER, "the znode was deleted during the election"
            ) from None
        if current == epoch and stat.ephemeral_owner == self.registry.id:
            return ControllerElection(epoch=epoch, version=ZnodeVersion(version + 1))
        raise ControllerMoved(znodes.CONTROLLER, "another broker was elected")

    async def read_epoch(self, watch: Watch | None = None) -> tuple[ControllerEpoch, int]:
        """Return the controller epoch and the version of its znode, which is created if missing.

        If the znode is invalid, it is read again with `watch`. If the data is the same, raises ControllerMoved.
        """
        invalid_data = None
        backoff = Backoff(*CONFLICT_S, random=self.random)
        while True:
            try:
                data, stat = await self.registry.get(
                    znodes.CONTROLLER_EPOCH, watch if invalid_data is not None else None
                )
                try:
                    return znodes.decode_controller_epoch(data), stat.version
                except RegistryError as error:
                    if data == invalid_data:
                        hint = "write a number larger than every previous epoch"
                        logger.error("no controller can be elected: %s; %s", error, hint)
                        raise ControllerMoved(znodes.CONTROLLER_EPOCH, str(error)) from None
                    invalid_data = data
            except NoNode:
                first = znodes.encode_controller_epoch(0)
                with suppress(NodeExists):
                    await self.registry.create(znodes.CONTROLLER_EPOCH, first)
            await backoff.wait()

    async def delete_controller(self) -> None:
        """Delete /controller, if this broker is still the controller. Errors are only logged."""
        try:
            await self.write_fenced([Delete(path=znodes.CONTROLLER)])
        except RegistryError as error:
            logger.info("controller znode not deleted reason=%s", error)

    # ---- writing

    async def write_fenced(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        """Run a transaction if this broker is still the controller.

        Raises ControllerMoved if it is not, and MultiFailed with an index into `ops` if an operation fails.
        """
        check = CheckVersion(path=znodes.CONTROLLER_EPOCH, version=self.epoch_version)
        try:
            return (await self.registry.multi([check, *ops]))[1:]
        except MultiFailed as error:
            if error.index == 0:
                raise ControllerMoved(znodes.CONTROLLER_EPOCH, str(error.error)) from None
            raise MultiFailed(error.index - 1, error.error) from None

    async def commit(self, writes: Sequence[Write]) -> dict[TopicPartition, WriteResult]:
        """Write partition states, in as few transactions as possible. Returns the result of each write."""
        results: dict[TopicPartition, WriteResult] = {}
        batches = list(split_into_batches(writes, self.build_ops))
        for done in await gather_bounded(self.commit_batch, batches):
            results.update(done)
        return results

    def build_ops(self, write: Write) -> list[Op]:
        """Return the operations of a write. The last one writes the state. The first may create `partitions`.

        Adds the topic to `topics_with_partitions_znode`, so that only its first write creates `partitions`.
        """
        path, data = znodes.state_path(write.partition), znodes.encode_state(write.state)
        if not isinstance(write, CreateState):
            return [SetData(path=path, data=data, version=write.expected_version)]
        ops: list[Op] = []
        topic = write.partition.topic
        if topic not in self.topics_with_partitions_znode:
            self.topics_with_partitions_znode.add(topic)
            ops.append(Create(path=znodes.partitions_path(topic)))
        ops.append(Create(path=znodes.partition_path(write.partition)))
        ops.append(Create(path=path, data=data))
        return ops

    async def commit_batch(
        self, batch: list[tuple[Write, list[Op]]]
    ) -> dict[TopicPartition, WriteResult]:
        try:
            stats = await self.write_fenced([op for _, ops in batch for op in ops])
        except MultiFailed:
            return await self.commit_one_by_one([write for write, _ in batch])
        results: dict[TopicPartition, WriteResult] = {}
        end = 0
        for write, ops in batch:
            end += len(ops)
            results[write.partition] = result_version(stats[end - 1])
        return results

    async def commit_one_by_one(self, writes: Sequence[Write]) -> dict[TopicPartition, WriteResult]:
        for topic in dict.fromkeys(w.partition.topic for w in writes if isinstance(w, CreateState)):
            await self.create_if_missing(znodes.partitions_path(topic))
        results = await gather_bounded(self.commit_one, writes)
        return {write.partition: result for write, result in zip(writes, results, strict=True)}

    async def commit_one(self, write: Write) -> WriteResult:
        if isinstance(write, CreateState):
            await self.create_if_missing(znodes.partition_path(write.partition))
        state = self.build_ops(write)[-1]
        try:
            return result_version((await self.write_fenced([state]))[0])
        except MultiFailed as error:
            if isinstance(error.error, BadVersion | NodeExists):
                written = await self.find_own_write(write)
                if written is not None:
                    return written
            rejection = REJECTIONS.get(type(error.error), WriteRejection.FAILED)
            if rejection is WriteRejection.FAILED:
                logger.error("cannot write partition=%s error=%s", write.partition, error)
            return rejection

    async def find_own_write(self, write: Write) -> ZnodeVersion | None:
        """Return the version of the znode if its data is that of this write, else None.

        If the response to a write is lost, the client repeats the write. The repetition fails, although the first
        attempt succeeded.
        """
        version = 0 if isinstance(write, CreateState) else write.expected_version + 1
        found = (await self.read_states([write.partition])).get(write.partition)
        expected = replace(write.state, partition_epoch=ZnodeVersion(version))
        return expected.partition_epoch if found == expected else None

    async def create_if_missing(self, path: str) -> None:
        """Create a znode. A missing parent is not an error: the later write of the state reports it."""
        try:
            await self.write_fenced([Create(path=path)])
        except MultiFailed as error:
            if not isinstance(error.error, NodeExists | NoNode):
                raise

    # ---- reading

    async def read_states(
        self,
        partitions: Sequence[TopicPartition],
        last_zxids: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, StateReadResult]:
        """Read partition states. Invalid ones become UnreadableState. Partitions without a state are left out.

        `last_zxids`, if given, receives the transaction id (mzxid) of the last write of each state.
        """
        states: dict[TopicPartition, StateReadResult] = {}
        chunks = [
            partitions[start : start + STATES_PER_READ]
            for start in range(0, len(partitions), STATES_PER_READ)
        ]
        read = partial(self.read_state_chunk, last_zxids=last_zxids)
        for chunk, found in zip(chunks, await gather_bounded(read, chunks), strict=True):
            states.update((tp, state) for tp, state in zip(chunk, found, strict=True) if state)
        return states

    async def read_state_chunk(
        self,
        partitions: Sequence[TopicPartition],
        last_zxids: dict[TopicPartition, int] | None = None,
    ) -> list[StateReadResult | None]:
        try:
            found = await self.registry.get_many([znodes.state_path(each) for each in partitions])
        except RegistrySessionExpired:
            raise
        except RegistryError as error:
            if len(partitions) == 1:
                self.log_once("cannot read a partition state", error)
                return [UnreadableState(why=str(error))]
            # Read them one by one, so that one bad znode does not affect the others.
            read = partial(self.read_state_chunk, last_zxids=last_zxids)
            single = await gather_bounded(read, [(each,) for each in partitions])
            return [state for states in single for state in states]
        if last_zxids is not None:
            pairs = zip(partitions, found, strict=True)
            last_zxids.update((tp, node[1].mzxid) for tp, node in pairs if node is not None)
        return [self.decode_state(*each) for each in zip(partitions, found, strict=True)]

    def decode_state(
        self, partition: TopicPartition, found: tuple[bytes, ZnodeStat] | None
    ) -> StateReadResult | None:
        if found is None:
            return None
        data, stat = found
        try:
            return znodes.decode_state(partition, data, version=stat.version)
        except RegistryError as error:
            self.log_once("invalid partition state", error)
            return UnreadableState(why=str(error))

    async def read_brokers(self, watch: Watch) -> dict[BrokerId, Registration]:
        """Return the registered brokers. The watch fires when a broker registers or its registration is gone."""
        names = await self.registry.children(znodes.BROKER_IDS, watch)
        ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
        for name in names:
            if not name.isdecimal():
                path = f"{znodes.BROKER_IDS}/{name}"
                self.log_once("invalid broker id", RegistryError(path, "the name is not a number"))
        registrations = await gather_bounded(self.read_broker, ids)
        return {broker: each for broker, each in zip(ids, registrations, strict=True) if each}

    async def read_broker(
        self, broker: BrokerId, watch: Watch | None = None
    ) -> Registration | None:
        try:
            data, stat = await self.registry.get(znodes.broker_path(broker), watch)
            return Registration(znodes.decode_broker(broker, data), BrokerEpoch(stat.czxid))
        except NoNode:
            return None
        except RegistrySessionExpired:
            raise
        except RegistryError as error:
            self.log_once("invalid broker registration", error)
            return None

    async def read_topics(
        self, names: Iterable[str], watch: Watch
    ) -> dict[str, znodes.TopicAssignment]:
        """Return the assignments of topics, and watch them. Invalid ones are left out."""
        topics = list(names)
        found = await gather_bounded(lambda name: self.read_topic(name, watch), topics)
        return {name: topic for name, topic in zip(topics, found, strict=True) if topic is not None}

    async def read_topic(
        self, name: str, watch: Watch | None, known_id: UUID | None = None
    ) -> znodes.TopicAssignment | None:
        """Return the assignment of a topic, or None if it is missing or invalid.

        A znode without a topic id gets `known_id`, or a new id.
        """
        path = znodes.topic_path(name)
        backoff = Backoff(*CONFLICT_S, random=self.random)
        while True:
            try:
                data, stat = await self.registry.get(path, watch)
                topic = await in_thread_if_large(
                    len(data) // BYTES_PER_PARTITION, znodes.decode_topic, name, data
                )
                if why := topic_name_error(name):
                    # Brokers cannot create a directory with that name, and would mark the log directory as failed.
                    raise RegistryError(path, why)
                if topic.topic_id is None:
                    # Written by an old tool or by hand.
                    topic = replace(topic, topic_id=known_id or self.new_topic_id())
                    update = SetData(
                        path=path, data=znodes.encode_topic(topic), version=stat.version
                    )
                    await self.write_fenced([update])
                return topic
            except NoNode:
                return None
            except MultiFailed as error:
                if not isinstance(error.error, BadVersion | NoNode):
                    raise
                await backoff.wait()
            except (RegistrySessionExpired, ControllerMoved):
                raise
            except RegistryError as error:
                self.log_once("invalid topic", error)
                return None

    def new_topic_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def read_topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the overrides of each topic. Topics with an unreadable config are left out."""

        async def read(topic: str) -> dict[str, str] | None:
            path = znodes.topic_config_path(topic)
            try:
                data, _ = await self.registry.get(path)
                return znodes.decode_config(path, data)
            except NoNode:
                return {}
            except RegistrySessionExpired:
                raise
            except RegistryError as error:
                self.log_once("invalid topic config", error)
                return None

        configs = await gather_bounded(read, topics)
        return {
            topic: config
            for topic, config in zip(topics, configs, strict=True)
            if config is not None
        }

    def log_once(self, event: str, error: RegistryError) -> None:
        """Log an error once per controller epoch, because znodes are read repeatedly."""
        if str(error) not in self.logged_errors:
            self.logged_errors.add(str(error))
            logger.error("%s error=%s", event, error)

    # ---- deleting

    async def delete_children(self, path: str, names: Iterable[str]) -> None:
        """Delete these children of a znode. Missing ones are no error."""
        for name in names:
            await self.delete_if_exists(f"{path}/{name}")

    async def delete_if_exists(self, path: str) -> None:
        try:
            await self.write_fenced([Delete(path=path)])
        except MultiFailed as error:
            if isinstance(error.error, NotEmpty):
                # It has unexpected children and stays. This must not stop a takeover.
                self.log_once("cannot delete a znode with children", error.error)
            elif not isinstance(error.error, NoNode):
                raise

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics concurrently, so that the registry can commit them together."""
        await gather_bounded(self.delete_topic, topics)

    async def delete_topic(self, topic: str) -> None:
        """Delete all znodes of a topic: children first, the marker last, so that a new controller can continue."""
        paths = await self.expected_znodes(topic)
        for batch in split_into_batches(paths, lambda path: [Delete(path=path)]):
            try:
                await self.write_fenced([op for _, ops in batch for op in ops])
            except MultiFailed:
                # Some are already deleted, or have unexpected children.
                for path, _ in batch:
                    for each in await self.subtree(path):
                        await self.delete_if_exists(each)
        await self.delete_if_exists(znodes.topic_config_path(topic))
        await self.delete_if_exists(znodes.delete_topic_path(topic))
        self.topics_with_partitions_znode.discard(topic)

    async def expected_znodes(self, topic: str) -> list[str]:
        """Return the znodes that a topic normally has, children first.

        Listing the children of every partition would take longer than deleting them.
        """
        parent = znodes.partitions_path(topic)
        try:
            partitions = await self.registry.children(parent)
        except NoNode:
            return [znodes.topic_path(topic)]
        children = (
            path for name in partitions for path in (f"{parent}/{name}/state", f"{parent}/{name}")
        )
        return [*children, parent, znodes.topic_path(topic)]

    async def subtree(self, path: str) -> list[str]:
        """Return a znode and all znodes below it, children first."""
        try:
            names = await self.registry.children(path)
        except NoNode:
            return []
        subtrees = await gather_bounded(lambda name: self.subtree(f"{path}/{name}"), names)
        return [*(each for paths in subtrees for each in paths), path]


def result_version(result: str | ZnodeStat | None) -> ZnodeVersion:
    """Return the version after a write. The result of a create has no stat; its version is 0."""
    return ZnodeVersion(result.version if isinstance(result, ZnodeStat) else 0)


def split_into_batches(
    items: Sequence[T], build_ops: Callable[[T], list[Op]]
) -> Iterable[list[tuple[T, list[Op]]]]:
    """Yield the items with their operations, in batches that fit into a transaction."""
    batch: list[tuple[T, list[Op]]] = []
    size = 0
    for item in items:
        ops = build_ops(item)
        weight = sum(map(estimate_size, ops))
        if batch and size + weight > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append((item, ops))
        size += weight
    if batch:
        yield batch


def estimate_size(op: Op) -> int:
    """Return the approximate size of an operation in bytes."""
    data = op.data if isinstance(op, Create | SetData) else b""
    return OP_OVERHEAD_BYTES + len(op.path) + len(data)


async def gather_bounded(call: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Await `call(item)` for each item, up to CALLS_IN_FLIGHT_MAX at a time. Returns the results in order."""
    found: list[R] = []
    for start in range(0, len(items), CALLS_IN_FLIGHT_MAX):
        chunk = items[start : start + CALLS_IN_FLIGHT_MAX]
        found += await asyncio.gather(*(call(item) for item in chunk))
    return found
