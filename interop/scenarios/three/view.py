"""The state of a whole cluster: its znodes, each broker's metadata and directories; and whether it is at rest.

A cluster is at rest when no more changes are pending: the running brokers are registered, every partition that can have
a leader has one, its ISR contains all running replicas, and every broker's metadata and directories match the znodes.
States are compared only at rest, because both clusters progress at their own speed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from barnabas.wire.messages.metadata import MetadataResponse
from interop.scenarios.normalise import Flat, Normaliser
from interop.scenarios.registry import Nodes, shown_znodes

TOPICS = "/brokers/topics/"
CONFIGS = "/config/topics/"
PLACED = ("any-", "__")
"""Topics with these names were placed randomly by the cluster: their brokers are not compared, but their balance is."""


@dataclass(frozen=True)
class State:
    leader: int
    leader_epoch: int
    isr: list[int]


@dataclass(frozen=True)
class View:
    znodes: Nodes
    metadata: Mapping[int, MetadataResponse]
    directories: Mapping[int, frozenset[str]]
    """Directories of partitions, also on stopped brokers; without those marked for removal."""

    @cached_property
    def controller(self) -> int | None:
        data = self.content("/controller")
        return data["brokerid"] if data else None

    @cached_property
    def registered(self) -> set[int]:
        return {int(path.rpartition("/")[2]) for path in self.below("/brokers/ids/")}

    @cached_property
    def marked_topics(self) -> set[str]:
        """Topics that are being deleted."""
        return {path.rpartition("/")[2] for path in self.below("/admin/delete_topics/")}

    @cached_property
    def racks(self) -> dict[int, str | None]:
        return {one: self.content(f"/brokers/ids/{one}").get("rack") for one in self.registered}

    @cached_property
    def assignments(self) -> dict[tuple[str, int], list[int]]:
        return {
            (topic, int(partition)): replicas
            for topic in (path.removeprefix(TOPICS) for path in self.below(TOPICS))
            for partition, replicas in self.content(TOPICS + topic)["partitions"].items()
        }

    @cached_property
    def states(self) -> dict[tuple[str, int], State]:
        found = {}
        for topic, partition in self.assignments:
            content = self.content(f"{TOPICS}{topic}/partitions/{partition}/state")
            if content is not None:
                state = State(content["leader"], content["leader_epoch"], content["isr"])
                found[topic, partition] = state
        return found

    def content(self, path: str) -> Any:
        data, _ = self.znodes.get(path, (b"", 0))
        return json.loads(data) if data else None

    def below(self, root: str) -> list[str]:
        """Its children, without theirs."""
        return [
            path
            for path in self.znodes
            if path.startswith(root) and path.count("/") == root.count("/")
        ]


# ---- at rest


def find_unrest(view: View, alive: Collection[int]) -> str | None:
    """The first pending change; None at rest."""
    return next(pending_changes(view, set(alive)), None)


def pending_changes(view: View, alive: set[int]) -> Iterator[str]:
    if view.registered != alive:
        yield f"{view.registered} are registered"
    if view.controller not in alive:
        yield f"{view.controller} is the controller"
    for topic in view.marked_topics:
        # The rest of a deletion waits for stopped brokers.
        if all(
            alive.issuperset(found)
            for (name, _), found in view.assignments.items()
            if name == topic
        ):
            yield f"{topic} is being deleted"
    # The nodes are read one after the other: a topic may be deleted in between.
    topics = {path.removeprefix(TOPICS) for path in view.below(TOPICS)}
    if topics != {path.removeprefix(CONFIGS) for path in view.below(CONFIGS)}:
        yield "a topic has no settings, or settings no topic"
    yield from reassigned(view, alive)
    yield from unsettled(view, alive)
    for broker, metadata in view.metadata.items():
        yield from (f"broker {broker}: {why}" for why in stale_metadata(view, metadata))
    for broker in sorted(alive):
        yield from (f"broker {broker}: {why}" for why in not_on_disk(view, broker, topics))


def reassigned(view: View, alive: set[int]) -> Iterator[str]:
    for topic in (path.removeprefix(TOPICS) for path in view.below(TOPICS)):
        content = view.content(TOPICS + topic)
        adding = content.get("adding_replicas", {})
        removing = content.get("removing_replicas", {})
        if (adding or removing) and alive.issuperset(chain.from_iterable(adding.values())):
            yield f"{topic} is being reassigned"


def unsettled(view: View, alive: set[int]) -> Iterator[str]:
    for (topic, partition), replicas in view.assignments.items():
        running = alive.intersection(replicas)
        state = view.states.get((topic, partition))
        if topic in view.marked_topics:
            continue
        if state is None:
            if running:
                yield f"{topic}-{partition} has no state"
        elif state.leader == -1:
            if alive.intersection(state.isr):
                yield f"{topic}-{partition} has no leader"
        elif state.leader not in alive or set(state.isr) != running:
            yield f"{topic}-{partition} has {state}"


def not_on_disk(view: View, broker: int, topics: set[str]) -> Iterator[str]:
    there = view.directories[broker]
    for (topic, partition), replicas in view.assignments.items():
        if (
            broker in replicas
            and topic not in view.marked_topics
            and f"{topic}-{partition}" not in there
        ):
            yield f"has no directory of {topic}-{partition}"
    for directory in there:
        topic, _, number = directory.rpartition("-")
        key = (topic, int(number) if number.isdecimal() else -1)
        if topic not in topics or broker not in view.assignments.get(key, [broker]):
            yield f"still has {directory}"


def stale_metadata(view: View, metadata: MetadataResponse) -> Iterator[str]:
    """The differences between one broker's metadata and the znodes."""
    if {one.node_id for one in metadata.brokers} != view.registered:
        yield "knows other brokers"
    if metadata.controller_id != view.controller:
        yield f"takes {metadata.controller_id} for the controller"
    known = {
        (str(topic.name), partition.partition_index): State(
            partition.leader_id, partition.leader_epoch, list(partition.isr_nodes)
        )
        for topic in metadata.topics
        for partition in topic.partitions
    }
    there = {key: state for key, state in view.states.items() if key[0] not in view.marked_topics}
    for partition in sorted(known.keys() | there.keys()):
        if known.get(partition) != there.get(partition):
            yield f"{partition} is {known.get(partition)}, not {there.get(partition)}"


