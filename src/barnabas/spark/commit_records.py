"""Decisions of the exactly-once sink: which transactions of a batch are committed. Pure.

    batch 7 ran, and no record has batch 7 or a later one     RECORD   record its transactions, then commit them
    the record has batch 7                                    RESUME   commit the recorded ones, abort the new ones
    the record has a later batch: a job                       SKIP     abort the new ones
                                  a stream                    REJECT   the same, and fail: its checkpoint is outdated

The driver writes the record of a batch to COMMIT_TOPIC before it commits the first transaction. From then on the batch
is decided, whatever happens to the driver. docs/spark.md has the protocol and the proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from barnabas.errors import BarnabasError, ErrorCode

COMMIT_TOPIC = "__barnabas_spark_commits"
"""Compacted topic with the last record of each sink. Its key is the scope of the sink."""
ID_PREFIX = "barnabas-spark"
ID_SEPARATOR = "/"
"""Not allowed in a scope, so no scope is a prefix of another one."""
TIMEOUT_SHARE_MAX = 2 / 3
"""A batch must be decided in this share of the transaction timeout. The rest is for a restart of the driver."""
RECORD_VERSION = 1
OPEN_STATE = "Ongoing"


class SinkKind(Enum):
    STREAM = auto()
    """Its scope is the id of the query, which is in the checkpoint."""
    JOB = auto()
    """A batch job with a transactionalId, which is its scope."""
    ANONYMOUS_JOB = auto()
    """A batch job without one. Its scope is random, so no other driver has it."""


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """A transaction of a task. Each transaction of a transactional id has an epoch of its own."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The last batch of a sink that was decided, and the run of the query that wrote the record."""

    batch_id: int
    run_id: str
    topic: str | None = None
    """None if the rows have a column for it, or if an older version wrote the record."""
    transactions: tuple[TaskTransaction, ...]
    """To be committed."""
    abandoned: tuple[TaskTransaction, ...] = ()
    """To be aborted: open transactions of other attempts and runs. They are in the record so that no later driver
    commits them."""


class LostTransactions(BarnabasError):
    """A decided batch cannot be committed completely, because some transactions timed out before that, or because
    their outcome is unknown."""

    def __init__(
        self, batch_id: int, lost: Sequence[str], total: int, unknown: Sequence[str] = ()
    ) -> None:
        super().__init__(batch_id, lost, total, unknown)
        self.batch_id = batch_id
        self.lost = lost
        self.total = total
        self.unknown = unknown

    def __str__(self) -> str:
        if self.unknown:
            return (
                f"batch {self.batch_id} may be written: the outcome of {len(self.unknown)} of {self.total} transactions"
                f" is unknown, because the brokers have deleted their ids (transactional.id.expiration.ms); first"
                f" {self.unknown[0]}. {len(self.lost)} were aborted. Look for the rows of the batch in the topic. Then"
                " set the option onLostTransactions for one run: skip if they are there, repeat if they are missing"
            )
        return (
            f"batch {self.batch_id} is written in part: {len(self.lost)} of {self.total} transactions were aborted"
            f" after their timeout, before the driver could commit them; first {self.lost[0]}."
            " Set the option onLostTransactions for one run: repeat writes the whole batch again (some rows twice),"
            " skip continues without the lost rows"
        )


# ---- transactional ids


def commit_log_id(scope: str) -> str:
    """Return the transactional id with which the driver writes records. It fences other drivers of this sink."""
    return f"{ID_PREFIX}{ID_SEPARATOR}{scope}"


def task_id_prefix(scope: str) -> str:
    return f"{ID_PREFIX}{ID_SEPARATOR}{scope}{ID_SEPARATOR}"


class TransactionalIds:
    """The transactional ids of one process. No other process uses them, so none of its tasks can be fenced by another.

    An id of batch N is used again for batch N + 2 at the earliest. The log has a record of batch N + 1 by then, unless
    that had no task. So a second driver that repeats batch N does not ask for the outcome of a transaction whose epoch
    is outdated.
    """

    def __init__(self, process_name: str) -> None:
        self.process_name = process_name
        self.last_batches: dict[str, dict[str, int]] = {}
        """Scope → transactional id → the last batch for which it was used."""

    def take(self, scope: str, batch_id: int) -> str:
        used = self.last_batches.setdefault(scope, {})
        for transactional_id, last in used.items():
            if last < batch_id - 1:
                used[transactional_id] = batch_id
                return transactional_id
        fresh = f"{task_id_prefix(scope)}{self.process_name}-{len(used)}"
        used[fresh] = batch_id
        return fresh


# ---- records


