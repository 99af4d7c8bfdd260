"""Settings of the brokers of a cluster on one machine, in this process or in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from barnabas.errors import ConfigError

HOST = "127.0.0.1"
FIRST_BROKER_ID = 1
INTERNAL_TOPIC_REPLICAS_MAX = 3
TRANSACTION_STATE_MIN_ISR_MAX = 2
PER_BROKER = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")


def check_shared(brokers: int, settings: Mapping[str, str]) -> None:
    """Reject an invalid number of brokers, and settings that brokers cannot share, with ConfigError."""
    if type(brokers) is not int:  # notebooks and fixtures have no type checker
        raise TypeError(f"brokers must be the number of brokers, as in brokers=3, not {brokers!r}")
    if brokers < 1:
        raise ConfigError("brokers", f"must be at least 1, not {brokers}")
    for name in PER_BROKER:
        if brokers > 1 and name in settings:
            raise ConfigError(name, "cannot be the same for several brokers; remove it")


def broker_properties(
    data: Path, broker_id: int, port: int, *, brokers: int, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of one of the brokers of a cluster. `settings` override the defaults for one machine.

    Internal topics get Kafka's default number of replicas, or one on each broker if there are fewer. The first member
    of a group does not wait for others.
    """
    return {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(data / f"broker-{broker_id}"),
        "offsets.topic.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.min.isr": str(min(TRANSACTION_STATE_MIN_ISR_MAX, brokers)),
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
