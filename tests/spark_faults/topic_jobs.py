"""The topic jobs under kills: archive, restore, resize, mirror and profile of one source topic.

A job is run with one new target after another. Target N of a killed job is repeated until it is complete. These jobs
read the same source, so the result of each target is known.

Two jobs have sources that grow while they are copied: `swap` moves a topic and its group with `resize --swap`, and
`follow` runs the rounds of `mirror --continuous`, each time with more partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from barnabas.cli.topics.mirror import copy_round
from barnabas.cli.topics.mirror_rounds import FailedTopics
from barnabas.cli.topics.profile import write_profile_page
from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.partitioner import partition_of_key
from barnabas.errors import ErrorCode
from barnabas.jobs.archive import run_archive
from barnabas.jobs.archive_directory import ArchiveDirectory, check_file
from barnabas.jobs.copy_pass import state_groups
from barnabas.jobs.copy_topic import NewCopy
from barnabas.jobs.mirror import Mirror, mirror_topic
from barnabas.jobs.mirror_checkpoints import CHECKPOINT_TOPIC, CheckpointStore
from barnabas.jobs.moved_groups import MOVED
from barnabas.jobs.profile import profile
from barnabas.jobs.profile_page import render_profile
from barnabas.jobs.resize import run_resize
from barnabas.jobs.restore import run_restore
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.swap import SwapRun, run_swap
from barnabas.jobs.topic_range import look_up_range
from barnabas.jobs.topic_state import look_up_state, topic_settings
from barnabas.model import TopicPartition
from tests.spark_faults.topic_rows import (
    KEYS,
    Row,
    Rows,
    archived_rows,
    count_rows,
    read_rows,
    write_rows,
)

SOURCE = "shipments"
PARTITIONS, RESIZED = 4, 3
RECORDS = 12_000
GROWING = "parcels"
PARTITIONS_MAX = 8
GROWTH = 1500
"""Records that are added to a growing source while a target is copied."""
GROW_EVERY_S = 0.1
CONSUMED = 100
"""Records of each partition that the group of a swap has consumed."""
FINAL_SETTINGS = {"retention.ms": "-1"}
"""Settings of restored and resized topics when the copy is complete."""
GROUP_SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
"""Settings of the broker with the source, which stores groups."""
ARCHIVE_STAGES = ("_lock", "_staging-*", "_staging-*/date=*", "_staging-*/*.part", "date=*")
"""Files that show how far an archive run is."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the jobs read and write: the cluster with the source, the cluster of the mirror, and a directory."""

    servers: str
    mirror_servers: str
    directory: Path

    def archive(self, number: int | str) -> ArchiveDirectory:
        return ArchiveDirectory(self.directory / f"archive-{number}" / SOURCE)

    def page(self, number: int) -> Path:
        return self.directory / "pages" / f"profile-{number}.html"

    def done_file(self, job: str, number: int) -> Path:
        """This file exists when target `number` of the job is complete."""
        return self.directory / "done" / f"{job}-{number}"

    def first_open(self, job: str) -> int:
        """Number of the first target that is not complete."""
        number = 0
        while self.done_file(job, number).exists():
            number += 1
        return number


def prepare(place: Place, spark: SparkSession) -> Rows:
    """Create the source and the archive that is restored. Returns the content of the source."""
    with Cluster(place.servers) as cluster:
        ensure_topic(cluster, SOURCE)
    write_rows(place.servers, SOURCE, range(RECORDS))
    archive(spark, place, "source")
    expected = read_rows(place.servers, SOURCE)
    assert sum(map(len, expected.values())) == RECORDS
    return expected


# ---- run --------------------------------------------------------------------------------------------------------


def archive(spark: SparkSession, place: Place, number: int | str) -> None:
    with Cluster(place.servers) as cluster:
        run_archive(given(spark), cluster, SOURCE, place.archive(number))


def restore(spark: SparkSession, place: Place, number: int) -> None:
    new = new_copy(f"restored-{number}", PARTITIONS)
    with Cluster(place.servers) as cluster:
        run_restore(given(spark), cluster, place.archive("source"), new)


def resize(spark: SparkSession, place: Place, number: int) -> None:
    new = new_copy(f"resized-{number}", RESIZED)
    with Cluster(place.servers) as cluster:
        source = look_up_state(cluster, SOURCE)
        run_resize(given(spark), cluster, source, new)


def mirror(spark: SparkSession, place: Place, number: int) -> None:
    with Cluster(place.servers) as source, Cluster(place.mirror_servers) as target:
        store = CheckpointStore(target, Admin(source).describe_cluster().cluster_id)
        clusters = Mirror(source, target, store, f"mirror-{number}-")
        while mirror_topic(spark, clusters, SOURCE).lag:
            pass


