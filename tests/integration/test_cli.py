from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from support.schema_registry import running_registry
from tests import terminal

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
TIMEOUT_S = 30


class Shell:
    """Runs the real command line in its own processes, with the cluster set by the environment."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.environment = {**os.environ, "BARNABAS_BOOTSTRAP_SERVERS": servers}

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ok(self, *arguments: str, text: str = "") -> str:
        done = self.run(*arguments, text=text)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.wait(TIMEOUT_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    # Records here carry old timestamps on purpose. With retention, they would be deleted after half a minute.
    with LocalCluster(settings={"log.retention.ms": "-1"}) as cluster:
        yield Shell(cluster.bootstrap_servers)


def test_topic_lifecycle_commands(shell: Shell) -> None:
    assert shell.ok(
        "topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000"
    ) == ("created topic life: 2 partitions, replication factor 1\n")
    assert "life" in shell.ok("topics", "list")
    described = json.loads(shell.ok("topics", "describe", "life", "-o", "json"))
    (topic,) = described["topics"]
    assert topic["partitions"] == 2
    assert topic["configs"] == {"retention.ms": "60000"}
    assert [found["partition"] for found in topic["partition_list"]] == [0, 1]
    assert all(found["leader"] is not None for found in topic["partition_list"])
    assert shell.ok("topics", "delete", "life", "--yes") == "deleted topic life\n"
    assert "life" not in shell.ok("topics", "list", "-o", "json")


def test_dry_run_changes_nothing(shell: Shell) -> None:
    assert shell.ok("topics", "create", "dry", "--dry-run").startswith("would create topic dry")
    assert "dry" not in shell.ok("topics", "list")
    shell.ok("topics", "create", "dry")
    assert shell.ok("topics", "delete", "dry", "--dry-run") == "would delete topic dry\n"
    assert "would write 2 records" in shell.ok("produce", "dry", "--dry-run", text="a\nb\n")
    assert shell.ok("consume", "dry", "-O", "beginning", "-e") == ""


def test_existing_topic_is_rejected_unless_if_not_exists(shell: Shell) -> None:
    shell.ok("topics", "create", "twice")
    refused = shell.run("topics", "create", "twice")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: TOPIC_ALREADY_EXISTS: ")
    assert "--if-not-exists" in refused.stderr
    assert (
        shell.ok("topics", "create", "twice", "--if-not-exists") == "topic twice exists already\n"
    )
    assert (
        shell.ok("topics", "delete", "never-was", "--if-exists", "--yes")
        == "there is no topic never-was\n"
    )


def test_replica_assignment_option(shell: Shell) -> None:
    (broker,) = {
        found["leader"]
        for topic in json.loads(shell.ok("topics", "describe", first_topic(shell), "-o", "json"))[
            "topics"
        ]
        for found in topic["partition_list"]
    }
    shell.ok("topics", "create", "placed", "--replica-assignment", f"{broker},{broker},{broker}")
    assert (
        json.loads(shell.ok("topics", "describe", "placed", "-o", "json"))["topics"][0][
            "partitions"
        ]
        == 3
    )
    refused = shell.run("topics", "create", "astray", "--replica-assignment", "997")
    assert refused.returncode == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.stderr


def first_topic(shell: Shell) -> str:
    shell.ok("topics", "create", "first", "--if-not-exists")
    return "first"


def test_piped_lines_round_trip_in_every_format(shell: Shell) -> None:
    shell.ok("topics", "create", "pipe")
    output = shell.ok(
        "produce",
        "pipe",
        "-K",
        ":",
        "-H",
        "trace=7",
        "-z",
        "zstd",
        "-o",
        "json",
        text="a:1\nb:2\nno key",
    )
    assert json.loads(output) == {
        "topic": "pipe",
        "dry_run": False,
        "records": 3,
        "partitions": [{"partition": 0, "records": 3, "first_offset": 0, "last_offset": 2}],
    }
    read = ["consume", "pipe", "-O", "beginning", "-e"]
    assert shell.ok(*read) == "1\n2\nno key\n"
    assert shell.ok(*read, "-K", "=") == "a=1\nb=2\n=no key\n"
    assert shell.ok(*read, "-f", r"%t %p %o %k %K %s %S %h\n") == (
        "pipe 0 0 a 1 1 1 trace=7\npipe 0 1 b 1 2 1 trace=7\npipe 0 2  -1 no key 6 trace=7\n"
    )
    assert shell.ok(*read, "--filter", "key:b") == "2\n"
    assert shell.ok(*read, "--filter", "value~^no", "--filter", "value:key") == "no key\n"
    documents = [json.loads(line) for line in shell.ok(*read, "-o", "json").splitlines()]
    assert [(found["offset"], found["key"], found["value"]) for found in documents] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, None, "no key"),
    ]
    assert shell.ok(*read, "-o", "yaml", "-c", "1").startswith("---\ntopic: pipe\npartition: 0\n")


def test_formats_of_keys_and_values(shell: Shell, tmp_path: Path) -> None:
    shell.ok("topics", "create", "binary")
    written = ("--key-format", "hex", "--value-format", "base64", "-K", ":")
    shell.ok("produce", "binary", *written, text="81:gQ==\n6b:dGV4dA==\n")
    read = ("consume", "binary", "-e")
    assert shell.ok(*read, *written) == "81:gQ==\n6b:dGV4dA==\n"
    first, second = (json.loads(line) for line in shell.ok(*read, "-o", "json").splitlines())
    assert (first["key"], first["key_encoding"]) == ("gQ==", "base64")
    assert (first["value"], first["value_encoding"]) == ("gQ==", "base64")
    assert (second["key"], second["value"]) == ("k", "text")
    assert "value_encoding" not in second
    refused = shell.run(*read, "-o", "json", "-f", "%s")
    assert refused.returncode == 2
    assert "--format: cannot be combined with -o json" in refused.stderr
    refused = shell.run("produce", "binary", "--value-format", "json", text="{oops\n")
    assert refused.returncode == 2
    assert "--value-format: '{oops': is not JSON" in refused.stderr
    refused = shell.run(*read, "--value-format", "json")
    assert "--value-format: offset 0 of binary-0: is not JSON" in refused.stderr

    schema = tmp_path / "order.avsc"
    schema.write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    )
    shell.ok("topics", "create", "avro")
    with running_registry() as registry:
        avro = ("--value-format", "avro", "--registry", registry.url)
        shell.ok("produce", "avro", *avro, "--schema", str(schema), text='{"id": 5}\n')
        shell.ok("produce", "avro", *avro, text='{"id": 6}\n')
        assert shell.ok("consume", "avro", "-e", *avro) == '{"id": 5}\n{"id": 6}\n'
        assert json.loads(shell.ok("consume", "avro", "-ec1", "-o", "json", *avro))["value"] == {
            "id": 5
        }


def test_consume_offset_options(shell: Shell) -> None:
    shell.ok("topics", "create", "times")
    with Cluster(shell.servers) as cluster, Producer(cluster) as producer:
        for number in range(10):
            at = 1_700_000_000_000 + number * 1_000
            producer.send("times", b"%d" % number, timestamp=at)
            producer.flush()

    def consumed(where: str) -> str:
        return shell.ok("consume", "times", "-e", "-D", " ", "-O", where)

    assert consumed("beginning") == "0 1 2 3 4 5 6 7 8 9 "
    assert consumed("end") == ""
    assert consumed("7") == "7 8 9 "
    assert consumed("-2") == "8 9 "
    assert consumed("-200") == "0 1 2 3 4 5 6 7 8 9 "
    assert consumed("@1700000005000") == "5 6 7 8 9 "
    assert consumed("@1700000005001") == "6 7 8 9 "
    assert consumed("@2023-11-14T22:13:28Z") == "8 9 "
    assert consumed("@-1h") == ""
    assert consumed("@-99999w") == "0 1 2 3 4 5 6 7 8 9 "
    assert shell.ok("consume", "times", "-O", "3", "-c", "2") == "3\n4\n"
    assert shell.ok("consume", "times", "-e", "-D", " ") == "0 1 2 3 4 5 6 7 8 9 "


def test_produce_files_to_partition_with_null_values(shell: Shell, tmp_path: Path) -> None:
    shell.ok("topics", "create", "files", "--partitions", "3")
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"one|two")
    second.write_bytes(b"three||")
    shell.ok("produce", "files", str(first), str(second), "-D", "|", "-p", "2", "-Z")
    assert shell.ok("consume", "files", "-p", "2", "-O", "beginning", "-e", "-f", r"%s %S\n") == (
        "one 3\ntwo 3\nthree 5\n -1\n"
    )
    assert shell.ok("consume", "files", "-p", "0", "-p", "1", "-O", "beginning", "-e") == ""


def test_lines_arrive_while_input_stays_open(shell: Shell) -> None:
    shell.ok("topics", "create", "live")
    consumer = shell.start("consume", "live", "-O", "beginning")
    producer = shell.start("produce", "live")
    assert consumer.stdout is not None
    assert producer.stdin is not None
    try:
        for line in (b"first\n", b"second\n"):
            producer.stdin.write(line)
            producer.stdin.flush()
            assert consumer.stdout.readline() == line
        producer.stdin.close()
        assert producer.wait(TIMEOUT_S) == 0
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(TIMEOUT_S) == 130
        assert consumer.stderr is not None
        assert consumer.stderr.read().strip() == b""
    finally:
        end(producer, consumer)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_ends_consume_quietly(shell: Shell, unbuffered: str) -> None:
    shell.ok("topics", "create", "long", "--if-not-exists")
    shell.ok("produce", "long", text="".join(f"line {number}\n" for number in range(50_000)))
    assert run_pipe(shell, "head -n 2", unbuffered) == ("line 0\nline 1\n141\n", "")


def test_closed_pipe_is_detected_while_idle(shell: Shell) -> None:
    shell.ok("topics", "create", "short")
    shell.ok("produce", "short", text="only\n")
    assert run_pipe(shell, "head -n 1", topic="short") == ("only\n141\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_slow_reader_gets_every_byte(shell: Shell, unbuffered: str) -> None:
    shell.ok("topics", "create", f"whole{unbuffered}")
    shell.ok("produce", f"whole{unbuffered}", text="".join(f"{n}\n" for n in range(50_000)))
    reader = f"-e | {sys.executable} -c 'import sys; print(sum(1 for line in sys.stdin))'"
    assert run_pipe(shell, reader, unbuffered, topic=f"whole{unbuffered}") == ("50000\n0\n", "")


def run_pipe(
    shell: Shell, reader: str, unbuffered: str = "", topic: str = "long"
) -> tuple[str, str]:
    """Run `consume | reader`; returns the output with consume's exit code, and the error output."""
    pipe = reader if reader.startswith("-") else f"| {reader}"
    script = f'{" ".join(COMMAND)} consume {topic} -O beginning {pipe}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**shell.environment, "PYTHONUNBUFFERED": unbuffered},
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "describe", "sensor-reading"],
        ["topics", "delete", "sensor-reading", "--yes"],
        ["consume", "sensor-reading"],
        ["produce", "sensor-reading"],
    ],
)
def test_mistyped_topic_gets_suggestion_and_is_not_created(
    shell: Shell, arguments: list[str]
) -> None:
    shell.ok("topics", "create", "sensor-readings", "--if-not-exists")
    done = shell.run(*arguments, text="lost\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'sensor-reading'\n"
        "hint:  did you mean 'sensor-readings'?\n"
    )


