"""What a client sees of one broker, asked over a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from barnabas.client.view import TopicView, view_of
from barnabas.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.raw_connection import RawConnection, frame

Address = tuple[str, int]

CREATE_VERSION = 5
METADATA_VERSION = 12
LOST = "lost"
CREATE_TIMEOUT_MS = 10_000


def eventually(condition: Callable[[], bool], what: Callable[[], str], seconds: float) -> None:
    """Looks often: the waiting is measured."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what()}"
        time.sleep(0.005)


def create(address: Address, name: str, assignment: Sequence[Iterable[int]]) -> str:
    """The name of the error code, or LOST if the connection did not live to see an answer."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreatableReplicaAssignment(index, tuple(brokers))
            for index, brokers in enumerate(assignment)
        ),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=CREATE_TIMEOUT_MS)
    try:
        with RawConnection(address) as connection:
            connection.send(frame(request, CREATE_VERSION))
            response = connection.answer(CreateTopicsResponse, CREATE_VERSION)
    except OSError:
        return LOST
    return ErrorCode(response.topics[0].error_code).name


def topics_of(address: Address, names: Iterable[str] | None = None) -> dict[str, TopicView]:
    """The topics this broker can describe; none if it does not answer."""
    request = MetadataRequest(
        topics=None if names is None else tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=False,
    )
    try:
        with RawConnection(address, timeout=5.0) as connection:
            connection.send(frame(request, METADATA_VERSION))
            response = connection.answer(MetadataResponse, METADATA_VERSION)
    except OSError:
        return {}
    return dict(view_of(response).topics)