def swap(spark: SparkSession, place: Place, number: int) -> None:
    """Each target has a source of its own, which grows during the copy, and a group that has consumed a part of it."""
    name = f"swap-{number}"
    new = new_copy(f"swapped-{number}", RESIZED)
    with Cluster(place.servers) as cluster:
        ensure_topic(cluster, name)
        if count_rows(cluster, name) < GROWTH:
            write_rows(place.servers, name, range(count_rows(cluster, name), GROWTH))
        consumed = {TopicPartition(name, each): CONSUMED for each in range(PARTITIONS)}
        GroupAdmin(cluster).set_offsets(swap_group(number), consumed)

        def run() -> SwapRun:
            source = look_up_state(cluster, name)
            return run_swap(given(spark), cluster, source, new, lambda _offsets: None)

        with growing(place.servers, name, 2 * GROWTH):
            run()
        # The source may have grown once more after the last pass.
        last = run()
    assert not last.uncopied
    assert [(each.group, each.status) for each in last.groups] == [(swap_group(number), MOVED)]


def swap_group(number: int) -> str:
    return f"readers-{number}"


def follow(spark: SparkSession, place: Place, number: int) -> None:
    """All targets are states of one mirror, whose source grows."""
    with Cluster(place.servers) as source, Cluster(place.mirror_servers) as target:
        ensure_topic(source, GROWING)
        count = min(PARTITIONS + number, PARTITIONS_MAX)
        Admin(source).create_partitions([NewPartitions(name=GROWING, count=count)])
        store = CheckpointStore(target, Admin(source).describe_cluster().cluster_id)
        clusters = Mirror(source, target, store, "live-")
        with growing(place.servers, GROWING, (number + 1) * GROWTH) as is_growing:
            while is_growing():
                mirror_once(spark, clusters)
        while mirror_once(spark, clusters):
            pass


def mirror_once(spark: SparkSession, clusters: Mirror) -> int:
    """Run a round of a continuous mirror. Returns how many records are left."""
    done = copy_round(spark, clusters, GROWING, FailedTopics(), verify=True)
    done.raise_failure()
    return sum(each.lag for each in done.done)


def write_profile(spark: SparkSession, place: Place, number: int) -> None:
    with Cluster(place.servers) as cluster:
        wanted = look_up_range(cluster, cluster.topic(SOURCE))
    found = profile(spark, cluster, wanted)
    assert (found.records, found.keys.distinct) == (RECORDS, KEYS)
    assert found.missing_offsets == found.duplicates == 0
    place.page(number).parent.mkdir(exist_ok=True)
    write_profile_page(place.page(number), render_profile(found, place.servers, 0))


@contextmanager
def growing(servers: str, topic: str, end: int) -> Iterator[Callable[[], bool]]:
    """Write records to a topic in a thread until it has `end` of them. Yields whether it still grows."""
    with Cluster(servers) as cluster, ThreadPoolExecutor(1) as executor:
        first = count_rows(cluster, topic)
        rows = range(first, end)
        writing = executor.submit(write_rows, servers, topic, rows, chunk_every_s=GROW_EVERY_S)
        yield lambda: not writing.done()
        writing.result()


def ensure_topic(cluster: Cluster, name: str) -> None:
    (created,) = Admin(cluster).create_topics([NewTopic(name=name, partitions=PARTITIONS)])
    if created.error is not None and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise created.error


def given(spark: SparkSession) -> OpenSpark:
    def open_spark(_records: int) -> AbstractContextManager[SparkSession]:
        return nullcontext(spark)

    return open_spark


def new_copy(name: str, partitions: int) -> NewCopy:
    return NewCopy(name=name, partition_count=partitions, settings=FINAL_SETTINGS)


# ---- check ------------------------------------------------------------------------------------------------------


def check_archive(place: Place, number: int, expected: Rows) -> None:
    directory = place.archive(number)
    manifest = directory.manifest()
    assert manifest is not None
    assert manifest.records == RECORDS
    found = {
        path.relative_to(directory.path).as_posix()
        for path in directory.path.rglob("*")
        if path.is_file()
    }
    assert found == {"_lock", "_manifest.json", *(file.path for file in manifest.files)}
    assert not list(
        filter(None, (check_file(str(directory.path), each) for each in manifest.files))
    )
    assert archived_rows(directory.path) == expected


def check_restored(place: Place, number: int, expected: Rows) -> None:
    assert read_rows(place.servers, f"restored-{number}") == expected
    assert settings_of(place.servers, f"restored-{number}") == FINAL_SETTINGS


def check_resized(place: Place, number: int, expected: Rows) -> None:
    check_copy(place, f"resized-{number}", expected)


