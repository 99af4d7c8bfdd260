"""Whom this broker obeys: the controller with the largest epoch it has heard of, speaking to the broker it is now.

    request broker epoch < our own, or none it was meant for this broker before it restarted     STALE_BROKER_EPOCH
    request controller epoch < the largest  a deposed controller, or one of its late requests    STALE_CONTROLLER_EPOCH
    any other epoch the registry denies     nobody who was ever elected                          STALE_CONTROLLER_EPOCH

Kafka believes any epoch that is not smaller and any request that has none, so that one stray request, from whoever can
connect, makes a broker deaf to its real controller. Here an epoch that is new to the broker is looked up in the
registry once.

LeaderAndIsr, UpdateMetadata and StopReplica are carried out one at a time, whoever sends them: two controllers may
speak at once for a moment, and the later epoch must find the work of the earlier one whole.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress

from barnabas.broker.connection import Connection
from barnabas.errors import ErrorCode, MultiFailed, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH
from barnabas.world.ports import Check

logger = logging.getLogger("barnabas.control")

ANY_VERSION = -1
HISTORY_CLIENT_ID = re.compile(r"broker-\d+-history")


class ControlPlane:
    """The epochs this broker has seen, and the one lock of what the controller asks for."""

    def __init__(
        self, broker_id: BrokerId = NO_LEADER, registry: RegistryClient | None = None
    ) -> None:
        """Without a registry whoever speaks is believed."""
        self.broker_id = broker_id
        self.registry = registry
        self.broker_epoch = BrokerEpoch(UNKNOWN_BROKER_EPOCH)
        """Of our registration; set anew with every one."""
        self.updated_in = BrokerEpoch(UNKNOWN_BROKER_EPOCH)
        """The registration in which the last UpdateMetadata came."""
        self.controller_epoch = ControllerEpoch(0)
        """The largest seen,"""
        self.controller_id = NO_LEADER
        """and whose it is."""
        self.lock = asyncio.Lock()

    async def broker_error(self, request: str, controller_id: int, broker_epoch: int) -> ErrorCode:
        """STALE_BROKER_EPOCH for what was sent to a former life of this broker. A larger epoch is the next life, of
        which the controller may hear before we do; the registry knows it by then."""
        if broker_epoch == self.broker_epoch:
            return ErrorCode.NONE
        if broker_epoch > self.broker_epoch and await self.is_registered(broker_epoch):
            return ErrorCode.NONE
        logger.info(
            "refused request=%s controller=%d broker_epoch=%d own_broker_epoch=%d",
            request,
            controller_id,
            broker_epoch,
            self.broker_epoch,
        )
        return ErrorCode.STALE_BROKER_EPOCH

    async def is_registered(self, broker_epoch: int) -> bool:
        if self.registry is None:
            return True
        try:
            await catch_up(self.registry)
            found = await self.registry.exists(znodes.broker_path(self.broker_id))
        except RegistryError as error:
            logger.warning("cannot look up our registration error=%s", error)
            return False
        return found is not None and found.czxid == broker_epoch

    async def recognises(self, request: str, controller_id: int, epoch: int) -> bool:
        """Whether this broker was elected with this epoch, or is out of date, which `controller_error` tells. Ask
        without the lock: it may take a question to the registry."""
        if epoch < self.controller_epoch or self.registry is None:
            return True
        if epoch == self.controller_epoch and controller_id == self.controller_id:
            return True
        try:
            await catch_up(self.registry)
            data, _ = await self.registry.get(znodes.CONTROLLER_EPOCH)
            elected = znodes.decode_controller_epoch(data)
            data, _ = await self.registry.get(znodes.CONTROLLER)
            in_charge = znodes.decode_controller(data)
        except NoNode:
            # It was elected and is gone again; what it said before still counts.
            elected, in_charge = await self.last_epoch(self.registry), BrokerId(controller_id)
        except RegistryError as error:
            logger.warning("cannot look up the controller error=%s", error)
            return False
        if epoch == elected and controller_id == in_charge:
            return True
        logger.warning(
            "not elected request=%s controller=%d controller_epoch=%d",
            request,
            controller_id,
            epoch,
        )
        return False

    async def last_epoch(self, registry: RegistryClient) -> ControllerEpoch:
        try:
            data, _ = await registry.get(znodes.CONTROLLER_EPOCH)
            return znodes.decode_controller_epoch(data)
        except RegistryError:
            return ControllerEpoch(0)

    def controller_error(self, request: str, controller_id: int, epoch: int) -> ErrorCode:
        """STALE_CONTROLLER_EPOCH for a deposed controller; otherwise its epoch is remembered. Ask with the lock held:
        another controller may have spoken while the request waited for it."""
        if epoch >= self.controller_epoch:
            self.controller_epoch = ControllerEpoch(epoch)
            self.controller_id = BrokerId(controller_id)
            return ErrorCode.NONE
        logger.warning(
            "refused request=%s controller=%d controller_epoch=%d seen_controller_epoch=%d",
            request,
            controller_id,
            epoch,
            self.controller_epoch,
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH


async def catch_up(registry: RegistryClient) -> None:
    """See at least what everybody has seen until now.

    Reads are answered by whichever server of an ensemble a broker is connected to, and that one may be behind the one
    the controller asks. A transaction is answered when it has come through, with all that stands before it. What is
    refused without having looked so is never said again.
    """
    with suppress(MultiFailed):
        await registry.multi([Check(path=znodes.CONTROLLER_EPOCH, version=ANY_VERSION)])


def may_act_for_the_cluster(_: Connection) -> bool:
    """Whether the other end may do what only brokers do: order replicas about, fetch as a replica.

    Nobody is authenticated yet, so everybody may. Who adds authentication decides it here, for the control requests and
    for fetches that name a replica id alike: in Kafka the latter was once forgotten (CVE-2018-1288).
    """
    return True


def history_client_id(broker_id: int) -> str:
    """Client id of the requests with which a broker publishes its state-change history."""
    return f"broker-{broker_id}-history"


def may_produce_to(topic: str, client_id: str | None, connection: Connection) -> bool:
    """Whether this Produce request may write to the topic. Internal topics are written by brokers only.

    Brokers write to `__state_changes` with Produce requests and identify themselves by their client id, as Kafka's
    `__admin_client` does. It is a name, not a proof: authentication belongs in `may_act_for_the_cluster`.
    """
    if topic not in INTERNAL_TOPICS:
        return True
    is_broker = HISTORY_CLIENT_ID.fullmatch(client_id or "") is not None
    return topic == STATE_CHANGES and is_broker and may_act_for_the_cluster(connection)
