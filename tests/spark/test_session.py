from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.launcher import FAST_COMPILER
from support.waiting import eventually
from tests.processes import assert_ended

TIMEOUT_S = 200
COMMAND = [sys.executable, "-m", "barnabas.cli.main"]

# Each runs in its own process: a process has one JVM, and the other tests have already started theirs.
SCRIPT = """
import json, os, sys
import barnabas.spark
home = os.environ.get("JAVA_HOME")
def python(_):
    import pyspark
    return [sys.executable, os.path.isfile(pyspark.__file__)]
config = {"spark.driver.extraJavaOptions": sys.argv[3]}
spark = barnabas.spark.session("local[2]", catalog=sys.argv[1], config=config)
same = barnabas.spark.session()
if sys.argv[2] == "make":
    spark.range(3).write.saveAsTable("numbers")
print(json.dumps({
    "rows": spark.table("numbers").count(),
    "same": same is spark,
    "home": os.environ.get("JAVA_HOME") == home,
    "shuffles": spark.conf.get("spark.sql.shuffle.partitions"),
    "python and an unpacked pyspark": spark.sparkContext.parallelize([0], 1).map(python).first(),
}))
spark.stop()
"""


def test_tables_survive_session_with_catalog(tmp_path: Path, trained_spark: str) -> None:
    for what in ("make", "look"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "catalog"), what, FAST_COMPILER],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout) == {
            "rows": 3,
            "same": True,
            "home": True,
            "shuffles": "2",
            "python and an unpacked pyspark": [sys.executable, True],
        }
        assert done.stderr == ""
    # It leaves no files in the working directory.
    assert [path.name for path in tmp_path.iterdir()] == ["catalog"]


@pytest.fixture(scope="module")
def servers(trained_spark: str) -> Iterator[str]:
    with LocalCluster() as cluster:
        with Cluster(cluster.bootstrap_servers) as client, Producer(client) as producer:
            topic = NewTopic(
                name="web-orders", partitions=2, replication_factor=1, configs={}, assignment=()
            )
            Admin(client).create_topics([topic])
            for number in range(90):
                value = json.dumps({"user": f"u{number % 3}", "amount": number}).encode()
                producer.send("web-orders", value, key=b"k%d" % (number % 3))
            producer.flush()
        yield cluster.bootstrap_servers


def environment(servers: str) -> dict[str, str]:
    return {**os.environ, "BARNABAS_BOOTSTRAP_SERVERS": servers}


def test_sql_queries_topic(servers: str) -> None:
    query = (
        "select key, count(*) n, sum(value_json:amount::int) total, max(value_text) last "
        "from `web-orders` group by key order by key;"
    )
    done = subprocess.run(
        [*COMMAND, "sql", "-o", "json", query],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(servers),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"key": f"k{key}", "n": 30, "total": total, "last": json.dumps(last)}
        for key, total, last in [
            (0, 1305, {"user": "u0", "amount": 9}),
            (1, 1335, {"user": "u1", "amount": 88}),
            (2, 1365, {"user": "u2", "amount": 8}),
        ]
    ]


