"""`barnabas users`, `barnabas acls`, kafka-acls and SCRAM in kafka-configs, against a real broker."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import ApiError, ErrorCode
from barnabas.cli.main import run_command
from barnabas.client.acl_admin import AclAdmin
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from support.waiting import eventually
from tests.security.secured_cluster import (
    SecuredCluster,
    plain_login,
    scram_login,
    secured_cluster,
    write_properties,
)

PASSWORD = "correct horse,=battery"


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    with secured_cluster() as running:
        with running.admin() as cluster:
            cluster.refresh([])
        yield running


class Commands:
    """Runs commands as one user."""

    def __init__(
        self,
        secured: SecuredCluster,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        user: str = "admin",
    ) -> None:
        self.file = write_properties(tmp_path / f"{user}.properties", plain_login(user))
        self.servers = secured.servers()
        self.capsys = capsys

    def run(self, *words: str, code: int = 0) -> str:
        """Return standard output and standard error."""
        options = ["-b", self.servers, "--command-config", str(self.file)]
        assert run_command([*words, *options]) == code
        shown = self.capsys.readouterr()
        return shown.out + shown.err

    def document(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "-o", "json", code=code))

    def kafka(self, *words: str, code: int = 0) -> str:
        name, *rest = words
        options = ["--bootstrap-server", self.servers, "--command-config", str(self.file)]
        assert run_command([name, *options, *rest]) == code
        shown = self.capsys.readouterr()
        return shown.out + shown.err


@pytest.fixture
def commands(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Commands:
    return Commands(secured, tmp_path, capsys)


@pytest.fixture
def alice(secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands of a user without permissions."""
    return Commands(secured, tmp_path, capsys, "alice")


def can_log_in(cluster: Cluster) -> bool:
    try:
        with cluster:
            cluster.refresh([])
    except ApiError as error:
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        return False
    return True


# ---- users --------------------------------------------------------------------------------------


def test_user_is_created_with_a_generated_password_and_deleted(
    secured: SecuredCluster, commands: Commands
) -> None:
    created = commands.document("users", "create", "bob", "--generate")
    login = scram_login("bob", created["password"])
    eventually(lambda: can_log_in(secured.connect(login)), "bob can log in")
    assert "bob" in commands.run("users", "list")
    assert created["password"] not in commands.run("users", "list")
    refused = commands.run("users", "create", "bob", "--generate", code=2)
    assert "to set a new one, add --replace" in refused
    assert "would delete" in commands.run("users", "delete", "bob", "--dry-run")
    assert commands.run("users", "delete", "bob", "--yes") == "deleted user bob (SCRAM-SHA-512)\n"
    eventually(lambda: not can_log_in(secured.connect(login)), "bob cannot log in")
    assert "there is no user 'bob'" in commands.run("users", "delete", "bob", "--yes", code=1)


