"""Basic types of a cluster: ids, epochs, partitions, replicas, brokers. All are immutable."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NewType
from uuid import UUID

from msgspec import Struct

BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ZnodeVersion = NewType("ZnodeVersion", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = -1
ZERO_ID = UUID(int=0)


class TopicPartition(NamedTuple):
    """A partition of a topic. Its text form is also the name of its directory.

    A tuple, because it hashes fast: every Produce request looks partitions up.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Replica(NamedTuple):
    """The replica of a partition on a broker."""

    partition: TopicPartition
    broker: BrokerId

    def __str__(self) -> str:
        return f"{self.partition} on {self.broker}"


WILDCARD_HOSTS = ("", "0.0.0.0", "::")
"""Hosts of a listener on all interfaces."""


class SecurityProtocol(IntEnum):
    """How a listener encrypts and authenticates, with Kafka's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(Struct, frozen=True, kw_only=True):
    """Address of a listener: where it is bound, or what it advertises."""

    listener: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """`host:port`; an IPv6 address gets brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Broker(Struct, frozen=True, kw_only=True):
    """A registered broker, as clients and other brokers see it."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


class LeaderAndIsr(Struct, frozen=True, kw_only=True):
    """The leader and the in-sync replicas of a partition, as stored in its state znode."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    partition_epoch: ZnodeVersion = ZnodeVersion(0)
    recovering: bool = False
    """Set by an unclean election, until the new leader reports that it has recovered."""
