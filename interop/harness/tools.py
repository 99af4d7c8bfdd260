"""Kafka's command-line tools, run like their scripts run them: a main class with arguments in its own JVM."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from barnabas.java.find import Java
from barnabas.spark.cache import digest
from interop.harness import jvm
from interop.harness.jars import KAFKA_3_9, KAFKA_4, Jars
from support.process import die_with_parent

TIMEOUT_S = 120
RELEASES = (KAFKA_3_9, KAFKA_4)
TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-dump-log": f"{TOOLS}.DumpLogSegments",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-delegation-tokens": f"{TOOLS}.DelegationTokenCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
# Main classes of 3.9 that have moved since.
MOVED_SINCE_3_9 = {
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of one release."""

    release: str
    java: Java
    jars: Jars
    scratch: Path

    def run(
        self, tool: str, *arguments: str, stdin: str = "", timeout: float = TIMEOUT_S
    ) -> Outcome:
        """Run a tool to its end, with any result."""
        ready = self.class_archive_options
        return self.start(tool, *arguments, options=ready, stdin=stdin, timeout=timeout)

    def start(
        self, tool: str, *arguments: str, options: tuple[str, ...], stdin: str, timeout: float
    ) -> Outcome:
        done = subprocess.run(
            self.command(tool, *arguments, options=options),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            start_new_session=True,
            preexec_fn=die_with_parent,
            check=False,
        )
        return Outcome(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def command(
        self, tool: str, *arguments: str, options: tuple[str, ...] | None = None
    ) -> list[str]:
        """The command line, for tools that run until they are stopped."""
        return jvm.command(
            self.java,
            self.jars.class_path(self.release),
            self.main_class(tool),
            *arguments,
            scratch=self.scratch,
            options=(
                *jvm.SHORT_LIVED,
                *(self.class_archive_options if options is None else options),
            ),
        )

    def succeed(self, tool: str, *arguments: str, stdin: str = "") -> Outcome:
        """Run a tool; the test fails unless it succeeds."""
        outcome = self.run(tool, *arguments, stdin=stdin)
        assert outcome.exit_code == 0, f"{tool} of {self.release}: {outcome}"
        return outcome

    @property
    def archive(self) -> Path:
        """The class archive for this Java; stored with the jars it was made from."""
        name = f"tools-{digest(self.java.home, self.java.release)}.jsa"
        return self.jars.directory / self.release / name

    @property
    def class_archive_options(self) -> tuple[str, ...]:
        return (f"-XX:SharedArchiveFile={self.archive}",) if self.archive.exists() else ()

    def create_class_archive(self, bootstrap_servers: str) -> None:
        """Create the class archive once: later starts take half the time. Without support in Java, nothing changes."""
        if self.archive.exists() or not self.java.has_shared_classes:
            return
        part = self.scratch / self.archive.name
        made = f"-XX:ArchiveClassesAtExit={part}"
        listing = ("--bootstrap-server", bootstrap_servers, "--describe")
        self.start("kafka-topics", *listing, options=(made,), stdin="", timeout=TIMEOUT_S)
        if part.exists():
            shutil.copyfile(part, self.archive.with_suffix(".part"))
            self.archive.with_suffix(".part").rename(self.archive)

    def main_class(self, tool: str) -> str:
        if self.release == KAFKA_3_9 and tool in MOVED_SINCE_3_9:
            return MOVED_SINCE_3_9[tool]
        return MAIN_CLASSES[tool]
