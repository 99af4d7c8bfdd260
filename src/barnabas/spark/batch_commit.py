"""The driver's part of the exactly-once sink: commit or abort the transactions that the tasks of a batch left open.

    fence other drivers ─► read the last record ─► decide (commit_records.py) ─► write the record ─► end transactions

Every step can be repeated. After a crash, Spark runs the batch again and calls commit again, which continues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from barnabas.client.blocking import Deadline, now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_states import (
    describe_transaction_states,
    end_transactions,
    list_open_transactions,
)
from barnabas.errors import ApiError, ConfigError
from barnabas.spark.client_settings import PREFIX
from barnabas.spark.commit_log import CommitLog
from barnabas.spark.commit_records import (
    COMMIT_TOPIC,
    OPEN_STATE,
    BatchOutcome,
    CommitDecision,
    CommitRecord,
    LostTransactions,
    SinkKind,
    TaskTransaction,
    TransactionOutcome,
    TransactionStatus,
    batch_outcome,
    commit_retry_s,
    decide_commit,
    find_unready,
    is_other_topic,
    outcome_of,
    task_id_prefix,
    unrecorded,
)
from barnabas.spark.options import TRANSACTION_TIMEOUT, WriteOptions

logger = logging.getLogger("barnabas.spark")


class BatchCommit:
    """The commit of one batch. `own` are the transactions of the tasks that Spark accepted."""

    def __init__(
        self,
        cluster: Cluster,
        options: WriteOptions,
        *,
        kind: SinkKind,
        scope: str,
        batch_id: int,
        run_id: str,
        own: Sequence[TaskTransaction],
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.kind = kind
        self.scope = scope
        self.batch_id = batch_id
        self.run_id = run_id
        self.own = tuple(own)

    def commit(self) -> None:
        """Commit the batch, or what an earlier run has decided. Raises ApiError, ConfigError or LostTransactions."""
        log = CommitLog(self.cluster, self.scope, self.options.client)
        if self.kind is SinkKind.ANONYMOUS_JOB:
            self.decide_and_commit(log, None)
            self.forget(log)
            return
        last = log.last()
        if last is not None and is_other_topic(last, self.batch_id, self.options.topic):
            self.abort_transactions(self.own)
            raise self.other_topic(last)
        match decide_commit(last, self.batch_id, self.kind):
            case CommitDecision.RECORD:
                self.decide_and_commit(log, last)
            case CommitDecision.RESUME:
                assert last is not None
                self.resume(log, last)
            case CommitDecision.SKIP:
                logger.warning("barnabas: batch %d was written before; skipped", self.batch_id)
                self.abort_transactions(self.own)
            case CommitDecision.REJECT:
                assert last is not None
                self.abort_transactions(self.own)
                raise self.outdated_checkpoint(last)

    def abort(self) -> None:
        """Abort the transactions of the tasks, unless an earlier call of `commit` has decided the batch.

        Transactions of killed attempts are aborted only if no other driver can record them meanwhile.
        """
        last = CommitLog(self.cluster, self.scope, self.options.client).last()
        is_decided = last is not None and last.batch_id == self.batch_id
        others = self.list_abandoned() if self.kind is SinkKind.ANONYMOUS_JOB else ()
        self.abort_transactions(unrecorded([*self.own, *others], last if is_decided else None))

    # ---- steps

    def decide_and_commit(self, log: CommitLog, last: CommitRecord | None) -> None:
        """Record the transactions of this run, and commit them."""
        self.check_ready(last)
        record = CommitRecord(
            batch_id=self.batch_id,
            run_id=self.run_id,
            topic=self.options.topic,
            transactions=self.own,
            abandoned=self.list_abandoned(),
        )
        log.append(record)
        outcomes = self.commit_recorded(record)
        self.abort_transactions(record.abandoned)
        if batch_outcome(outcomes.values()) is not BatchOutcome.DONE:
            raise self.lost(outcomes)

    def resume(self, log: CommitLog, last: CommitRecord) -> None:
        """Commit the recorded transactions, and abort those of this run. If the former are all gone, use the latter."""
        new = unrecorded(self.own, last)
        outcomes = self.commit_recorded(last)
        self.abort_transactions(last.abandoned)
        outcome = batch_outcome(outcomes.values())
        is_accepted = self.options.on_lost == "skip" and outcome is BatchOutcome.PARTLY_WRITTEN
        if outcome is BatchOutcome.DONE or is_accepted:
            self.abort_transactions(new)
            return
        may_repeat = outcome is BatchOutcome.NOTHING_WRITTEN or self.options.on_lost == "repeat"
        if not may_repeat or len(new) < len(self.own):
            raise self.lost(outcomes)
        self.decide_and_commit(log, last)

    def forget(self, log: CommitLog) -> None:
        """Delete the record of a sink that has no further batch. The rows are written, so an error is only logged."""
        try:
            log.delete()
        except ApiError as error:
            logger.warning("barnabas: the record of the job stays in %s: %s", COMMIT_TOPIC, error)

    def check_ready(self, last: CommitRecord | None) -> None:
        statuses = self.statuses([each.transactional_id for each in self.own])
        timeout_ms = self.options.transaction_timeout_ms
        why = find_unready(self.own, last, statuses, timeout_ms=timeout_ms, now_ms=now_ms())
        if why is not None:
            hint = "nothing was written; make batches smaller, or raise this setting and transaction.max.timeout.ms"
            raise ConfigError(PREFIX + TRANSACTION_TIMEOUT, f"{why}; {hint} of the brokers")

    def list_abandoned(self) -> tuple[TaskTransaction, ...]:
        """Return all other open transactions of this sink: of killed attempts of tasks, and of other drivers.

        Every batch looks for them, because Spark reports no killed attempts.
        """
        own = {each.transactional_id for each in self.own}
        names = list_open_transactions(self.cluster, task_id_prefix(self.scope))
        return tuple(
            TaskTransaction(name, status.producer_id, status.producer_epoch)
            for name, status in self.statuses(set(names) - own).items()
            if status.state == OPEN_STATE
        )

    def statuses(self, names: Iterable[str]) -> dict[str, TransactionStatus]:
        return {
            name: TransactionStatus(
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_start_time_ms,
            )
            for name, each in describe_transaction_states(self.cluster, names).items()
        }

    def commit_recorded(self, record: CommitRecord) -> dict[str, TransactionOutcome]:
        """Commit a decided batch. Errors are retried for long: if the driver gives up, some rows may be missing."""
        retry_s = max(self.cluster.timeout_s, commit_retry_s(self.options.transaction_timeout_ms))
        codes = end_transactions(
            self.cluster,
            identities(record.transactions),
            is_commit=True,
            deadline=Deadline(retry_s),
        )
        return {name: outcome_of(code) for name, code in codes.items()}

    def lost(self, outcomes: dict[str, TransactionOutcome]) -> LostTransactions:
        lost = [name for name, each in outcomes.items() if each is TransactionOutcome.ABORTED]
        unknown = [name for name, each in outcomes.items() if each is TransactionOutcome.UNKNOWN]
        return LostTransactions(self.batch_id, lost, len(outcomes), unknown)

    def outdated_checkpoint(self, last: CommitRecord) -> ConfigError:
        why = (
            f"batch {self.batch_id} is older than batch {last.batch_id}, the last one that this query has written;"
            " this run wrote nothing. The checkpoint was restored, reset or copied, or another driver uses it. Stop the"
            " other driver. If there is none, use a new checkpointLocation, with startingOffsets after the written rows"
        )
        return ConfigError("checkpointLocation", why)

    def other_topic(self, last: CommitRecord) -> ConfigError:
        why = (
            f"batch {last.batch_id} of this sink was written to the topic {last.topic} before; this run wrote"
            f" nothing to {self.options.topic}. Use the old topic, or a new checkpoint or transactionalId"
        )
        return ConfigError("topic", why)

    def abort_transactions(self, transactions: Iterable[TaskTransaction]) -> None:
        """Abort transactions. Error codes are ignored: the transaction has ended already."""
        end_transactions(self.cluster, identities(transactions), is_commit=False)


def identities(transactions: Iterable[TaskTransaction]) -> dict[str, tuple[int, int]]:
    return {each.transactional_id: (each.producer_id, each.producer_epoch) for each in transactions}
