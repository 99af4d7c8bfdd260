"""Flattens a partition's directory: file names, batches, index entries, lines of the small text files."""

from __future__ import annotations

import struct
from pathlib import Path

from barnabas.storage import producers
from interop.scenarios.normalise import Normaliser, digest

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TOPIC_ID = "topic_id: "
ROOT_TEXTS = ("-checkpoint",)
SNAPSHOT_ENTRIES_AT = producers.SNAPSHOT_HEAD.size + producers.SNAPSHOT_COUNT.size
CHOSEN_PROPERTIES = ("cluster.id", "directory.id", "#")


def partition_directory(directory: Path, normaliser: Normaliser) -> dict[str, object]:
    """Flatten a directory. Preallocated space at the end of index files is ignored."""
    found: dict[str, object] = {}
    for path in sorted(directory.iterdir()):
        name = path.name
        data = path.read_bytes()
        found[name] = "there"
        if path.suffix == ".log":
            found.update(normaliser.batches(data, name))
        elif path.suffix == ".index":
            found[f"{name}.entries"] = entries(OFFSET_ENTRY, data)
        elif path.suffix == ".timeindex":
            found[f"{name}.entries"] = tuple(
                (normaliser.scalar("", at), offset) for at, offset in entries(TIME_ENTRY, data)
            )
        elif path.suffix == ".snapshot":
            found[f"{name}.producers"] = snapshot(data, normaliser)
        elif name == "partition.metadata":
            lines = data.decode().splitlines()
            found[f"{name}.lines"] = tuple(
                TOPIC_ID + "…" if line.startswith(TOPIC_ID) else line for line in lines
            )
        elif name == "leader-epoch-checkpoint":
            found[f"{name}.lines"] = tuple(data.decode().splitlines())
        else:
            found[f"{name}.content"] = digest(data)
    return found


def log_directory(directory: Path) -> dict[str, object]:
    """The files next to the partitions. Checkpoints are compared as sets, because their order is random."""
    found: dict[str, object] = {}
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            continue
        found[path.name] = "there"
        if path.name.endswith(ROOT_TEXTS):
            for line in path.read_text().splitlines()[2:]:
                partition, _, offset = line.rpartition(" ")
                found[f"{path.name}.{partition.replace(' ', '-')}"] = int(offset)
        elif path.name == "meta.properties":
            found[f"{path.name}.lines"] = tuple(
                sorted(
                    line
                    for line in path.read_text().splitlines()
                    if not line.startswith(CHOSEN_PROPERTIES)
                )
            )
    return found


def entries(layout: struct.Struct, data: bytes) -> tuple[tuple[int, ...], ...]:
    used = data.rstrip(b"\0")
    whole = -(-len(used) // layout.size) * layout.size
    return tuple(layout.iter_unpack(data[:whole]))


def snapshot(data: bytes, normaliser: Normaliser) -> object:
    """(id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, open transaction) of each."""
    version, _ = producers.SNAPSHOT_HEAD.unpack_from(data)
    found = producers.SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_ENTRIES_AT:])
    shown = sorted(tuple(normaliser.scalar("", item) for item in entry) for entry in found)
    return (version, *shown)
