"""Finalized features of the cluster (KIP-584), as stored in /feature.

In ZooKeeper mode no broker supports any feature, so none can be finalized. ApiVersions reports the epoch, which is the
version of the znode. Features that another program wrote are not reported: clients would use them. Kafka's brokers do
not start with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.errors import RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.ports import WatchEvent

logger = logging.getLogger("barnabas.features")

UNKNOWN_EPOCH = -1


class FinalizedFeatures:
    """The epoch of the finalized features. `on_change` is called when /feature has changed."""

    def __init__(self, registry: RegistryClient, on_change: Callable[[], None]) -> None:
        self.registry = registry
        self.on_change = on_change
        self.epoch = UNKNOWN_EPOCH

    async def refresh(self) -> None:
        """Read /feature and watch it. Call it at the start, in each new session and after `on_change`."""
        try:
            # A watch of `exists` also fires when a missing znode is created.
            await self.registry.exists(znodes.FEATURE, self.changed)
            data, stat = await self.registry.get(znodes.FEATURE)
            features = znodes.decode_features(data)
        except (RegistryError, StorageError) as error:
            logger.warning("cannot read the finalized features error=%s", error)
            self.epoch = UNKNOWN_EPOCH
            return
        self.epoch = stat.version if features.is_enabled else UNKNOWN_EPOCH
        if features.levels:
            logger.warning("ignoring unsupported features names=%s", ",".join(features.levels))

    def changed(self, _: WatchEvent) -> None:
        self.on_change()
