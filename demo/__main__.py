"""The life of a topic: created on one broker, expanded to three, read by Spark while the controller fails, deleted.

Only the brokers and the Spark source are from Barnabas. librdkafka produces, kafka-python consumes, and ZooKeeper is a
real one. Every broker is a process, and the controller is killed with SIGKILL. Lines with a bar are events of the
controller: its state transitions of partitions.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas import spark as barnabas_spark
from demo import pipeline
from demo.letters import Letters, read_all
from demo.processes import COMMAND, SECONDS, Stage
from demo.silent_log import SILENT_LOGGER
from demo.transitions import Transitions
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, COUNTS = "letters", "letters_per_minute"
FIRST_PARTITIONS, ALL_PARTITIONS = 2, 6
LETTERS = 30_000  # produced twice; the controller is killed the second time
REPORT = Path("lifecycle-report.html")

NEXT_STEPS = """
Every acknowledged letter was stored exactly once, and all counts are right. To try it yourself:

   .venv/bin/barnabas up --brokers 3 --topic orders:6:3    # starts a cluster and prints examples for clients
   seq 1000 | .venv/bin/barnabas produce orders      # in another shell
   .venv/bin/barnabas sql "select partition, count(*) from orders group by partition"
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        stage = Stage(Path(directory))
        transitions = Transitions(stage.directory, (TOPIC,), print_text)
        transitions.start()
        try:
            Demo(stage, transitions).run()
        except AssertionError as error:
            sys.exit(str(error))
        finally:
            transitions.stop()
            stage.close()


class Demo:
    """The steps of the demo, in order."""

    def __init__(self, stage: Stage, transitions: Transitions) -> None:
        self.stage = stage
        self.transitions = transitions

    def run(self) -> None:
        self.start_first_broker()
        self.create_topic()
        self.start_other_brokers()
        self.add_partitions()
        letters = Letters(self.stage.bootstrap_servers, TOPIC)
        self.print_step(
            5, "Spark starts (the first start takes longer: it prepares faster ones) ..."
        )
        began = time.monotonic()
        utc = {"spark.sql.session.timeZone": "UTC"}
        spark = barnabas_spark.session("local[2]", config=utc, progress=False, short=True)
        try:
            self.print_detail(f"ready after {time.monotonic() - began:.1f} s")
            self.run_pipeline(spark, letters)
        finally:
            spark.stop()
        letters.close()
        self.compare(letters)
        self.delete_topic()
        self.report()
        print_text(NEXT_STEPS)

    def start_first_broker(self) -> None:
        self.stage.zookeeper.start()
        self.print_step(1, "A ZooKeeper is up. The first broker starts and becomes controller:")
        seconds = self.stage.add_broker(1)
        controller = self.stage.wait_for_controller()
        self.print_detail(f"broker {controller} is controller after {seconds:.2f} s")

    def create_topic(self) -> None:
        self.print_step(
            2, f"confluent-kafka creates topic '{TOPIC}' with {FIRST_PARTITIONS} partitions:"
        )
        admin = self.admin()  # must stay referenced until the result arrives
        admin.create_topics([NewTopic(TOPIC, FIRST_PARTITIONS, 1)])[TOPIC].result()
        self.transitions.catch_up()

    def start_other_brokers(self) -> None:
        self.print_step(3, "Brokers 2 and 3 join. Existing partitions stay where they are:")
        for number in (2, 3):
            self.print_detail(f"broker {number} joined after {self.stage.add_broker(number):.2f} s")

    def add_partitions(self) -> None:
        self.print_step(4, f"The topic is expanded to {ALL_PARTITIONS} partitions, on all brokers:")
        admin = self.admin()  # must stay referenced until the result arrives
        admin.create_partitions([NewPartitions(TOPIC, ALL_PARTITIONS)])[TOPIC].result()
        self.transitions.catch_up()

    def run_pipeline(self, spark: SparkSession, letters: Letters) -> None:
        servers = self.stage.bootstrap_servers
        admin = self.admin()  # must stay referenced until the result arrives
        admin.create_topics([NewTopic(COUNTS, 1, 3)])[COUNTS].result()
        query = pipeline.start_counting(spark, servers, TOPIC, COUNTS, self.stage.directory)
        letters.produce(LETTERS)
        pipeline.wait_for_counts(servers, COUNTS, letters.counts, query)
        self.print_step(6, f"librdkafka produced {LETTERS:,} letters, and Spark counted them live.")
        self.print_detail(f"Halfway through {LETTERS:,} more, the controller is killed (kill -9):")
        letters.produce(LETTERS, halfway=self.kill_controller)
        counts = pipeline.wait_for_counts(servers, COUNTS, letters.counts, query)
        query.stop()
        self.print_step(7, "Letters per person and minute, as counted by Spark:\n")
        print_text("\n".join(pipeline.chart(counts)) + "\n")

    def kill_controller(self) -> None:
        first = self.stage.wait_for_controller()
        began = time.monotonic()
        self.stage.brokers[first].kill()
        second = self.stage.wait_for_controller(other_than=first)
        self.transitions.catch_up()
        seconds = time.monotonic() - began
        self.print_detail(f"broker {second} is controller {seconds:.1f} s after the kill")
        self.print_detail(f"Partitions whose only replica is on broker {first} are offline:")
        seconds = self.stage.start(first)
        self.transitions.catch_up()
        self.print_detail(f"broker {first} restarted in {seconds:.2f} s")

    def compare(self, letters: Letters) -> None:
        found = Counter(read_all(self.stage.bootstrap_servers, TOPIC))
        self.print_step(
            8, f"kafka-python reads the topic from the beginning: {found.total():,} letters."
        )
        lost = [value for value in letters.acknowledged if value not in found]
        duplicates = [value for value, count in found.items() if count > 1]
        acknowledged = f"acknowledged: {len(letters.acknowledged):,}"
        self.print_detail(f"{acknowledged}, lost: {len(lost)}, duplicates: {len(duplicates)}")
        if lost or duplicates:
            sys.exit(
                "Letters were lost or duplicated. This is a bug in Barnabas; please report it."
            )

    def delete_topic(self) -> None:
        self.print_step(9, "The topic is deleted on every broker:")
        admin = self.admin()  # must stay referenced until the result arrives
        admin.delete_topics([TOPIC])[TOPIC].result()
        eventually(lambda: not self.has_logs(), f"no directory of {TOPIC} is left", SECONDS)
        self.transitions.catch_up()

    def has_logs(self) -> bool:
        found = self.stage.directory.glob(f"broker-*/{TOPIC}-*")
        return any(not path.name.endswith("-delete") for path in found)

    def report(self) -> None:
        self.print_step(10, "The history of the topics:\n")
        command = [COMMAND, "lifecycle", "report", "-b", self.stage.bootstrap_servers]
        subprocess.run([*command, "--html", str(REPORT)], check=True)
        self.print_detail(f"The same report as an HTML page: {REPORT}")

    def admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self.stage.bootstrap_servers}, logger=SILENT_LOGGER
        )

    def print_step(self, number: int, text: str) -> None:
        print_text(f"{number:<2} {text}")

    def print_detail(self, text: str) -> None:
        print_text(f"   {text}")


def print_text(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
