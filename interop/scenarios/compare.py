"""Compares two transcripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from interop.scenarios.step import Transcript

ABSENT = "absent"


class Difference(NamedTuple):
    step: str
    path: str
    kafka: object
    ours: object


def differences(kafka: Transcript, ours: Transcript) -> Iterator[Difference]:
    assert list(kafka.answers) == list(ours.answers)
    for step, theirs in kafka.answers.items():
        mine = ours.answers[step]
        for path in sorted({*theirs, *mine}):
            pair = theirs.get(path, ABSENT), mine.get(path, ABSENT)
            if pair[0] != pair[1]:
                yield Difference(step, path, *pair)
