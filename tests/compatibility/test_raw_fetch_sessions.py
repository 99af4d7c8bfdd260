"""Incremental fetch sessions: create, continue, change, lose and close them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import FetchResponse
from tests.compatibility.raw import Raw, batch_of, fetch_request, partitions_of, values_in

NewTopic = Callable[..., str]

BY_NAME, BY_ID = 12, 13


class Session:
    """The client's half of a session; it counts epochs like clients do."""

    def __init__(self, raw: Raw, topic: str, version: int) -> None:
        self.raw = raw
        self.topic = topic
        self.version = version
        self.topic_id: UUID = raw.topic_id(topic) if version >= BY_ID else ZERO_ID
        self.id = 0
        self.epoch = 0

    def fetch(self, offsets: dict[int, int] | None = None, **options: Any) -> FetchResponse:
        request = fetch_request(
            "" if self.version >= BY_ID else self.topic,
            offsets or {},
            topic_id=self.topic_id,
            **{"session_id": self.id, "session_epoch": self.epoch, **options},
        )
        answer = self.raw.ask(request, FetchResponse, self.version)
        if answer.error_code == ErrorCode.NONE:
            self.id = answer.session_id
            self.epoch += 1
        return answer

    def news(self, offsets: dict[int, int] | None = None, **options: Any) -> dict[int, Any]:
        """The received values per partition, for every partition in the response."""
        answer = self.fetch(offsets, **options)
        assert answer.error_code == ErrorCode.NONE
        return {index: values_in(found) for index, found in partitions_of(answer).items()}


@pytest.fixture(params=[7, BY_NAME, BY_ID, 17])
def session(raw: Raw, new_topic: NewTopic, request: pytest.FixtureRequest) -> Session:
    return Session(raw, new_topic(partitions=3), request.param)


def test_first_response_is_full_and_later_ones_incremental(raw: Raw, session: Session) -> None:
    assert session.news({0: 0, 1: 0, 2: 0}) == {0: [], 1: [], 2: []}
    assert session.id > 0
    assert session.news() == {}
    raw.produce(session.topic, batch_of(b"a"), partition=1)
    assert session.news() == {1: [b"a"]}
    # The client did not advance its offset, so the same batch is returned.
    assert session.news() == {1: [b"a"]}
    assert session.news({1: 1}) == {}
    raw.produce(session.topic, batch_of(b"b"), partition=1)
    raw.produce(session.topic, batch_of(b"c"), partition=2)
    assert session.news() == {1: [b"b"], 2: [b"c"]}


def test_first_response_is_full_after_waiting(raw: Raw, servers: str, session: Session) -> None:
    """kafka-python and Java clients discard a first response that omits a partition."""
    assert session.news({0: 0, 1: 0, 2: 0}, max_wait_ms=200, min_bytes=1) == {0: [], 1: [], 2: []}
    assert session.news(max_wait_ms=200, min_bytes=1) == {}
    with Raw(servers) as other:
        again = Session(other, session.topic, session.version)
        begun = other.begin(
            fetch_request(
                "" if again.version >= BY_ID else again.topic,
                {0: 0, 1: 0, 2: 0},
                topic_id=again.topic_id,
                session_epoch=0,
                max_wait_ms=20_000,
                min_bytes=1,
            ),
            again.version,
        )
        raw.produce(session.topic, batch_of(b"a"), partition=1)
        answer = other.answer(FetchResponse, *begun)
        found = {index: values_in(data) for index, data in partitions_of(answer).items()}
        assert found == {0: [], 1: [b"a"], 2: []}


def test_new_log_start_offset_is_reported_after_waiting(raw: Raw, session: Session) -> None:
    raw.produce(session.topic, batch_of(b"a"))
    assert session.news({0: 1, 1: 0, 2: 0}) == {0: [], 1: [], 2: []}
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(session.topic, (DeleteRecordsPartition(0, 1),)),),
        timeout_ms=1000,
    )
    raw.ask(request, DeleteRecordsResponse)
    answer = session.fetch(max_wait_ms=200, min_bytes=1)
    assert {i: data.log_start_offset for i, data in partitions_of(answer).items()} == {0: 1}
    assert session.news() == {}


