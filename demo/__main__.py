"""The life of a topic: it is born on one broker, grows onto three, feeds a pipeline, outlives its controller, and dies.

Nothing here is ours but the brokers and the Spark source: librdkafka writes, kafka-python reads, ZooKeeper is
ZooKeeper, and every broker is a process of its own that is really killed. Lines with a bar are the controller's own
words, as it takes partitions from state to state.
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
from demo.quiet import QUIET
from demo.transitions import Transitions
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, COUNTS = "letters", "letters_per_minute"
BORN_WITH, GROWN_TO = 2, 6
LETTERS = 30_000  # in each half of the story
REPORT = Path("lifecycle-report.html")

LAST_WORDS = """
Every acknowledged letter survived, once, and every count is right. To try it yourself:

   .venv/bin/barnabas up --brokers 3 --topic orders:6:3    # a cluster, and lines to paste for your client
   seq 1000 | .venv/bin/barnabas produce orders      # in another shell
   .venv/bin/barnabas sql "select partition, count(*) from orders group by partition"
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        stage = Stage(Path(directory))
        transitions = Transitions(stage.directory, (TOPIC,), say)
        transitions.start()
        try:
            Story(stage, transitions).play()
        except AssertionError as error:
            sys.exit(str(error))
        finally:
            transitions.stop()
            stage.close()


class Story:
    def __init__(self, stage: Stage, transitions: Transitions) -> None:
        self.stage = stage
        self.transitions = transitions

    def play(self) -> None:
        self.first_broker()
        self.birth()
        self.others_join()
        self.growth()
        letters = Letters(self.stage.bootstrap_servers, TOPIC)
        self.say(5, "Spark starts (the first time it also prepares quicker starts) ...")
        began = time.monotonic()
        utc = {"spark.sql.session.timeZone": "UTC"}
        spark = barnabas_spark.session("local[2]", config=utc, progress=False, short=True)
        try:
            self.tell(f"up after {time.monotonic() - began:.1f} s")
            self.pipeline(spark, letters)
        finally:
            spark.stop()
        letters.close()
        self.comparison(letters)
        self.death()
        self.report()
        say(LAST_WORDS)

    def first_broker(self) -> None:
        self.stage.zookeeper.start()
        self.say(1, "A ZooKeeper is up. The first broker starts, and as nobody else is there:")
        seconds = self.stage.enter(1)
        self.tell(f"broker {self.stage.wait_for_controller()} is controller, after {seconds:.2f} s")

    def birth(self) -> None:
        self.say(2, f"Topic '{TOPIC}' with {BORN_WITH} partitions, by confluent-kafka's admin:")
        admin = self.admin()  # which must outlive the answer
        admin.create_topics([NewTopic(TOPIC, BORN_WITH, 1)])[TOPIC].result()
        self.transitions.catch_up()

    def others_join(self) -> None:
        self.say(3, "Brokers 2 and 3 join. Nothing moves to them by itself:")
        for number in (2, 3):
            self.tell(f"broker {number} is there after {self.stage.enter(number):.2f} s")

    def growth(self) -> None:
        self.say(4, f"The topic is expanded to {GROWN_TO} partitions, onto all three:")
        admin = self.admin()  # which must outlive the answer
        admin.create_partitions([NewPartitions(TOPIC, GROWN_TO)])[TOPIC].result()
        self.transitions.catch_up()

    def pipeline(self, spark: SparkSession, letters: Letters) -> None:
        servers = self.stage.bootstrap_servers
        admin = self.admin()  # which must outlive the answer
        admin.create_topics([NewTopic(COUNTS, 1, 3)])[COUNTS].result()
        query = pipeline.start_counting(spark, servers, TOPIC, COUNTS, self.stage.directory)
        letters.write(LETTERS)
        pipeline.wait_for_counts(servers, COUNTS, letters.counts, query)
        self.say(6, f"{LETTERS:,} letters came with librdkafka and were counted live.")
        self.tell(f"{LETTERS:,} more follow, and in their midst the controller is killed (-9):")
        letters.write(LETTERS, meanwhile=self.kill_the_controller)
        counts = pipeline.wait_for_counts(servers, COUNTS, letters.counts, query)
        query.stop()
        self.say(7, "Letters by person and minute, as Spark counted them through all of it:\n")
        say("\n".join(pipeline.chart(counts)) + "\n")

    def kill_the_controller(self) -> None:
        first = self.stage.wait_for_controller()
        began = time.monotonic()
        self.stage.brokers[first].kill()
        second = self.stage.wait_for_controller(other_than=first)
        self.transitions.catch_up()
        self.tell(
            f"broker {second} is controller {time.monotonic() - began:.1f} s after the death;"
        )
        self.tell(f"what lies on broker {first} alone waits for it:")
        seconds = self.stage.start(first)
        self.transitions.catch_up()
        self.tell(f"broker {first} is back after {seconds:.2f} s")

    def comparison(self, letters: Letters) -> None:
        found = Counter(read_all(self.stage.bootstrap_servers, TOPIC))
        self.say(8, f"kafka-python reads the topic from its beginning: {found.total():,} letters.")
        lost = [value for value in letters.acknowledged if value not in found]
        twice = [value for value, count in found.items() if count > 1]
        self.tell(
            f"acknowledged: {len(letters.acknowledged):,}, lost: {len(lost)}, twice: {len(twice)}"
        )
        if lost or twice:
            sys.exit("That must not happen. Please report it.")

    def death(self) -> None:
        self.say(9, "The topic is deleted, on every broker:")
        admin = self.admin()  # which must outlive the answer
        admin.delete_topics([TOPIC])[TOPIC].result()
        eventually(lambda: not self.is_left(), f"no directory of {TOPIC} is left", SECONDS)
        self.transitions.catch_up()

    def is_left(self) -> bool:
        found = self.stage.directory.glob(f"broker-*/{TOPIC}-*")
        return any(not path.name.endswith("-delete") for path in found)

    def report(self) -> None:
        self.say(10, "What happened to the topics, as a Spark job sees it in the history:\n")
        command = [COMMAND, "lifecycle", "report", "-b", self.stage.bootstrap_servers]
        subprocess.run([*command, "--html", str(REPORT)], check=True)
        self.tell(f"the same as a page: {REPORT}")

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.stage.bootstrap_servers}, logger=QUIET)

    def say(self, number: int, text: str) -> None:
        say(f"{number:<2} {text}")

    def tell(self, text: str) -> None:
        say(f"   {text}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
