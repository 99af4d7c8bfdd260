"""Wrong usage and damaged files: one line with the next step, an exit code, and no partial changes.

Auxiliary files (indexes, checkpoints, snapshots) may be damaged in any way; they are rebuilt. Files that identify the
owner of the data must be intact.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from support.broker import BrokerProcess
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from tests.faults.raw_client import RawClient

TOPIC = "orders"
REFUSED, WRONG_USAGE = 1, 2


def run_rejected(*arguments: str, code: int) -> str:
    """Run `barnabas <arguments>`, which must fail. Returns the error, with its hint if there is one."""
    ended = run(*arguments)
    assert ended.returncode == code, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert len([line for line in lines if line.lower().startswith("error")]) == 1, ended
    return " ".join(line for line in lines if line.lower().startswith(("error", "hint")))


# ---- wrong usage: nothing is modified -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--override", "num.partitons=3"], "did you mean num.partitions?"),
        (["--override", "num.partitions=zero"], "it must be a 32-bit integer"),
        (["--override", "num.partitions"], "is not KEY=VALUE"),
        (["--override", "log.segment.bytes=-5"], "log.segment.bytes"),
        (["--brokers", "0"], "is not in the range x>=1"),
        (["--brokrs", "3"], "did you mean --brokers?"),
        (["--port", "many"], "is not a valid integer"),
        (["--port", "99999"], "is not in the range 0<=x<=65535"),
        (["--topic", "orders:six"], "as in orders:6:1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_fails_with_one_line_and_creates_nothing(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    data = tmp_path / "data"
    line = run_rejected("up", "--port=0", f"--data={data}", *arguments, code=WRONG_USAGE)
    assert expected in line
    assert not data.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.id=1\nzookeeper.connect=localhost:x\n", "is not host:port,…/chroot"),
        ("broker.id.generation.enable=false\n", "broker.id: -1 is not allowed"),
        ("broker.id=1\nnum.partitions=x\n", "num.partitions"),
        ("broker.id=1\nno.such.thing=1\n", "no.such.thing: no such broker setting"),
        ("broker.id=1\nlisteners=nonsense\n", "listeners"),
    ],
)
def test_invalid_properties_file_fails_with_one_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text + f"log.dirs={tmp_path}/logs\n" * ("log.dirs" not in text))
    assert expected in run_rejected("broker", str(path), code=WRONG_USAGE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["server.properties"]


def test_missing_properties_file_is_named(tmp_path: Path) -> None:
    line = run_rejected("broker", str(tmp_path / "no.properties"), code=WRONG_USAGE)
    assert "no.properties: cannot be read: No such file or directory" in line


# ---- errors of the operating system ---------------------------------------------------------------------------


def test_uncreatable_data_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    line = run_rejected("up", "--port=0", f"--data={file}/data", code=REFUSED)
    assert str(file) in line
    assert file.read_text() == "in the way"


def test_uncreatable_log_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    arguments = ["--port=0", f"--data={tmp_path}/data", f"--override=log.dirs={file}/logs"]
    assert f"{file}/logs" in run_rejected("up", *arguments, code=REFUSED)
    arguments[-1] = f"--override=log.dirs={file}"
    assert f"{file}: is not a directory; set log.dirs" in run_rejected(
        "up", *arguments, code=REFUSED
    )


def test_port_in_use_is_named_and_data_stays_usable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = run_rejected("up", f"--port={port}", f"--data={tmp_path}/data", code=REFUSED)
        assert f"127.0.0.1:{port} is in use" in line
        assert "choose another port" in line
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.address) as client:
        assert client.create_topic(TOPIC) == 0


def test_second_broker_on_same_data_is_rejected(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.address) as client:
        assert client.create_topic(TOPIC) == 0
        line = run_rejected("up", "--port=0", f"--data={broker.data}", code=REFUSED)
        assert f"another process (pid {broker.running.pid}) has this data directory open" in line
        # With its own registry the second broker gets as far as opening the logs.
        arguments = [f"--data={tmp_path}/other", f"--override=log.dirs={broker.log_dir}"]
        line = run_rejected("up", "--port=0", *arguments, code=REFUSED)
        assert f"another broker is using {broker.log_dir}: stop it" in line
        assert client.produce(TOPIC, 0, b"still here").error_code == 0


# ---- ownership of the data ------------------------------------------------------------------------------------


@pytest.fixture
def stopped_broker(tmp_path: Path) -> BrokerProcess:
    """A cleanly stopped broker with records in several segments."""
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "3000"})
    with broker, RawClient(broker.address) as client:
        assert client.create_topic(TOPIC) == 0
        for number in range(100):
            batch = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": number}
            assert client.produce(TOPIC, 0, value_of(number), **batch).base_offset == number
        assert broker.stop() == 0
    return broker


def value_of(number: int) -> bytes:
    return b"record %d " % number + b"x" * 100


def check_records(broker: BrokerProcess, count: int = 100) -> None:
    """Check that all records exist and that producing continues, also for the same idempotent producer."""
    with RawClient(broker.address) as client:
        found = [record.value for record in client.read_all(TOPIC, 0)]
        assert found == [value_of(number) for number in range(count)]
        again = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": count - 1}
        assert client.produce(TOPIC, 0, value_of(count - 1), **again).base_offset == count - 1
        skipped = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": count + 7}
        answer = client.produce(TOPIC, 0, b"out of order", **skipped)
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": count}
        assert client.produce(TOPIC, 0, b"next", **following).base_offset == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version=0\nbroker.id=7\n", "belongs to broker.id 7, this broker has 1"),
        ("version=0\nbroker.id=1\ncluster.id=another\n", "belongs to cluster.id another"),
    ],
)
def test_data_of_other_broker_or_cluster_is_rejected_unchanged(
    stopped_broker: BrokerProcess, text: str, expected: str
) -> None:
    meta = stopped_broker.log_dir / "meta.properties"
    ours = meta.read_text()
    meta.write_text(text)
    line = run_rejected("up", "--port=0", f"--data={stopped_broker.data}", code=REFUSED)
    assert expected in line
    assert "set log.dirs to another directory" in line
    assert meta.read_text() == text
    meta.write_text(ours)
    with stopped_broker:
        check_records(stopped_broker)
        loaded = [
            line for line in stopped_broker.log().splitlines() if "loaded log directory" in line
        ]
        assert "clean=True" in loaded[-1], "the rejected start removed the clean shutdown marker"


@pytest.mark.parametrize("damage", [b"", b"\x00\xff\x00garbage" * 50], ids=["empty", "garbage"])
def test_unreadable_meta_properties_is_rewritten(
    stopped_broker: BrokerProcess, damage: bytes
) -> None:
    meta = stopped_broker.log_dir / "meta.properties"
    meta.write_bytes(damage)
    with stopped_broker:
        check_records(stopped_broker)
        assert "broker.id=1" in meta.read_text()


def test_damaged_registry_is_rejected_with_next_step(stopped_broker: BrokerProcess) -> None:
    database = stopped_broker.data / "registry" / "registry.db"
    whole = database.read_bytes()
    for damage in (b"garbage" * 2000, whole[:1000], whole[:100] + bytes(len(whole) - 100)):
        database.write_bytes(damage)
        line = run_rejected("up", "--port=0", f"--data={stopped_broker.data}", code=REFUSED)
        assert "registry.db: is corrupt" in line
        assert "restore it from a backup, or move it away" in line
        assert database.read_bytes() == damage
    database.write_bytes(whole)
    with stopped_broker:
        check_records(stopped_broker)


# ---- files that are rebuilt -----------------------------------------------------------------------------------


def noise(data: bytes) -> bytes:
    return random.randbytes(len(data) or 50)


DAMAGES: list[Callable[[bytes], bytes | None]] = [
    lambda data: None,
    lambda data: b"",
    lambda data: bytes(len(data)),
    noise,
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1] + b"\xff",
    lambda data: data + b"\x01" * 7,
]
DAMAGE_NAMES = ["missing", "empty", "zeroes", "noise", "half", "last byte", "longer"]


@pytest.mark.parametrize("damage", DAMAGES, ids=DAMAGE_NAMES)
def test_damaged_auxiliary_files_do_not_affect_reads(
    stopped_broker: BrokerProcess, damage: Callable[[bytes], bytes | None]
) -> None:
    log = stopped_broker.log_dir / f"{TOPIC}-0"
    patterns = ("*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint")
    helpers = [path for pattern in patterns for path in log.glob(pattern)]
    helpers += stopped_broker.log_dir.glob("*-offset-checkpoint")
    assert {path.suffix for path in helpers} >= {".index", ".timeindex", ".snapshot"}
    assert len(helpers) > 12
    for path in helpers:
        changed = damage(path.read_bytes())
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
    with stopped_broker:
        check_records(stopped_broker)
        assert "Traceback" not in stopped_broker.log()
        assert stopped_broker.stop() == 0
        stopped_broker.start()
        with RawClient(stopped_broker.address) as client:
            assert client.end_offset(TOPIC, 0) == 101


def test_torn_last_segment_keeps_records_before_tear(
    stopped_broker: BrokerProcess,
) -> None:
    """The last segment is torn at its end, as after a power failure. All records before the tear are kept."""
    (stopped_broker.log_dir / ".kafka_cleanshutdown").unlink()
    last = max((stopped_broker.log_dir / f"{TOPIC}-0").glob("*.log"))
    whole = last.read_bytes()
    last.write_bytes(whole[:-10])
    with stopped_broker, RawClient(stopped_broker.address) as client:
        found = [record.value for record in client.read_all(TOPIC, 0)]
        assert found == [value_of(number) for number in range(99)]
        assert "truncating invalid bytes" in stopped_broker.log()


# ---- terminal output ------------------------------------------------------------------------------------------


def test_control_characters_in_file_do_not_reach_terminal(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"\x1b[31mred\x07=1\n")
    assert "\x1b" not in run_rejected("broker", str(path), code=WRONG_USAGE)


def test_interrupted_start_does_not_block_next_start(tmp_path: Path) -> None:
    for pause_s in (0.05, 0.15, 0.25, 0.35, 0.45):
        process = subprocess.Popen(
            [*COMMAND, "up", "--port=0", f"--data={tmp_path}/data"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            process.wait(pause_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.address) as client:
        assert client.create_topic(TOPIC) == 0
