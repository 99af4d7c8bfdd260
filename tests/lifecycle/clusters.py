"""Three brokers that are killed at a chosen point, with one interface for both registries.

    EmbeddedBrokers      threads of this process with the embedded registry, killed by LocalCluster's kill
    ZooKeeperBrokers     processes with a ZooKeeper, killed by SIGKILL

In both, the session of a killed broker outlives it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from barnabas.broker.broker import BrokerServer
from barnabas.cluster.in_process import BrokerInstance, ClusterBroker, InProcessCluster
from barnabas.config import BrokerConfig
from barnabas.model import BrokerId
from barnabas.world.ports import Registry
from barnabas.world.registry.embedded import EmbeddedRegistry
from tests.lifecycle.client import eventually
from tests.lifecycle.trap import CrashPoint, Kind, Trap, TrappedNetwork, TrappedRegistry
from tests.lifecycle.wire import Trace

BROKERS = 3
DEADLINE_S = 30.0
SESSION_TIMEOUT_MS = "250"
"""Applies only to killed brokers: running ones need no heartbeats."""
SETTINGS = {
    # Actions that brokers start by themselves would be counted and would change epochs.
    "barnabas.history.topic.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
}


class Brokers(Protocol):
    """A cluster under test. All methods wait until their effect is complete."""

    registry_name: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def ports(self) -> Mapping[int, BrokerId]:
        """The ports of all brokers; restarts keep them."""
        ...

    def address(self, broker: BrokerId) -> tuple[str, int]: ...

    def log_dir(self, broker: BrokerId) -> Path: ...

    def observer_registry(self) -> Registry:
        """The registry, for use on another event loop."""
        ...

    def alive(self) -> set[BrokerId]: ...

    def arm(
        self,
        broker: BrokerId,
        point: CrashPoint | None,
        victims: Iterable[BrokerId],
        *,
        from_election: bool = False,
    ) -> None:
        """Kill the victims when `broker` reaches the point."""
        ...

    def labels(self, broker: BrokerId) -> list[tuple[Kind, str]]:
        """The writes and requests it sent since it was armed."""
        ...

    def dead(self, among: Iterable[BrokerId]) -> list[BrokerId]: ...

    def wait_for_death(self, victims: Iterable[BrokerId]) -> None: ...

    def kill(self, victims: Iterable[BrokerId]) -> None: ...

    def shut_down(self, brokers: Iterable[BrokerId]) -> None:
        """Stop the brokers cleanly, one after the other, each with a controlled shutdown."""
        ...

    def restart(self, brokers: Iterable[BrokerId]) -> None: ...

    def traces(self) -> list[Path]: ...

    def log(self) -> str:
        """The log lines of all brokers since their first start."""
        ...


# ---- in this process


class EmbeddedBrokers:
    registry_name = "embedded"

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        self.lines = LineHandler()
        self.cluster = TrappedCluster(
            data,
            brokers=BROKERS,
            settings={
                **SETTINGS,
                "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
                **(settings or {}),
            },
            registry_in_memory=True,
        )

    def start(self) -> None:
        logging.getLogger("barnabas").addHandler(self.lines)
        self.cluster.start()

    def stop(self) -> None:
        try:
            self.cluster.stop(clean=False)
        finally:
            self.cluster.close()
            logging.getLogger("barnabas").removeHandler(self.lines)

    def ports(self) -> Mapping[int, BrokerId]:
        return {each.endpoint.port: each.id for each in self.cluster.brokers.values()}

    def address(self, broker: BrokerId) -> tuple[str, int]:
        endpoint = self.cluster.brokers[broker].endpoint
        return endpoint.host, endpoint.port

    def log_dir(self, broker: BrokerId) -> Path:
        return self.data / f"broker-{broker}"

    def observer_registry(self) -> Registry:
        registry, _ = self.cluster.open_registry()
        return registry

    def alive(self) -> set[BrokerId]:
        return {each.id for each in self.cluster.brokers.values() if each.is_running}

    def arm(
        self,
        broker: BrokerId,
        point: CrashPoint | None,
        victims: Iterable[BrokerId],
        *,
        from_election: bool = False,
    ) -> None:
        armed = self.cluster.trapped[broker]
        doomed = [self.cluster.trapped[each] for each in victims]

        def strike() -> bool:
            for each in doomed:
                if each is not armed:
                    each.kill(expire=False)
            if armed in doomed:
                armed.die_here()
            return armed in doomed

        armed.trap.set(point, strike, from_election=from_election)

    def labels(self, broker: BrokerId) -> list[tuple[Kind, str]]:
        return list(self.cluster.trapped[broker].trap.labels)

    def dead(self, among: Iterable[BrokerId]) -> list[BrokerId]:
        return [each for each in among if not self.cluster.brokers[each].is_running]

    def wait_for_death(self, victims: Iterable[BrokerId]) -> None:
        for each in victims:
            self.cluster.trapped[each].wait_for_death()

    def kill(self, victims: Iterable[BrokerId]) -> None:
        for each in victims:
            self.cluster.brokers[each].kill(expire=False)

    def shut_down(self, brokers: Iterable[BrokerId]) -> None:
        for each in brokers:
            self.cluster.brokers[each].stop()

    def restart(self, brokers: Iterable[BrokerId]) -> None:
        self.cluster.start_brokers([self.cluster.brokers[each] for each in brokers])

    def traces(self) -> list[Path]:
        return sorted(self.data.glob("*.trace"))

    def log(self) -> str:
        return "\n".join(self.lines.text)


class TrappedCluster(InProcessCluster):
    def __init__(
        self, data: Path, *, brokers: int, settings: Mapping[str, str], registry_in_memory: bool
    ) -> None:
        super().__init__(
            data, brokers=brokers, settings=settings, registry_in_memory=registry_in_memory
        )
        self.executioner = ThreadPoolExecutor(1)
        self.trapped = {
            number: TrappedBroker(self, broker.config) for number, broker in self.brokers.items()
        }
        self.brokers = dict(self.trapped)

    def close(self) -> None:
        self.executioner.shutdown()


class TrappedBroker(ClusterBroker):
    def __init__(self, cluster: TrappedCluster, config: BrokerConfig) -> None:
        super().__init__(cluster, config)
        self.executioner = cluster.executioner
        self.trap = Trap()
        self.trace_path = cluster.data / f"broker-{config.broker_id}.trace"
        self.dying: Future[None] | None = None

    def begin_start(self) -> Future[None]:
        with self.lock:
            assert self.instance is None
            self.trap.set(None, lambda: False)
            registry, _ = self.cluster.open_registry()
            life = self.instance = TrappedLife(registry, self.config, self.trap, self.trace_path)
            return life.thread.submit(self.start_instance(life))

    def die_here(self) -> None:
        """Stop the broker on its own thread at the current point. Nothing it does afterwards has an effect; its
        resources are released from outside."""
        life = self.instance
        assert life is not None
        registry, keeper = self.cluster.open_registry()
        life.registry.is_closed = True
        for session in life.registry.sessions:
            keeper.call(partial(registry.abandon, session))
        life.disconnect()
        self.dying = self.executioner.submit(self.kill, expire=False)

    def wait_for_death(self) -> None:
        # Its sockets close before the kill is handed over to the other thread.
        eventually(lambda: not self.is_running, lambda: f"broker {self.id} is killed", DEADLINE_S)
        with self.lock:
            dying, self.dying = self.dying, None
        if dying is not None:
            dying.result(DEADLINE_S)


class TrappedLife(BrokerInstance):
    def __init__(
        self, registry: EmbeddedRegistry, config: BrokerConfig, trap: Trap, trace: Path
    ) -> None:
        super().__init__(registry, config, brokers=BROKERS, ends_process=False)
        self.trace = Trace(trace)
        trapped = replace(
            self.world,
            registry=TrappedRegistry(self.registry, trap),
            network=TrappedNetwork(self.network, trap, self.trace),
        )
        self.broker = BrokerServer(config, trapped)

    def end(self) -> None:
        super().end()
        self.trace.close()


class LineHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(f"{record.levelname} {record.name} {record.getMessage()}")
