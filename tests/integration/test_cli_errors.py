"""Errors that no other test of the commands sees: what was wrong, and the exit code."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.topics.profile import check_profile
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.errors import ApiError
from barnabas.jobs.topic_range import look_up_range
from support.command import run
from support.waiting import eventually
from tests.sample_profile import sample_profile

HISTORY = {"barnabas.history.topic.enable": "true"}
TOPIC = "orders"
EMPTY = "empty-topic"
DEAD_LETTERS = "orders-dead"
DOTTED = "orders.old"
NAMES = (TOPIC, EMPTY, DEAD_LETTERS, DOTTED)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalCluster(settings=HISTORY) as running, Cluster(running.bootstrap_servers) as client:
        Admin(client).create_topics([NewTopic(name=name) for name in NAMES])
        with Producer(client) as producer:
            producer.send(TOPIC, b"1", key=b"not JSON", timestamp=1_700_000_000_000)
            producer.send(DEAD_LETTERS, b"1")
        report = ["lifecycle", "report", "-b", running.bootstrap_servers]
        eventually(lambda: run_command(report) == 0, "the history is published")
        yield running.bootstrap_servers


@pytest.fixture(autouse=True)
def in_scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("groups", "reset", "", "--to-latest"), 2, "a group's name has at least one character"),
        (("groups", "reset", "readers", "--to-latest"), 2, "choose the partitions with --topic"),
        (
            ("reassign", "plan", "--balance", "--save", "missing/plan.json"),
            2,
            "missing/plan.json cannot be written: No such file or directory",
        ),
        (("reassign", "plan", "--replication-factor", "9"), 1, "INVALID_REPLICA_ASSIGNMENT"),
        (("reassign", "plan", "--drain", "1"), 1, "no broker would be left for it"),
        (
            ("lifecycle", "report", "--to", "file/report"),
            2,
            "cannot write file/report: Not a directory",
        ),
        (
            ("lifecycle", "report", "--html", "/dev/full"),
            2,
            "cannot write /dev/full: No space left on device",
        ),
        (("topics", "copy", TOPIC, "a/b"), 1, "INVALID_TOPIC_EXCEPTION"),
        (("topics", "copy", TOPIC, "orders_old"), 1, "topic 'orders_old' collides with orders.old"),
        (
            ("topics", "resize", TOPIC, "--partitions", "2", "--to", "a/b", "--dry-run"),
            1,
            "INVALID_TOPIC_EXCEPTION",
        ),
        (("topics", "profile", EMPTY), 1, "topic 'empty-topic' has no records"),
        (("topics", "profile", TOPIC, "--from", "-1h"), 1, "no records in this time span"),
        (
            ("topics", "profile", TOPIC, "--from", "-1h", "--to", "-2h"),
            2,
            "'-2h' is not after --from '-1h'",
        ),
        (("topics", "profile", TOPIC, "--html", "missing/page.html"), 2, "there is no directory"),
        (
            ("consume", TOPIC, "--exit", "--key-format", "json", "-f", "%k"),
            2,
            "offset 0 of orders-0",
        ),
        (
            ("pipeline", "run", "--master", "local[2]", "--remote", "sc://localhost"),
            2,
            "cannot be combined with --master",
        ),
        (("pipeline", "run", "-o", "yaml"), 2, "progress has the formats text and json"),
        (
            ("pipeline", "replay-dead-letters", DEAD_LETTERS, "--to", DEAD_LETTERS),
            2,
            "is the topic of the dead letters",
        ),
        (
            ("pipeline", "replay-dead-letters", DEAD_LETTERS, "--reason", "("),
            2,
            "is not a regular expression",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_error_names_what_was_wrong(
    servers: str,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    reason: str,
) -> None:
    found = run_command([*arguments, "-b", servers])
    out, error = capsys.readouterr()
    assert (found, out) == (code, "")
    assert error.startswith("error: ")
    assert reason in error


def test_mirror_names_a_pattern_without_topics_and_an_equal_cluster(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = ["--from", servers, "--to", servers]
    assert run_command(["topics", "mirror", "nothing.*", *ends, "--prefix", "copy-"]) == 2
    assert "no topic of" in capsys.readouterr().err
    assert run_command(["topics", "mirror", ".*", *ends]) == 2
    assert "is the same cluster as --from" in capsys.readouterr().err


def test_profile_of_a_topic_that_was_replaced_is_an_error(servers: str) -> None:
    with Cluster(servers) as client:
        wanted = look_up_range(client, client.topic(TOPIC))
    check_profile(sample_profile(), client, wanted)
    replaced = replace(wanted, topic_id=uuid4())
    with pytest.raises(ApiError, match="topic 'orders' was deleted and created again while it"):
        check_profile(sample_profile(), client, replaced)
    with pytest.raises(CommandError, match=r"^topic 'orders' has no records$"):
        check_profile(replace(sample_profile(), records=0), client, wanted)


def test_produce_ends_if_the_delimiter_does_not_occur(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.cli.records.produce.RECORD_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * (2 << 20))))
    assert run_command(["produce", TOPIC, "-b", servers]) == 2
    assert "does not occur in" in capsys.readouterr().err


def test_profile_create_names_a_file_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for home, why in (("/proc/missing", "cannot be written"), (Path("file").absolute(), "Not a")):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        assert run_command(["profile", "create", "here", "-b", "localhost:9092"]) == 2
        error = capsys.readouterr().err
        assert f"{home}/barnabas/profiles.toml" in error
        assert why in error


def test_up_rejects_an_invalid_topic_name() -> None:
    finished = run("up", "--ephemeral", "--port", "0", "--topic", "a b")
    assert finished.returncode == 1
    assert "INVALID_TOPIC_EXCEPTION" in finished.stderr


def test_up_names_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00no program\x00")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    finished = run("up", "--ephemeral", "--port", "0", "--", str(program))
    assert finished.returncode == 2
    assert f"cannot run '{program}': " in finished.stderr


def test_up_rejects_a_path_with_a_comma(tmp_path: Path) -> None:
    finished = run("up", "--port", "0", "--data", str(tmp_path / "a,b"))
    assert finished.returncode == 2
    assert f"log.dirs: a comma separates directories; '{tmp_path}/a,b' has one" in finished.stderr
    assert not (tmp_path / "a,b").exists()