def test_session_fetch_waits_for_new_data(raw: Raw, servers: str, session: Session) -> None:
    session.news({0: 0, 1: 0, 2: 0})
    with Raw(servers) as other:
        begun = session.raw.begin(
            fetch_request(
                "", {}, session_id=session.id, session_epoch=session.epoch, max_wait_ms=15_000
            ),
            session.version,
        )
        other.produce(session.topic, batch_of(b"late"), partition=2)
        answer = raw.answer(FetchResponse, *begun)
    assert {index: values_in(found) for index, found in partitions_of(answer).items()} == {
        2: [b"late"]
    }


def test_forgotten_partition_is_not_returned(raw: Raw, session: Session) -> None:
    session.news({0: 0, 1: 0})
    assert session.news(forget=[0]) == {}
    for partition in (0, 1, 2):
        raw.produce(session.topic, batch_of(b"x"), partition=partition)
    assert session.news() == {1: [b"x"]}


def test_partition_can_be_added_later(raw: Raw, session: Session) -> None:
    raw.produce(session.topic, batch_of(b"x"), partition=2)
    session.news({0: 0})
    assert session.news({2: 0}) == {2: [b"x"]}


def test_wrong_epoch_or_unknown_session_is_rejected(session: Session) -> None:
    session.news({0: 0})
    wrong = session.fetch(session_epoch=5)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (wrong.session_id, wrong.responses) == (0, ())
    unknown = session.fetch(session_id=session.id ^ 1)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Neither error affected the session.
    assert session.news() == {}


def test_closed_session_is_not_found(raw: Raw, session: Session) -> None:
    session.news({0: 0})
    raw.produce(session.topic, batch_of(b"x"))
    closed = session.id
    answer = session.fetch({0: 0}, session_epoch=-1)
    assert answer.session_id == 0
    assert values_in(partitions_of(answer)[0]) == [b"x"]
    again = session.fetch(session_id=closed, session_epoch=1)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_new_session_replaces_named_session(session: Session) -> None:
    session.news({0: 0})
    first = session.id
    session.epoch = 0
    session.news({1: 0})
    assert session.id not in (0, first)
    answer = session.fetch(session_id=first, session_epoch=1)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_empty_session_is_closed(session: Session) -> None:
    session.news({0: 0})
    answer = session.fetch(forget=[0])
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)


def test_partition_over_max_bytes_comes_in_next_response(raw: Raw, session: Session) -> None:
    for partition in (0, 1, 2):
        raw.produce(session.topic, batch_of(b"x" * 1000), partition=partition)
    limits = {"max_bytes": 2500}
    offsets = {0: 0, 1: 0, 2: 0}
    first = session.news(offsets, **limits)
    came = [index for index, found in first.items() if found]
    assert came == [0, 1]
    assert session.news(dict.fromkeys(came, 1), **limits) == {2: [b"x" * 1000]}


def test_errors_are_repeated_until_resolved(raw: Raw, session: Session) -> None:
    session.news({0: 7})
    answer = session.fetch()
    assert partitions_of(answer)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.news({0: 0}) == {0: []}


def test_topic_ids_and_names_cannot_mix_in_session(raw: Raw, topic: str) -> None:
    session = Session(raw, topic, BY_NAME)
    session.news({0: 0})
    session.version = BY_ID
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_without_session_slots_every_fetch_is_full() -> None:
    from barnabas import LocalCluster

    with (
        LocalCluster(settings={"max.incremental.fetch.session.cache.slots": "0"}) as cluster,
        Raw(cluster.bootstrap_servers) as raw,
    ):
        raw.create_topic("orders")
        session = Session(raw, "orders", BY_NAME)
        assert session.news({0: 0}) == {0: []}
        assert session.id == 0
