"""A broker as one of several, Kafka's or ours: started beside the others, stopped or killed alone."""

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
        """Starts it and does not wait: several brokers start side by side."""
        ...

    def bound_port(self) -> int | None:
        """None until it listens."""
        ...

    def stop(self) -> int:
        """Cleanly, as an administrator does: what it wrote is on disk afterwards. Its exit code."""
        ...

    def kill(self) -> None: ...


def knows(bootstrap_servers: str, broker_ids: set[int]) -> bool:
    """Whether a broker's metadata names all of them, and a controller."""
    try:
        with Raw(bootstrap_servers) as raw:
            answer = raw.ask(MetadataRequest(topics=()), MetadataResponse, version=9)
    except OSError:
        return False
    seen = {broker.node_id for broker in answer.brokers}
    return seen == broker_ids and answer.controller_id in seen


def start_together(brokers: Sequence[Member], already: Sequence[Member] = ()) -> None:
    """All of a cluster, or all that are missing in it: each is up and knows the others afterwards, or none is left."""
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