# ---- as values to compare


def flatten_view(view: View, normaliser: Normaliser) -> Flat:
    found: Flat = {}
    for broker, metadata in view.metadata.items():
        values = normaliser.flatten_cached(metadata)
        values["controller_id"] = reported_controller(view, metadata)
        found |= {f"broker {broker}: {path}": value for path, value in values.items()}
    found |= shown_znodes(view.znodes, normaliser)
    if view.controller in view.registered:
        found["/controller brokerid"] = "<one that runs>"
    by_role(found, view)
    for broker, there in view.directories.items():
        for directory in there:
            if not directory.startswith(PLACED):
                found[f"disk of broker {broker}: {directory}"] = "there"
    return found


def reported_controller(view: View, metadata: MetadataResponse) -> object:
    return (
        "<the controller>" if metadata.controller_id == view.controller else metadata.controller_id
    )


def by_role(found: Flat, view: View) -> None:
    """Replace broker ids of randomly placed topics by their position in the replica list."""
    topics = {topic for topic, _ in view.assignments if topic.startswith(PLACED)}
    for topic in topics:
        placed = [replicas for (name, _), replicas in view.assignments.items() if name == topic]
        found[f"{TOPICS}{topic} partitions"] = layout(placed, view.racks)
    for (topic, partition), state in view.states.items():
        if topic not in topics:
            continue
        replicas = view.assignments[topic, partition]
        path = f"{TOPICS}{topic}/partitions/{partition}/state"
        found[f"{path} leader"] = place(state.leader, replicas)
        found[f"{path} isr"] = places(state.isr, replicas)
        for broker in view.metadata:
            path = f"broker {broker}: topics.{topic}.partitions.{partition}"
            for name in ("replica_nodes", "isr_nodes", "leader_id"):
                value: Any = found.get(f"{path}.{name}")
                if isinstance(value, tuple):
                    found[f"{path}.{name}"] = places(list(value), replicas)
                elif value is not None:
                    found[f"{path}.{name}"] = place(value, replicas)


def place(broker: int, replicas: list[int]) -> str:
    return f"replica {replicas.index(broker)}" if broker in replicas else str(broker)


def places(brokers: list[int], replicas: list[int]) -> str:
    return ", ".join(place(broker, replicas) for broker in brokers)


def layout(placed: list[list[int]], racks: Mapping[int, str | None]) -> str:
    """The balance: the number of partitions each broker leads and has, and the number of racks of a partition."""
    leads = Counter(replicas[0] for replicas in placed)
    has = Counter(broker for replicas in placed for broker in replicas)
    sizes = sorted({len(set(replicas)) for replicas in placed})
    spread = sorted({len({racks.get(broker) for broker in replicas}) for replicas in placed})
    return (
        f"{len(placed)} partitions of {sizes} replicas, led {sorted(leads.values())}, "
        f"had {sorted(has.values())}, on {spread} racks"
    )
