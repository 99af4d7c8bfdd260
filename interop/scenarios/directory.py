"""A partition's directory as values: file names, batches, index entries, the lines of the small text files."""

from __future__ import annotations

import struct
from pathlib import Path

from barnabas.storage import producers
from interop.scenarios.normalise import Normaliser, digest

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TOPIC_ID = "topic_id: "
ROOT_TEXTS = ("-checkpoint",)
CHOSEN_PROPERTIES = ("cluster.id", "directory.id", "#")


def partition_directory(directory: Path, normaliser: Normaliser) -> dict[str, object]:
    """Index files are shown without the empty room that is kept ready at their end while they are in use."""
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
    """The files beside the partitions. Checkpoints are compared as sets of lines; a partition's order is chance."""
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
    whole = data[: len(data) - len(data) % layout.size]
    found = list(layout.iter_unpack(whole))
    while found and not any(found[-1]):
        found.pop()
    return tuple(found)


def snapshot(data: bytes, normaliser: Normaliser) -> object:
    found = producers.decode(data)
    return str(found) if not hasattr(found, "states") else str(found.states)