def encode_record(scope: str, record: CommitRecord) -> bytes:
    prefix = task_id_prefix(scope)

    def listed(transactions: Iterable[TaskTransaction]) -> list[list[str | int]]:
        return [
            [each.transactional_id.removeprefix(prefix), each.producer_id, each.producer_epoch]
            for each in transactions
        ]

    content = {
        "version": RECORD_VERSION,
        "batch": record.batch_id,
        "run": record.run_id,
        "topic": record.topic,
        "transactions": listed(record.transactions),
        "abandoned": listed(record.abandoned),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_record(scope: str, data: bytes) -> CommitRecord:
    """Raises BarnabasError for anything else than a record: guessing could write a batch twice."""
    prefix = task_id_prefix(scope)

    def parse(listed: Iterable[Sequence[Any]]) -> tuple[TaskTransaction, ...]:
        return tuple(
            TaskTransaction(prefix + name, int(producer_id), int(epoch))
            for name, producer_id, epoch in listed
        )

    try:
        content = json.loads(data)
        if content["version"] != RECORD_VERSION:
            raise ValueError(f"version {content['version']}")
        return CommitRecord(
            batch_id=int(content["batch"]),
            run_id=str(content["run"]),
            topic=content.get("topic"),
            transactions=parse(content["transactions"]),
            abandoned=parse(content["abandoned"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        why = f"the record of {scope} in {COMMIT_TOPIC} is invalid ({error!r})"
        raise BarnabasError(f"{why}; a newer version of Barnabas may have written it") from None


# ---- decisions


class CommitDecision(Enum):
    RECORD = auto()
    RESUME = auto()
    SKIP = auto()
    REJECT = auto()


def decide_commit(last: CommitRecord | None, batch_id: int, kind: SinkKind) -> CommitDecision:
    """Decide what happens with a batch. Spark repeats only the last batch of a stream, so an older one is an error."""
    if last is None or last.batch_id < batch_id:
        return CommitDecision.RECORD
    if last.batch_id == batch_id:
        return CommitDecision.RESUME
    return CommitDecision.REJECT if kind is SinkKind.STREAM else CommitDecision.SKIP


def is_other_topic(last: CommitRecord, batch_id: int, topic: str | None) -> bool:
    """Whether the batch was written to another topic before, so that it must be neither skipped nor completed."""
    is_known = last.topic is not None and topic is not None
    return batch_id <= last.batch_id and is_known and last.topic != topic


def unrecorded(
    own: Iterable[TaskTransaction], record: CommitRecord | None
) -> tuple[TaskTransaction, ...]:
    """Return the transactions that are not in the record, and so must be aborted."""
    recorded = set(record.transactions) if record is not None else set()
    return tuple(each for each in own if each not in recorded)


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """State of a transactional id at its coordinator."""

    state: str
    producer_id: int
    producer_epoch: int
    start_ms: int


def find_unready(
    own: Iterable[TaskTransaction],
    last: CommitRecord | None,
    found: Mapping[str, TransactionStatus],
    *,
    timeout_ms: int,
    now_ms: int,
) -> str | None:
    """Return why the transactions must not be committed: another driver aborts one, or one has ended, or is near its
    timeout. None if all are ready.

    This check before the decision costs only a repetition of the batch. After it, the same would lose rows.
    """
    abandoned = set(last.abandoned) if last is not None else set()
    for each in own:
        if each in abandoned:
            return f"another driver of this query aborts the transaction {each.transactional_id}"
        status = found.get(each.transactional_id)
        if (
            status is None
            or status.state != OPEN_STATE
            or (status.producer_id, status.producer_epoch)
            != (each.producer_id, each.producer_epoch)
        ):
            state = "unknown" if status is None else status.state
            return f"the transaction {each.transactional_id} has ended (state {state}): it exceeded {timeout_ms} ms"
        age_ms = now_ms - status.start_ms
        if age_ms > timeout_ms * TIMEOUT_SHARE_MAX:
            return f"the transaction {each.transactional_id} is {age_ms} ms old, of {timeout_ms} ms"
    return None


def commit_retry_s(timeout_ms: int) -> float:
    """Return for how long a decided batch can be committed before the first of its transactions may time out."""
    return timeout_ms / 1000 * (1 - TIMEOUT_SHARE_MAX)


class TransactionOutcome(Enum):
    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


ABORTED_CODES = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip
"""Answers to the commit of a recorded transaction that was aborted: its epoch or state has changed. Only a timeout does
this: no other program ends a recorded transaction."""


def outcome_of(code: ErrorCode) -> TransactionOutcome:
    """Return the outcome of a recorded transaction from the answer to its commit. Retriable errors must be retried."""
    if code is ErrorCode.NONE:
        return TransactionOutcome.COMMITTED
    return TransactionOutcome.ABORTED if code in ABORTED_CODES else TransactionOutcome.UNKNOWN


class BatchOutcome(Enum):
    """Outcome of a recorded batch, from those of its transactions."""

    DONE = auto()
    NOTHING_WRITTEN = auto()
    """All transactions were aborted: the batch can be written again."""
    PARTLY_WRITTEN = auto()


def batch_outcome(outcomes: Iterable[TransactionOutcome]) -> BatchOutcome:
    found = set(outcomes)
    if found <= {TransactionOutcome.COMMITTED}:
        return BatchOutcome.DONE
    return (
        BatchOutcome.NOTHING_WRITTEN
        if found == {TransactionOutcome.ABORTED}
        else BatchOutcome.PARTLY_WRITTEN
    )
