"""Flattens znodes: every path, and its JSON field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from barnabas.metadata.znodes import decode_uuid
from barnabas.world.registry.tree import Tree
from interop.scenarios.normalise import Normaliser

CHOSEN = ("cluster", "endpoints", "host", "port", "id")
ZOOKEEPERS_OWN = "/zookeeper"
BROKER_IDS = "/brokers/ids/"  # written whenever a broker learns something about its addresses


Nodes = dict[str, tuple[bytes, int]]


def shown_znodes(znodes: Nodes, normaliser: Normaliser) -> dict[str, object]:
    found: dict[str, object] = {}
    for path, (data, version) in sorted(znodes.items()):
        if path.startswith(ZOOKEEPERS_OWN):
            continue
        is_registration = path.startswith(BROKER_IDS)
        found[path] = "there" if is_registration else f"version {version}"
        try:
            content = json.loads(data) if data else None
        except ValueError:
            content = data.decode(errors="replace")
        for name, value in fields(content, normaliser):
            found[f"{path} {name}".strip()] = value
    return found


def fields(content: Any, normaliser: Normaliser) -> Iterator[tuple[str, object]]:
    if not isinstance(content, dict):
        yield "", content
        return
    for name, value in content.items():
        if name == "topic_id":
            yield name, normaliser.scalar("", decode_uuid("", value))
        elif name == "timestamp":
            yield name, "<now>"
        elif name in CHOSEN:
            yield name, f"<{name}>"
        else:
            yield name, json.dumps(value, sort_keys=True)


def paths_in(tree: Tree, path: str = "/") -> Iterator[str]:
    for child in tree.children(path):
        below = f"{path.rstrip('/')}/{child}"
        yield below
        yield from paths_in(tree, below)
