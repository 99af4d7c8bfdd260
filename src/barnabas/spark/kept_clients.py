"""Clients that a Python worker keeps for its next task, with their connections, metadata and producer ids.

Workers outlive their tasks, and a stream has several tasks per micro-batch. Without kept clients, each task would
connect and log in, and would get a new producer id, which brokers remember for a day.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.spark.lookup import connect

T = TypeVar("T")


class KeptClients(Generic[T]):
    """Clients that no task uses now, by process and settings. A fork must not share the sockets of its parent."""

    def __init__(self, close: Callable[[T], None]) -> None:
        self.close = close
        self.idle: dict[Hashable, list[T]] = {}

    @contextmanager
    def borrow(
        self, settings: Mapping[str, str], create: Callable[[], T]
    ) -> Generator[T, None, None]:
        """Yield a client that no other task uses. It is kept afterwards, unless the task fails."""
        idle = self.idle.setdefault((os.getpid(), frozenset(settings.items())), [])
        client = idle.pop() if idle else create()
        try:
            yield client
        except GeneratorExit:  # Spark needs no more rows of a read task
            idle.append(client)
            raise
        except BaseException:
            self.close(client)
            raise
        idle.append(client)

    def close_idle(self) -> None:
        for idle in self.idle.values():
            while idle:
                self.close(idle.pop())


kept_clusters = KeptClients[Cluster](Cluster.close)
kept_producers = KeptClients[Producer](lambda producer: producer.cluster.close())


def borrow_cluster(settings: Mapping[str, str]) -> AbstractContextManager[Cluster]:
    return kept_clusters.borrow(settings, lambda: connect(settings))
