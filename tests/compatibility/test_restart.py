"""A broker is stopped or killed and restarts with the same data and port. Every client reconnects by itself, and no
acknowledged record is lost.

Producers use their defaults with acks=all and have records in flight when the broker stops. Idempotent producers
must not store a record twice.
"""

import asyncio
import gc
import signal
import subprocess
import warnings
from collections.abc import Iterator
from itertools import count
from time import time_ns

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from support.broker import BrokerProcess
from tests import tools
from tests.compatibility import kafkajs_client
from tests.compatibility.files import Files
from tests.compatibility.optional import require
from tests.compatibility.raw import Raw, batch_of

SECONDS = 60
TOPIC = "orders"
TOTAL = 2000

pytestmark = pytest.mark.filterwarnings("ignore:unclosed .*socket:ResourceWarning")
sigterm_and_sigkill = pytest.mark.parametrize(
    "end", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"]
)


@pytest.fixture
def broker(process: BrokerProcess) -> BrokerProcess:
    with Raw(process.bootstrap_servers) as raw:
        raw.create_topic(TOPIC)
    return process


@pytest.fixture(autouse=True)
def collect_leaked_sockets() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open after each failed connection attempt. Otherwise a later test
    would get the warning."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def stored_values(broker: BrokerProcess) -> list[int]:
    """The values in the log, once no client produces any longer."""
    return [int(value or b"-1") for value in Files(broker.log_dir).values(TOPIC)]


# ---- librdkafka


@sigterm_and_sigkill
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_librdkafka_produces_across_restart(
    broker: BrokerProcess, end: signal.Signals, idempotent: bool
) -> None:
    acknowledged: list[int] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged.append(int(message.value()))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "batch.num.messages": 20,
            "linger.ms": 0,
        }
    )
    for number in range(TOTAL):
        producer.produce(TOPIC, str(number), partition=0, on_delivery=on_delivery)
        if number == TOTAL // 2:
            while not acknowledged:
                producer.poll(0.1)
            broker.restart(end)
    assert producer.flush(SECONDS) == 0
    assert not failed
    found = stored_values(broker)
    if idempotent:
        assert acknowledged == list(range(TOTAL))
        assert found == acknowledged
    else:
        assert set(found) == set(acknowledged) == set(range(TOTAL))


@sigterm_and_sigkill
def test_librdkafka_consumes_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def produce_and_consume(*texts: str) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for text in texts:
            producer.produce(TOPIC, text, partition=0)
        assert producer.flush(SECONDS) == 0
        found = consumer.consume(len(texts), SECONDS)
        assert [message.value().decode() for message in found] == list(texts)

    produce_and_consume("before", "also before")
    broker.restart(end)
    produce_and_consume("after", "also after")
    consumer.close()


# ---- kafka-python


@sigterm_and_sigkill
def test_kafka_python_produces_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=200)
    futures = []
    for number in range(TOTAL):
        futures.append(producer.send(TOPIC, str(number).encode(), partition=0))
        if number == TOTAL // 2:
            futures[0].get(SECONDS)
            broker.restart(end)
    offsets = [future.get(SECONDS).offset for future in futures]
    producer.close()
    assert offsets == list(range(TOTAL))  # idempotent by default
    assert stored_values(broker) == list(range(TOTAL))


@sigterm_and_sigkill
def test_kafka_python_consumes_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None)
    partition = PythonTopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)

    def produce_and_consume(*texts: str) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for text in texts:
            producer.send(TOPIC, text.encode())
        producer.close()
        found: list[str] = []
        while len(found) < len(texts):
            polled = consumer.poll(timeout_ms=1000 * SECONDS)
            assert polled
            found += [record.value.decode() for record in polled[partition]]
        assert found == list(texts)

    produce_and_consume("before", "also before")
    broker.restart(end)
    produce_and_consume("after", "also after")
    consumer.close()


# ---- aiokafka


