"""Stray logs: logs on disk at the start of a broker that belong to no topic, or to no replica of this broker.

Their deletion did not reach the disk, the replica moved to another broker meanwhile, or they were copied here. By
default their directories are renamed to `*-stray`: a new topic of that name must not use them. With
barnabas.adopt.logs they become topics instead. Each topic is written to the registry with the id from its log, this
broker as its only replica, and its last leader epoch. `__consumer_offsets` and `__transaction_state` are adopted with
their usual settings, so groups resume from their committed offsets, and open transactions can be completed.

This happens before the broker registers, so that no controller assigns these partitions meanwhile. A broker adopts logs
only if no other broker is registered: another broker may have a replica of the same topic with other records.

The assignments are checked again when the broker is ready. A reassignment that completed before the registration may
have removed a replica whose log the first check still kept.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from uuid import UUID

from barnabas.batch.records import records
from barnabas.broker.control_plane import catch_up, last_controller_epoch
from barnabas.broker.init_producer_id import BLOCK_SIZE
from barnabas.broker.topic_admin.auto_creation import define_topic
from barnabas.broker.topic_admin.create_topics import encode_new_topic
from barnabas.broker.topic_admin.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.errors import NoNode, RegistryError, RemoteWireError
from barnabas.metadata import znodes
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    topic_name_error,
)
from barnabas.model import BrokerId, LeaderAndIsr, LeaderEpoch, TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.world.ports import Create, Op, SetData

logger = logging.getLogger("barnabas.topics")

FIRST_EPOCH = LeaderEpoch(0)
NOT_ADOPTED = INTERNAL_TOPICS - {CONSUMER_OFFSETS, TRANSACTION_STATE}


async def adopt_logs(
    registry: RegistryClient, logs: LogManager, topics: Topics, config: BrokerConfig
) -> None:
    """Create a topic from the stray logs of each topic name. Incomplete topics are logged and skipped."""
    broker_id = BrokerId(config.broker_id)
    others = [each for each in await registry.children(znodes.BROKER_IDS) if each != str(broker_id)]
    if others:
        logger.error("cannot adopt logs, other brokers are registered ids=%s", ",".join(others))
        return
    existing = frozenset(await registry.children(znodes.TOPICS))
    epoch = await last_controller_epoch(registry)
    stray: dict[str, dict[int, Log]] = {}
    for tp, log in sorted(logs.logs.items()):
        if tp.topic not in existing and tp.topic not in NOT_ADOPTED:
            stray.setdefault(tp.topic, {})[tp.partition] = log
    for name, partitions in stray.items():
        ids = {log.topic_id for log in partitions.values()}
        is_complete = sorted(partitions) == list(range(len(partitions))) and len(ids) == 1
        if topic_name_error(name) or not is_complete:
            logger.error(
                "cannot adopt topic=%s, invalid name or incomplete partitions=%s",
                name,
                [*partitions],
            )
            continue
        topic_id = ids.pop() or topics.new_topic_id()
        states = [
            LeaderAndIsr(
                leader=broker_id,
                isr=(broker_id,),
                leader_epoch=LeaderEpoch(max(log.epochs.latest, FIRST_EPOCH)),
                controller_epoch=epoch,
            )
            for _, log in sorted(partitions.items())
        ]
        new_topic = define_topic(name, config)
        configs = {key: value for key, value in new_topic.configs.items() if value is not None}
        await write_adopted_topic(registry, name, topic_id, states, configs)
        logger.info("adopted topic=%s partitions=%d id=%s", name, len(partitions), topic_id)
    transactional = stray.get(TRANSACTION_STATE, {}).values()
    used = [*(log.producers.by_id for log in logs.logs.values()), *map(stored_ids, transactional)]
    await reserve_producer_ids(registry, broker_id, max(chain.from_iterable(used), default=-1))


def stored_ids(log: Log) -> Iterator[int]:
    """Yield the producer ids in a partition of `__transaction_state`. Their producers may not have written anything."""
    from barnabas.transactions.records import read_transaction

    for segment in log.segments:
        for _, header, batch in segment.checked_batches(segment.base_offset):
            if header.is_control:
                continue
            with suppress(RemoteWireError):
                for record in records(batch):
                    if record.value is not None:
                        yield read_transaction(record.value).producer_id


async def reserve_producer_ids(registry: RegistryClient, broker_id: BrokerId, used: int) -> None:
    """Reserve the blocks of producer ids up to `used`, so that no new producer gets the id of an existing one."""
    data, stat = await registry.get(znodes.PRODUCER_ID_BLOCK)
    reserved = znodes.decode_producer_id_block(data).end if data else -1
    if used <= reserved:
        return
    start = used // BLOCK_SIZE * BLOCK_SIZE
    block = znodes.ProducerIdBlock(broker=broker_id, start=start, end=start + BLOCK_SIZE - 1)
    content = znodes.encode_producer_id_block(block)
    await registry.set(znodes.PRODUCER_ID_BLOCK, content, stat.version)


async def write_adopted_topic(
    registry: RegistryClient,
    name: str,
    topic_id: UUID,
    states: list[LeaderAndIsr],
    configs: Mapping[str, str],
) -> None:
    """Write a topic with the states of its partitions, so that the controller treats it as an existing topic."""
    assignment = encode_new_topic(topic_id, [state.isr for state in states])
    path, settings = znodes.topic_config_path(name), znodes.encode_config(configs)
    left_over = await registry.exists(path) is not None
    operations: list[Op] = [
        SetData(path=path, data=settings) if left_over else Create(path=path, data=settings),
        Create(path=znodes.topic_path(name), data=assignment),
        Create(path=znodes.partitions_path(name)),
    ]
    for index, state in enumerate(states):
        tp = TopicPartition(name, index)
        operations.append(Create(path=znodes.partition_path(tp)))
        operations.append(Create(path=znodes.state_path(tp), data=znodes.encode_state(state)))
    await registry.multi(operations)


async def rename_stray_logs(
    registry: RegistryClient,
    logs: LogManager,
    broker_id: BrokerId,
    in_use: Container[tuple[str, int]] = (),
) -> None:
    """Rename the directories of stray logs to `*-stray`, except those `in_use`. Delete stray future logs.

    Raises RegistryError if the registry cannot be read.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in {**logs.logs, **logs.futures}:
        if tp not in in_use:
            by_topic.setdefault(tp.topic, []).append(tp)
    if not by_topic:
        return
    await catch_up(registry)  # an old assignment must not hide a replica of this broker
    names = frozenset(await registry.children(znodes.TOPICS))
    for name, partitions in by_topic.items():
        known = await read_partitions(registry, name, broker_id) if name in names else frozenset()
        for tp in partitions:
            if known is not None and tp.partition not in known and tp not in in_use:
                logger.warning("renaming stray log to *-stray partition=%s", tp)
                logs.rename_to_stray(tp)


async def read_partitions(
    registry: RegistryClient, name: str, broker_id: BrokerId
) -> frozenset[int] | None:
    """Return the partitions of a topic that have a replica on this broker, or None if its znode is corrupt."""
    try:
        data, _ = await registry.get(znodes.topic_path(name))
    except NoNode:
        return frozenset()
    try:
        assignments = znodes.decode_topic(name, data).partitions
        return frozenset(n for n, each in assignments.items() if broker_id in each.replicas)
    except RegistryError as error:
        logger.error("cannot read topic=%s, keeping its logs error=%s", name, error)
        return None