def test_password_comes_from_a_file_and_is_replaced(
    secured: SecuredCluster, commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    create = ["users", "create", "carol", "--password-file", str(file)]
    both = ["--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512"]
    assert PASSWORD not in commands.run(*create, *both, "--iterations", "8192")
    login = scram_login("carol", PASSWORD, "SCRAM-SHA-256")
    eventually(lambda: can_log_in(secured.connect(login)), "carol can log in")
    with secured.admin() as cluster:
        found = UserAdmin(cluster).describe_users(["carol"])["carol"]
    assert found == (("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 8192))
    file.write_text("another one")
    assert commands.run(*create, "--replace", *both).startswith(
        "replaced the password of user carol"
    )
    eventually(lambda: not can_log_in(secured.connect(login)), "the old password is refused")


def test_unusable_passwords_are_refused(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("\n")
    create = ["users", "create", "dan", "--password-file", str(file)]
    assert "--password-file: the password is empty" in commands.run(*create, code=2)
    file.write_bytes(b"\xff\n")
    assert "is not UTF-8" in commands.run(*create, code=2)
    file.write_bytes(b"x" * 4097)
    assert "has more than 4096 bytes" in commands.run(*create, code=2)
    assert "cannot be asked for without a terminal" in commands.run(
        "users", "create", "dan", code=2
    )


def test_sources_of_passwords_are_checked(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "missing"
    both = commands.run("users", "create", "x", "--generate", "--password-file", str(file), code=2)
    assert "--generate: cannot be combined with --password-file" in both
    missing = commands.run("users", "create", "x", "--password-file", str(file), code=2)
    assert f"--password-file: cannot read {file}: No such file" in missing


def test_missing_mechanism_is_not_deleted(commands: Commands) -> None:
    commands.run("users", "create", "una", "--generate")
    words = ["users", "delete", "una", "--yes", "--mechanism", "SCRAM-SHA-256"]
    why = "user una has no password for SCRAM-SHA-256, only for SCRAM-SHA-512"
    eventually(lambda: why in commands.run(*words, code=2), "the new user is known")


@pytest.mark.parametrize(
    "words",
    [
        ["users", "list"],
        ["users", "create", "x", "--generate"],
        ["acls", "list"],
        ["acls", "add", "x", "--topic", "t", "--operation", "read"],
        ["tokens", "create", "--owner", "User:x"],
    ],
)
def test_user_without_permission_is_refused(alice: Commands, words: list[str]) -> None:
    assert "AUTHORIZATION_FAILED" in alice.run(*words, code=1)


@pytest.mark.parametrize(
    "words",
    [
        ["kafka-acls", "--list"],
        ["kafka-acls", "--add", "--allow-principal", "User:x", "--topic", "t"],
        [
            *("kafka-configs", "--entity-type", "users", "--entity-name", "x", "--alter"),
            *("--add-config", "SCRAM-SHA-256=[password=hunter2]"),
        ],
    ],
)
def test_kafkas_commands_report_missing_permissions(alice: Commands, words: list[str]) -> None:
    assert "AuthorizationException" in alice.kafka(*words, code=1)


def test_password_is_typed_twice_and_not_shown(secured: SecuredCluster, commands: Commands) -> None:
    words = ["users", "create", "eve", "-b", commands.servers]
    command = [sys.executable, "-m", "barnabas", *words, "--command-config", str(commands.file)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        for prompt in (b"Password of eve: ", b"Repeat for confirmation: "):
            # The prompt discards what was typed before it.
            while not seen.endswith(prompt):
                seen += os.read(ours, 1024)
            os.write(ours, b"typed-1\n")
        with contextlib.suppress(OSError):  # the other side of the terminal is closed
            while piece := os.read(ours, 1024):
                seen += piece
        os.close(ours)
        assert process.wait(120) == 0, seen
    assert b"created user eve" in seen
    assert b"typed-1" not in seen
    eventually(lambda: can_log_in(secured.connect(scram_login("eve", "typed-1"))), "eve can log in")


# ---- ACLs ---------------------------------------------------------------------------------------


def test_acls_are_added_listed_checked_and_removed(
    secured: SecuredCluster, commands: Commands
) -> None:
    assert commands.run("topics", "create", "orders")
    check = ["acls", "check", "alice", "read", "--topic", "orders"]
    denied = commands.document(*check, code=1)
    assert (denied["allowed"], denied["acl"]) == (False, None)
    assert any("super.users" in note for note in denied["notes"])
    with secured.connect(plain_login("alice")) as cluster, pytest.raises(ApiError) as error:
        cluster.fetch_topic("orders")
    assert error.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    added = commands.run(
        "acls", "add", "alice", "--consumer", "--topic", "ord", "--group", "g", "--prefixed"
    )
    assert added.startswith("added 3 ACLs")
    eventually(lambda: commands.document(*check, code=0)["allowed"], "alice may read")
    allowed = commands.document(*check)
    assert allowed["acl"]["resource_name"] == "ord"
    assert allowed["acl"]["pattern_type"] == "PREFIXED"

    def can_describe() -> bool:
        with secured.connect(plain_login("alice")) as cluster:
            return "orders" in cluster.refresh(None).topics

    eventually(can_describe, "alice sees the topic")

    commands.run("acls", "add", "User:alice", "--operation", "read", "--topic", "orders", "--deny")
    eventually(
        lambda: "an ACL denies it" in commands.document(*check, code=1)["reason"], "the denial"
    )
    listed = commands.document("acls", "list", "--topic", "orders")["acls"]
    assert {each["permission"] for each in listed} == {"ALLOW", "DENY"}
    assert "would remove 1 ACL" in commands.run(
        "acls", "remove", "alice", "--topic", "orders", "--dry-run"
    )
    assert "removed 1 ACL" in commands.run("acls", "remove", "alice", "--topic", "orders", "--yes")
    assert "removed 3 ACLs" in commands.run("acls", "remove", "alice", "--yes")
    eventually(lambda: commands.run("acls", "list").startswith("no ACLs"), "no ACL is left")
    assert "no ACL matches" in commands.run("acls", "remove", "alice", "--yes", code=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["add", "alice", "--operation", "read"], "name a resource"),
        (["add", "alice", "--topic", "t"], "give operations, or --producer or --consumer"),
        (["add", "alice", "--topic", "t", "--operation", "raed"], "did you mean read?"),
        (
            ["add", "alice", "--group", "g", "--operation", "write"],
            "write does not exist for a group",
        ),
        (
            ["add", "alice", "--delegation-token", "d", "--consumer"],
            "no operations on a delegation",
        ),
        (["add", "alice", "--topic", "", "--operation", "read"], "has at least one character"),
        (["add", ":", "--group", "g", "--operation", "read"], "is not of the form User:name"),
        (["remove"], "name a principal, or a resource"),
        (["check", "alice", "read", "--topic", "a", "--topic", "b"], "name exactly one resource"),
        (["check", "alice", "all", "--topic", "a"], "a broker does not check it"),
    ],
)
def test_wrong_arguments_of_acls_are_named(commands: Commands, words: list[str], why: str) -> None:
    assert why in commands.run("acls", *words, code=2)


# ---- Kafka's commands ---------------------------------------------------------------------------


def test_kafka_acls_prints_what_kafkas_command_prints(
    secured: SecuredCluster, commands: Commands
) -> None:
    add = ["--add", "--allow-principal", "User:zoe", "--operation", "Read", "--topic", "k"]
    resource = "ResourcePattern(resourceType=TOPIC, name=k, patternType=LITERAL)"
    entry = "(principal=User:zoe, host=*, operation=READ, permissionType=ALLOW)"
    shown = commands.kafka("kafka-acls", *add)
    assert shown == f"Adding ACLs for resource `{resource}`: \n \t{entry} \n\n"
    current = f"Current ACLs for resource `{resource}`: \n \t{entry} \n\n"
    list_topic = ["kafka-acls", "--list", "--topic", "k"]
    eventually(lambda: commands.kafka(*list_topic) == current, "the ACL is listed")
    by_principal = commands.kafka("kafka-acls", "--list", "--principal", "User:zoe")
    assert by_principal == f"ACLs for principal `User:zoe`\n{current}"
    commands.kafka("kafka-acls", "--remove", "--force", "--topic", "k")
    eventually(lambda: commands.kafka(*list_topic) == "", "the ACL is removed")


def test_kafka_acls_adds_the_permissions_of_roles(
    secured: SecuredCluster, commands: Commands
) -> None:
    words = ["--add", "--allow-principal", "User:yan", "--topic", "r", "--group", "r"]
    commands.kafka("kafka-acls", *words, "--producer", "--idempotent", "--consumer")
    with secured.admin() as cluster:
        found = [
            each for each in AclAdmin(cluster).describe_acls() if each.entry.principal == "User:yan"
        ]
    operations = {(each.pattern.type.name, each.entry.operation.name) for each in found}
    assert operations == {
        *(("TOPIC", name) for name in ("READ", "WRITE", "DESCRIBE", "CREATE")),
        ("GROUP", "READ"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--list", "--add"], "Command must include exactly one action: --list, --add, --remove."),
        (["--add", "--topic", "a"], "You must specify one of: --allow-principal"),
        (["--add", "--allow-principal", "User:a"], "You must provide at least one resource"),
        (["--add", "--producer"], "With --producer you must specify a --topic"),
        (
            ["--add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"],
            "ResourceType GROUP only supports operations",
        ),
        (["--list", "--authorizer", "a"], "--authorizer is not supported; use --bootstrap-server"),
        (["--list", "--bootstrap-controller", "a:1"], "is for clusters without ZooKeeper"),
        (["--remove", "--principal", "User:a", "--topic", "t"], "only available if --list is set"),
        (["--add", "--idempotent", "--topic", "t"], "only available if --producer is set"),
        (["--add", "--consumer", "--topic", "t"], "you must specify a --topic and a --group"),
        (
            [
                "--add",
                "--allow-principal",
                "User:a",
                "--topic",
                "t",
                "--resource-pattern-type",
                "x",
            ],
            "Cannot parse argument 'x' of option resource-pattern-type",
        ),
        (
            [
                *("--add", "--allow-principal", "User:a", "--topic", "t"),
                "--resource-pattern-type=any",
            ],
            "A '--resource-pattern-type' value of 'ANY' is not valid when adding acls.",
        ),
        (["--list", "--principal", "zoe"], "expected a string in format principalType"),
    ],
)
def test_kafka_acls_reports_wrong_usage(commands: Commands, words: list[str], why: str) -> None:
    assert why in commands.kafka("kafka-acls", *words, code=1)


def test_kafka_configs_sets_and_deletes_scram_credentials(
    secured: SecuredCluster, commands: Commands
) -> None:
    user = ["kafka-configs", "--entity-type", "users", "--entity-name", "sam"]
    value = "SCRAM-SHA-256=[iterations=8192,password=sam-pw],SCRAM-SHA-512=[password=sam-pw]"
    shown = commands.kafka(*user, "--alter", "--add-config", value)
    assert shown == "Completed updating config for user sam.\n"
    line = (
        "SCRAM credential configs for user-principal 'sam' are "
        "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    eventually(lambda: commands.kafka(*user, "--describe") == line, "the credentials are listed")
    login = scram_login("sam", "sam-pw", "SCRAM-SHA-256")
    eventually(lambda: can_log_in(secured.connect(login)), "sam can log in")
    commands.kafka(*user, "--alter", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    eventually(lambda: not can_log_in(secured.connect(login)), "sam cannot log in")
    assert "ResourceNotFoundException" in commands.kafka(*user, "--describe")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            "SCRAM-SHA-256=[iterations=100,password=hunter2]",
            "Iterations 100 is less than the minimum",
        ),
        (
            "SCRAM-SHA-256=[iterations=99999,password=hunter2]",
            "Iterations 99999 is greater than the maximum 16384",
        ),
        ("SCRAM-SHA-256=[password=hunter2\0]", "Invalid credential property SCRAM-SHA-256"),
        ("SCRAM-SHA-256=[pass=hunter2]", "Invalid credential property SCRAM-SHA-256"),
        (
            "SCRAM-SHA-256=[password=hunter2],producer_byte_rate=1",
            "Cannot alter both quota and SCRAM",
        ),
    ],
)
def test_kafka_configs_does_not_repeat_a_password(commands: Commands, value: str, why: str) -> None:
    user = ["kafka-configs", "--entity-type", "users", "--entity-name", "tom"]
    shown = commands.kafka(*user, "--alter", "--add-config", value, code=1)
    assert why in shown
    assert "hunter2" not in shown
