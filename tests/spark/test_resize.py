"""Resize: a copy of a topic with another number of partitions, and the swap of its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.partitioner import partition_of_key
from barnabas.client.producer import Producer
from barnabas.errors import ConfigError
from barnabas.jobs.copy_pass import CopyPass, load_pass, next_pass, save_pass
from barnabas.jobs.copy_topic import NewCopy, create_target
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.resize import ResizeRun, run_resize
from barnabas.jobs.swap import SwapRun, run_swap
from barnabas.jobs.topic_state import look_up_state
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan
from tests.spark.topics import Topics

FIRST_MS = 1_700_000_000_000


def resize(topics: Topics, topic: str, partitions: int, new: str, **options: bool) -> ResizeRun:
    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        copy = NewCopy(name=new, partition_count=partitions, settings=source.settings)
        return run_resize(lambda _: nullcontext(topics.spark), cluster, source, copy, **options)


def write_keyed(
    topics: Topics, topic: str, count: int, first: int = 0, base_ms: int = FIRST_MS
) -> None:
    """Records with and without keys, with timestamps that are not in order."""
    with topics.client() as cluster, Producer(cluster) as producer:
        partitions = len(cluster.topic(topic).partitions)
        for number in range(first, first + count):
            key = None if number % 4 == 0 else b"key %d" % (number % 37)
            producer.send(
                topic,
                b"%d" % number,
                key=key,
                partition=None if key else number % partitions,
                timestamp=base_ms + number * 10 - (25 if number % 3 == 0 else 0),
                headers=[("number", b"%d" % number)] if number % 5 == 0 else (),
            )


def fields(record: ConsumedRecord) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp


def expected_copy(
    topics: Topics, topic: str, partitions: int, spans: Mapping[int, LogSpan] | None = None
) -> dict[int, list[tuple[Any, ...]]]:
    """The records of the copy, or of a pass, by the documented rules, computed record by record."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    placed = []
    for source, records in topics.records(topic).items():
        log_time = -1
        for record in records:
            if spans is not None and not spans[source][0] <= record.offset < spans[source][1]:
                continue
            log_time = max(log_time, record.timestamp)
            target = (
                (source + record.offset) % partitions
                if record.key is None
                else partition_of_key(record.key, partitions)
            )
            placed.append((log_time, source, record.offset, target, fields(record)))
    for *_, target, content in sorted(placed, key=lambda each: each[:3]):
        found.setdefault(target, []).append(content)
    return found


