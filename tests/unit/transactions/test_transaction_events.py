"""Events of a transactional id: every event in every state, with and without a pending move."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.transactions.transaction import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    PREVIOUS_STATES,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TransactionMetadata,
    TransactionState,
)
from barnabas.transactions.transaction_events import (
    Decision,
    MarkerResult,
    ProducerIdentity,
    StoreTransaction,
    TransactionAnswer,
    WriteMarkers,
    abort_timed_out,
    begin_completion,
    begin_expiry,
    classify_marker,
    create_transaction,
    finish_expiry,
    finish_markers,
    finish_store,
    handle_add_partitions,
    handle_end,
    handle_init,
    needs_producer_id,
    verify_partitions,
)

PRODUCER = ProducerIdentity(1000, 5)
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))
NOW = 1_700_000_000_000
LATER = NOW + 1
TIMEOUT_MS = 60_000
NONE, CONCURRENT, FENCED = (
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
)
INVALID_STATE, MAPPING, UNKNOWN = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
STATES = list(TransactionState)
WITH_PARTITIONS = (ONGOING, *PREPARED)


def transaction_in(
    state: TransactionState,
    *,
    pending: TransactionState | None = None,
    epoch: int = PRODUCER.epoch,
    last_epoch: int = -1,
    last_id: int = -1,
) -> Transaction:
    return Transaction(
        transactional_id="app",
        pending=pending,
        metadata=TransactionMetadata(
            producer_id=PRODUCER.producer_id,
            producer_epoch=epoch,
            last_producer_id=last_id,
            last_producer_epoch=last_epoch,
            timeout_ms=TIMEOUT_MS,
            state=state,
            partitions=frozenset([P0, P1]) if state in WITH_PARTITIONS else frozenset(),
            start_ms=-1 if state is EMPTY else NOW,
            update_ms=NOW,
        ),
    )


def init(
    transaction: Transaction,
    expected: ProducerIdentity | None = None,
    *,
    new_id: int | None = None,
) -> Decision:
    return handle_init(
        transaction, expected, timeout_ms=30_000, new_producer_id=new_id, now_ms=LATER
    )


def code_or_state(decision: Decision) -> ErrorCode | TransactionState:
    return decision.code if isinstance(decision, TransactionAnswer) else decision.after.state


def store(transaction: Transaction, decision: Decision | None) -> TransactionAnswer:
    assert isinstance(decision, StoreTransaction)
    return finish_store(transaction, decision, NONE)[0]


# ---- table of states


@pytest.mark.parametrize(("before", "after"), list(product(STATES, STATES)))
def test_pending_move_prevents_every_other_move(
    before: TransactionState, after: TransactionState
) -> None:
    assert transaction_in(before).can_move_to(after) == (before in PREVIOUS_STATES[after])
    assert not transaction_in(before, pending=before).can_move_to(after)


def test_states_have_the_ids_and_names_of_kafka() -> None:
    assert [str(state) for state in STATES] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# ---- every request in every state

INIT = {
    EMPTY: EMPTY,
    ONGOING: PREPARE_ABORT,
    PREPARE_COMMIT: CONCURRENT,
    PREPARE_ABORT: CONCURRENT,
    COMPLETE_COMMIT: EMPTY,
    COMPLETE_ABORT: EMPTY,
    DEAD: UNKNOWN,
    PREPARE_EPOCH_FENCE: UNKNOWN,
}
ADD = {
    EMPTY: ONGOING,
    ONGOING: ONGOING,
    PREPARE_COMMIT: CONCURRENT,
    PREPARE_ABORT: CONCURRENT,
    COMPLETE_COMMIT: ONGOING,
    COMPLETE_ABORT: ONGOING,
    DEAD: UNKNOWN,
    PREPARE_EPOCH_FENCE: UNKNOWN,
}
COMMIT = {
    EMPTY: INVALID_STATE,
    ONGOING: PREPARE_COMMIT,
    PREPARE_COMMIT: CONCURRENT,
    PREPARE_ABORT: INVALID_STATE,
    COMPLETE_COMMIT: NONE,
    COMPLETE_ABORT: INVALID_STATE,
    DEAD: UNKNOWN,
    PREPARE_EPOCH_FENCE: UNKNOWN,
}
ABORT = {
    EMPTY: INVALID_STATE,
    ONGOING: PREPARE_ABORT,
    PREPARE_COMMIT: INVALID_STATE,
    PREPARE_ABORT: CONCURRENT,
    COMPLETE_COMMIT: INVALID_STATE,
    COMPLETE_ABORT: NONE,
    DEAD: UNKNOWN,
    PREPARE_EPOCH_FENCE: UNKNOWN,
}


def end(
    transaction: Transaction, *, is_commit: bool, producer: ProducerIdentity = PRODUCER
) -> Decision:
    return handle_end(transaction, producer, is_commit=is_commit, now_ms=LATER)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("expected", [None, PRODUCER])
def test_init(state: TransactionState, expected: ProducerIdentity | None) -> None:
    assert code_or_state(init(transaction_in(state), expected)) == INIT[state]


@pytest.mark.parametrize("state", STATES)
def test_init_of_other_producer_is_fenced(state: TransactionState) -> None:
    transaction = transaction_in(state)
    assert code_or_state(init(transaction, ProducerIdentity(999, 5))) is FENCED
    assert transaction.pending is None


@pytest.mark.parametrize("state", STATES)
def test_add_partitions(state: TransactionState) -> None:
    transaction = transaction_in(state)
    assert code_or_state(handle_add_partitions(transaction, PRODUCER, [P2], LATER)) == ADD[state]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_commit", [True, False])
def test_end(state: TransactionState, is_commit: bool) -> None:
    found = code_or_state(end(transaction_in(state), is_commit=is_commit))
    assert found == (COMMIT if is_commit else ABORT)[state]


@pytest.mark.parametrize(("state", "pending"), list(product(STATES, STATES)))
def test_requests_during_a_pending_move_are_concurrent(
    state: TransactionState, pending: TransactionState
) -> None:
    transaction = transaction_in(state, pending=pending)
    before = transaction.metadata
    decisions = [
        init(transaction),
        init(transaction, PRODUCER),
        handle_add_partitions(transaction, PRODUCER, [P0], LATER),
        end(transaction, is_commit=True),
        end(transaction, is_commit=False),
    ]
    assert {code_or_state(each) for each in decisions} == {CONCURRENT}
    assert abort_timed_out(transaction, NOW + TIMEOUT_MS + 1) is None
    assert not begin_expiry(transaction, NOW + 1000, 1000)
    assert transaction.metadata is before
    assert transaction.pending is pending


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (ProducerIdentity(999, 5), MAPPING),
        (ProducerIdentity(1000, 4), FENCED),
        (ProducerIdentity(1000, 6), FENCED),
    ],
)
@pytest.mark.parametrize("pending", [None, COMPLETE_COMMIT])
def test_other_producer_or_epoch_is_rejected_in_every_state(
    state: TransactionState,
    producer: ProducerIdentity,
    code: ErrorCode,
    pending: TransactionState | None,
) -> None:
    transaction = transaction_in(state, pending=pending)
    decisions = [
        handle_add_partitions(transaction, producer, [P0], LATER),
        end(transaction, is_commit=True, producer=producer),
        end(transaction, is_commit=False, producer=producer),
    ]
    assert {code_or_state(each) for each in decisions} == {code}
    assert verify_partitions(transaction, producer, [P0]) == {P0: code}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("pending", [None, ONGOING])
def test_verify_partitions(state: TransactionState, pending: TransactionState | None) -> None:
    found = verify_partitions(transaction_in(state, pending=pending), PRODUCER, [P0, P2])
    if state in PREPARED:
        assert found == {P0: CONCURRENT, P2: CONCURRENT}
    else:
        first = NONE if state is ONGOING else ErrorCode.TRANSACTION_ABORTABLE
        assert found == {P0: first, P2: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", STATES)
def test_timeout_aborts_only_ongoing_transactions(state: TransactionState) -> None:
    transaction = transaction_in(state)
    assert abort_timed_out(transaction, NOW + TIMEOUT_MS) is None
    effect = abort_timed_out(transaction, NOW + TIMEOUT_MS + 1)
    assert (effect is not None) == (state is ONGOING)
    if effect is not None:
        assert effect.after.state is PREPARE_ABORT
        assert effect.after.producer_epoch == PRODUCER.epoch + 1


@pytest.mark.parametrize("state", STATES)
def test_only_a_transactional_id_at_rest_expires(state: TransactionState) -> None:
    transaction = transaction_in(state)
    assert not begin_expiry(transaction, NOW + 999, 1000)
    assert begin_expiry(transaction, NOW + 1000, 1000) == (state in AT_REST)
    assert transaction.pending == (DEAD if state in AT_REST else None)


@pytest.mark.parametrize("state", STATES)
def test_loaded_transaction_continues_after_the_decision(state: TransactionState) -> None:
    transaction = transaction_in(state)
    markers = begin_completion(transaction)
    if state in PREPARED:
        is_commit = state is PREPARE_COMMIT
        assert markers == WriteMarkers(is_commit, PRODUCER, frozenset([P0, P1]))
        assert transaction.pending is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    else:
        assert markers is None
        assert transaction.pending is None


# ---- epochs


def test_first_init_gives_epoch_zero() -> None:
    transaction = create_transaction("app", 1000, 30_000, NOW)
    answer = store(transaction, init(transaction))
    assert answer == TransactionAnswer(NONE, 1000, 0)
    assert transaction.metadata == TransactionMetadata(
        producer_id=1000,
        producer_epoch=0,
        last_producer_id=1000,
        last_producer_epoch=-1,
        timeout_ms=30_000,
        update_ms=LATER,
    )


def test_unknown_producer_with_identity_gets_new_id() -> None:
    """The transactional id expired, and its producer continues after UNKNOWN_PRODUCER_ID."""
    transaction = create_transaction("app", 2000, 30_000, NOW)
    answer = store(transaction, init(transaction, ProducerIdentity(1000, 7)))
    assert answer == TransactionAnswer(NONE, 2000, 0)


def test_new_producer_gets_next_epoch_and_fences_the_old_one() -> None:
    transaction = transaction_in(COMPLETE_COMMIT, last_epoch=4)
    assert store(transaction, init(transaction)) == TransactionAnswer(NONE, 1000, 6)
    assert transaction.metadata.last_producer_epoch == -1
    assert code_or_state(init(transaction, PRODUCER)) is FENCED
    assert code_or_state(end(transaction, is_commit=True)) is FENCED


def test_retry_of_an_epoch_bump_gets_the_same_epoch() -> None:
    transaction = transaction_in(EMPTY)
    assert store(transaction, init(transaction, PRODUCER)) == TransactionAnswer(NONE, 1000, 6)
    assert transaction.metadata.last_producer_epoch == 5
    assert store(transaction, init(transaction, PRODUCER)) == TransactionAnswer(NONE, 1000, 6)
    assert transaction.metadata.last_producer_epoch == 5
    assert code_or_state(init(transaction, ProducerIdentity(1000, 4))) is FENCED


def test_init_of_ongoing_transaction_aborts_it_and_takes_two_epochs() -> None:
    transaction = transaction_in(ONGOING, last_epoch=4)
    decision = init(transaction)
    assert transaction.metadata.producer_epoch == 6, "the old producer is fenced at once"
    assert transaction.metadata.last_producer_epoch == -1
    assert code_or_state(end(transaction, is_commit=True)) is FENCED
    assert isinstance(decision, StoreTransaction)
    assert decision.after.partitions == frozenset([P0, P1])
    answer, markers = finish_store(transaction, decision, NONE)
    assert answer.code is CONCURRENT
    assert markers == WriteMarkers(False, ProducerIdentity(1000, 6), frozenset([P0, P1]))
    assert code_or_state(init(transaction)) is CONCURRENT
    store(transaction, finish_markers(transaction, [P0, P1], LATER))
    assert transaction.state is COMPLETE_ABORT
    assert store(transaction, init(transaction)) == TransactionAnswer(NONE, 1000, 7)


def test_failed_fence_raises_the_epoch_only_once() -> None:
    transaction = transaction_in(ONGOING)
    for _ in range(3):
        decision = init(transaction)
        assert isinstance(decision, StoreTransaction)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert finish_store(transaction, decision, code) == (TransactionAnswer(code), None)
        assert transaction.metadata.producer_epoch == 6
        assert transaction.state is ONGOING
        assert transaction.pending is None
        assert transaction.has_failed_fence
    effect = abort_timed_out(transaction, NOW + TIMEOUT_MS + 1)
    assert effect is not None
    assert effect.after.producer_epoch == 6
    store(transaction, effect)
    assert not transaction.has_failed_fence


@pytest.mark.parametrize("expected", [None, ProducerIdentity(1000, PRODUCER_EPOCH_MAX - 1)])
def test_exhausted_epoch_rotates_the_producer_id(expected: ProducerIdentity | None) -> None:
    transaction = transaction_in(COMPLETE_COMMIT, epoch=PRODUCER_EPOCH_MAX - 1)
    assert needs_producer_id(transaction, expected)
    decision = init(transaction, expected, new_id=2000)
    assert store(transaction, decision) == TransactionAnswer(NONE, 2000, 0)
    assert transaction.metadata.last_producer_id == 1000
    last_epoch = -1 if expected is None else PRODUCER_EPOCH_MAX - 1
    assert transaction.metadata.last_producer_epoch == last_epoch


def test_retry_of_a_rotation_gets_the_new_id() -> None:
    identity = ProducerIdentity(1000, PRODUCER_EPOCH_MAX - 1)
    transaction = transaction_in(EMPTY, epoch=identity.epoch)
    store(transaction, init(transaction, identity, new_id=2000))
    assert not needs_producer_id(transaction, identity)
    assert store(transaction, init(transaction, identity)) == TransactionAnswer(NONE, 2000, 0)


def test_producer_with_lower_epoch_is_fenced_after_exhaustion() -> None:
    transaction = transaction_in(EMPTY, epoch=PRODUCER_EPOCH_MAX - 1, last_id=1000)
    identity = ProducerIdentity(1000, 7)
    assert not needs_producer_id(transaction, identity)
    assert code_or_state(init(transaction, identity)) is FENCED


@pytest.mark.parametrize("epoch", [PRODUCER_EPOCH_MAX - 2, PRODUCER_EPOCH_MAX - 3])
def test_epoch_below_the_last_is_not_exhausted(epoch: int) -> None:
    transaction = transaction_in(EMPTY, epoch=epoch)
    assert not needs_producer_id(transaction, None)
    assert store(transaction, init(transaction)).producer_epoch == epoch + 1


def test_last_epoch_can_still_be_fenced() -> None:
    transaction = transaction_in(ONGOING, epoch=PRODUCER_EPOCH_MAX - 1)
    store(transaction, init(transaction))
    assert transaction.metadata.producer_epoch == PRODUCER_EPOCH_MAX
    store(transaction, finish_markers(transaction, [P0, P1], LATER))
    assert needs_producer_id(transaction, None)


@pytest.mark.parametrize("state", [ONGOING, *PREPARED, DEAD, PREPARE_EPOCH_FENCE])
def test_open_transaction_needs_no_producer_id(state: TransactionState) -> None:
    transaction = transaction_in(state, epoch=PRODUCER_EPOCH_MAX - 1)
    assert not needs_producer_id(transaction, None)


def test_partitions_cannot_be_added_before_the_first_init_is_stored() -> None:
    transaction = create_transaction("app", 1000, 30_000, NOW)
    decision = handle_add_partitions(transaction, ProducerIdentity(1000, -1), [P0], NOW)
    assert code_or_state(decision) is UNKNOWN


# ---- a whole transaction


def test_commit() -> None:
    transaction = transaction_in(EMPTY)
    assert store(transaction, handle_add_partitions(transaction, PRODUCER, [P0], 10)).code is NONE
    assert store(transaction, handle_add_partitions(transaction, PRODUCER, [P1], 20)).code is NONE
    again = handle_add_partitions(transaction, PRODUCER, [P1, P0], 25)
    assert again == TransactionAnswer(NONE)
    assert transaction.metadata.partitions == {P0, P1}
    assert (transaction.metadata.start_ms, transaction.metadata.update_ms) == (10, 20)

    decision = handle_end(transaction, PRODUCER, is_commit=True, now_ms=30)
    assert isinstance(decision, StoreTransaction)
    answer, markers = finish_store(transaction, decision, NONE)
    assert answer.code is NONE
    assert markers == WriteMarkers(True, PRODUCER, frozenset([P0, P1]))
    assert transaction.state is PREPARE_COMMIT
    assert finish_markers(transaction, [P1], 40) is None
    assert transaction.metadata.partitions == {P0}
    assert store(transaction, finish_markers(transaction, [P0], 50)).code is NONE
    assert transaction.state is COMPLETE_COMMIT
    assert (transaction.metadata.start_ms, transaction.metadata.update_ms) == (10, 50)
    assert transaction.pending is None

    store(transaction, handle_add_partitions(transaction, PRODUCER, [P2], 60))
    assert transaction.metadata.partitions == {P2}
    assert transaction.metadata.start_ms == 60


def test_transaction_without_remaining_partitions_completes() -> None:
    transaction = transaction_in(PREPARE_ABORT)
    assert begin_completion(transaction) is not None
    store(transaction, finish_markers(transaction, [P0, P1], LATER))
    assert transaction.state is COMPLETE_ABORT


@pytest.mark.parametrize("request_name", ["add", "commit", "abort"])
def test_failed_append_leaves_the_state_and_can_be_retried(request_name: str) -> None:
    transaction = transaction_in(ONGOING)
    before = transaction.metadata
    for _ in range(2):
        decision = (
            handle_add_partitions(transaction, PRODUCER, [P2], LATER)
            if request_name == "add"
            else end(transaction, is_commit=request_name == "commit")
        )
        assert isinstance(decision, StoreTransaction)
        code = ErrorCode.NOT_COORDINATOR
        assert finish_store(transaction, decision, code) == (TransactionAnswer(code), None)
        assert transaction.metadata is before
        assert transaction.pending is None
        assert not transaction.has_failed_fence


def test_start_of_the_last_transaction_stays_visible_after_init() -> None:
    transaction = transaction_in(COMPLETE_COMMIT)
    decision = init(transaction)
    assert isinstance(decision, StoreTransaction)
    assert decision.after.start_ms == -1
    store(transaction, decision)
    assert transaction.metadata.start_ms == NOW


def test_last_producer_id_survives_a_transaction() -> None:
    transaction = transaction_in(EMPTY, last_id=900, last_epoch=4)
    store(transaction, handle_add_partitions(transaction, PRODUCER, [P0], NOW))
    store(transaction, end(transaction, is_commit=True))
    store(transaction, finish_markers(transaction, [P0], NOW))
    metadata = transaction.metadata
    assert (metadata.last_producer_id, metadata.last_producer_epoch) == (900, 4)


# ---- expiry and markers


def test_failed_tombstone_keeps_the_transactional_id() -> None:
    transaction = transaction_in(EMPTY)
    assert begin_expiry(transaction, NOW + 1000, 1000)
    assert not finish_expiry(transaction, ErrorCode.NOT_COORDINATOR)
    assert transaction.state is EMPTY
    assert transaction.pending is None
    assert begin_expiry(transaction, NOW + 1000, 1000)
    assert finish_expiry(transaction, NONE)
    assert transaction.state is DEAD


@pytest.mark.parametrize("code", list(ErrorCode))
def test_marker_results(code: ErrorCode) -> None:
    written = (NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
    superseded = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    expected = (
        MarkerResult.WRITTEN
        if code in written
        else MarkerResult.SUPERSEDED
        if code in superseded
        else MarkerResult.RETRY
    )
    assert classify_marker(code) is expected
