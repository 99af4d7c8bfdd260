"""Hostile client-chosen names in broker logs and command output: none forges a line or sends control codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import main
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message, encode
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.headers import RequestHeader, encode_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.join_group import JoinGroupRequestProtocol
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import ProduceResponse
from support.broker import BrokerProcess
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from tests.compatibility.raw import Raw, produce_request
from tests.compatibility.raw_member import RawMember, wait_until_loaded
from tests.raw_connection import with_size
from tests.terminal import on_terminal

CONTROLS = (
    "\n\r\t\x07\x1b[31m\x7f\x85\x9b\u200b\u200e\u200f\u202a\u202e\u2028\u2029\u2066\u2069\ufeff"
)
FORGED = "\nerror: forged"
HOSTILE = f"x{CONTROLS}é{FORGED}"
SHOWN = HOSTILE.encode("unicode_escape").decode().replace("\\xe9", "é")
LONG = "\x1b" * 30_000
TERMINAL_CODES = ("\r\x1b[K", "\x1b[2J\x1b[H", "\r\n")
"""Control codes that commands themselves write to a terminal."""


def assert_clean(text: str, *, tabs: bool = False) -> None:
    lines = text.split("\n")
    for line in lines:
        shown = line.replace("\t", "") if tabs else line
        assert shown.isprintable(), repr(line)
    assert not any(line.startswith("error: forged") for line in lines)


class HostileRaw(Raw):
    """Sends a hostile client id."""

    client_id = HOSTILE

    def begin(self, request: Message, version: int | None = None) -> tuple[int, int]:
        if version is None:
            version = APIS[request.API_KEY].versions[-1]
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id)
        self.send(with_size(encode_request_header(header) + encode(request, version)))
        return version, self.correlation_id


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "barnabas.history.topic.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "broker.rack": HOSTILE.replace("\n", ""),
    }
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings) as running:
        with HostileRaw(running.bootstrap_servers) as raw:
            misbehave(raw)
        yield running


@pytest.fixture(scope="module")
def member(broker: BrokerProcess) -> Iterator[RawMember]:
    """A member of a hostile group, with a hostile client id, instance id, assignor and assignment."""
    with RawMember(broker.bootstrap_servers, HOSTILE, instance=HOSTILE) as joined:
        joined.raw.close()
        joined.raw = HostileRaw(broker.bootstrap_servers)
        wait_until_loaded(joined.raw, HOSTILE)
        subscription = encode_subscription(
            ConsumerSubscription(topics=(HOSTILE,), user_data=b"\x1b")
        )
        protocols = (JoinGroupRequestProtocol("range", subscription),)
        answer = joined.join(protocols=protocols, session_ms=300_000)
        assert answer.error_code == ErrorCode.NONE
        share = ConsumerAssignment(assigned_partitions=(TopicPartitions(HOSTILE, (0,)),))
        assert not joined.sync({joined.member_id: encode_assignment(share)}).error_code
        yield joined


def misbehave(raw: Raw) -> None:
    """Send requests with hostile names, most of which are rejected."""
    raw.ask(
        ApiVersionsRequest(client_software_name=HOSTILE, client_software_version=HOSTILE),
        ApiVersionsResponse,
        3,
    )
    raw.create_topic("orders")
    topic = CreatableTopic(name=HOSTILE, num_partitions=1, replication_factor=1)
    (made,) = raw.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = MetadataRequest(
        topics=(MetadataRequestTopic(name=HOSTILE),), allow_auto_topic_creation=True
    )
    raw.ask(wanted, MetadataResponse)
    raw.ask(produce_request(HOSTILE, b"\x1b"), ProduceResponse)
    raw.ask(
        DeleteTopicsRequest(topics=(DeleteTopicState(name=HOSTILE),), timeout_ms=1000),
        DeleteTopicsResponse,
    )
    raw.ask(DeleteGroupsRequest(groups_names=(HOSTILE,)), DeleteGroupsResponse)
    for name in (HOSTILE, "orders"):
        resource = DescribeConfigsResource(ResourceType.TOPIC, name, (HOSTILE,))
        raw.ask(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse)
    raw.client_id = LONG  # type: ignore[attr-defined]
    raw.create_topic("long-client-id")


@pytest.mark.usefixtures("member")
def test_broker_logs_one_printable_line_per_event(broker: BrokerProcess) -> None:
    with HostileRaw(broker.bootstrap_servers) as raw:
        raw.send(with_size(b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x03\x1b\n\x9b"))
        assert raw.is_hung_up()
    log = broker.log_path.read_bytes().decode()
    assert "closing connection" in log
    assert f"group={SHOWN} generation=1" in log
    assert_clean(log)
    assert all(line[:4].isdigit() for line in log.splitlines() if line), "no line is forged"


COMMANDS: list[tuple[str, ...]] = [
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "list", "-o", "json"),
    ("groups", "list", "-o", "yaml"),
    ("groups", "describe", HOSTILE),
    ("groups", "describe", HOSTILE, "-o", "json"),
    ("groups", "describe", HOSTILE, "-o", "yaml"),
    ("groups", "describe", HOSTILE + "?"),
    ("groups", "delete", HOSTILE, "--yes"),
    ("groups", "reset", HOSTILE, "--to-latest", "--topic", HOSTILE),
    ("groups", "reset", HOSTILE + "2", "--to-latest", "--topic", "orders"),
    ("topics", "list", "--internal"),
    ("topics", "create", HOSTILE),
    ("topics", "describe"),
    ("topics", "describe", HOSTILE),
    ("topics", "alter", HOSTILE, "--partitions", "3"),
    ("topics", "delete", HOSTILE, "--yes"),
    ("topics", "delete", HOSTILE, "--yes", "--if-exists"),
    ("topics", "history", "orders"),
    ("topics", "history", "orders", "-o", "json"),
    ("topics", "history", "orders", "-o", "yaml"),
    ("topics", "history", "long-client-id"),
    ("topics", "history", HOSTILE),
    ("groups", "explain", HOSTILE),
    ("topics", "explain", "orders"),
    ("topics", "explain", HOSTILE),
    ("partitions", "explain", f"{HOSTILE}-0"),
    ("cluster", "explain"),
    ("brokers", "list"),
    ("controller", "show"),
    ("produce", HOSTILE, "--dry-run"),
    ("consume", HOSTILE, "-e"),
    ("sql", f"select * from `{HOSTILE}", "--to", HOSTILE),
]


def run_here(*arguments: str) -> tuple[str, str]:
    """Run the command in this process, which is faster; returns standard output and standard error."""
    out, err = TextIOWrapper(BytesIO(), encoding="utf-8"), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        main.run_command(arguments)
    out.seek(0)
    return out.read(), err.getvalue()


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda each: " ".join(each[:2])[:30])
@pytest.mark.usefixtures("member")
def test_commands_print_names_escaped(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    out, err = run_here(*arguments, "-b", broker.bootstrap_servers)
    assert out + err
    assert_clean(out)
    assert_clean(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("groups", "describe", HOSTILE),
        ("groups", "describe", HOSTILE, "-o", "json"),
        ("groups", "describe", HOSTILE, "-o", "yaml"),
        ("groups", "delete", HOSTILE),
        ("topics", "history", "orders"),
        ("brokers", "list"),
        ("consume", "orders", "--group", HOSTILE + "2", "-e"),
    ],
    ids=lambda each: " ".join(each[:2]),
)
@pytest.mark.usefixtures("member")
def test_terminals_get_names_escaped(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    command = [*COMMAND, *arguments, "-b", broker.bootstrap_servers]
    # Without colours, every escape sequence in the output is forged.
    _, seen = on_terminal(command, environment={**ENVIRONMENT, "NO_COLOR": "1"}, typed="n\n")
    for code in TERMINAL_CODES:
        seen = seen.replace(code, "\n")
    assert seen.strip()
    assert_clean(seen)


@pytest.mark.parametrize(
    "arguments",
    [
        ("kafka-topics", "--list"),
        ("kafka-topics", "--describe"),
        ("kafka-topics", "--describe", "--topic", HOSTILE),
        ("kafka-topics", "--create", "--topic", HOSTILE),
        ("kafka-topics", "--delete", "--topic", HOSTILE),
        ("kafka-topics", "--alter", "--topic", HOSTILE, "--partitions", "2"),
        ("kafka-topics", "--describe", f"--{HOSTILE}"),
        ("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", HOSTILE),
        ("kafka-configs", "--describe", "--entity-type", HOSTILE, "--entity-name", HOSTILE),
        ("kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"),
        (
            *("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "orders"),
            *("--add-config", f"{HOSTILE}={HOSTILE}"),
        ),
    ],
    ids=lambda each: " ".join(each[:2]),
)
def test_kafka_commands_print_names_escaped(
    broker: BrokerProcess, arguments: tuple[str, ...]
) -> None:
    out, err = run_here(*arguments, "--bootstrap-server", broker.bootstrap_servers)
    assert out + err
    assert_clean(out, tabs=True)
    assert_clean(err, tabs=True)


def described(broker: BrokerProcess) -> dict[str, Any]:
    ended = run("groups", "describe", HOSTILE, "-o", "json", "-b", broker.bootstrap_servers)
    (group,) = json.loads(ended.stdout)["groups"]
    assert isinstance(group, dict)
    return group


@pytest.mark.usefixtures("member")
def test_json_is_exact_and_text_is_escaped(broker: BrokerProcess) -> None:
    group = described(broker)
    assert group["group"] == HOSTILE
    assert group["members"][0]["client_id"] == HOSTILE
    text = run("groups", "describe", HOSTILE, "-b", broker.bootstrap_servers).stdout
    assert f"group {SHOWN}: Stable" in text


@pytest.mark.usefixtures("member")
def test_delete_error_escapes_group_name(broker: BrokerProcess) -> None:
    ended = run("groups", "delete", HOSTILE, "--yes", "-b", broker.bootstrap_servers)
    error, hint = ended.stderr.splitlines()
    assert error.startswith(f"error: NON_EMPTY_GROUP: group {SHOWN} is Stable")
    assert hint.startswith("hint:  stop its consumers")
    assert f"barnabas groups describe '{SHOWN}'" in hint, "quoted for the shell"


def test_unknown_topic_error_escapes_name(broker: BrokerProcess) -> None:
    ended = run("topics", "describe", HOSTILE, "-b", broker.bootstrap_servers)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "\\x1b[31m" in ended.stderr


def test_up_prints_names_and_paths_escaped(tmp_path: Path) -> None:
    name = "x\x1b[31m\u202e\nforged"
    for arguments in (
        ["up", "--port=0", "--data", str(tmp_path / name), "--topic", f"{name}:1:1"],
        ["up", "--port=0", "--data", str(tmp_path / "data"), "--topic", f"{name}:six"],
        ["up", "--port=0", "--data", str(tmp_path / "data"), "--override", f"{name}=1"],
        ["broker", str(tmp_path / name)],
        ["zookeeper", "--data", str(tmp_path / name), name],
        [name],
    ):
        ended = run(*arguments)
        assert ended.returncode != 0
        assert ended.stderr
        assert_clean(ended.stdout)
        assert_clean(ended.stderr)
        assert not any(line.startswith("forged") for line in ended.stderr.split("\n"))


def test_records_are_raw_in_pipe_and_escaped_on_terminal(broker: BrokerProcess) -> None:
    servers = ("-b", broker.bootstrap_servers)
    value = b"\x1b[31mred\t\xc2\x9b\xe2\x80\xae\x9b\xc3\xa9"
    run("topics", "create", "payload", *servers)
    subprocess.run(
        [*COMMAND, "produce", "payload", "-H", "a\x1b\n\u202e=\x1b", *servers],
        input=value + b"\n",
        env=ENVIRONMENT,
        timeout=60,
        check=True,
    )
    consume = [*COMMAND, "consume", "payload", "-e", "-f", "%t %h %s\\n", *servers]
    piped = subprocess.run(consume, capture_output=True, env=ENVIRONMENT, timeout=60, check=True)
    header = "a\x1b\n\u202e=\x1b".encode()
    assert piped.stdout == b"payload " + header + b" " + value + b"\n"
    code, seen = on_terminal(consume, environment=ENVIRONMENT)
    shown = "payload a\\x1b\\n\\u202e=\\x1b \\x1b[31mred\t\\x9b\\u202e\\x9bé\r\n"
    assert (code, seen) == (0, shown)
