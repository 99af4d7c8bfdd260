"""A cluster for tests and notebooks: real brokers on threads of this process, gone when you are done.

    with LocalCluster(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        cluster.brokers[cluster.controller_id].kill()

Without `data` everything lies in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.cluster import Cluster, ClusterBroker

DEFAULTS = {"barnabas.history.topic.enable": "false"}
"""A test that lists topics expects its own. The history is in the brokers' files all the same."""


class LocalCluster:
    """Starts on construction of the context (or `start()`), stops at its end (or `stop()`). May be used from several
    threads."""

    def __init__(
        self,
        brokers: int = 1,
        data: str | Path | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """The brokers listen on `port` and those that follow it; 0 lets the system choose each. `settings` are those
        of a server.properties file, and hold for all of them."""
        self.is_temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="barnabas-") if data is None else data).absolute()
        self.lock = threading.RLock()
        try:
            self.cluster = Cluster(
                self.data,
                brokers=brokers,
                port=port,
                settings={
                    **DEFAULTS,
                    **{name: written(value) for name, value in (settings or {}).items()},
                },
                registry_in_memory=self.is_temporary,
            )
        except BaseException:
            self.remove_if_temporary()
            raise

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
        """By id, from 1: each has `kill()`, `stop()`, `start()`, `pause()` and `resume()`."""
        return self.cluster.brokers

    @property
    def controller_id(self) -> int | None:
        """The broker that is controller now; None for a moment after the last one died."""
        self.cluster.open_registry()
        return self.cluster.controller_id

    def start(self) -> Self:
        """Returns when every broker's metadata shows all brokers and a controller; raises what kept them from
        starting. Fine to call twice."""
        with self.lock:
            if not self.cluster.is_running:
                try:
                    self.cluster.start()
                except BaseException:
                    self.remove_if_temporary()
                    raise
            return self

    def stop(self) -> None:
        """Shut the brokers down cleanly; fine to call twice."""
        with self.lock:
            if self.cluster.is_running:
                try:
                    self.cluster.stop()
                finally:
                    self.remove_if_temporary()

    def remove_if_temporary(self) -> None:
        if self.is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def written(value: object) -> str:
    """A setting as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
