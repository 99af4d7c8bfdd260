"""The id of a broker whose properties file sets none: the one in its log directories, or a new one of the cluster.

New ids are above reserved.broker.max.id, so that they differ from all ids that operators choose. The registry counts
them as in Kafka: each is the next version of /brokers/seqid. The broker stores its id in meta.properties.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError, NodeExists
from barnabas.metadata import znodes
from barnabas.storage.checkpoints import META_PROPERTIES, decode_properties
from barnabas.world.ports import Registry

logger = logging.getLogger("barnabas.broker")


async def with_broker_id(settings: BrokerConfig, registry: Registry) -> BrokerConfig:
    """Return the settings with a broker id. Raises ConfigError and RegistryError."""
    if settings.broker_id >= 0:
        return settings
    broker_id = stored_broker_id(settings.log_dirs)
    if broker_id is None:
        broker_id = await generate_broker_id(settings, registry)
        logger.info("generated broker id=%d", broker_id)
    return replace(settings, broker_id=broker_id, node_id=broker_id)


def stored_broker_id(log_dirs: Iterable[str]) -> int | None:
    """Return the id in the meta.properties of the log directories. Raises ConfigError if they have different ids."""
    found: dict[int, str] = {}
    for directory in log_dirs:
        path = Path(directory) / META_PROPERTIES
        text = decode_properties(path.read_bytes()).get("broker.id", "") if path.is_file() else ""
        if text.isdecimal():
            found[int(text)] = directory
    if len(found) > 1:
        owners = ", ".join(f"{directory} to {broker}" for broker, directory in found.items())
        raise ConfigError("log.dirs", f"the directories belong to different brokers: {owners}")
    return next(iter(found), None)


async def generate_broker_id(settings: BrokerConfig, registry: Registry) -> int:
    session = await registry.connect(settings.zookeeper_session_timeout_ms)
    try:
        for path in (znodes.BROKERS, znodes.BROKER_SEQID):
            with suppress(NodeExists):
                await session.create(path, b"")
        number = (await session.set(znodes.BROKER_SEQID, b"")).version
    finally:
        await session.close()
    return settings.reserved_broker_max_id + number
