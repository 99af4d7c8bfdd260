"""Settings of the brokers of one node, derived from one server.properties (`barnabas node`).

    broker.id=11                           ids 11, 12, 13, …
    listeners=PLAINTEXT://:9092            ports 9092, 9093, 9094, …; port 0 stays 0; advertised.listeners likewise
    barnabas.http.listener=:9308           ports 9308, 9309, 9310, …
    log.dirs=/data/a,/data/b               /data/a/broker-11,/data/b/broker-11; then broker-12, …
    broker.rack                            the same for all brokers: the value of the file, or the name of the machine

All other settings apply to every broker as they are. One rack per machine keeps the replicas of a partition on
different machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from barnabas.cluster.settings import HTTP_LISTENER
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError
from barnabas.model import BrokerId, Endpoint

PORT_MAX = 65535


class NodeBroker(Struct, frozen=True, kw_only=True):
    """One broker of a node: the settings that differ from those of the file."""

    id: BrokerId
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    rack: str
    http_listener: Endpoint | None = None
    inter_broker_listener: str = "PLAINTEXT"

    @property
    def checked_endpoint(self) -> Endpoint:
        """The address at which the supervisor checks the broker: of the listener between brokers.

        With TLS, its host is the advertised one, because the certificate names it.
        """
        found = {each.listener: each for each in self.listeners}
        bound = found.get(self.inter_broker_listener, self.listeners[0])
        if not bound.protocol.has_tls:
            return bound
        advertised = {each.listener: each for each in self.advertised_listeners}
        return replace(bound, host=advertised.get(bound.listener, bound).host)

    @property
    def overrides(self) -> dict[str, str]:
        """The settings of this broker, for `barnabas broker --override`."""
        advertised = listeners_text(self.advertised_listeners)
        return {
            "broker.id": str(self.id),
            "node.id": str(self.id),  # a file may set it instead of broker.id
            "listeners": listeners_text(self.listeners),
            **({"advertised.listeners": advertised} if advertised else {}),
            "log.dirs": ",".join(self.log_dirs),
            "broker.rack": self.rack,
            **({HTTP_LISTENER: self.http_listener.address} if self.http_listener else {}),
        }


def derive_node_brokers(
    properties: Mapping[str, str], count: int, *, machine: str
) -> tuple[list[NodeBroker], list[str]]:
    """Return the brokers of a node, and warnings for the operator.

    `machine` is the rack if the properties set none. Raises ConfigError if a setting is invalid for the file or for one
    of the brokers.
    """
    if count < 1:
        raise ConfigError("--brokers", f"must be at least 1, not {count}")
    config, warnings = load_broker_config(properties)
    if config.broker_id < 0:
        raise ConfigError("broker.id", "not set; choose the id of the first broker: broker.id=1")
    if config.zookeeper_connect is None:
        why = "not set: broker processes cannot share an embedded registry; start a ZooKeeper"
        why += " (`barnabas zookeeper`) and set its address, or use `barnabas up --brokers N`"
        raise ConfigError("zookeeper.connect", why)
    http_listeners = [config.barnabas_http_listener] if config.barnabas_http_listener else []
    rack = (config.broker_rack or "").strip() or machine
    brokers = [
        NodeBroker(
            id=BrokerId(config.broker_id + number),
            listeners=count_up("listeners", config.listeners, number),
            advertised_listeners=count_up(
                "advertised.listeners", config.advertised_listeners, number
            ),
            log_dirs=tuple(
                f"{each.rstrip('/')}/broker-{config.broker_id + number}" for each in config.log_dirs
            ),
            rack=rack,
            http_listener=next(iter(count_up(HTTP_LISTENER, http_listeners, number)), None),
            inter_broker_listener=config.inter_broker_listener,
        )
        for number in range(count)
    ]
    check_ports("listeners", {each.id: each.listeners for each in brokers})
    check_ports("advertised.listeners", {each.id: each.advertised_listeners for each in brokers})
    for each in brokers:
        load_broker_config(properties, each.overrides)  # for example, reserved.broker.max.id
    return brokers, warnings


def count_up(name: str, endpoints: Sequence[Endpoint], number: int) -> tuple[Endpoint, ...]:
    """Return the endpoints of the broker with this number, from 0. Port 0 stays 0: the system chooses the port."""
    for endpoint in endpoints:
        if endpoint.port + number > PORT_MAX:
            why = f"{number + 1} brokers need {number + 1} ports from {endpoint.port} on"
            raise ConfigError(name, f"{why}; the highest is {PORT_MAX}")
    return tuple(
        replace(each, port=each.port + number) if each.port else each for each in endpoints
    )


def check_ports(name: str, endpoints: Mapping[BrokerId, Sequence[Endpoint]]) -> None:
    """Raise ConfigError if two brokers have the same port: the listeners of the file are too close to each other."""
    users: dict[int, tuple[BrokerId, str]] = {}
    for broker, listeners in endpoints.items():
        for port, listener in {each.port: each.listener for each in listeners if each.port}.items():
            first, first_listener = users.setdefault(port, (broker, listener))
            if first != broker:
                why = f"port {port} is for {first_listener} of broker {first} and for {listener} of broker {broker}"
                why += f": {len(endpoints)} brokers need {len(endpoints)} ports from each port on"
                raise ConfigError(name, why)


def listeners_text(endpoints: Sequence[Endpoint]) -> str:
    """
    >>> listeners_text([Endpoint(listener="INSIDE", host="::1", port=9092)])
    'INSIDE://[::1]:9092'
    """
    return ",".join(f"{each.listener}://{each.address}" for each in endpoints)
