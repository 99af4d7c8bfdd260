"""Fencing of controller requests: a broker accepts them only from the current controller, for its own registration.

    broker epoch missing, or < own          sent to an earlier registration of this broker      STALE_BROKER_EPOCH
    controller epoch < the largest seen     from a deposed controller, or delayed               STALE_CONTROLLER_EPOCH
    controller epoch not in the registry    from a sender that was never elected                STALE_CONTROLLER_EPOCH

Kafka trusts any epoch that is not smaller, and any request without a broker epoch. One stray request then makes a
broker reject its real controller. Barnabas looks up each new controller epoch in the registry once.

LeaderAndIsr, UpdateMetadata and StopReplica are handled one at a time. For a moment two controllers may send requests
concurrently. A request with a later epoch must not start in the middle of an earlier one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from barnabas.broker.connection import Connection
from barnabas.broker.security.access import Access
from barnabas.errors import ErrorCode, MultiFailed, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.messages.stop_replica import StopReplicaRequest
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from barnabas.world.ports import CheckVersion

logger = logging.getLogger("barnabas.control")

ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
ANY_VERSION = -1
HISTORY_CLIENT_ID = re.compile(r"broker-\d+-history")


class ControlPlane:
    """The epochs that this broker has seen, and the lock for controller requests."""

    def __init__(
        self,
        broker_id: BrokerId = NO_LEADER,
        registry: RegistryClient | None = None,
        access: Access | None = None,
    ) -> None:
        """Without a registry, every epoch is trusted that is not smaller than the largest one seen."""
        self.broker_id = broker_id
        self.registry = registry
        self.access = access
        self.broker_epoch = BrokerEpoch(UNKNOWN_BROKER_EPOCH)
        """Epoch of the current registration."""
        self.last_update_broker_epoch = BrokerEpoch(UNKNOWN_BROKER_EPOCH)
        """Epoch of the registration in which the last UpdateMetadata arrived."""
        self.controller_epoch = ControllerEpoch(0)
        """The largest controller epoch seen."""
        self.controller_id = NO_LEADER
        """The controller with that epoch."""
        self.lock = asyncio.Lock()

    @asynccontextmanager
    async def admit(
        self, name: str, request: ControllerRequest, connection: Connection
    ) -> AsyncIterator[ErrorCode]:
        """Yield NONE with the lock held if the broker must handle this request, else the error."""
        sender = (name, request.controller_id)
        if self.access is not None and not self.access.is_broker(connection):
            yield ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif error := await self.broker_error(*sender, request.broker_epoch):
            yield error
        elif not await self.recognises(*sender, request.controller_epoch):
            yield ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            async with self.lock:
                yield self.controller_error(*sender, request.controller_epoch)

    async def broker_error(self, request: str, controller_id: int, broker_epoch: int) -> ErrorCode:
        """Return STALE_BROKER_EPOCH for a request to an earlier registration of this broker, else NONE.

        A larger epoch is valid if the registry has it: the controller may learn of a new registration first.
        """
        if broker_epoch == self.broker_epoch:
            return ErrorCode.NONE
        if broker_epoch > self.broker_epoch and await self.is_registered(broker_epoch):
            return ErrorCode.NONE
        logger.info(
            "rejected request=%s controller=%d broker_epoch=%d own_broker_epoch=%d",
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
            logger.warning("cannot look up own registration error=%s", error)
            return False
        return found is not None and found.czxid == broker_epoch

    async def recognises(self, request: str, controller_id: int, epoch: int) -> bool:
        """Whether the sender was elected with this epoch. True for a stale epoch, which `controller_error` rejects.

        Call it without the lock, since it may read the registry. False if the registry cannot be read.
        """
        if epoch < self.controller_epoch or self.registry is None:
            return True
        if epoch == self.controller_epoch and controller_id == self.controller_id:
            return True
        try:
            await catch_up(self.registry)
            elected = await last_controller_epoch(self.registry)
            try:
                data, _ = await self.registry.get(znodes.CONTROLLER)
                current = znodes.decode_controller(data)
            except NoNode:
                # The controller was elected and has failed or resigned since. Its earlier requests are still valid.
                current = BrokerId(controller_id)
        except RegistryError as error:
            logger.warning("cannot look up the controller error=%s", error)
            return False
        if epoch == elected and controller_id == current:
            return True
        logger.warning(
            "rejected, sender was not elected request=%s controller=%d controller_epoch=%d",
            request,
            controller_id,
            epoch,
        )
        return False

    def controller_error(self, request: str, controller_id: int, epoch: int) -> ErrorCode:
        """Return STALE_CONTROLLER_EPOCH for a deposed controller. Otherwise record its epoch and return NONE.

        Call it with the lock held: a request of another controller may have been handled while this request waited.
        """
        if epoch >= self.controller_epoch:
            self.controller_epoch = ControllerEpoch(epoch)
            self.controller_id = BrokerId(controller_id)
            return ErrorCode.NONE
        logger.warning(
            "rejected request=%s controller=%d controller_epoch=%d seen_controller_epoch=%d",
            request,
            controller_id,
            epoch,
            self.controller_epoch,
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH


async def last_controller_epoch(registry: RegistryClient) -> ControllerEpoch:
    """Return the epoch of the last elected controller, or 0 if there was none."""
    try:
        data, _ = await registry.get(znodes.CONTROLLER_EPOCH)
    except NoNode:
        return ControllerEpoch(0)
    return znodes.decode_controller_epoch(data)


async def catch_up(registry: RegistryClient) -> None:
    """Wait until reads through `registry` return all writes that were committed before this call.

    A ZooKeeper server answers reads from its own copy, which may be older than that of the controller's server. A
    transaction returns only after all earlier ones have reached this server. Without it a valid request might be
    rejected, and controllers do not repeat rejected requests.
    """
    with suppress(MultiFailed):
        await registry.multi([CheckVersion(path=znodes.CONTROLLER_EPOCH, version=ANY_VERSION)])


def history_client_id(broker_id: int) -> str:
    """Return the client id of a broker that publishes its state-change history."""
    return f"broker-{broker_id}-history"


def is_history_producer(topic: str, client_id: str | None) -> bool:
    """Whether a Produce request is that of a broker that publishes its state changes.

    The client id proves nothing. So the principal must also be allowed to act as a broker.
    """
    return topic == STATE_CHANGES and HISTORY_CLIENT_ID.fullmatch(client_id or "") is not None
