"""The nouns: what every part of Barnabas means by a partition, an offset, an epoch. Frozen, no I/O."""

from __future__ import annotations

from typing import NamedTuple, NewType
from uuid import UUID

from msgspec import Struct

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ZnodeVersion = NewType("ZnodeVersion", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = -1
ZERO_ID = UUID(int=0)


class TopicPartition(NamedTuple):
    """One partition of one topic; also the name of its directory. A tuple, because every produce looks one up."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Replica(NamedTuple):
    """The copy of one partition on one broker."""

    partition: TopicPartition
    broker: BrokerId

    def __str__(self) -> str:
        return f"{self.partition} on {self.broker}"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a listener can be reached from outside."""

    listener: str
    host: str
    port: int


class Broker(Struct, frozen=True, kw_only=True):
    """A registered broker as clients and other brokers see it."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


class LeaderAndIsr(Struct, frozen=True, kw_only=True):
    """Who leads a partition and who is in sync with it, as the registry has it."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    partition_epoch: ZnodeVersion = ZnodeVersion(0)
    recovering: bool = False  # after an unclean election, until its leader has said it is done
