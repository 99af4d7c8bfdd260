"""What the members of a group did, in order, and what must hold of it (pure).

A member reads each partition without a gap, from where the group had committed when it was given it:

    committed ≤ begin ≤ read        read: the end of what anybody had read of it
              └ nothing that was acknowledged is read again
                        └ nothing is skipped

What lies between begin and read is repeated: it had been read, and not committed, when its reader gave it up or died.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Handover(NamedTuple):
    partition: int
    before: str | None
    """Who had read of it last."""
    after: str
    committed: int
    begin: int
    read: int

    @property
    def repeated(self) -> int:
        return self.read - self.begin


class History(NamedTuple):
    handovers: list[Handover]
    read: dict[int, int]
    committed: dict[int, int]
    violations: list[str]


def history_of(lines: Iterable[Mapping[str, Any]]) -> History:
    history = History([], {}, {}, [])
    owned: dict[str, set[int]] = {}
    positions: dict[tuple[str, int], int] = {}
    readers: dict[int, str] = {}
    for line in sorted(lines, key=lambda each: each["at"]):
        member, event = line["member"], line["event"]
        if event == "owns":
            now = set(line["partitions"])
            for gone in owned.get(member, set()) - now:
                positions.pop((member, gone), None)
            owned[member] = now
        elif event == "again":
            positions.pop((member, line["partition"]), None)
        elif event == "committed":
            for partition, offset in line["offsets"].items():
                index = int(partition)
                history.committed[index] = max(offset, history.committed.get(index, 0))
        elif event == "read":
            partition, first = line["partition"], line["first"]
            at = positions.get((member, partition))
            if at is None:
                take_over(history, partition, readers.get(partition), member, first)
            elif at != first:
                history.violations.append(
                    f"{member} reads {first} of partition {partition} after {at - 1}"
                )
            end = positions[member, partition] = first + line["count"]
            readers[partition] = member
            history.read[partition] = max(end, history.read.get(partition, 0))
    return history


def take_over(history: History, partition: int, before: str | None, after: str, begin: int) -> None:
    found = Handover(
        partition,
        before,
        after,
        committed=history.committed.get(partition, 0),
        begin=begin,
        read=history.read.get(partition, 0),
    )
    history.handovers.append(found)
    if not found.committed <= found.begin <= found.read:
        history.violations.append(str(found))