def test_prepare_writes_class_data_archive(trained_spark: str) -> None:
    done = subprocess.run(
        [*COMMAND, "spark", "--prepare"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    path = done.stdout.removeprefix("Spark is prepared: ").rstrip()
    assert path in trained_spark
    assert Path(path).is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["select * from web-orders"], 2, "write `web-orders`"),
        (["select 1", "-o", "parquet"], 2, "--to: required"),
        (["select 1", "--offset", "end"], 2, "--follow"),
        (["select 1", "-b", "127.0.0.1:1"], 1, "no broker answers"),
        (["select 1", "--master", "sc://{broker}"], 1, "no Spark Connect server answers at"),
    ],
)
def test_errors_are_reported_before_spark_starts(
    servers: str, arguments: list[str], code: int, says: str
) -> None:
    done = subprocess.run(
        [*COMMAND, "sql", *(each.format(broker=servers) for each in arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(servers),
    )
    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_sql_follow_ends_quietly_while_it_is_busy(servers: str) -> None:
    query = "select offset, value_json:user::string user from `busy-orders` where value_text like '%u1%'"
    with Cluster(servers) as client:
        Admin(client).create_topics([NewTopic(name="busy-orders", partitions=2)])
    write_users(servers, ["u1", "u2"] * 30)
    process = subprocess.Popen(
        [*COMMAND, "sql", "--follow", "-o", "json", query],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(servers),
    )
    alarm = threading.Timer(TIMEOUT_S, process.kill)
    alarm.start()
    has_ended = threading.Event()

    def write_until_end() -> None:
        while not has_ended.wait(0.02):
            write_users(servers, ["u1 again"] * 20)

    writer = threading.Thread(target=write_until_end)
    try:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(30)]
        assert {row["user"] for row in rows} == {"u1"}
        writer.start()
        rows = [json.loads(process.stdout.readline()) for _ in range(500)]
        assert {row["user"] for row in rows} == {"u1 again"}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        has_ended.set()
        alarm.cancel()
        process.kill()
        process.communicate()
        if writer.ident is not None:
            writer.join()
    assert (process.returncode, errors.strip()) == (130, b"")


def write_users(servers: str, users: list[str]) -> None:
    with Cluster(servers) as client, Producer(client) as producer:
        for user in users:
            producer.send("busy-orders", json.dumps({"user": user}).encode())


def test_double_interrupt_during_start_leaves_no_jvm(servers: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "sql", "select count(*) from `web-orders`"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(servers),
    )
    started: list[psutil.Process] = []

    def has_started_one() -> bool:
        started[:] = psutil.Process(process.pid).children(recursive=True)
        return bool(started)

    try:
        eventually(has_started_one, "a process of Spark", TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # two simultaneous signals count as one
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, errors.strip()) == (130, b"")
        assert_ended(started, TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
        for orphan in started:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()


WRITES = """
import sys, threading
import barnabas.spark
spark = barnabas.spark.session("local[2]", short=True)
servers, topic = ("kafka.bootstrap.servers", sys.argv[1]), "web-orders"
read = spark.readStream.format("barnabas").option(*servers).option("kafka.group.id", "g")
rows = read.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
write = rows.load().select("key").selectExpr("key as value").writeStream.format("barnabas").option(*servers)
write = write.option("topic", "copy").option("kafka.linger.ms", 5).option("checkpointLocation", sys.argv[2])
query = write.trigger(availableNow=True).start()
query.awaitTermination()
print(len(query.recentProgress))
batch = spark.range(3).selectExpr("cast(id as string) as value").write.format("barnabas").option(*servers)
batch.option("topic", "copy").option("kafka.linger.ms", 5).mode("append").save()
rows = spark.range(3).selectExpr("cast(id as string) as value").write.format("barnabas").option(*servers)
rows = rows.option("topic", "threads").mode("append")
def save():
    print(barnabas.spark.session() is spark)
    rows.save()
thread = threading.Thread(target=save)
thread.start()
thread.join()
spark.stop()
"""


def test_ineffective_options_are_reported_once_and_joined_thread_can_write(
    servers: str, tmp_path: Path
) -> None:
    with Cluster(servers) as client:
        names = ("copy", "threads")
        Admin(client).create_topics([NewTopic(name=name, partitions=1) for name in names])
        done = subprocess.run(
            [sys.executable, "-c", WRITES, servers, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        batches, is_same_session = done.stdout.split()
        assert int(batches) >= 2
        assert done.stderr.splitlines() == [
            "barnabas: kafka.group.id has no effect: no consumer group is used",
            "barnabas: kafka.linger.ms has no effect here",
            "barnabas: kafka.linger.ms has no effect here",
        ]
        assert is_same_session == "True"
        partition = TopicPartition("threads", 0)
        assert latest_offsets(client, [partition]) == {partition: 3}


# One JVM for all three: a session that fails leaves it to the next one.
WITH_ANOTHER_PYTHON = """
import json, os, sys
from pyspark.sql import SparkSession
import barnabas.spark
bare, missing = sys.argv[1:]

def error(python, argument):
    os.environ["PYSPARK_PYTHON"] = python
    try:
        barnabas.spark.session("local[1]", python=argument, short=True)
    except barnabas.spark.launcher.NoSpark as found:
        return str(found)

errors = [error(bare, bare), error(missing, missing)]
os.environ["PYSPARK_PYTHON"] = bare
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(json.dumps([*errors, error(bare, None)]))
"""


def test_unusable_worker_python_is_reported_with_fix(tmp_path: Path, trained_spark: str) -> None:
    venv.create(tmp_path / "bare")
    bare, missing = f"{tmp_path}/bare/bin/python", f"{tmp_path}/nowhere"
    done = subprocess.run(
        [sys.executable, "-c", WITH_ANOTHER_PYTHON, bare, missing],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    chosen, nowhere, begun = json.loads(done.stdout)
    lacks = "cannot import cramjam, crc32c, msgspec, numpy, pyarrow; there, run: "
    fix = f"{bare} -m pip install cramjam crc32c msgspec numpy pyarrow; or set PYSPARK_PYTHON to a Python that has them"
    assert chosen.endswith(f"{lacks}{fix}")
    assert f"cannot use the Python {missing}: it does not exist; set python= or" in nowhere
    assert begun == f"the workers of local[1] {lacks}{fix}"
