"""Decisions of the exactly-once sink."""

from __future__ import annotations

import pytest

from barnabas.errors import BarnabasError, ErrorCode
from barnabas.spark.commit_records import (
    BatchOutcome,
    CommitDecision,
    CommitRecord,
    LostTransactions,
    SinkKind,
    TaskTransaction,
    TransactionalIds,
    TransactionOutcome,
    TransactionStatus,
    batch_outcome,
    commit_retry_s,
    decide_commit,
    decode_record,
    encode_record,
    find_unready,
    is_other_topic,
    outcome_of,
    task_id_prefix,
    unrecorded,
)

FIRST = TaskTransaction(f"{task_id_prefix('query')}p-0", 7, 3)
SECOND = TaskTransaction(f"{task_id_prefix('query')}p-1", 8, 0)
RECORD = CommitRecord(
    batch_id=5, run_id="run", topic="orders", transactions=(FIRST,), abandoned=(SECOND,)
)


def test_record_survives_encoding() -> None:
    assert decode_record("query", encode_record("query", RECORD)) == RECORD


def test_record_of_older_version_has_no_topic() -> None:
    data = b'{"version":1,"batch":5,"run":"run","transactions":[],"abandoned":[]}'
    assert decode_record("query", data) == CommitRecord(batch_id=5, run_id="run", transactions=())


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":2}', b"[1]", b"\xff"])
def test_invalid_record_is_an_error(data: bytes) -> None:
    with pytest.raises(BarnabasError, match="the record of query in __barnabas_spark_commits is"):
        decode_record("query", data)


@pytest.mark.parametrize(
    ("batch_id", "decision"),
    [
        (6, CommitDecision.RECORD),
        (5, CommitDecision.RESUME),
        (4, CommitDecision.SKIP),
    ],
)
def test_recorded_batch_is_never_decided_again(batch_id: int, decision: CommitDecision) -> None:
    assert decide_commit(RECORD, batch_id, SinkKind.JOB) is decision
    assert decide_commit(None, batch_id, SinkKind.JOB) is CommitDecision.RECORD


def test_older_batch_of_a_stream_is_rejected() -> None:
    assert decide_commit(RECORD, 4, SinkKind.STREAM) is CommitDecision.REJECT
    assert decide_commit(RECORD, 5, SinkKind.STREAM) is CommitDecision.RESUME


def test_topic_may_change_only_for_a_new_batch() -> None:
    assert not is_other_topic(RECORD, 6, "payments")
    assert is_other_topic(RECORD, 5, "payments")
    assert is_other_topic(RECORD, 4, "payments")
    assert not is_other_topic(RECORD, 5, "orders")
    assert not is_other_topic(RECORD, 5, None)


def test_only_unrecorded_transactions_are_aborted() -> None:
    newer = TaskTransaction(FIRST.transactional_id, FIRST.producer_id, FIRST.producer_epoch + 1)
    assert unrecorded([FIRST, newer, SECOND], RECORD) == (newer, SECOND)
    assert unrecorded([FIRST], None) == (FIRST,)


def test_scope_is_never_prefix_of_another_one() -> None:
    assert not task_id_prefix("orders-2").startswith(task_id_prefix("orders"))


def test_id_is_used_again_after_one_batch_at_the_earliest() -> None:
    ids = TransactionalIds("process")
    first, second = ids.take("query", 1), ids.take("query", 1)
    assert first != second
    # Another driver may still ask for the outcome of batch 1.
    third = ids.take("query", 2)
    assert third not in (first, second)
    assert {ids.take("query", 3), ids.take("query", 3)} == {first, second}
    assert ids.take("query", 3) not in (first, second, third)
    assert ids.take("query", 4) == third
    # A batch that runs again must not end the transactions of its first run.
    assert ids.take("query", 1) not in (first, second)
    assert ids.take("other", 3) not in (first, second)


OPEN = TransactionStatus("Ongoing", FIRST.producer_id, FIRST.producer_epoch, 1000)


@pytest.mark.parametrize(
    ("status", "now_ms", "why"),
    [
        (OPEN, 1000 + 600, None),
        (OPEN, 1000 + 700, "is 700 ms old, of 900 ms"),
        (None, 1000, "has ended (state unknown)"),
        (TransactionStatus("CompleteAbort", 7, 3, 1000), 1000, "has ended (state CompleteAbort)"),
        (TransactionStatus("Ongoing", 7, 4, 1000), 1000, "has ended"),
    ],
)
def test_transactions_are_checked_before_the_decision(
    status: TransactionStatus | None, now_ms: int, why: str | None
) -> None:
    found = {} if status is None else {FIRST.transactional_id: status}
    reason = find_unready([FIRST], None, found, timeout_ms=900, now_ms=now_ms)
    assert reason is None if why is None else reason is not None and why in reason


def test_decided_batch_has_the_rest_of_the_timeout() -> None:
    assert commit_retry_s(900_000) == pytest.approx(300)


def test_transaction_that_another_driver_aborts_is_not_committed() -> None:
    found = {SECOND.transactional_id: TransactionStatus("Ongoing", 8, 0, 1000)}
    reason = find_unready([SECOND], RECORD, found, timeout_ms=900, now_ms=1000)
    assert reason is not None
    assert "another driver" in reason


def test_outcome_of_a_batch() -> None:
    done, gone, unknown = (
        outcome_of(ErrorCode.NONE),
        outcome_of(ErrorCode.PRODUCER_FENCED),
        outcome_of(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    )
    assert [done, gone, unknown] == list(TransactionOutcome)
    assert batch_outcome([]) is BatchOutcome.DONE
    assert batch_outcome([done, done]) is BatchOutcome.DONE
    assert batch_outcome([gone, gone]) is BatchOutcome.NOTHING_WRITTEN
    assert batch_outcome([done, gone]) is BatchOutcome.PARTLY_WRITTEN
    # An expired id may have been committed, so the batch must not be written again.
    assert batch_outcome([unknown, gone]) is BatchOutcome.PARTLY_WRITTEN


def test_lost_transactions_are_explained() -> None:
    message = str(LostTransactions(5, ["x"], 3))
    assert "batch 5 is written in part: 1 of 3 transactions were aborted" in message
    assert "onLostTransactions" in message


def test_expired_ids_are_not_reported_as_aborted() -> None:
    message = str(LostTransactions(5, [], 3, ["x", "y"]))
    assert "batch 5 may be written: the outcome of 2 of 3 transactions is unknown" in message
    assert "0 were aborted" in message
    assert "skip if they are there" in message