@sigterm_and_sigkill
async def test_aiokafka_produces_and_consumes_across_restart(
    broker: BrokerProcess, end: signal.Signals
) -> None:
    servers = broker.bootstrap_servers
    consumer = AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    partition = AioTopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    async with AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, max_batch_size=200
    ) as producer:
        futures = []
        for number in range(TOTAL):
            futures.append(await producer.send(TOPIC, str(number).encode(), partition=0))
            if number == TOTAL // 2:
                await futures[0]
                await asyncio.to_thread(broker.restart, end)
        async with asyncio.timeout(SECONDS):
            offsets = [(await future).offset for future in futures]
    found: list[int] = []
    async with asyncio.timeout(SECONDS):
        while len(found) < TOTAL:
            polled = await consumer.getmany(timeout_ms=1000)
            found += [int(record.value) for record in polled.get(partition, ())]
    await consumer.stop()
    assert offsets == found == stored_values(broker) == list(range(TOTAL))


# ---- kcat


@sigterm_and_sigkill
def test_kcat_produces_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    require(tools.have_kcat(), "kcat")
    command = ["kcat", "-b", broker.bootstrap_servers, "-P", "-t", TOPIC, "-p", "0", "-E"]
    command += ["-X", "enable.idempotence=true", "-X", "batch.num.messages=50"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None
        # kcat reads its input in large blocks, so it needs plenty of lines before it sends anything.
        producer.stdin.writelines(f"{number:0100}\n" for number in range(TOTAL))
        producer.stdin.flush()
        with Raw(broker.bootstrap_servers) as raw:
            raw.fetch(TOPIC, 0, max_wait_ms=15_000)
        broker.restart(end)
        producer.stdin.writelines(f"{number:0100}\n" for number in range(TOTAL, 2 * TOTAL))
        producer.communicate(timeout=SECONDS)
    assert producer.returncode == 0
    assert stored_values(broker) == list(range(2 * TOTAL))


@sigterm_and_sigkill
def test_kcat_consumes_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    require(tools.have_kcat(), "kcat")
    command = ["kcat", "-b", broker.bootstrap_servers, "-C", "-t", TOPIC, "-p", "0", "-E", "-u"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        try:
            for text in ("before", "after"):
                with Raw(broker.bootstrap_servers) as raw:
                    raw.produce(TOPIC, batch_of(text.encode()))
                assert consumer.stdout.readline() == f"{text}\n"
                if text == "before":
                    broker.restart(end)
        finally:
            consumer.kill()


# ---- kafkajs


@sigterm_and_sigkill
def test_kafkajs_produces_across_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    require(tools.have_kafkajs(), "kafkajs")
    process = kafkajs_client.start(
        broker.bootstrap_servers, "produceSlowly", topic=TOPIC, count=200
    )
    assert process.stdout is not None
    for number in count():
        assert process.stdout.readline() == f"{number}\n"
        if number == 50:
            broker.restart(end)
        if number == 199:
            break
    # Read through the same stream as before: it may have buffered more lines already.
    last = process.stdout.readline()
    process.communicate(timeout=SECONDS)
    assert kafkajs_client.result_in(last) == "done"
    assert set(stored_values(broker)) == set(range(200))


# ---- state after a restart


@sigterm_and_sigkill
def test_restarted_broker_keeps_topics_and_producer_state(
    broker: BrokerProcess, end: signal.Signals
) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        before = raw.topic_id(TOPIC)
        # Producer ids expire after a day of silence, measured by the timestamps in their batches.
        numbered = {"producer_id": 77, "producer_epoch": 0, "timestamp": time_ns() // 1_000_000}
        for sequence in range(3):
            batch = batch_of(b"x", base_sequence=sequence, **numbered)
            assert raw.produce(TOPIC, batch).base_offset == sequence
    broker.restart(end)
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.topic_id(TOPIC) == before
        again = raw.produce(TOPIC, batch_of(b"x", base_sequence=2, **numbered))
        assert (again.error_code, again.base_offset) == (0, 2)
        following = raw.produce(TOPIC, batch_of(b"x", base_sequence=3, **numbered))
        assert (following.error_code, following.base_offset) == (0, 3)
        assert raw.list_offset(TOPIC, -1).offset == 4