def test_delete_without_terminal_requires_yes(shell: Shell) -> None:
    shell.ok("topics", "create", "kept")
    done = shell.run("topics", "delete", "kept")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "kept" in shell.ok("topics", "list")


def on_terminal(shell: Shell, *arguments: str, typed: str = "") -> tuple[int, str]:
    return terminal.on_terminal(
        [*COMMAND, *arguments], environment=shell.environment, typed=typed, seconds=TIMEOUT_S
    )


def test_delete_prompts_on_terminal(shell: Shell) -> None:
    shell.ok("topics", "create", "asked", "--partitions", "2")
    code, seen = on_terminal(shell, "topics", "delete", "asked", typed="n\n")
    assert code == 1
    assert "Delete asked (2 partitions) with all records?" in seen
    assert "nothing was deleted" in seen
    code, seen = on_terminal(shell, "topics", "delete", "asked", typed="y\n")
    assert code == 0
    assert "deleted topic asked" in seen


def test_terminal_gets_progress_and_escaped_records(shell: Shell, tmp_path: Path) -> None:
    shell.ok("topics", "create", "seen")
    (tmp_path / "file").write_bytes(b"\x1b[31mred\n")
    code, seen = on_terminal(shell, "produce", "seen", str(tmp_path / "file"))
    assert code == 0
    assert "100%" in seen
    assert "wrote 1 record to seen" in seen
    code, seen = on_terminal(shell, "consume", "seen", "-O", "beginning", "-e")
    assert (code, seen) == (0, "\\x1b[31mred\r\n")
    assert shell.ok("consume", "seen", "-O", "beginning", "-e") == "\x1b[31mred\n"


