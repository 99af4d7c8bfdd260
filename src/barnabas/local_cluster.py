"""A cluster for tests and notebooks: real brokers on a thread of this process, gone when you are done.

    with LocalCluster() as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

Without `data` everything lies in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.cluster import Cluster


class LocalCluster:
    """Starts on construction of the context (or `start()`), stops at its end (or `stop()`)."""

    def __init__(
        self,
        brokers: int = 1,
        data: str | Path | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.is_temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="barnabas-") if data is None else data).absolute()
        self.brokers = brokers
        self.port = port
        self.settings = {name: written(value) for name, value in (settings or {}).items()}
        try:
            self.cluster = self.build()  # so that a wrong setting is told here and now
        except BaseException:
            self.remove_if_temporary()
            raise
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.stopping: asyncio.Event | None = None

    def build(self) -> Cluster:
        return Cluster(
            self.data,
            brokers=self.brokers,
            port=self.port,
            settings=self.settings,
            registry_in_memory=self.is_temporary,
        )

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any Kafka client."""
        if self.thread is None:
            raise RuntimeError("the cluster is not running: use it in a `with`, or call start()")
        return self.cluster.bootstrap_servers

    def start(self) -> Self:
        """Returns when clients can connect; raises what kept the brokers from starting. Fine to call twice."""
        if self.thread is not None:
            return self
        if self.loop is not None:
            self.cluster = self.build()  # it ran before
        started = threading.Event()
        failure: list[BaseException] = []

        async def live() -> None:
            self.loop = asyncio.get_running_loop()
            self.stopping = asyncio.Event()
            try:
                await self.cluster.start()
            except BaseException as error:  # noqa: BLE001 - told to whoever called start()
                failure.append(error)
                return
            finally:
                started.set()
            await self.stopping.wait()
            await self.cluster.stop()

        self.thread = threading.Thread(
            target=lambda: asyncio.run(live()), name="barnabas-cluster", daemon=True
        )
        self.thread.start()
        started.wait()
        if failure:
            self.thread.join()
            self.thread = None
            self.remove_if_temporary()
            raise failure[0]
        return self

    def stop(self) -> None:
        """Shut the brokers down cleanly; fine to call twice."""
        thread, self.thread = self.thread, None
        if thread is None:
            return
        assert self.loop is not None
        assert self.stopping is not None
        self.loop.call_soon_threadsafe(self.stopping.set)
        thread.join()
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
