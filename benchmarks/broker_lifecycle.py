"""Measurements of a broker without load: start-up time, idle memory and CPU, and recovery time after a crash."""

from __future__ import annotations

import subprocess
import sys
import time

from barnabas.client.blocking import BlockingConnection
from barnabas.client.core import raise_if
from barnabas.wire.messages.produce import ProduceResponse
from benchmarks.broker import BenchmarkBroker, environment_with_bytecode
from benchmarks.frames import FrameDriver, build_exact_batch, check_all_arrived, produce_request
from benchmarks.loads import KB, TOPIC, Load

SETTLE_S = 6  # until the controller has published its events about a thousand partitions

LOCAL_CLUSTER = """
import time
began = time.perf_counter()
from barnabas.cluster.local import LocalCluster
imported = time.perf_counter()
with LocalCluster(brokers=1) as local:
    started = time.perf_counter()
    from barnabas.client.admin import Admin, NewTopic
    from barnabas.client.cluster import Cluster
    from barnabas.client.producer import Producer
    ready = time.perf_counter()
    with Cluster(local.bootstrap_servers) as cluster:
        Admin(cluster).create_topics([NewTopic(name="greetings", partitions=1)])
        with Producer(cluster) as producer:
            producer.send("greetings", b"hello")
            assert producer.flush()
        acknowledged = time.perf_counter()
without_imports = started - imported + acknowledged - ready
print(imported - began + without_imports, without_imports)
"""


def measure_process_start(broker: BenchmarkBroker | None = None) -> float:
    """Return the seconds from the start of the process until the first record is acknowledged.

    The record goes to a topic that the broker creates when it starts.
    """
    _, batch = build_exact_batch(KB, KB)
    broker = broker or BenchmarkBroker()
    began = time.perf_counter()
    try:
        broker.start(f"{TOPIC}:1:1")
        connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        answer = connection.exchange(produce_request(0, batch), ProduceResponse)
        first_record_s = time.perf_counter() - began
        raise_if(answer.responses[0].partition_responses[0].error_code)
        connection.close()
        return first_record_s
    finally:
        broker.kill()
        broker.remove()


def measure_local_cluster_start() -> tuple[float, float]:
    """Return the seconds to the first record, with and without the import of LocalCluster.

    The imports of the client are not counted.
    """
    run = subprocess.run(
        [sys.executable, "-c", LOCAL_CLUSTER],
        check=True,
        capture_output=True,
        text=True,
        env=environment_with_bytecode(),
    )
    with_imports, without = run.stdout.split()
    return float(with_imports), float(without)


def measure_idle(partitions: int, seconds: float) -> tuple[float, float]:
    """Return resident MB and CPU use in percent of one core, of a broker without clients."""
    with BenchmarkBroker() as broker:
        if partitions:
            broker.create_topic(TOPIC, partitions)
        time.sleep(SETTLE_S)
        cpu_s = broker.cpu_s()
        time.sleep(seconds)
        return broker.resident_bytes() / 1e6, (broker.cpu_s() - cpu_s) / seconds * 100


def measure_recovery(load: Load) -> tuple[float, float]:
    """Return the start-up times after kill -9 and after a clean shutdown. Checks that all records are there."""
    with BenchmarkBroker() as broker:
        driver = FrameDriver(broker, broker.create_topic(TOPIC, load.partitions), load)
        driver.produce(load.batches)
        driver.close()
        broker.kill()
        crashed_s = broker.start().start_s
        check_all_arrived(broker, driver)
        broker.stop()
        clean_s = broker.start().start_s
        return crashed_s, clean_s