def copied(topics: Topics, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    return {
        number: [fields(each) for each in found] for number, found in topics.records(topic).items()
    }


@pytest.mark.parametrize(("before", "after"), [(12, 5), (5, 12)])
def test_resized_topic_has_every_record_in_order(topics: Topics, before: int, after: int) -> None:
    topic = topics.create("orders", partitions=before, retention_ms="99999999999999")
    write_keyed(topics, topic, 600)
    new = f"{topic}-{after}"
    assert (
        sum(span[1] for span in resize(topics, topic, after, new, dry_run=True).spans.values())
        == 600
    )
    run = resize(topics, topic, after, new)
    assert sum(each.written for each in run.partitions) == 600
    found = copied(topics, new)
    assert found == expected_copy(topics, topic, after)
    by_key: dict[bytes | None, list[int]] = {}
    for records in found.values():
        for key, value, *_ in records:
            by_key.setdefault(key, []).append(int(value))
    assert all(values == sorted(values) for key, values in by_key.items() if key is not None)
    with topics.client() as cluster:
        assert look_up_state(cluster, new).settings == {"retention.ms": "99999999999999"}
        groups = {each.group_id for each in GroupAdmin(cluster).list_groups()}
    assert not any(new in group for group in groups)


def test_resize_continues_with_the_same_records_after_a_killed_run(topics: Topics) -> None:
    """The source grows between the runs. The first run has saved the offsets that it copies."""
    topic = topics.create("orders", partitions=3)
    write_keyed(topics, topic, 90)
    new = f"{topic}-2"
    expected = expected_copy(topics, topic, 2)
    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        save_pass(cluster, new, source, CopyPass(spans=dict(enumerate(source.spans))))
        create_target(cluster, NewCopy(name=new, partition_count=2, settings={}))
        with Producer(cluster) as producer:
            for key, value, headers, timestamp in expected[1][:17]:
                producer.send(
                    new, value, key=key, partition=1, timestamp=timestamp, headers=headers
                )
    write_keyed(topics, topic, 60, first=200)
    run = resize(topics, topic, 2, new)
    assert [tuple(each) for each in run.partitions] == [
        (0, 0, len(expected[0])),
        (1, 17, len(expected[1]) - 17),
    ]
    assert copied(topics, new) == expected

    # A later run adds the later records, unless their timestamps are older than those of copied records.
    assert sum(each.written for each in resize(topics, topic, 2, new).partitions) == 60
    assert copied(topics, new) == expected_copy(topics, topic, 2)
    write_keyed(topics, topic, 20)
    with pytest.raises(JobRefused, match="has records that are not the beginning of topic"):
        resize(topics, topic, 2, new)
    with pytest.raises(ConfigError, match="is the topic itself"):
        resize(topics, topic, 2, topic)
    other = topics.create("other", partitions=3)
    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        save_pass(cluster, new, source, CopyPass(spans=dict(enumerate(source.spans))))
    with pytest.raises(
        JobRefused, match=f"has the beginning of a copy of topic {topic}, not {other}"
    ):
        resize(topics, other, 2, new)
    topics.delete_records({TopicPartition(topic, 0): 3})
    with pytest.raises(JobRefused, match=f"{topic}-0 lost records since the copy to {new} began"):
        resize(topics, topic, 2, new)


# ---- swap -------------------------------------------------------------------------------------------------------


def ignore(_: int) -> None:
    pass


def swap(
    topics: Topics,
    topic: str,
    new: str,
    *,
    at_start: Callable[[], None] | None = None,
    on_growth: Callable[[int], None] = ignore,
    dry_run: bool = False,
) -> SwapRun:
    """Swap with three partitions. `at_start` is called when the offsets of the first pass are saved."""

    def open_spark(_: int) -> AbstractContextManager[SparkSession]:
        if at_start is not None:
            at_start()
        return nullcontext(topics.spark)

    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        copy = NewCopy(name=new, partition_count=3, settings=source.settings)
        return run_swap(open_spark, cluster, source, copy, on_growth, dry_run=dry_run)


def join_group(cluster: Cluster, group: str, topic: str) -> GroupConsumer:
    return GroupConsumer(cluster, group, [topic], start=Beginning(), commit_s=None)


def consume(topics: Topics, group: str, topic: str, count: int) -> list[ConsumedRecord]:
    """Read this many records as a member of a group, and commit them."""
    found: list[ConsumedRecord] = []
    deadline = Deadline(30)
    with topics.client() as cluster, join_group(cluster, group, topic) as consumer:
        while len(found) < count:
            assert not deadline.passed, f"{len(found)} of {count} records"
            records = consumer.poll(0.2)[: count - len(found)]
            consumer.processed(records)
            found += records
        consumer.commit(consumer.to_commit)
    return found


def values_by_key(records: Iterable[ConsumedRecord]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found


def outcomes(run: SwapRun) -> dict[str, tuple[str, int]]:
    return {each.group: (each.status, each.members) for each in run.groups}


def test_swap_copies_later_records_and_moves_groups(topics: Topics) -> None:
    topic = topics.create("orders", partitions=5)
    new = f"{topic}-3"
    billing, search, alerts = (f"{name}-{topic}" for name in ("billing", "search", "alerts"))
    write_keyed(topics, topic, 300)
    consumed = {
        group: {each.value for each in consume(topics, group, topic, count)}
        for group, count in ((billing, 170), (search, 300))
    }
    planned = swap(topics, topic, new, dry_run=True)
    assert [each[:4] for each in planned.groups] == [
        (billing, "ready", 0, 130),
        (search, "ready", 0, 0),
    ]

    # Records of the second pass have older timestamps. They come after those of the first one.
    expected = expected_copy(topics, topic, 3)
    with pytest.raises(KeyboardInterrupt):
        swap(
            topics,
            topic,
            new,
            at_start=lambda: write_keyed(topics, topic, 90, first=300, base_ms=FIRST_MS - 10_000),
            on_growth=interrupt,
        )
    assert copied(topics, new) == expected

    # The next run was killed within the second pass, and the topic has grown since.
    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        done = load_pass(cluster, new, source)
        assert done is not None and done.is_empty
        killed = next_pass(done, source)
        save_pass(cluster, new, source, killed)
        second = expected_copy(topics, topic, 3, killed.spans)
        with Producer(cluster) as producer:
            for key, value, headers, timestamp in second[1][:7]:
                producer.send(
                    new, value, key=key, partition=1, timestamp=timestamp, headers=headers
                )
    write_keyed(topics, topic, 50, first=390)
    growth: list[int] = []
    with topics.client() as cluster, join_group(cluster, alerts, topic) as member:
        while not member.consumer.positions:
            member.poll(0.1)
        member.commit({TopicPartition(topic, 0): 0})  # and nothing in the other partitions
        run = swap(topics, topic, new, on_growth=growth.append)
    assert growth == [50]
    assert run.uncopied == 0
    assert outcomes(run) == {billing: ("moved", 0), search: ("moved", 0), alerts: ("active", 1)}
    assert sum(each.skipped for each in run.resize.partitions) == 300 + 7
    assert sum(each.written for each in run.resize.partitions) == 90 - 7 + 50
    found = copied(topics, new)
    for number, records in found.items():
        before = [*expected[number], *second[number]]
        assert records[: len(before)] == before
    in_source = [each for records in topics.records(topic).values() for each in records]
    in_copy = [each for records in topics.records(new).values() for each in records]
    assert len(in_source) == len(in_copy) == 440
    order = values_by_key(each for each in in_source if each.key is not None)
    assert values_by_key(each for each in in_copy if each.key is not None) == order

    # Without its member, the third group moves too. The others have moved already.
    again = swap(topics, topic, new)
    assert outcomes(again) == dict.fromkeys((billing, search, alerts), ("moved", 0))
    assert sum(each.written for each in again.resize.partitions) == 0
    redelivered = {each.group: each.redelivered for each in again.groups}
    consumed[alerts] = set()
    for group, values_before in consumed.items():
        left = {each.value for each in in_source} - values_before
        delivered = consume(topics, group, new, len(left) + (redelivered[group] or 0))
        assert {each.value for each in delivered} >= left
        assert len({(each.partition, each.offset) for each in delivered}) == len(delivered)
        for key, values in values_by_key(delivered).items():
            assert key is None or values == order[key][-len(values) :]
    assert redelivered[search] == redelivered[alerts] == 0
    assert 0 < (redelivered[billing] or 0) < 170

    # The consumers have moved, and so does a producer. Another run changes nothing.
    write_keyed(topics, new, 10, first=1000)
    kept = swap(topics, topic, new)
    assert outcomes(kept) == dict.fromkeys((billing, search, alerts), ("kept", 0))
    with pytest.raises(JobRefused, match="was begun with --swap"):
        resize(topics, topic, 3, new)
    write_keyed(topics, topic, 3, first=2000)
    with pytest.raises(
        JobRefused, match=f"has records of other producers, and topic {topic} has 3"
    ):
        swap(topics, topic, new)


def interrupt(_: int) -> None:
    raise KeyboardInterrupt
