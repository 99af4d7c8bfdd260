"""Compares the logs of all replicas on disk byte by byte up to the high watermark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.batch.header import batch_headers, crc_is_valid
from barnabas.batch.records import records


class Copy(NamedTuple):
    """The log of one replica below the high watermark."""

    data: bytes
    values: list[bytes]
    epochs: list[int]
    """Leader epochs in log order, without repetitions."""
    faults: list[str]


def read_copy(directory: Path, high_watermark: int) -> Copy:
    """Read all segments as one log: each broker rolls segments on its own."""
    joined = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    view = memoryview(joined)
    values: list[bytes] = []
    epochs: list[int] = []
    faults: list[str] = []
    end = 0
    for at, header in batch_headers(view):
        if header.base_offset >= high_watermark:
            break
        if header.base_offset != len(values):
            faults.append(f"{directory}: offset {header.base_offset} in place of {len(values)}")
            break
        if not crc_is_valid(view, at, header):
            faults.append(f"{directory}: the batch at {header.base_offset} is damaged")
        if not epochs or epochs[-1] != header.partition_leader_epoch:
            epochs.append(header.partition_leader_epoch)
        values += [bytes(each.value or b"") for each in records(view[at : at + header.size])]
        end = at + header.size
    if len(values) != high_watermark:
        faults.append(f"{directory}: ends at {len(values)}, the high watermark is {high_watermark}")
    if epochs != sorted(set(epochs)):
        faults.append(f"{directory}: leader epochs go back: {epochs}")
    return Copy(joined[:end], values, epochs, faults)


def differences(copies: Mapping[int, Copy]) -> list[str]:
    """Compare copies by broker. The bytes include offsets, leader epochs, sequences and batch boundaries."""
    found = [fault for copy in copies.values() for fault in copy.faults]
    (first, reference), *others = copies.items()
    for broker, copy in others:
        if copy.data != reference.data:
            pairs = zip(reference.data, copy.data, strict=False)
            length = min(len(copy.data), len(reference.data))
            at = next((n for n, (one, other) in enumerate(pairs) if one != other), length)
            found.append(f"brokers {first} and {broker} differ from byte {at} on")
    return found
