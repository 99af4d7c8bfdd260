"""Consumer groups on the command line: sharing partitions, committed offsets, leaving, and administration."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest

from barnabas import LocalCluster
from barnabas.cli import main
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.producer import Producer
from support.command import COMMAND, run
from support.process import ENVIRONMENT

TIMEOUT_S = 30.0
PARTITIONS = 4
QUICK = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}


class Groups:
    """Runs group commands in this process, which is faster, and consuming commands in their own."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "consume":
            return run(*arguments, "-b", self.servers)
        out, err = TextIOWrapper(BytesIO(), encoding="utf-8"), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main.run_command([*arguments, "-b", self.servers])
        out.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.getvalue())

    def ok(self, *arguments: str) -> str:
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    def described(self, group: str) -> dict[str, Any]:
        document = json.loads(self.ok("groups", "describe", group, "-o", "json"))
        found: dict[str, Any] = document["groups"][0]
        return found

    def refused(self, *arguments: str) -> str:
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stdout) == (1, "")
        return ended.stderr

    def make_topic(self, name: str, *records: bytes) -> None:
        """Create a topic and write the records to its partitions in turn."""
        with Cluster(self.servers) as cluster:
            (made,) = Admin(cluster).create_topics([NewTopic(name=name, partitions=PARTITIONS)])
            assert made.error is None
            self.write(cluster, name, *records)

    def write(self, cluster: Cluster, name: str, *records: bytes) -> None:
        with Producer(cluster) as producer:
            for index, record in enumerate(records):
                producer.send(name, record, partition=index % PARTITIONS)


@pytest.fixture(scope="module")
def groups() -> Iterator[Groups]:
    with LocalCluster(settings=QUICK) as running:
        yield Groups(running.bootstrap_servers)


@contextmanager
def start_process(groups: Groups, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments, "-b", groups.servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def poll_until(consumer: GroupConsumer, done: Callable[[], bool]) -> list[bytes | None]:
    deadline = Deadline(TIMEOUT_S)
    found: list[bytes | None] = []
    while not done():
        found += [record.value for record in consumer.poll(0.05)]
        consumer.processed()
        assert not deadline.passed, f"assigned: {consumer.assigned}"
    return found


def test_group_resumes_from_committed_offsets(groups: Groups) -> None:
    groups.make_topic("once", *[b"%d" % number for number in range(20)])
    member = ("consume", "once", "--group", "reader")
    assert sorted(map(int, groups.ok(*member, "-e").split())) == list(range(20))
    assert groups.ok(*member, "-e") == ""
    with Cluster(groups.servers) as cluster:
        groups.write(cluster, "once", *[b"%d" % number for number in range(20, 30)])
    first = groups.ok(*member, "-c", "3").split()
    assert groups.described("reader")["lag"] == 7, "only printed records are committed"
    rest = groups.ok(*member, "-e").split()
    assert sorted(map(int, first + rest)) == list(range(20, 30))
    assert len(first) == 3


def test_group_starting_at_end_gets_later_records(groups: Groups) -> None:
    groups.make_topic("later", b"before", b"before")
    with Cluster(groups.servers) as cluster:
        with GroupConsumer(cluster, "late", ["later"]) as consumer:
            assert poll_until(consumer, lambda: consumer.at_end) == []
        groups.write(cluster, "later", b"meanwhile")
    assert groups.ok("consume", "later", "-g", "late", "-e") == "meanwhile\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_members_share_partitions_and_stopped_member_leaves(
    groups: Groups, number: signal.Signals, code: int
) -> None:
    topic = group = f"shared-{code}"
    groups.make_topic(topic, *[b"%d" % number for number in range(8)])
    with (
        start_process(groups, "consume", topic, "-g", group, "-O", "beginning") as process,
        Cluster(groups.servers) as cluster,
        GroupConsumer(cluster, group, [topic], start=Beginning(), heartbeat_s=0.05) as ours,
    ):
        admin = GroupAdmin(cluster)

        def members() -> int:
            return len(admin.describe_group(group).members)

        mine = poll_until(ours, lambda: members() == 2 and len(ours.assigned) == PARTITIONS // 2)
        described = groups.described(group)
        assert (described["state"], described["assignor"]) == ("Stable", "range")
        shares = [len(member["partitions"]) for member in described["members"]]
        assert shares == [PARTITIONS // 2] * 2
        assert {member["client_id"] for member in described["members"]} == {"barnabas"}

        for command in ("delete", "reset"):
            arguments = ("-y",) if command == "delete" else ("--to-latest", "--all-topics")
            error = groups.refused("groups", command, group, *arguments)
            assert error.startswith(
                f"error: NON_EMPTY_GROUP: group {group} is Stable with 2 members"
            )
            assert "hint:  stop its consumers (barnabas at 127.0.0.1), then run this again" in error

        process.send_signal(number)
        theirs, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, errors.strip()) == (code, "")
        assert members() == 1
        mine += poll_until(ours, lambda: len(ours.assigned) == PARTITIONS and ours.at_end)
        read = [int(value or b"") for value in mine] + [int(line) for line in theirs.split()]
        assert sorted(read) == list(range(8)), "the other has committed the records it printed"


def test_group_reset_changes_offsets_only_with_execute(groups: Groups) -> None:
    groups.make_topic("moved", *[b"%d" % number for number in range(16)])
    groups.ok("consume", "moved", "-g", "mover", "-e")
    reset = ("groups", "reset", "mover")

    def committed() -> list[int]:
        return [offset["committed"] for offset in groups.described("mover")["offsets"]]

    assert "add --execute" in groups.ok(*reset, "--to-earliest", "--all-topics")
    assert "add --execute" in groups.ok(*reset, "--to-earliest", "--all-topics", "--dry-run")
    assert committed() == [4, 4, 4, 4]
    groups.ok(*reset, "--to-earliest", "--all-topics", "--execute")
    assert committed() == [0, 0, 0, 0]
    groups.ok(*reset, "--to-offset", "3", "--topic", "moved:1,3", "--execute")
    assert committed() == [0, 3, 0, 3]
    shown = json.loads(groups.ok(*reset, "--shift-by", "2", "--topic", "moved", "-o", "json"))
    assert [(move["before"], move["after"], move["asked_for"]) for move in shown["offsets"]] == [
        (0, 2, 2),
        (3, 4, 5),
        (0, 2, 2),
        (3, 4, 5),
    ]
    groups.ok(*reset, "--by-duration", "1h", "--topic", "moved:0", "--execute")
    assert committed() == [0, 3, 0, 3]
    groups.ok(*reset, "--to-datetime", "2199-01-01T00:00Z", "--topic", "moved:0", "--execute")
    assert committed() == [4, 3, 0, 3]
    groups.ok(*reset, "--to-latest", "--all-topics", "--execute")
    assert groups.described("mover")["lag"] == 0
    wrong = groups.run(*reset, "--to-latest", "--shift-by", "1", "--all-topics")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "error: --to-latest: cannot be combined with --shift-by\n",
    )


