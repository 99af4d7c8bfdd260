"""Random events of one transactional id, with failed appends and coordinator failovers.

After each step: a transaction is either committed or aborted in all its partitions, a client
that got the answer to a commit keeps it, and no two producers get the same epoch.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.transactions.records import read_transaction, transaction_record
from barnabas.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    PREVIOUS_STATES,
    Transaction,
)
from barnabas.transactions.transaction_events import (
    Decision,
    ProducerIdentity,
    StoreTransaction,
    TransactionAnswer,
    WriteMarkers,
    abort_timed_out,
    begin_completion,
    begin_expiry,
    create_transaction,
    finish_expiry,
    finish_markers,
    finish_store,
    handle_add_partitions,
    handle_end,
    handle_init,
    needs_producer_id,
)

NONE = ErrorCode.NONE
COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
PARTITIONS = [TopicPartition("orders", index) for index in range(3)]
TIMEOUT_MS = 60
EXPIRATION_MS = 300
STEPS = 300


class World:
    """A coordinator, its log, the partitions, and the producers that compete for one id."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1000
        self.last_id = 0
        self.log: list[bytes] = []
        """Values in the log. A tombstone clears it."""
        self.transaction: Transaction | None = None
        self.storing: StoreTransaction | None = None
        self.is_init = False
        self.retried: ProducerIdentity | None = None
        self.markers: WriteMarkers | None = None
        self.identities: list[ProducerIdentity] = []
        """All identities that producers got, newest last."""
        self.origins: dict[ProducerIdentity, ProducerIdentity | None] = {}
        """The identity that the producer had before, by the one that it got."""
        self.fenced: set[ProducerIdentity] = set()
        """Producers whose transaction the coordinator aborted on its own."""
        self.outcomes: dict[int, bool] = {}
        """Whether a transaction was committed, by its start time. From its markers."""
        self.promised: dict[int, bool] = {}
        """The same, from the answers to EndTxn."""
        self.completed = 0

    # ---- requests of producers

    def identity(self) -> ProducerIdentity:
        """Return the identity of one of the last producers, mostly of the newest."""
        if self.identities and self.random.random() < 0.7:
            return self.identities[-1]
        return self.random.choice(self.identities[-3:] or [ProducerIdentity(0, 0)])

    def init(self) -> None:
        expected = self.identity() if self.random.random() < 0.5 else None
        if self.transaction is None:
            self.last_id += 1
            self.transaction = create_transaction("app", self.last_id, TIMEOUT_MS, self.now_ms)
        new_id = None
        if needs_producer_id(self.transaction, expected):
            self.last_id += 1
            new_id = self.last_id
        decision = handle_init(
            self.transaction,
            expected,
            timeout_ms=TIMEOUT_MS,
            new_producer_id=new_id,
            now_ms=self.now_ms,
        )
        self.begin(decision, is_init=True, retried=expected)

    def add(self) -> None:
        if self.transaction is not None:
            producer = self.identity()
            chosen = self.random.sample(PARTITIONS, self.random.randint(1, 3))
            decision = handle_add_partitions(self.transaction, producer, chosen, self.now_ms)
            self.check_fencing(producer, decision)
            self.begin(decision)

    def end(self) -> None:
        if self.transaction is not None:
            producer, is_commit = self.identity(), self.random.random() < 0.5
            decision = handle_end(
                self.transaction, producer, is_commit=is_commit, now_ms=self.now_ms
            )
            self.check_fencing(producer, decision)
            if decision == TransactionAnswer(NONE):
                self.promise(is_commit)
            self.begin(decision)

    def promise(self, is_commit: bool) -> None:
        assert self.transaction is not None
        start_ms = self.transaction.metadata.start_ms
        assert self.promised.setdefault(start_ms, is_commit) == is_commit

    def check_fencing(self, producer: ProducerIdentity, decision: Decision) -> None:
        """Only the newest producer may change the transaction."""
        is_accepted = isinstance(decision, StoreTransaction) or decision.code is NONE
        assert not is_accepted or producer == self.identities[-1]
        assert not is_accepted or producer not in self.fenced

    # ---- effects

    def begin(
        self,
        decision: Decision | None,
        *,
        is_init: bool = False,
        retried: ProducerIdentity | None = None,
    ) -> None:
        if isinstance(decision, StoreTransaction):
            assert self.storing is None
            assert self.transaction is not None
            self.storing, self.is_init, self.retried = decision, is_init, retried

    def append(self) -> None:
        """Finish the append in progress: stored, lost, or stored but not acknowledged in time."""
        effect, transaction = self.storing, self.transaction
        if effect is None or transaction is None:
            return
        self.storing = None
        luck = self.random.random()
        if luck > 0.15:
            value = transaction_record("app", effect.after)[1]
            assert value is not None
            self.log.append(value)
        before = transaction.metadata
        if luck < 0.3:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if effect.after.state in COMPLETE:
                self.storing = effect  # the coordinator retries a completion
            else:
                assert finish_store(transaction, effect, code) == (TransactionAnswer(code), None)
                assert transaction.metadata is before
            return
        answer, markers = finish_store(transaction, effect, NONE)
        assert before.state in PREVIOUS_STATES[transaction.state]
        if effect.is_fence:
            self.fenced.add(self.identities[-1])
        if self.is_init and answer.code is NONE and effect.after.state is EMPTY:
            self.add_identity(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        elif markers is not None and answer.code is NONE and not effect.is_fence:
            self.promise(markers.is_commit)
        if transaction.state in COMPLETE:
            self.completed += 1
        self.start_markers(markers)

    def add_identity(self, identity: ProducerIdentity) -> None:
        if identity not in self.identities:
            assert not self.identities or identity > self.identities[-1]
            self.identities.append(identity)
            self.origins[identity] = self.retried
        else:
            assert identity == self.identities[-1]
            assert self.retried is not None, "only a retry gets the same epoch again"
            assert self.retried == self.origins[identity]

    def start_markers(self, markers: WriteMarkers | None) -> None:
        if markers is not None:
            assert self.markers is None
            self.markers = markers

    def write_marker(self) -> None:
        if self.markers is None or self.transaction is None:
            return
        left = sorted(self.markers.partitions)
        written = left[: self.random.randint(0, len(left))]
        start_ms = self.transaction.metadata.start_ms
        if written:
            decided = self.outcomes.setdefault(start_ms, self.markers.is_commit)
            assert decided == self.markers.is_commit, "committed in one partition, aborted in other"
            assert self.promised.get(start_ms, decided) == decided
        self.markers = self.markers._replace(partitions=frozenset(left[len(written) :]))
        effect = finish_markers(self.transaction, written, self.now_ms)
        if effect is not None:
            self.markers = None
            self.begin(effect)

    # ---- the coordinator

    def tick(self) -> None:
        self.now_ms += self.random.randint(1, 30)
        if self.transaction is not None:
            self.begin(abort_timed_out(self.transaction, self.now_ms))

    def expire(self) -> None:
        transaction = self.transaction
        if transaction is None or not begin_expiry(transaction, self.now_ms, EXPIRATION_MS):
            return
        if self.random.random() < 0.5:
            assert not finish_expiry(transaction, ErrorCode.NOT_COORDINATOR)
            return
        assert finish_expiry(transaction, NONE)
        assert transaction.state is DEAD
        self.log.clear()
        self.transaction = None

    def fail_over(self) -> None:
        """Load the state from the log, as the next coordinator does. All else is lost."""
        self.storing = self.markers = self.transaction = None
        if self.log:
            metadata = read_transaction(self.log[-1])
            self.transaction = Transaction(transactional_id="app", metadata=metadata)
            self.start_markers(begin_completion(self.transaction))

    def step(self) -> None:
        events = [*[self.init] * 3, *[self.add] * 4, *[self.end] * 3]
        events += [self.append] * 12 + [self.write_marker] * 8 + [self.tick, self.expire]
        if self.random.random() < 0.04:
            events = [self.fail_over]
        self.random.choice(events)()
        self.now_ms += 1


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_events(first: int) -> None:
    completed = 0
    for seed in range(first, first + 50):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        completed += world.completed
    assert completed > 100, "the events complete transactions"
