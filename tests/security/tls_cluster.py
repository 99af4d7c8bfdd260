"""A cluster in this process whose listeners use TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from barnabas.broker.broker import BrokerServer
from barnabas.cluster.in_process import ClusterBroker, InProcessCluster
from barnabas.cluster.settings import TEST_SETTINGS, broker_properties
from barnabas.config.load import load_broker_config


class SecuredCluster(InProcessCluster):
    """All brokers have the same settings, also the same listeners. The system chooses each port."""

    def __init__(self, data: Path, settings: Mapping[str, str], brokers: int = 1) -> None:
        super().__init__(data, brokers=brokers, registry_in_memory=True)
        for number in self.brokers:
            properties = broker_properties(
                data, number, 0, brokers=brokers, settings={**TEST_SETTINGS, **settings}
            )
            config, _ = load_broker_config(properties)
            self.brokers[number] = ClusterBroker(self, config)

    def server(self, number: int = 1) -> BrokerServer:
        instance = self.brokers[number].instance
        assert instance is not None
        return instance.broker

    def address(self, listener: str, number: int = 1) -> str:
        """Return host:port of a listener."""
        endpoints = self.server(number).endpoints
        (found,) = (each for each in endpoints if each.listener == listener)
        return found.address

    def servers(self, listener: str) -> str:
        """Return the bootstrap servers of a listener."""
        return ",".join(self.address(listener, number) for number in self.brokers)

    def principals(self, listener: str) -> set[str]:
        """Return the principals of the open connections of a listener."""
        listeners = self.server().listeners
        assert listeners is not None
        connections = list(listeners.connections)
        return {str(each.principal) for each in connections if each.listener_name == listener}


@contextmanager
def secured_cluster(
    data: Path, settings: Mapping[str, str], brokers: int = 1
) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(data, settings, brokers)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop(clean=False)