def test_out_of_range_offset_error_names_range(shell: Shell) -> None:
    shell.ok("topics", "create", "ranges", "--partitions", "2")
    shell.ok("produce", "ranges", "-p", "0", text="a\nb\nc\n")
    assert shell.ok("consume", "ranges", "-O", "2", "-e") == "c\n"
    refused = shell.run("consume", "ranges", "-O", "9", "-e")
    assert refused.returncode == 1
    assert "OFFSET_OUT_OF_RANGE: ranges-0 has offsets 0 to 3, not 9" in refused.stderr


def test_unreachable_broker_error_lists_attempts(shell: Shell) -> None:
    done = shell.run("topics", "list", "-b", "127.0.0.1:1,127.0.0.1:2")
    assert done.returncode == 1
    assert "127.0.0.1:1: Connection refused" in done.stderr
    assert "127.0.0.1:2: Connection refused" in done.stderr
    assert "barnabas up" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_watch_runs_until_interrupted(shell: Shell) -> None:
    watcher = shell.start("topics", "list", "--watch", "-o", "yaml")
    assert watcher.stdout is not None
    try:
        assert watcher.stdout.readline() == b"---\n"
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(TIMEOUT_S) == 130
    finally:
        end(watcher)


def test_shell_completes_topic_names(shell: Shell) -> None:
    shell.ok("topics", "create", "completed-by-tab")
    shell.ok("produce", "completed-by-tab", text="a\n")
    shell.ok("consume", "completed-by-tab", "-e", "--group", "creates-internal-topic")
    assert complete(shell, "barnabas consume complet") == ["plain,completed-by-tab"]
    assert "__consumer_offsets" in shell.ok("topics", "describe", "__consumer_offsets")
    assert complete(shell, "barnabas consume __") == []


def complete(shell: Shell, words: str) -> list[str]:
    done = subprocess.run(
        [*COMMAND],
        capture_output=True,
        text=True,
        env={
            **shell.environment,
            "_BARNABAS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": "2",
        },
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout.split()
