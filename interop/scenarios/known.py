"""The differences that are known: the tables of docs/differences.md, which is the only place where they stand.

A row covers every difference that its first four columns match; `*` stands for anything. It must cover one at least, or
it tells of what is no longer so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from interop.scenarios.compare import ABSENT, Difference

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
HEAD = ("Step", "Field", "Kafka 3.9", "Barnabas", "Why")
QUIRK = "[Q]"
NOT_YET = "Not yet: transactions."
OLD_FORMATS = "Old formats"
OF_THREE = "three brokers: "


class Known(NamedTuple):
    step: str
    field: str
    kafka: str
    ours: str
    why: str

    def covers(self, difference: Difference) -> bool:
        pairs = zip(self[:4], difference, strict=True)
        return all(matches(str(value), pattern) for pattern, value in pairs)

    def may_excuse(self, difference: Difference) -> bool:
        """Error codes, leader epochs and znodes are what clients and tools act on: they differ for a stated reason or
        not at all. In what the controller does, the only reason is a quirk of Kafka's."""
        if is_znode(difference) or (is_code(difference) and OF_THREE in difference.step):
            return self.why.startswith(QUIRK)
        return not is_code(difference) or self.why.startswith((QUIRK, OLD_FORMATS, NOT_YET))


def matches(value: str, pattern: str) -> bool:
    return fnmatchcase(value, re.sub(r"\[", "[[]", pattern))


def known_differences(page: str) -> list[Known]:
    found = []
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for row in [tuple(cells(line)) for line in lines if set(line) - set("|- ")]:
        if row != HEAD:
            assert len(row) == len(HEAD), f"not five columns: {row}"
            found.append(Known(*row))
    assert found, "the page has no table"
    return found


def cells(line: str) -> Iterable[str]:
    """Values stand in backticks, so that a `*` is seen as one."""
    for cell in line.strip().strip("|").split(" | "):
        yield cell.strip().strip("`")


def is_code(difference: Difference) -> bool:
    """One that both told. Where one of them has nothing at all, there are no two codes that differ."""
    last = difference.path.rpartition(".")[2]
    return ABSENT not in difference and last in (
        "error_code",
        "leader_epoch",
        "partition_leader_epoch",
    )


def is_znode(difference: Difference) -> bool:
    return difference.path.startswith("/")


def undocumented(differences: Sequence[Difference], known: Sequence[Known]) -> list[Difference]:
    return [
        difference
        for difference in differences
        if not any(row.covers(difference) and row.may_excuse(difference) for row in known)
    ]


def outdated(differences: Sequence[Difference], known: Sequence[Known]) -> list[Known]:
    return [row for row in known if not any(row.covers(found) for found in differences)]
