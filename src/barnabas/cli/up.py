"""`barnabas up`: a cluster on this machine, in this process, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import click

from barnabas.broker.topics import NewTopic
from barnabas.cli.registry import DEFAULT_DATA_DIRECTORY
from barnabas.cluster import Cluster
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.world.descriptors import raise_descriptor_limit

DEFAULT_PORT = 9092


@click.command()
@click.option("--brokers", default=1, show_default=True, help="How many brokers to run.")
@click.option(
    "--data",
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where everything is kept; a later `up` with the same directory goes on from there.",
)
@click.option(
    "--port",
    default=DEFAULT_PORT,
    type=click.IntRange(0, 65535),
    show_default=True,
    help="0 lets the system choose one.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME:PARTITIONS:REPLICAS",
    help="Create this topic if it is missing; may be given several times.",
)
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A broker setting."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the brokers' log.")
def up(
    brokers: int,
    data: Path,
    port: int,
    topics: tuple[str, ...],
    overrides: tuple[str, ...],
    verbose: bool,
) -> None:
    """Start a cluster on this machine."""
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    raise_descriptor_limit()
    wanted = [parse_topic(text) for text in topics]
    cluster = Cluster(
        data.absolute(), brokers=brokers, port=port, settings=parse_settings(overrides)
    )
    for warning in cluster.warnings:
        click.echo(f"warning: {warning}", err=True)
    asyncio.run(run(cluster, wanted))


async def run(cluster: Cluster, wanted: list[NewTopic]) -> None:
    stopping = stop_on_signals()
    await cluster.start()
    try:
        for topic in wanted:
            await create_if_missing(cluster, topic)
        click.echo(greeting(cluster, wanted[0].name if wanted else "greetings"))
        await stopping.wait()
        click.echo("stopping ...", err=True)
    finally:
        await cluster.stop()


def stop_on_signals() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping


async def create_if_missing(cluster: Cluster, wanted: NewTopic) -> None:
    topics = cluster.brokers[0].topics
    assert topics is not None
    try:
        await topics.create(topics.check(wanted))
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def greeting(cluster: Cluster, topic: str) -> str:
    servers = cluster.bootstrap_servers
    return f"""\
Barnabas is up: {len(cluster.brokers)} broker at {servers}, data in {cluster.data}

  kcat      echo hello | kcat -P -b {servers} -t {topic}
            kcat -C -b {servers} -t {topic} -e

  Python    from confluent_kafka import Producer
            producer = Producer({{"bootstrap.servers": "{servers}"}})
            producer.produce("{topic}", b"hello"); producer.flush()

  PySpark   from barnabas import spark as barnabas_spark
            topic = barnabas_spark.session().read.format("barnabas").option("subscribe", "{topic}")
            topic.option("kafka.bootstrap.servers", "{servers}").load().show()

  Barnabas  barnabas topics list -b {servers}
            barnabas registry ls /brokers/topics --data {cluster.data}

Ctrl-C stops it; the data stays."""


def parse_topic(text: str) -> NewTopic:
    """`orders:6:1`; partitions and replicas may be left out."""
    name, *numbers = text.split(":")
    try:
        counts = [int(number) for number in numbers]
        if len(counts) > 2 or any(count < 1 for count in counts):
            raise ValueError
    except ValueError:
        raise ConfigError(
            "--topic", f"'{text}' is not NAME:PARTITIONS:REPLICAS, as in orders:6:1"
        ) from None
    partitions, replicas = [*counts, *[-1, -1]][:2]
    return NewTopic(name=name, partitions=partitions, replication_factor=replicas, configs={})


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--override", f"'{text}' is not KEY=VALUE, as in num.partitions=3")
        settings[key.strip()] = value.strip()
    return settings


def log_to_stderr(level: int) -> None:
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
