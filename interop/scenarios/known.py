"""The known differences: the tables of docs/differences.md, the only place where they are listed.

A row covers every difference that its first four columns match; `*` matches anything. A row that covers none is
outdated.
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
OLD_FORMATS = "Old formats"
OF_THREE = "three brokers: "


class KnownDifference(NamedTuple):
    step: str
    field: str
    kafka: str
    ours: str
    why: str

    def covers(self, difference: Difference) -> bool:
        pairs = zip(self[:4], difference, strict=True)
        return all(matches(str(value), pattern) for pattern, value in pairs)

    def may_excuse(self, difference: Difference) -> bool:
        """Clients and tools depend on error codes, leader epochs and znodes, so these need a stated reason to differ.
        For the controller's behaviour, the only valid reason is a quirk of Kafka."""
        if is_znode(difference) or (is_code(difference) and OF_THREE in difference.step):
            return self.why.startswith(QUIRK)
        return not is_code(difference) or self.why.startswith((QUIRK, OLD_FORMATS))


def matches(value: str, pattern: str) -> bool:
    return fnmatchcase(value, re.sub(r"\[", "[[]", pattern))


def known_differences(page: str) -> list[KnownDifference]:
    found = []
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for row in [tuple(cells(line)) for line in lines if set(line) - set("|- ")]:
        if row != HEAD:
            assert len(row) == len(HEAD), f"not five columns: {row}"
            found.append(KnownDifference(*row))
    assert found, "the page has no table"
    return found


def cells(line: str) -> Iterable[str]:
    """The cells of a row without backticks, which protect a `*`."""
    for cell in line.strip().strip("|").split(" | "):
        yield cell.strip().strip("`")


def is_code(difference: Difference) -> bool:
    """Whether both returned an error code. If one has no value, there are no two codes to compare."""
    last = difference.path.rpartition(".")[2]
    return ABSENT not in difference and last in (
        "error_code",
        "leader_epoch",
        "partition_leader_epoch",
    )


def is_znode(difference: Difference) -> bool:
    return difference.path.startswith("/")


def find_undocumented(
    differences: Sequence[Difference], known: Sequence[KnownDifference]
) -> list[Difference]:
    return [
        difference
        for difference in differences
        if not any(row.covers(difference) and row.may_excuse(difference) for row in known)
    ]


def find_outdated(
    differences: Sequence[Difference], known: Sequence[KnownDifference]
) -> list[KnownDifference]:
    return [row for row in known if not any(row.covers(found) for found in differences)]
