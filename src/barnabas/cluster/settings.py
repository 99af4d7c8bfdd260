"""Default settings of the brokers of a cluster on one machine, in one process or in one process per broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.config import BrokerConfig
from barnabas.config.listeners import parse_http_listener
from barnabas.errors import ConfigError
from barnabas.model import Endpoint, SecurityProtocol

if TYPE_CHECKING:
    from barnabas.cluster.local_security import LocalSecurity

HOST = "127.0.0.1"
LOCAL = "LOCAL"
"""Name of the listener for this machine, beside one for other machines."""
FIRST_BROKER_ID = 1
INTERNAL_TOPIC_REPLICAS_MAX = 3
TRANSACTION_STATE_MIN_ISR_MAX = 2
HTTP_LISTENER = "barnabas.http.listener"
LOOPBACK_HTTP = {HTTP_LISTENER: f"{HOST}:0"}
"""The default of `barnabas up`: each broker serves its metrics to this machine."""
UNIQUE_SETTINGS = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")

TEST_SETTINGS = {"barnabas.history.topic.enable": "false"}
"""No history topic, because a test that lists topics expects only its own. Each broker still writes history files."""


def validate_settings(brokers: int, settings: Mapping[str, str]) -> None:
    """Raise TypeError if `brokers` is no integer, ConfigError if it is below 1 or if brokers cannot share a setting."""
    if type(brokers) is not int:  # notebooks and fixtures have no type checker
        raise TypeError(f"brokers must be the number of brokers, as in brokers=3, not {brokers!r}")
    if brokers < 1:
        raise ConfigError("brokers", f"must be at least 1, not {brokers}")
    for name in UNIQUE_SETTINGS:
        if brokers > 1 and name in settings:
            raise ConfigError(name, "cannot be the same for several brokers; remove it")
    listener = parse_http_listener(HTTP_LISTENER, settings.get(HTTP_LISTENER, "").strip())
    if brokers > 1 and listener is not None and listener.port:
        why = f"cannot be the same for several brokers; write {listener.host}:0 for free ports"
        raise ConfigError(HTTP_LISTENER, why)


def with_http_port(config: BrokerConfig, listener: Endpoint, port: int) -> BrokerConfig:
    """Return the config with the port of `barnabas.http.listener` that was chosen for port 0."""
    chosen = replace(listener, port=port)
    properties = {**config.properties, HTTP_LISTENER: chosen.address}
    return replace(config, barnabas_http_listener=chosen, properties=properties)


def broker_properties(
    data: Path,
    broker_id: int,
    port: int,
    *,
    brokers: int,
    settings: Mapping[str, str],
    host: str = HOST,
    advertised: str | None = None,
    security: LocalSecurity | None = None,
) -> dict[str, str]:
    """Return the properties of one broker. `settings` override the defaults.

    Internal topics get Kafka's default replication factor, or one replica per broker if the cluster has fewer brokers.
    The first member of a group does not wait for others. Raises ConfigError for a path that `log.dirs` would split.
    """
    if "," in str(data) and "log.dirs" not in settings:
        why = f"a comma separates directories; {str(data)!r} has one: choose another path"
        raise ConfigError("log.dirs", why)
    protocol = SecurityProtocol.PLAINTEXT if security is None else security.protocol
    return {
        "broker.id": str(broker_id),
        **listener_properties(host, port, advertised, protocol),
        **({} if security is None else security.broker_settings([protocol.name, LOCAL])),
        "log.dirs": str(data / f"broker-{broker_id}"),
        "offsets.topic.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.min.isr": str(min(TRANSACTION_STATE_MIN_ISR_MAX, brokers)),
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }


def listener_properties(
    host: str, port: int, advertised: str | None, protocol: SecurityProtocol
) -> dict[str, str]:
    """Return the listeners of one broker that binds to `host`.

    With `advertised`, the host by which other machines and containers reach this one, it gets a second listener on the
    loopback interface. The brokers and the clients here use that one: the advertised name may not resolve here.
    """
    name = protocol.name
    bound = f"{name}://{in_address(host)}:{port}"
    if advertised is None:
        is_default = protocol is SecurityProtocol.PLAINTEXT
        return {"listeners": bound} | ({} if is_default else {"inter.broker.listener.name": name})
    return {
        "listeners": f"{LOCAL}://{HOST}:0,{bound}",
        "advertised.listeners": f"{LOCAL}://{HOST}:0,{name}://{in_address(advertised)}:{port}",
        "listener.security.protocol.map": f"{LOCAL}:{name},{name}:{name}",
        "inter.broker.listener.name": LOCAL,
    }


def in_address(host: str) -> str:
    """Return the host as it appears in host:port.

    >>> in_address("::1"), in_address("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def with_absolute_log_dirs(config: BrokerConfig) -> BrokerConfig:
    """Return the config with absolute paths: DescribeLogDirs reports them, and AlterReplicaLogDirs requires them."""
    directories = tuple(str(Path(directory).absolute()) for directory in config.log_dirs)
    return replace(config, log_dirs=directories)
