"""Text of findings: every cause has sentences, and every suggested command exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Formatter

import click
import pytest
from msgspec.structs import replace

from barnabas.cli.main import cli
from barnabas.explain.finding import Cause, Finding, Severity, merge_findings
from barnabas.explain.sentences import SENTENCES
from barnabas.explain.text import (
    cause_text,
    finding_document,
    next_text,
    since_text,
    start_fields,
    subject_text,
    text_fields,
)
from barnabas.model import TopicPartition
from tests.unit.explain.facts_of import FIRST, NOW_MS

EVERYTHING = Finding(
    cause=Cause.NEVER_LED,
    severity=Severity.ERROR,
    topic="orders",
    partitions=(FIRST, TopicPartition("orders", 2)),
    group="billing",
    brokers=(2,),
    since_ms=NOW_MS - 123_000,
    lag=7,
    values={
        "unclean": 1,
        "unclean_end": 5,
        "replicas": 2,
        "minimum": 3,
        "in_sync": 1,
        "leader": 1,
        "rate": 100,
        "threshold": 10,
        "interval_s": 300,
        "dirs": "/d",
        "by": "app",
        "other": "a.b",
        "path": "/p",
        "why": "not JSON",
        "address": "h:1",
        "registry": "the ZooKeeper at z:1",
        "factor": 3,
        "registered": 1,
        "waits_for": "app at h",
        "waits_count": 1,
        "timeout_ms": 60_000,
        "member": "app at h",
        "members": 2,
        "committed": 4,
        "start": 6,
        "end": 3,
        "idle": 1,
        "assigned": 1,
        "joined": 1,
        "throttled_follower": 2,
        "throttled_leader": 1,
        "topic": "clicks",
        "transactional_id": "shop-1",
        "producer_id": 1000,
        "state": "PrepareAbort",
        "start_offset": 42,
    },
)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_complete_sentences(cause: Cause) -> None:
    finding = replace(EVERYTHING, cause=cause)
    for text in (cause_text(finding), next_text(finding)):
        assert text
        assert "{" not in text
        assert "  " not in text
        assert not text.endswith(".")
    few = replace(finding, values={}, partitions=(), since_ms=None, lag=None, topic=None)
    for text in (cause_text(few), next_text(few)):
        assert text
        assert "None" not in text
    assert set(SENTENCES) == set(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_suggested_commands_exist_and_accept_their_options(cause: Cause) -> None:
    text = next_text(replace(EVERYTHING, cause=cause), " -b h:1")
    for command in re.findall(r"`barnabas ([^`]+)`", text):
        arguments = shlex.split(command)
        check_arguments(cli, arguments)


def check_arguments(group: click.Group, arguments: list[str]) -> None:
    command: click.Command = group
    context = click.Context(group, info_name="barnabas")
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments.pop(0))
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    command.make_context(command.name, arguments)


def test_every_field_of_the_sentences_exists() -> None:
    known = text_fields(EVERYTHING, "").keys() | start_fields((2,), {}, "").keys()
    used = {
        name
        for each in SENTENCES.values()
        for template in each
        for _, name, _, _ in Formatter().parse(template)
        if name is not None
    }
    assert used <= known


def test_commands_name_all_partitions() -> None:
    two = replace(EVERYTHING, partitions=(FIRST, TopicPartition("pay", 2)))
    elect = next_text(replace(two, cause=Cause.PREFERRED_WAITS_FOR_CHECK))
    assert "`barnabas elect-leaders --topic orders:0 --topic pay:2`" in elect
    cancel = next_text(replace(two, cause=Cause.MOVE_TARGET_DOWN))
    assert "`barnabas reassign cancel orders:0 pay:2`" in cancel
    many = replace(two, partitions=tuple(TopicPartition("pay", number) for number in range(99)))
    assert "elect-leaders --all`" in next_text(replace(many, cause=Cause.PREFERRED_WAITS_FOR_CHECK))
    assert "reassign cancel --all`" in next_text(replace(many, cause=Cause.MOVE_TARGET_DOWN))


def test_names_in_commands_are_quoted() -> None:
    hostile = replace(EVERYTHING, topic="a b;c", partitions=(TopicPartition("a b;c", 0),))
    assert "'a b;c'" in next_text(replace(hostile, cause=Cause.NEVER_LED))
    assert "'a b;c:0'" in next_text(replace(hostile, cause=Cause.IN_SYNC_REPLICAS_DOWN))


def test_unclean_election_says_what_is_lost() -> None:
    found = replace(
        EVERYTHING,
        cause=Cause.IN_SYNC_REPLICAS_DOWN,
        values={"unclean": 1, "unclean_end": 5, "unclean_since_ms": NOW_MS},
    )
    assert cause_text(found) == (
        "no leader: its only in-sync replica is on broker 2, which is down. "
        "An unclean election would choose broker 1 and lose the records from offset 5 on, "
        "written since 2026-05-01 08:00:00 UTC"
    )
    assert "`barnabas elect-leaders --unclean --topic orders:0,2`" in next_text(found)


def test_command_that_starts_the_broker_is_shown() -> None:
    found = replace(EVERYTHING, cause=Cause.BROKER_DOWN)
    assert next_text(found) == "start broker 2 again"
    commands = {2: "barnabas broker /data/broker-2.properties"}
    assert next_text(found, "", commands) == (
        "start broker 2 again: `barnabas broker /data/broker-2.properties`"
    )
    assert next_text(replace(found, brokers=(1, 2)), "", commands) == "start brokers 1 and 2 again"


def test_subject_and_time() -> None:
    assert subject_text(EVERYTHING) == "orders partitions 0 and 2"
    assert subject_text(replace(EVERYTHING, partitions=(FIRST,))) == "orders-0"
    assert subject_text(replace(EVERYTHING, partitions=())) == "group billing"
    odd = tuple(TopicPartition("orders", number) for number in range(1, 99, 2))
    assert subject_text(replace(EVERYTHING, partitions=odd)) == "49 partitions of orders"
    many = tuple(TopicPartition(f"t{number}", 0) for number in range(30))
    assert subject_text(replace(EVERYTHING, partitions=many)) == "30 partitions of 30 topics"
    topics = replace(EVERYTHING, partitions=(), group=None, topic=None, topics=("a", "b"))
    assert subject_text(topics) == "topics a and b"
    assert subject_text(replace(topics, topics=tuple("abcdef"))) == "6 topics"
    assert since_text(EVERYTHING, NOW_MS) == "since 2026-05-01 07:57:57 UTC (2 min 3 s)"


def test_document_is_complete() -> None:
    document = finding_document(replace(EVERYTHING, cause=Cause.FOLLOWER_DOWN), NOW_MS, " -b h:1")
    assert document["cause"] == "follower_down"
    assert document["severity"] == "error"
    assert document["brokers"] == [2]
    assert document["partitions"][0] == {"topic": "orders", "partition": 0}
    assert document["why"] == "the replica on broker 2 is missing: the broker is down"
    assert document["next"].endswith("`barnabas brokers explain 2 -b h:1` shows what waits for it")
    known = finding_document(
        *(replace(EVERYTHING, cause=Cause.FOLLOWER_DOWN), NOW_MS, " -b h:1"),
        {2: "barnabas broker 2"},
    )
    assert known["next"] == "start broker 2 again: `barnabas broker 2`"


def test_documentation_lists_every_cause() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()
    assert [cause.value for cause in Cause if f"`{cause.value}`" not in page] == []


def test_merge_keeps_earliest_time_and_largest_lag() -> None:
    later = replace(EVERYTHING, partitions=(TopicPartition("orders", 9),), since_ms=NOW_MS, lag=99)
    (merged,) = merge_findings([EVERYTHING, later])
    assert merged.since_ms == EVERYTHING.since_ms
    assert merged.lag == 99
    assert [each.partition for each in merged.partitions] == [0, 2, 9]
