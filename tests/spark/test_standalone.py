from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from tests.spark.standalone_cluster import bare_python, standalone_cluster

RECORDS = 3000
DRIVER_TIMEOUT_S = 200

# The driver runs in its own process: a process has only one session, and the other tests use it.
DRIVER = """
import json, os, sys
import barnabas.spark

master, servers, python, java_options = sys.argv[1:]
spark = barnabas.spark.session(master, python=python, progress=False, config={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.cores.max": "2",
    "spark.ui.enabled": "false",
    # Executors start together: a single one would do all the work.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.driver.extraJavaOptions": java_options, "spark.executor.extraJavaOptions": java_options,
})

def where(rows):
    import barnabas
    yield os.getpid(), barnabas.__file__

places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).distinct().collect()
rows = (spark.read.format("barnabas").option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders").load())
counts = rows.groupBy("partition").count().collect()
values = sorted(int(row.value) for row in rows.select("value").collect())
rows.selectExpr("key", "value").write.format("barnabas") \\
    .option("kafka.bootstrap.servers", servers).option("topic", "copies").mode("append").save()
copied = (spark.read.format("barnabas").option("kafka.bootstrap.servers", servers)
          .option("subscribe", "copies").load().count())
# The codecs run from the shipped zip too.
from barnabas.spark.formats import from_avro, from_protobuf, to_avro, to_protobuf
proto = {"schema": 'syntax = "proto3"; message Number { int64 n = 1; }'}
numbers = spark.range(8).repartition(2).selectExpr("id", "struct(id as n) as message")
encoded = numbers.select(to_avro("id", schema='"long"').alias("avro"), to_protobuf("message", **proto).alias("proto"))
both = encoded.select(from_avro("avro", schema='"long"').alias("n"), from_protobuf("proto", **proto).alias("message"))
decoded = both.selectExpr("sum(n + message.n)").collect()[0][0]
executors = len(spark.sparkContext.statusTracker().getExecutorInfos()) - 1
print(json.dumps({"partitions": {row.partition: row["count"] for row in counts}, "values": values, "copied": copied,
                  "decoded": decoded,
                  "executors": executors, "files": sorted({file for _, file in places})}))
spark.stop()
"""


def test_standalone_cluster_without_our_package_reads_and_writes(
    tmp_path: Path, trained_spark: str
) -> None:
    python = bare_python(tmp_path / "python")
    with (
        LocalCluster() as cluster,
        standalone_cluster(tmp_path / "spark", workers=2, java_options=trained_spark) as master,
    ):
        servers = cluster.bootstrap_servers
        fill(servers)
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, master, servers, str(python), trained_spark],
            capture_output=True,
            text=True,
            timeout=DRIVER_TIMEOUT_S,
            check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
    assert done.returncode == 0, done.stderr[-4000:]
    output = json.loads(done.stdout.splitlines()[-1])
    assert sum(output["partitions"].values()) == RECORDS
    assert output["values"] == list(range(RECORDS))
    assert output["copied"] == RECORDS
    assert output["decoded"] == 2 * sum(range(8))
    assert output["executors"] == 2
    # The workers ran our code from the shipped zip, not from this checkout.
    assert all(".zip/barnabas/" in file for file in output["files"]), output["files"]


def fill(servers: str) -> None:
    with Cluster(servers) as cluster, Producer(cluster) as producer:
        topics = [
            NewTopic(name=name, partitions=3, replication_factor=1, configs={}, assignment=())
            for name in ("orders", "copies")
        ]
        assert not [
            outcome.error for outcome in Admin(cluster).create_topics(topics) if outcome.error
        ]
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number, key=b"%d" % (number % 97))
        producer.flush()
