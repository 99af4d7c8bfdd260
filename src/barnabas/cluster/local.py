"""A cluster for tests and notebooks: real brokers on threads of this process.

    with LocalCluster(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        cluster.controller.kill()

Without `data`, the cluster uses a temporary directory, from `start()` to `stop()`.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Self
from uuid import uuid4

from barnabas.client.blocking import Deadline, pause
from barnabas.cluster.in_process import ClusterBroker, InProcessCluster
from barnabas.errors import RegistryError
from barnabas.retry import Backoff

DEFAULTS = {"barnabas.history.topic.enable": "false"}
"""No history topic, because a test that lists topics expects only its own. Each broker still writes history files."""

ELECTION_TIMEOUT_S = 30.0
ELECTION_BACKOFF_S = (0.002, 0.05)


class LocalCluster:
    """A cluster in this process. Use it in a `with` statement, or call `start()` and `stop()`. Thread-safe."""

    def __init__(
        self,
        brokers: int = 1,
        data: str | Path | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """The brokers listen on `port` and the ports after it; 0 lets the system choose each port. `settings` apply to
        all brokers; their names are those of server.properties."""
        self.is_temporary = data is None
        self.data = temporary_path() if data is None else Path(data).absolute()
        self.lock = threading.RLock()
        self.cluster = InProcessCluster(
            self.data,
            brokers=brokers,
            port=port,
            settings={
                **DEFAULTS,
                **{name: property_value(value) for name, value in (settings or {}).items()},
            },
            registry_in_memory=self.is_temporary,
        )

    def __repr__(self) -> str:
        if not self.cluster.is_running:
            return f"<LocalCluster of {len(self.brokers)}, not running, data in {self.data}>"
        return f"<LocalCluster {list(self.brokers.values())}, data in {self.data}>"

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, for any Kafka client."""
        self.cluster.open_registry()
        return self.cluster.bootstrap_servers

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """The brokers by id, from 1. Each has `kill()`, `stop()`, `start()`, `pause()` and `resume()`."""
        return self.cluster.brokers

    @property
    def controller_id(self) -> int | None:
        """The id of the active controller; None between the loss of a controller and the next election."""
        self.cluster.open_registry()
        return self.cluster.controller_id

    @property
    def controller(self) -> ClusterBroker:
        """The broker that is the active controller. Waits for the election of one.

        Raises RegistryError if no broker is elected within ELECTION_TIMEOUT_S, or if none is running.
        """
        deadline = Deadline(ELECTION_TIMEOUT_S)
        backoff = Backoff(*ELECTION_BACKOFF_S, random=Random())
        while True:
            broker = self.brokers.get(self.controller_id or 0)
            if broker is not None and broker.is_running:
                return broker
            if not any(each.is_running for each in self.brokers.values()):
                raise RegistryError(
                    "", "no broker is running, so there is no controller: start one"
                )
            if deadline.passed:
                raise RegistryError("", f"no controller within {ELECTION_TIMEOUT_S:g} s")
            pause(backoff.next_s())

    def start(self) -> Self:
        """Start the brokers. Returns when the metadata of each shows all brokers and a controller. Idempotent."""
        with self.lock:
            if not self.cluster.is_running:
                self.create_if_temporary()
                try:
                    self.cluster.start()
                except BaseException:
                    self.remove_if_temporary()
                    raise
            return self

    def stop(self) -> None:
        """Shut the brokers down cleanly. Idempotent."""
        with self.lock:
            if self.cluster.is_running:
                try:
                    self.cluster.stop()
                finally:
                    self.remove_if_temporary()

    def create_if_temporary(self) -> None:
        """Create the temporary directory. It is also removed if the program exits without `stop()`."""
        if self.is_temporary:
            self.data.mkdir(mode=0o700)
            atexit.register(self.remove_if_temporary)

    def remove_if_temporary(self) -> None:
        if self.is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)
            atexit.unregister(self.remove_if_temporary)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def property_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def temporary_path() -> Path:
    """Return the path of a temporary directory that does not exist yet."""
    return Path(tempfile.gettempdir(), f"barnabas-{uuid4().hex}").absolute()
