"""The events of a group's members in order, and their invariants (pure).

A member reads each partition without a gap, starting at the committed offset at the time of its assignment:

    committed ≤ begin ≤ read        read: the end of the records read so far, by any member
              └ nothing that was acknowledged is read again
                        └ nothing is skipped

Records between begin and read are repeated: their reader lost the partition or crashed before it committed them.

A member that was expelled learns it with its next request. Until then it may still handle records that it has fetched
before. Such a read is no handover, but it must not leave a gap either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Handover(NamedTuple):
    partition: int
    before: str | None
    """The member that read the partition last."""
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
    owners: dict[int, str] = {}
    """Member to which a partition was assigned last."""
    positions: dict[tuple[str, int], int] = {}
    readers: dict[int, str] = {}
    for line in sorted(lines, key=lambda each: each["at"]):
        member, event = line["member"], line["event"]
        if event == "owns":
            now = set(line["partitions"])
            for gone in owned.get(member, set()) - now:
                positions.pop((member, gone), None)
            owned[member] = now
            owners |= dict.fromkeys(now, member)
        elif event == "again":
            positions.pop((member, line["partition"]), None)
        elif event == "committed":
            for partition, offset in line["offsets"].items():
                index = int(partition)
                history.committed[index] = max(offset, history.committed.get(index, 0))
        elif event == "read":
            partition, first = line["partition"], line["first"]
            is_expelled = owners.get(partition, member) != member
            at = positions.get((member, partition))
            read = history.read.get(partition, 0)
            if at is None and is_expelled:
                if first > read:
                    history.violations.append(f"expelled {member} skips {read} of {partition}")
            elif at is None:
                take_over(history, partition, readers.get(partition), member, first)
            elif at != first:
                history.violations.append(
                    f"{member} reads {first} of partition {partition} after {at - 1}"
                )
            end = positions[member, partition] = first + line["count"]
            if not is_expelled:
                readers[partition] = member
                history.read[partition] = max(end, read)
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