def test_group_is_listed_until_it_is_deleted(groups: Groups) -> None:
    groups.make_topic("short", b"1")
    groups.ok("groups", "reset", "short-lived", "--to-latest", "--topic", "short", "--execute")
    listed = json.loads(groups.ok("groups", "list", "-o", "json"))["groups"]
    assert {"group": "short-lived", "state": "Empty", "protocol_type": ""} in listed
    assert groups.ok("groups", "delete", "short-lived", "--dry-run") == (
        "would delete group short-lived\n"
    )
    assert groups.ok("groups", "delete", "short-lived", "-y") == "deleted group short-lived\n"
    error = groups.refused("groups", "describe", "short-lived")
    assert error.startswith("error: GROUP_ID_NOT_FOUND: there is no group 'short-lived'\nhint:  ")


def test_deleting_consumer_offsets_prints_warning(groups: Groups) -> None:
    groups.make_topic("plain", b"1")
    groups.ok("groups", "reset", "any", "--to-latest", "--topic", "plain", "--execute")
    dry = groups.run("topics", "delete", "__consumer_offsets", "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, "would delete topic __consumer_offsets\n")
    assert dry.stderr.startswith(
        "warning: deleting __consumer_offsets deletes the committed offsets"
    )
    assert groups.ok("topics", "delete", "plain", "--dry-run") == "would delete topic plain\n"


def test_watch_shows_group_lag(groups: Groups) -> None:
    groups.make_topic("seen", *[b"%d" % number for number in range(8)])
    reset = ("groups", "reset", "watched", "--topic", "seen", "--execute")
    groups.ok(*reset, "--to-earliest")
    with start_process(groups, "groups", "describe", "watched", "--watch") as process:
        assert process.stdout is not None
        lags = (line for line in process.stdout if line.startswith("group watched: "))
        assert next(lags) == "group watched: Empty, 0 members, lag 8\n"
        groups.ok(*reset, "--to-latest")
        assert any(line == "group watched: Empty, 0 members, lag 0\n" for line in lags)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130


def test_invalid_group_options_are_rejected(groups: Groups) -> None:
    chosen = groups.run("consume", "short", "-g", "any", "-p", "0")
    assert chosen.returncode == 2
    assert "--partition: cannot be combined with --group" in chosen.stderr
    assert "there is no topic 'never-was'" in groups.refused("consume", "never-was", "-g", "any")
