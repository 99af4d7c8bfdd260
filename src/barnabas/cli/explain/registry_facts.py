"""Facts from the registry of a cluster: its files on this machine, or its ZooKeeper.

The brokers report where their registry is (zookeeper.connect, or their log directories). --data and --zookeeper name
another place, for example if no broker answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import click
from msgspec import Struct

from barnabas.cli.registry.source import FilesSource, RegistrySource, ZooKeeperSource, open_source
from barnabas.errors import BarnabasError, NoNode, RegistryError, RegistryUnreachable, StorageError
from barnabas.explain.facts import RegistryFacts
from barnabas.metadata import znodes
from barnabas.metadata.znodes import TopicAssignment
from barnabas.model import TopicPartition

REGISTRY_TIMEOUT_MS = 3000


class RegistryPlace(Struct, frozen=True, kw_only=True):
    """Where the registry is. All None: unknown. `is_given`: the user named it, so it must be readable."""

    zookeeper: str | None = None
    directory: str | None = None
    data: str | None = None
    is_given: bool = False

    @property
    def name(self) -> str:
        if self.zookeeper is not None:
            return f"the ZooKeeper at {self.zookeeper}"
        return f"the registry in {self.data or self.directory}"


def registry_place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --data and --zookeeper, which name the registry if the brokers cannot."""
    for decorate in (
        click.option(
            "--zookeeper",
            metavar="HOST:PORT,…",
            help="ZooKeeper of the cluster; default: as reported by a broker.",
        ),
        click.option(
            "--data",
            metavar="DIR",
            help="Data directory of `barnabas up`, if no broker answers.",
        ),
    ):
        command = decorate(command)
    return command


def find_place(settings: Mapping[str, str]) -> RegistryPlace:
    """Return the place of the registry from the settings of a broker."""
    if connect := settings.get("zookeeper.connect"):
        return RegistryPlace(zookeeper=connect)
    if directory := settings.get("barnabas.registry.dir"):
        return RegistryPlace(directory=directory)
    logs = (
        (settings.get("log.dirs") or settings.get("log.dir") or "")
        .split(",")[0]
        .strip()
        .rstrip("/")
    )
    parent, slash, name = logs.rpartition("/")
    if not name:
        return RegistryPlace()
    beside = name.startswith("broker-")
    return RegistryPlace(directory=f"{parent}{slash}registry" if beside else f"{logs}-registry")


@contextmanager
def open_place(place: RegistryPlace) -> Iterator[RegistrySource | None]:
    """Open the registry. Yields None if it is not on this machine. Raises BarnabasError if it cannot be read."""
    if place.zookeeper is not None:
        with (
            asyncio.Runner() as runner,
            closing(
                ZooKeeperSource(place.zookeeper, runner, connection_timeout_ms=REGISTRY_TIMEOUT_MS)
            ) as source,
        ):
            yield source
    elif place.data is not None:
        with open_source(place.data, None) as source:
            yield source
    elif place.directory is not None and Path(place.directory).is_dir():
        from barnabas.world.registry.reader import Reader

        try:
            reader = Reader(place.directory)
        except StorageError:
            yield None  # a registry in memory, or of a cluster on another machine
            return
        with closing(reader):
            yield FilesSource(reader)
    else:
        yield None


def gather_registry_facts(
    place: RegistryPlace, known: Mapping[str, object], wanted: list[str], *, all_topics: bool
) -> tuple[RegistryFacts | None, str | None]:
    """Return the facts, or the reason why a ZooKeeper does not answer.

    Reads the znodes of `wanted` topics, of topics that are deleted or not in the metadata (`known`), or of all topics.
    """
    try:
        with open_place(place) as source:
            if source is None:
                return None, None
            return read_facts(source, place.name, known, wanted, all_topics=all_topics), None
    except BarnabasError as error:
        if place.zookeeper is None:
            if place.is_given:
                raise
            return None, None  # files of another user, or of another program
        if isinstance(error, RegistryUnreachable):
            return None, f"no answer within {REGISTRY_TIMEOUT_MS // 1000} s"
        return None, str(error).removeprefix("RegistryError: ")


def read_facts(
    source: RegistrySource,
    name: str,
    known: Mapping[str, object],
    wanted: list[str],
    *,
    all_topics: bool,
) -> RegistryFacts:
    invalid: dict[str, str] = {}
    topics = children(source, znodes.TOPICS)
    markers = {
        each: created_ms(source, znodes.delete_topic_path(each))
        for each in children(source, znodes.DELETE_TOPICS)
    }
    read = [
        each
        for each in topics
        if all_topics or each in wanted or each in markers or each not in known
    ]
    assignments = {each: read_topic(source, each, invalid) for each in read}
    return RegistryFacts(
        name=name,
        cluster_id=read_cluster_id(source),
        controller=read_controller(source),
        brokers={
            int(each): created_ms(source, f"{znodes.BROKER_IDS}/{each}")
            for each in children(source, znodes.BROKER_IDS)
            if each.isdigit()
        },
        topics={topic: each for topic, each in assignments.items() if each is not None},
        markers=markers,
        requested_moves=read_requested_moves(source),
        invalid=invalid,
    )


def children(source: RegistrySource, path: str) -> list[str]:
    try:
        return sorted(source.children(path))
    except NoNode:
        return []


def created_ms(source: RegistrySource, path: str) -> int:
    try:
        return source.get(path)[1].ctime_ms
    except NoNode:
        return 0


def read_cluster_id(source: RegistrySource) -> str | None:
    try:
        return znodes.decode_cluster_id(source.get(znodes.CLUSTER_ID)[0])
    except RegistryError:
        return None


def read_controller(source: RegistrySource) -> int | None:
    try:
        return znodes.decode_controller(source.get(znodes.CONTROLLER)[0])
    except RegistryError:
        return None


def read_topic(
    source: RegistrySource, topic: str, invalid: dict[str, str]
) -> TopicAssignment | None:
    path = znodes.topic_path(topic)
    try:
        return znodes.decode_topic(topic, source.get(path)[0])
    except NoNode:
        return None
    except RegistryError as error:
        invalid[topic] = str(error).removeprefix(f"RegistryError: {path}: ")
        return None


def read_requested_moves(source: RegistrySource) -> frozenset[TopicPartition]:
    try:
        return frozenset(znodes.decode_reassignment(source.get(znodes.REASSIGN_PARTITIONS)[0]))
    except RegistryError:
        return frozenset()