def check_copy(place: Place, name: str, expected: Rows) -> Rows:
    """Check a copy with RESIZED partitions. Returns its rows."""
    found = read_rows(place.servers, name)
    assert found.keys() == set(range(RESIZED))
    for partition, rows in found.items():
        assert all(partition_of_key(row.key or b"", RESIZED) == partition for row in rows)
    assert by_key(found) == by_key(expected)
    assert settings_of(place.servers, name) == FINAL_SETTINGS
    return found


def by_key(rows: Rows) -> dict[bytes | None, list[Row]]:
    """The rows of each key in order. A key is in one partition."""
    found: dict[bytes | None, list[Row]] = {}
    for partition in rows.values():
        for row in partition:
            found.setdefault(row.key, []).append(row)
    return found


def check_swapped(place: Place, number: int, _: Rows) -> None:
    source = read_rows(place.servers, f"swap-{number}")
    copy = check_copy(place, f"swapped-{number}", source)
    consumed = {row for rows in source.values() for row in rows[:CONSUMED]}
    with Cluster(place.servers) as cluster:
        offsets = GroupAdmin(cluster).committed_offsets(swap_group(number))
    for partition, rows in copy.items():
        position = offsets[TopicPartition(f"swapped-{number}", partition)].offset
        assert consumed.issuperset(rows[:position]), "the group skips records"
        assert position == len(rows) or rows[position] not in consumed


def check_followed(place: Place, number: int, _: Rows) -> None:
    """Check the mirror once, with its last target."""
    if not place.done_file("follow", number + 1).exists():
        source, copy = (
            read_rows(place.servers, GROWING),
            read_rows(place.mirror_servers, f"live-{GROWING}"),
        )
        assert sum(map(len, source.values())) >= (number + 1) * GROWTH
        assert copy == source


def check_mirrored(place: Place, number: int, expected: Rows) -> None:
    assert read_rows(place.mirror_servers, f"mirror-{number}-{SOURCE}") == expected


def check_page(place: Place, number: int, expected: Rows) -> None:
    page = place.page(number).read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")


class Job(NamedTuple):
    run: Callable[[SparkSession, Place, int], None]
    check: Callable[[Place, int, Rows], None]


JOBS = {
    "archive": Job(archive, check_archive),
    "restore": Job(restore, check_restored),
    "resize": Job(resize, check_resized),
    "swap": Job(swap, check_swapped),
    "mirror": Job(mirror, check_mirrored),
    "follow": Job(follow, check_followed),
    "profile": Job(write_profile, check_page),
}


class Expected(NamedTuple):
    """All topics of both clusters, and all groups of the first."""

    source: set[str]
    mirror: set[str]
    groups: set[str]


def expected_names(targets: Mapping[str, int]) -> Expected:
    """Return the topics and groups that exist after this many targets of each job."""
    swaps = range(targets["swap"])
    source = {SOURCE, *numbered("restored-", targets["restore"], "")}
    source |= set(numbered("resized-", targets["resize"], ""))
    source |= {f"{name}-{number}" for name in ("swap", "swapped") for number in swaps}
    mirror = {CHECKPOINT_TOPIC, *numbered("mirror-", targets["mirror"], f"-{SOURCE}")}
    if targets["follow"]:
        source |= {GROWING}
        mirror |= {f"live-{GROWING}"}
    # The state of a swap stays, so that a later run can continue it.
    groups = {
        name for each in swaps for name in (swap_group(each), *state_groups(f"swapped-{each}"))
    }
    return Expected(source, mirror, groups)


def numbered(before: str, count: int, after: str) -> Iterator[str]:
    return (f"{before}{number}{after}" for number in range(count))


def check_results(
    place: Place, expected: Rows, other_topics: Collection[str] = frozenset()
) -> None:
    """Check all targets, and that nothing else is there, except other topics beside the source."""
    targets = {name: place.first_open(name) for name in JOBS}
    for name, job in JOBS.items():
        for number in range(targets[name]):
            job.check(place, number, expected)
    pages = {path.name for path in (place.directory / "pages").iterdir()}
    assert pages == {place.page(number).name for number in range(targets["profile"])}
    names = expected_names(targets)
    with Cluster(place.servers) as cluster:
        assert topic_names(cluster) == names.source.union(other_topics)
        assert {each.group_id for each in GroupAdmin(cluster).list_groups()} == names.groups
    with Cluster(place.mirror_servers) as cluster:
        assert topic_names(cluster) == names.mirror
        assert not GroupAdmin(cluster).list_groups()


def topic_names(cluster: Cluster) -> set[str]:
    return {name for name in cluster.refresh(None).topics if not name.startswith("__")}


def settings_of(servers: str, topic: str) -> dict[str, str]:
    with Cluster(servers) as cluster:
        return topic_settings(cluster, topic)
