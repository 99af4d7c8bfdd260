"""The consume-transform-produce loop with Kafka's Java client, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from barnabas.java.find import Java
from interop.harness import jvm
from interop.harness.jars import INTEROP, KAFKA_3_9, Jars
from support.process import ChildProcess
from tests.faults.exactly_once.loops import (
    BATCH_RECORDS,
    CALL_SECONDS,
    CRASHES_PER_TRANSACTION,
    INPUT,
    TRANSACTION_TIMEOUT_MS,
    Loop,
)

PROGRAM = "CopyInTransactions"
CALL_MS = int(CALL_SECONDS * 1000)
SERIALIZATION = "org.apache.kafka.common.serialization.ByteArray"


def compile_loop(java: Java, jars: Jars, directory: Path) -> Path:
    """Compile the program once for all loops. Returns the directory of its classes."""
    target = directory / "classes"
    source = INTEROP / "java" / f"{PROGRAM}.java"
    compiler = java.home / "bin" / "javac"
    done = subprocess.run(
        [compiler, "-d", target, "-cp", jars.class_path(KAFKA_3_9), source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


class JavaLoop(Loop):
    """A loop in a group of one protocol, classic or consumer. The class path has the program and a client."""

    def __init__(
        self,
        servers: str,
        partitions: int,
        name: str,
        member: int,
        *,
        java: Java,
        class_path: str,
        protocol: str,
        directory: Path,
    ) -> None:
        super().__init__(servers, partitions, name, member)
        self.process: ChildProcess | None = None
        self.directory = directory / self.transactional_id
        self.directory.mkdir()
        common = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 500}
        producer = common | {
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "max.block.ms": CALL_MS,
            "request.timeout.ms": CALL_MS,
            "delivery.timeout.ms": 2 * CALL_MS,
            "key.serializer": f"{SERIALIZATION}Serializer",
            "value.serializer": f"{SERIALIZATION}Serializer",
        }
        consumer = common | {
            "group.id": name,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "max.poll.records": BATCH_RECORDS,
            "key.deserializer": f"{SERIALIZATION}Deserializer",
            "value.deserializer": f"{SERIALIZATION}Deserializer",
        }
        if protocol == "classic":
            consumer["session.timeout.ms"] = 6000
        self.command = jvm.command(
            java,
            class_path,
            PROGRAM,
            *(self.write("producer", producer), self.write("consumer", consumer)),
            *(INPUT, name, str(CRASHES_PER_TRANSACTION)),
            scratch=self.directory,
        )

    def write(self, client: str, settings: Mapping[str, object]) -> str:
        path = self.directory / f"{client}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def run(self) -> None:
        """Start the program, and count the lines that it prints until it ends."""
        self.process = process = ChildProcess(
            self.transactional_id,
            self.command,
            log=self.directory / "log",
            directory=self.directory,
            is_piped=True,
            is_isolated=True,
        )
        assert process.child.stdout is not None
        with process.child.stdout as output:
            for line in output:
                self.count(line.decode())
        process.wait()

    def count(self, line: str) -> None:
        event, _, error = line.strip().partition(" ")
        if event == "committed":
            self.committed += 1
        else:
            {"aborted": self.aborted, "restarted": self.restarts}[event][error] += 1

    def stop(self) -> None:
        process = self.process
        assert process is not None and process.child.stdin is not None
        process.child.stdin.close()
        super().stop()
        assert process.exit_code == 0, process.describe()
