"""The controller's hand in the registry. Every write carries the check that nobody else is in charge by now.

    check /controller_epoch is at our version
    create /brokers/topics/t/partitions/0/state …
    set /brokers/topics/t/partitions/1/state …         many in one transaction, all or none

A transaction that fails on the check raises ControllerMoved. One that fails on anything else is done again write by
write, so that one bad partition never fails its neighbours. What cannot be understood is reported with its path and
left out: a znode somebody edited by hand must not stop a cluster.
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
    StateRead,
    Unreadable,
    Write,
    WriteRefused,
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
from barnabas.metadata.topic_names import what_is_wrong_with
from barnabas.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.tasks import aside
from barnabas.world.ports import Check, Create, Delete, Op, SetData, Watch, ZnodeStat

logger = logging.getLogger("barnabas.controller")

BATCH_BYTES_MAX = (
    400 * 1024
)  # ZooKeeper takes no packet above 1 MB, and a state may be longer than its estimate
OP_OVERHEAD_BYTES = 64
READS_AT_ONCE = 500
BYTES_PER_PARTITION = 10  # in the znode of a topic, at least
SOMEBODY = BrokerId(-1)

T = TypeVar("T")
R = TypeVar("R")


class Won(Struct, frozen=True, kw_only=True):
    """An election: the epoch that is ours, and the version by which every write of ours is fenced."""

    epoch: ControllerEpoch
    version: ZnodeVersion


class ControllerStore:
    def __init__(self, registry: RegistryClient, broker_id: BrokerId, random: Random) -> None:
        self.registry = registry
        self.broker_id = broker_id
        self.random = random
        self.version = ZnodeVersion(0)
        self.parents: set[str] = set()
        """Topics whose `partitions` znode stands."""
        self.reported: set[str] = set()

    def take_over(self, won: Won) -> None:
        self.version = won.version
        self.parents.clear()
        self.reported.clear()

    # ---- who is in charge

    async def controller_id(self, watch: Watch) -> BrokerId | None:
        """Who is in charge, if anybody; the watch is set either way."""
        if await self.registry.exists(znodes.CONTROLLER, watch) is None:
            return None
        try:
            data, stat = await self.registry.get(znodes.CONTROLLER)
        except NoNode:
            return None
        try:
            return znodes.decode_controller(data)
        except RegistryError as error:
            # Whose node it is still says whether we are in charge; who else is, nobody can tell.
            self.report("cannot understand who is in charge", error)
            return self.broker_id if stat.ephemeral_owner == self.registry.id else SOMEBODY

    async def elect(self, now_ms: int, watch: Watch | None = None) -> Won:
        """Become the controller. ControllerMoved: somebody else was quicker, or nobody can be elected, and `watch`
        tells when that has changed."""
        epoch, version = await self.read_epoch(watch)
        following = ControllerEpoch(epoch + 1)
        ops: list[Op] = [
            Create(
                path=znodes.CONTROLLER,
                data=znodes.encode_controller(self.broker_id, timestamp_ms=now_ms),
                ephemeral=True,
            ),
            SetData(
                path=znodes.CONTROLLER_EPOCH,
                data=znodes.encode_controller_epoch(following),
                version=version,
            ),
        ]
        try:
            _, stat = await self.registry.multi(ops)
        except MultiFailed as error:
            if not isinstance(error.error, NodeExists | BadVersion):
                raise
            return await self.won_after_all(following, version)
        assert isinstance(stat, ZnodeStat)
        return Won(epoch=following, version=ZnodeVersion(stat.version))

    async def won_after_all(self, epoch: ControllerEpoch, version: int) -> Won:
        """The answer to our own successful transaction may have been lost with a connection."""
        try:
            _, stat = await self.registry.get(znodes.CONTROLLER)
            now, _ = await self.read_epoch()
        except NoNode:
            raise ControllerMoved(znodes.CONTROLLER, "came and went") from None
        if now == epoch and stat.ephemeral_owner == self.registry.id:
            return Won(epoch=epoch, version=ZnodeVersion(version + 1))
        raise ControllerMoved(znodes.CONTROLLER, "another broker was quicker")

    async def read_epoch(self, watch: Watch | None = None) -> tuple[ControllerEpoch, int]:
        """`watch` is set only where somebody wrote what is no epoch: until that is mended there is no controller."""
        unreadable = None
        backoff = Backoff(*CONFLICT_S, random=self.random)
        while True:
            try:
                data, stat = await self.registry.get(
                    znodes.CONTROLLER_EPOCH, watch if unreadable is not None else None
                )
                try:
                    return znodes.decode_controller_epoch(data), stat.version
                except RegistryError as error:
                    if data == unreadable:
                        hint = "write a number that is larger than every epoch before"
                        logger.error("nobody can be elected: %s; %s", error, hint)
                        raise ControllerMoved(znodes.CONTROLLER_EPOCH, str(error)) from None
                    unreadable = data
            except NoNode:
                first = znodes.encode_controller_epoch(0)
                with suppress(NodeExists):
                    await self.registry.create(znodes.CONTROLLER_EPOCH, first)
            await backoff.wait()

    async def resign(self) -> None:
        """Give /controller up, if it is still ours."""
        try:
            await self.fenced([Delete(path=znodes.CONTROLLER)])
        except RegistryError as error:
            logger.info("nothing to give up reason=%s", error)

    # ---- writing

    async def fenced(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        """These, if we are in charge: ControllerMoved if not, MultiFailed with an index into `ops` otherwise."""
        check = Check(path=znodes.CONTROLLER_EPOCH, version=self.version)
        try:
            return (await self.registry.multi([check, *ops]))[1:]
        except MultiFailed as error:
            if error.index == 0:
                raise ControllerMoved(znodes.CONTROLLER_EPOCH, str(error.error)) from None
            raise MultiFailed(error.index - 1, error.error) from None

    async def commit(self, writes: Sequence[Write]) -> dict[TopicPartition, WriteResult]:
        """All of them, in as few transactions as they fit into."""
        results: dict[TopicPartition, WriteResult] = {}
        batches = list(batched(writes, self.ops_of))
        for done in await gathered(self.commit_batch, batches):
            results.update(done)
        return results

    def ops_of(self, write: Write) -> list[Op]:
        path, data = znodes.state_path(write.partition), znodes.encode_state(write.state)
        if not isinstance(write, CreateState):
            return [SetData(path=path, data=data, version=write.expected_version)]
        ops: list[Op] = []
        topic = write.partition.topic
        if topic not in self.parents:
            self.parents.add(topic)
            ops.append(Create(path=znodes.partitions_path(topic)))
        ops.append(Create(path=znodes.partition_path(write.partition)))
        ops.append(Create(path=path, data=data))
        return ops

    async def commit_batch(
        self, batch: list[tuple[Write, list[Op]]]
    ) -> dict[TopicPartition, WriteResult]:
        try:
            answers = await self.fenced([op for _, ops in batch for op in ops])
        except MultiFailed:
            return await self.commit_one_by_one([write for write, _ in batch])
        results: dict[TopicPartition, WriteResult] = {}
        at = 0
        for write, ops in batch:
            at += len(ops)
            results[write.partition] = version_of(answers[at - 1])
        return results

    async def commit_one_by_one(self, writes: Sequence[Write]) -> dict[TopicPartition, WriteResult]:
        for topic in dict.fromkeys(w.partition.topic for w in writes if isinstance(w, CreateState)):
            await self.create_if_missing(znodes.partitions_path(topic))
        results = await gathered(self.commit_alone, writes)
        return {write.partition: result for write, result in zip(writes, results, strict=True)}

    async def commit_alone(self, write: Write) -> WriteResult:
        if isinstance(write, CreateState):
            await self.create_if_missing(znodes.partition_path(write.partition))
        state = self.ops_of(write)[-1]
        try:
            return version_of((await self.fenced([state]))[0])
        except MultiFailed as error:
            if isinstance(error.error, BadVersion | NodeExists):
                written = await self.written_after_all(write)
                if written is not None:
                    return written
            match error.error:
                case BadVersion():
                    return WriteRefused.BAD_VERSION
                case NodeExists():
                    return WriteRefused.NODE_EXISTS
                case NoNode():
                    return WriteRefused.NO_NODE
                case _:
                    logger.error("cannot write partition=%s error=%s", write.partition, error)
                    return WriteRefused.FAILED

    async def written_after_all(self, write: Write) -> ZnodeVersion | None:
        """The version, if what stands there is what we wrote: the answer may have been lost with a connection, and then
        the second attempt meets the first."""
        version = 0 if isinstance(write, CreateState) else write.expected_version + 1
        found = (await self.read_states([write.partition])).get(write.partition)
        ours = replace(write.state, partition_epoch=ZnodeVersion(version))
        return ours.partition_epoch if found == ours else None

    async def create_if_missing(self, path: str) -> None:
        """A missing parent is told by the write below it."""
        try:
            await self.fenced([Create(path=path)])
        except MultiFailed as error:
            if not isinstance(error.error, NodeExists | NoNode):
                raise

    # ---- reading

    async def read_states(
        self,
        partitions: Sequence[TopicPartition],
        written_at: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, StateRead]:
        """What stands there; a partition without a state is left out. `written_at` is given the transaction that wrote
        each of them last."""
        states: dict[TopicPartition, StateRead] = {}
        parts = [
            partitions[start : start + READS_AT_ONCE]
            for start in range(0, len(partitions), READS_AT_ONCE)
        ]
        read = partial(self.read_some_states, written_at=written_at)
        for part, found in zip(parts, await gathered(read, parts), strict=True):
            states.update((tp, state) for tp, state in zip(part, found, strict=True) if state)
        return states

    async def read_some_states(
        self,
        partitions: Sequence[TopicPartition],
        written_at: dict[TopicPartition, int] | None = None,
    ) -> list[StateRead | None]:
        try:
            found = await self.registry.get_many([znodes.state_path(each) for each in partitions])
        except RegistrySessionExpired:
            raise
        except RegistryError as error:
            if len(partitions) == 1:
                self.report("cannot read a state", error)
                return [Unreadable(why=str(error))]
            # One that cannot be read must not keep the others from being read.
            read = partial(self.read_some_states, written_at=written_at)
            alone = await gathered(read, [(each,) for each in partitions])
            return [state for states in alone for state in states]
        if written_at is not None:
            pairs = zip(partitions, found, strict=True)
            written_at.update((tp, node[1].mzxid) for tp, node in pairs if node is not None)
        return [self.state_in(*each) for each in zip(partitions, found, strict=True)]

    def state_in(
        self, partition: TopicPartition, found: tuple[bytes, ZnodeStat] | None
    ) -> StateRead | None:
        if found is None:
            return None
        data, stat = found
        try:
            return znodes.decode_state(partition, data, version=stat.version)
        except RegistryError as error:
            self.report("cannot understand a state", error)
            return Unreadable(why=str(error))

    async def read_brokers(self, watch: Watch) -> dict[BrokerId, Registration]:
        """Everybody registered; the watch is on who comes and goes."""
        names = await self.registry.children(znodes.BROKER_IDS, watch)
        known = [BrokerId(int(name)) for name in names if name.isdecimal()]
        for name in names:
            if not name.isdecimal():
                path = f"{znodes.BROKER_IDS}/{name}"
                self.report("not a broker", RegistryError(path, "its name is no number"))
        read = await gathered(self.read_broker, known)
        return {broker: found for broker, found in zip(known, read, strict=True) if found}

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
            self.report("cannot understand a broker", error)
            return None

    async def read_topics(
        self, names: Iterable[str], watch: Watch
    ) -> dict[str, znodes.TopicAssignment]:
        """Their assignments, each with its id and under a watch. One that cannot be understood is left out."""
        wanted = list(names)
        read = await gathered(lambda name: self.read_topic(name, watch), wanted)
        return {name: topic for name, topic in zip(wanted, read, strict=True) if topic is not None}

    async def read_topic(
        self, name: str, watch: Watch | None, known_id: UUID | None = None
    ) -> znodes.TopicAssignment | None:
        """`known_id` goes back into a znode that has lost it; one that never had an id gets a new one."""
        path = znodes.topic_path(name)
        backoff = Backoff(*CONFLICT_S, random=self.random)
        while True:
            try:
                data, stat = await self.registry.get(path, watch)
                topic = await aside(
                    len(data) // BYTES_PER_PARTITION, znodes.decode_topic, name, data
                )
                if why := what_is_wrong_with(name):
                    # No broker could make a directory of that name, and one that fails to gives up the whole disk.
                    raise RegistryError(path, why)
                if topic.topic_id is None:
                    # Written by an old tool, or by hand.
                    topic = replace(topic, topic_id=known_id or self.new_topic_id())
                    written = SetData(
                        path=path, data=znodes.encode_topic(topic), version=stat.version
                    )
                    await self.fenced([written])
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
                self.report("cannot understand a topic", error)
                return None

    def new_topic_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def read_topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """What each sets for itself; one that cannot be read is left out."""

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
                self.report("cannot understand a topic's config", error)
                return None

        configs = await gathered(read, topics)
        return {
            topic: config
            for topic, config in zip(topics, configs, strict=True)
            if config is not None
        }

    def report(self, what: str, error: RegistryError) -> None:
        """Once in an epoch: it may be read again and again."""
        if str(error) not in self.reported:
            self.reported.add(str(error))
            logger.error("%s error=%s", what, error)

    # ---- deleting

    async def delete_children(self, path: str) -> None:
        """What stands below, notifications that were read or are of no more use."""
        for name in await self.registry.children(path):
            await self.delete_if_there(f"{path}/{name}")

    async def delete_if_there(self, path: str) -> None:
        try:
            await self.fenced([Delete(path=path)])
        except MultiFailed as error:
            if isinstance(error.error, NotEmpty):
                # Nobody knows what stands below it. It stays, and must not keep anybody from taking over.
                self.report("cannot delete", error.error)
            elif not isinstance(error.error, NoNode):
                raise

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Side by side, so that many share a commit to the disk."""
        await gathered(self.delete_topic, topics)

    async def delete_topic(self, topic: str) -> None:
        """All of it: children first, the marker last, so that whoever comes after a crash knows what to finish."""
        doomed = await self.usual_znodes(topic)
        for batch in batched(doomed, lambda path: [Delete(path=path)]):
            try:
                await self.fenced([op for _, ops in batch for op in ops])
            except MultiFailed:
                # Some are gone already, or somebody has put more below them.
                for path, _ in batch:
                    for each in await self.descendants(path):
                        await self.delete_if_there(each)
        await self.delete_if_there(znodes.topic_config_path(topic))
        await self.delete_if_there(znodes.delete_topic_path(topic))
        self.parents.discard(topic)

    async def usual_znodes(self, topic: str) -> list[str]:
        """What stands of a topic, children first, if nobody has put anything else there: to ask every partition what is
        below it would take longer than to delete it."""
        above = znodes.partitions_path(topic)
        try:
            partitions = await self.registry.children(above)
        except NoNode:
            return [znodes.topic_path(topic)]
        below = (
            path for name in partitions for path in (f"{above}/{name}/state", f"{above}/{name}")
        )
        return [*below, above, znodes.topic_path(topic)]

    async def descendants(self, path: str) -> list[str]:
        try:
            names = await self.registry.children(path)
        except NoNode:
            return []
        below = await gathered(lambda name: self.descendants(f"{path}/{name}"), names)
        return [*(each for found in below for each in found), path]


def version_of(answer: str | ZnodeStat | None) -> ZnodeVersion:
    """A node that was just created has version 0."""
    return ZnodeVersion(answer.version if isinstance(answer, ZnodeStat) else 0)


def batched(
    items: Sequence[T], ops_of: Callable[[T], list[Op]]
) -> Iterable[list[tuple[T, list[Op]]]]:
    """With their operations, in runs that a transaction can carry."""
    batch: list[tuple[T, list[Op]]] = []
    size = 0
    for item in items:
        ops = ops_of(item)
        weight = sum(map(bytes_of, ops))
        if batch and size + weight > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append((item, ops))
        size += weight
    if batch:
        yield batch


def bytes_of(op: Op) -> int:
    data = op.data if isinstance(op, Create | SetData) else b""
    return OP_OVERHEAD_BYTES + len(op.path) + len(data)


async def gathered(call: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """All results in order, so many calls on their way at once that the registry is never idle."""
    found: list[R] = []
    for at in range(0, len(items), READS_AT_ONCE):
        found += await asyncio.gather(*(call(item) for item in items[at : at + READS_AT_ONCE]))
    return found
