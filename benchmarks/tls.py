"""Comparison with Apache Kafka 3.9 over TLS: the same certificate, and the same clients with TLS, on both.

Each broker has a listener with TLS, which the loads use, and one without for topics and offsets. TLS 1.3 is negotiated.
Frames come from a Python client, whose share of the work, encryption in OpenSSL, is about as large as the broker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from barnabas.client.admin import Admin
from barnabas.client.login import ConnectionSecurity
from barnabas.security.client_settings import parse_client_security
from benchmarks.broker import BenchmarkBroker
from benchmarks.kafka import KAFKA, OURS, Found, Step, run_rounds
from benchmarks.kafka_process import KafkaProcess, kafka_factory
from benchmarks.loads import KB, MB, TOPIC, Load, format_size
from benchmarks.suite import produce_and_fetch
from support.certificates import CertificateFiles
from support.ports import free_port

BATCH_BYTES = 128 * KB
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Parameters of a run. `bytes_of` is the amount of data by client and record size."""

    bytes_of: dict[tuple[str, int], int]
    partitions: tuple[int, ...]
    rounds: int


FULL = Extent(
    bytes_of={
        ("frames", 100): 512 * MB,
        ("frames", KB): 512 * MB,
        ("librdkafka", KB): 256 * MB,
    },
    partitions=(1, 8),
    rounds=3,
)
QUICK = Extent(
    bytes_of={("frames", KB): 128 * MB, ("librdkafka", KB): 64 * MB}, partitions=(1,), rounds=1
)


class TlsListener:
    """A running broker, as clients with TLS see it."""

    def __init__(self, broker: BenchmarkBroker, port: int, files: CertificateFiles) -> None:
        self.broker = broker
        self.address = HOST, port
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca)}
        self.client_settings: dict[str, object] = dict(settings)
        """Settings of librdkafka."""
        self.security = ConnectionSecurity(parse_client_security(settings))

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def cpu_s(self) -> float:
        return self.broker.cpu_s()

    def recycle_pages(self, size_bytes: int) -> None:
        self.broker.recycle_pages(size_bytes)

    def create_topic(self, name: str, partitions: int) -> UUID:
        return self.broker.create_topic(name, partitions)

    def admin(self) -> AbstractContextManager[Admin]:
        return self.broker.admin()


def measure_chosen(extent: Extent, chosen: Iterable[str]) -> Found:
    """Measure the chosen steps with one broker of each kind."""
    found: Found = {}
    names = set(chosen)
    chosen_steps = [step for step in steps(extent) if step.name in names]
    if chosen_steps:
        with tls_listeners() as listeners:
            run_rounds(found, listeners, chosen_steps, extent.rounds)
    return found


@contextmanager
def tls_listeners() -> Iterator[dict[str, TlsListener]]:
    with (
        TemporaryDirectory(prefix="barnabas-certificates-") as directory,
        kafka_factory() as kafka,
        ExitStack() as stack,
    ):
        files = CertificateFiles(Path(directory))
        ours, theirs = free_port(), free_port()
        settings = tls_settings(files, theirs)
        process = KafkaProcess(kafka.zookeeper, kafka.java, kafka.jars, settings)
        brokers = {
            OURS: (BenchmarkBroker(tls_settings(files, ours)), ours),
            KAFKA: (process, theirs),
        }
        yield {
            side: TlsListener(stack.enter_context(broker), port, files)
            for side, (broker, port) in brokers.items()
        }


def tls_settings(files: CertificateFiles, port: int) -> dict[str, str]:
    """Return the settings of a broker, for Barnabas and for Kafka."""
    listeners = f"PLAINTEXT://{HOST}:0,SSL://{HOST}:{port}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        **files.server_settings(),
    }


def step_names(extent: Extent) -> list[str]:
    return [step.name for step in steps(extent)]


def steps(extent: Extent) -> Iterator[Step[TlsListener]]:
    for (way, record), partitions in product(extent.bytes_of, extent.partitions):
        load = Load(
            batch_bytes=BATCH_BYTES,
            record_bytes=record,
            partitions=partitions,
            total_bytes=extent.bytes_of[way, record],
        )
        sizes = f"{format_size(record)}/{format_size(BATCH_BYTES)}/{partitions}p"
        yield Step(name=f"tls-{way}/{sizes}", run=partial(run_load, way, load))


def run_load(way: str, load: Load, listener: TlsListener) -> dict[str, float]:
    """Run a load, which creates the topic, and delete the topic."""
    values = produce_and_fetch(way, load, listener)
    listener.broker.delete_topic(TOPIC)
    return {f"tls-{name}": value for name, value in values.items()}
