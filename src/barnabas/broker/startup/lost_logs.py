"""Detection of lost logs at the start of a broker with an empty log directory, before it registers.

A new broker is in no ISR. If the broker is in the ISR of a partition and has no log of it, its disk was replaced or
wiped. While the broker is not registered, the controller treats it as failed and removes it from the ISRs. The broker
waits for that. replication/lost_replicas.py handles partitions that no other replica can lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from random import Random
from uuid import UUID

from barnabas.errors import RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import ZERO_ID, BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger("barnabas.broker")

POLL_SECONDS = (0.05, 0.25)


async def find_lost_logs(
    registry: RegistryClient, logs: LogManager, broker_id: BrokerId, *, wait_s: float
) -> dict[tuple[str, int], UUID]:
    """Return the topic id of each partition without a local log whose ISR contains this broker, after a wait.

    Waits up to `wait_s` for the controller to remove this broker from the ISRs. The last in-sync replica stays in the
    ISR, so there is no wait for it. Partitions with this broker as their only replica are not included: no other broker
    has their records.
    """
    if not logs.blank:
        return {}
    missing = await find_missing_logs(registry, logs, broker_id)
    deadline = asyncio.get_running_loop().time() + wait_s
    backoff = Backoff(*POLL_SECONDS, random=Random(broker_id))
    while True:
        in_sync = await find_in_sync(registry, missing, broker_id)
        lost = {tp: missing[tp] for tp in in_sync}
        # The controller does not remove the last in-sync replica.
        can_leave_isr = any(len(isr) > 1 for isr in in_sync.values())
        if not can_leave_isr or asyncio.get_running_loop().time() > deadline:
            return lost
        await backoff.wait()


async def find_missing_logs(
    registry: RegistryClient, logs: LogManager, broker_id: BrokerId
) -> dict[tuple[str, int], UUID]:
    missing: dict[tuple[str, int], UUID] = {}
    names = await registry.children(znodes.TOPICS)
    found = await registry.get_many([znodes.topic_path(name) for name in names])
    for name, node in zip(names, found, strict=True):
        if node is None:
            continue
        try:
            topic = znodes.decode_topic(name, node[0])
        except RegistryError as error:
            logger.error("cannot look for lost logs of topic=%s error=%s", name, error)
            continue
        for index, assignment in topic.partitions.items():
            tp = TopicPartition(name, index)
            replicas = assignment.replicas
            if broker_id in replicas and len(replicas) > 1 and logs.get(tp) is None:
                missing[tp] = topic.topic_id or ZERO_ID
    return missing


async def find_in_sync(
    registry: RegistryClient, partitions: Iterable[tuple[str, int]], broker_id: BrokerId
) -> dict[tuple[str, int], tuple[BrokerId, ...]]:
    """Return the ISR of each partition that has this broker in its ISR."""
    wanted = [TopicPartition(*tp) for tp in partitions]
    found = await registry.get_many([znodes.state_path(tp) for tp in wanted])
    in_sync: dict[tuple[str, int], tuple[BrokerId, ...]] = {}
    for tp, node in zip(wanted, found, strict=True):
        try:
            isr = znodes.decode_state(tp, node[0], version=0).isr if node is not None else ()
        except RegistryError as error:
            logger.error("cannot read the ISR of partition=%s error=%s", tp, error)
            continue
        if broker_id in isr:
            in_sync[tp] = isr
    return in_sync
