"""The topic jobs under kills: archive, restore, resize, mirror and profile of one source topic.

A job is run with one new target after another. Target N of a killed job is repeated until it is complete. All jobs
write the same source, so the result of each target is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from barnabas.cli.topics.profile import write_profile_page
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import latest_offsets
from barnabas.client.partitioner import partition_of_key
from barnabas.client.producer import Producer
from barnabas.jobs.archive import run_archive
from barnabas.jobs.archive_directory import ArchiveDirectory, check_file
from barnabas.jobs.copy_topic import NewCopy
from barnabas.jobs.mirror import Mirror, mirror_topic
from barnabas.jobs.mirror_checkpoints import CHECKPOINT_TOPIC, CheckpointStore
from barnabas.jobs.profile import profile
from barnabas.jobs.profile_page import render_profile
from barnabas.jobs.resize import run_resize
from barnabas.jobs.restore import run_restore
from barnabas.jobs.session import OpenSpark
from barnabas.jobs.topic_range import look_up_range
from barnabas.jobs.topic_state import look_up_state, topic_settings
from barnabas.model import TopicPartition

SOURCE = "shipments"
PARTITIONS, RESIZED = 4, 3
RECORDS, KEYS = 12_000, 1000
VALUE = b"x" * 100
FINAL_SETTINGS = {"retention.ms": "-1"}
"""Settings of restored and resized topics when the copy is complete."""
GROUP_SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
"""Settings of the broker with the source, which stores groups."""
ARCHIVE_STAGES = ("_lock", "_staging-*", "_staging-*/date=*", "_staging-*/*.part", "date=*")
"""Files that show how far an archive run is."""

Values = dict[int, list[bytes]]
"""The end of each value after VALUE, by partition and in order."""


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


def prepare(place: Place, spark: SparkSession) -> Values:
    """Create the source and the archive that is restored. Returns the content of the source."""
    with Cluster(place.servers) as cluster:
        (created,) = Admin(cluster).create_topics([NewTopic(name=SOURCE, partitions=PARTITIONS)])
        assert created.error is None
        with Producer(cluster) as producer:
            for number in range(RECORDS):
                producer.send(SOURCE, VALUE + b"%d" % number, key=b"%d" % (number % KEYS))
    archive(spark, place, "source")
    expected = read_values(place.servers, SOURCE, PARTITIONS)
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


def write_profile(spark: SparkSession, place: Place, number: int) -> None:
    with Cluster(place.servers) as cluster:
        wanted = look_up_range(cluster, cluster.topic(SOURCE))
    found = profile(spark, cluster, wanted)
    assert (found.records, found.keys.distinct) == (RECORDS, KEYS)
    assert found.missing_offsets == found.duplicates == 0
    place.page(number).parent.mkdir(exist_ok=True)
    write_profile_page(place.page(number), render_profile(found, place.servers, 0))


def given(spark: SparkSession) -> OpenSpark:
    def open_spark(_records: int) -> AbstractContextManager[SparkSession]:
        return nullcontext(spark)

    return open_spark


def new_copy(name: str, partitions: int) -> NewCopy:
    return NewCopy(name=name, partition_count=partitions, settings=FINAL_SETTINGS)


# ---- check ------------------------------------------------------------------------------------------------------


def check_archive(place: Place, number: int, expected: Values) -> None:
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
    assert archived_values(directory.path) == expected


def check_restored(place: Place, number: int, expected: Values) -> None:
    assert read_values(place.servers, f"restored-{number}", PARTITIONS) == expected
    assert settings_of(place.servers, f"restored-{number}") == FINAL_SETTINGS


def check_resized(place: Place, number: int, expected: Values) -> None:
    found = read_values(place.servers, f"resized-{number}", RESIZED)
    source_order = {value: at for values in expected.values() for at, value in enumerate(values)}
    for partition, values in found.items():
        by_key: dict[int, list[int]] = {}
        for value in values:
            by_key.setdefault(int(value) % KEYS, []).append(source_order[value])
        assert all(positions == sorted(positions) for positions in by_key.values())
        assert all(partition_of_key(b"%d" % key, RESIZED) == partition for key in by_key)
    copied = Counter(value for values in found.values() for value in values)
    assert copied == Counter(value for values in expected.values() for value in values)
    assert settings_of(place.servers, f"resized-{number}") == FINAL_SETTINGS


def check_mirrored(place: Place, number: int, expected: Values) -> None:
    assert read_values(place.mirror_servers, f"mirror-{number}-{SOURCE}", PARTITIONS) == expected


def check_page(place: Place, number: int, expected: Values) -> None:
    page = place.page(number).read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")


class Job(NamedTuple):
    run: Callable[[SparkSession, Place, int], None]
    check: Callable[[Place, int, Values], None]


JOBS = {
    "archive": Job(archive, check_archive),
    "restore": Job(restore, check_restored),
    "resize": Job(resize, check_resized),
    "mirror": Job(mirror, check_mirrored),
    "profile": Job(write_profile, check_page),
}


def expected_topics(targets: Mapping[str, int]) -> tuple[set[str], set[str]]:
    """Return all topics of both clusters, if each job has this many targets."""
    source = {SOURCE, *numbered("restored-", targets["restore"], "")}
    source |= set(numbered("resized-", targets["resize"], ""))
    return source, {CHECKPOINT_TOPIC, *numbered("mirror-", targets["mirror"], f"-{SOURCE}")}


def numbered(before: str, count: int, after: str) -> Iterator[str]:
    return (f"{before}{number}{after}" for number in range(count))


def check_results(
    place: Place, expected: Values, other_topics: Collection[str] = frozenset()
) -> None:
    """Check all targets, and that nothing else is there, except other topics beside the source."""
    targets = {name: place.first_open(name) for name in JOBS}
    for name, job in JOBS.items():
        for number in range(targets[name]):
            job.check(place, number, expected)
    pages = {path.name for path in (place.directory / "pages").iterdir()}
    assert pages == {place.page(number).name for number in range(targets["profile"])}
    source, mirror = expected_topics(targets)
    for servers, wanted in (
        (place.servers, source.union(other_topics)),
        (place.mirror_servers, mirror),
    ):
        with Cluster(servers) as cluster:
            found = {name for name in cluster.refresh(None).topics if not name.startswith("__")}
            groups = [each.group_id for each in GroupAdmin(cluster).list_groups()]
        assert found == wanted
        assert not groups, "offsets of a resize are left"


# ---- topics and files -------------------------------------------------------------------------------------------


def read_values(servers: str, topic: str, partitions: int) -> Values:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: Values = {number: [] for number in range(partitions)}
    with Cluster(servers) as cluster:
        left = sum(latest_offsets(cluster, places).values())
        consumer = Consumer(cluster, dict.fromkeys(places, Beginning()))
        while left:
            for record in consumer.poll(1.0):
                found[record.partition].append((record.value or b"")[len(VALUE) :])
                left -= 1
    return found


def archived_values(root: Path) -> Values:
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for path in root.rglob("*.parquet"):
        table = pq.ParquetFile(path).read(["offset", "value"]).to_pydict()
        rows = zip(table["offset"], table["value"], strict=True)
        found[int(path.parent.name.partition("=")[2])] += rows
    return {
        number: [value[len(VALUE) :] for _, value in sorted(rows)] for number, rows in found.items()
    }


def settings_of(servers: str, topic: str) -> dict[str, str]:
    with Cluster(servers) as cluster:
        return topic_settings(cluster, topic)
