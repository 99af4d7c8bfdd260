"""Interface of a broker in a cluster, Kafka's or ours: started together, stopped or killed individually."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.process import Startable, require_running, wait_for
from tests.compatibility.raw import Raw


class Member(Protocol):
    broker_id: int
    port: int
    settings: dict[str, str]

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def log_dir(self) -> Path: ...

    @property
    def running(self) -> Startable: ...

    def launch(self) -> None:
        """Start without waiting, so that several brokers start in parallel."""
        ...

    def bound_port(self) -> int | None:
        """None until it listens."""
        ...

    def stop(self) -> int:
        """Shut down cleanly, so that all data is on disk; returns the exit code."""
        ...

    def kill(self) -> None: ...


def knows(bootstrap_servers: str, broker_ids: set[int]) -> bool:
    """Whether a broker's metadata lists all of them and a controller."""
    try:
        with Raw(bootstrap_servers) as raw:
            answer = raw.ask(MetadataRequest(topics=()), MetadataResponse, version=9)
    except OSError:
        return False
    seen = {broker.node_id for broker in answer.brokers}
    return seen == broker_ids and answer.controller_id in seen


def start_together(brokers: Sequence[Member], already: Sequence[Member] = ()) -> None:
    """Start all missing brokers of a cluster. Afterwards all are ready and know each other, or all are killed."""
    ids = {broker.broker_id for broker in (*brokers, *already)}

    def all_know_all() -> bool | None:
        for broker in brokers:
            require_running(broker.running)
        return all(knows(one.bootstrap_servers, ids) for one in (*brokers, *already)) or None

    try:
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.port = wait_for(broker.running, broker.bound_port)
        wait_for(brokers[0].running, all_know_all)
    except BaseException:
        for broker in brokers:
            broker.kill()
        raise
