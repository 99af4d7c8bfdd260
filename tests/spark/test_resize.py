"""Resize: a copy of a topic with another number of partitions."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from barnabas.client.consumer import ConsumedRecord
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.partitioner import partition_of_key
from barnabas.client.producer import Producer
from barnabas.errors import ConfigError
from barnabas.jobs.copy_pass import CopyPass, save_pass
from barnabas.jobs.copy_topic import NewCopy, create_target
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.resize import ResizeRun, run_resize
from barnabas.jobs.topic_state import look_up_state
from barnabas.model import TopicPartition
from tests.spark.topics import Topics

FIRST_MS = 1_700_000_000_000


def resize(topics: Topics, topic: str, partitions: int, new: str, **options: bool) -> ResizeRun:
    with topics.client() as cluster:
        source = look_up_state(cluster, topic)
        copy = NewCopy(name=new, partition_count=partitions, settings=source.settings)
        return run_resize(
            lambda _: nullcontext(topics.spark), cluster, topics.servers, source, copy, **options
        )


def write_keyed(topics: Topics, topic: str, count: int, first: int = 0) -> None:
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
                timestamp=FIRST_MS + number * 10 - (25 if number % 3 == 0 else 0),
                headers=[("number", b"%d" % number)] if number % 5 == 0 else (),
            )


def fields(record: ConsumedRecord) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp


def expected_copy(topics: Topics, topic: str, partitions: int) -> dict[int, list[tuple[Any, ...]]]:
    """The records of the copy by the documented rules, computed record by record."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    placed = []
    for source, records in topics.records(topic).items():
        log_time = -1
        for record in records:
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
