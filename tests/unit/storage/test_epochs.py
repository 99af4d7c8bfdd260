from __future__ import annotations

import pytest

from barnabas.storage.epochs import LeaderEpochs, decode_epochs


def test_epoch_ends_where_the_next_larger_one_starts() -> None:
    epochs = LeaderEpochs([(2, 0), (4, 100), (7, 120)])
    answers = {1: (1, 0), 2: (2, 100), 3: (2, 100), 4: (4, 120), 6: (4, 120), 7: (7, 150)}
    assert {epoch: epochs.end_offset_for(epoch, 150) for epoch in answers} == answers
    assert epochs.end_offset_for(8, 150) == (-1, -1)
    assert epochs.end_offset_for(-1, 150) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 10) == (-1, -1)


def test_new_epoch_replaces_contradicting_entries() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    epochs.assign(4, 15)
    assert epochs.entries == [(1, 0), (2, 10), (4, 15)]
    epochs.assign(4, 30)
    assert epochs.entries[-1] == (4, 15), "an epoch starts once"
    epochs.assign(5, 15)
    assert epochs.entries[-1] == (5, 15), "the previous epoch has no records"
    epochs.assign(-1, 99)
    assert epochs.latest == 5


def test_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20)])
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 1, 1, 3, 3]


def test_epochs_are_truncated_with_the_log() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    epochs.truncate_from_end(20)
    assert (epochs.entries, epochs.latest) == ([(1, 0), (2, 10)], 2)
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15)]
    epochs.unsaved = False
    epochs.truncate_from_start(15)
    epochs.truncate_from_start(3)
    epochs.truncate_from_end(99)
    assert not epochs.unsaved, "nothing changed"
    epochs.clear()
    assert (epochs.entries, epochs.latest, epochs.unsaved) == ([], -1, True)


def test_epoch_checkpoint_has_kafka_format() -> None:
    epochs = LeaderEpochs([(0, 0), (3, 42)])
    assert epochs.encode() == b"0\n2\n0 0\n3 42\n"
    assert decode_epochs(epochs.encode()).entries == epochs.entries
    assert not decode_epochs(epochs.encode()).unsaved
    assert decode_epochs(b"").entries == []


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"0\n2\n3 0\n1 5\n", b"\xff\xfe"]
)
def test_corrupt_epoch_checkpoint_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_epochs(data)
