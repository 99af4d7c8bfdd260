"""The public Python API with Apache Kafka."""

from __future__ import annotations

import json
from random import Random

import pytest

import barnabas
from barnabas import TopicPartition
from interop.harness.kafka import KafkaBroker
from support.command import run
from support.waiting import eventually


def test_python_api_works_with_kafka(kafka: KafkaBroker) -> None:
    partition = TopicPartition("api", 0)
    with barnabas.Client(kafka.bootstrap_servers) as client:
        admin = client.admin()
        # Kafka applies a changed setting some time after the response, so the limit is set at the creation.
        admin.create_topic("api", num_partitions=1, configs={"max.message.bytes": 2_000})
        admin.alter_configs({"retention.ms": -1}, topic="api")
        assert admin.describe_configs(topic="api")["retention.ms"].value == "-1"

        with client.producer(compression_type="zstd") as producer:
            places = [producer.send("api", str(n), timestamp=1_000 + n).result() for n in range(5)]
            large = producer.send("api", Random(1).randbytes(10_000))
            with pytest.raises(barnabas.ApiError, match="MESSAGE_TOO_LARGE"):
                producer.flush()
            with pytest.raises(barnabas.ApiError, match="MESSAGE_TOO_LARGE"):
                large.result()
            assert producer.send("api", b"5").result().offset == 5
        assert [place.offset for place in places] == list(range(5))

        consumer = client.consumer("api", auto_offset_reset="earliest")
        found = [record.value for record in consumer.read_to_end()]
        assert found == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert consumer.offsets_for_times({partition: 1_003}) == {partition: 3}

        with client.group_consumer("api-group", ["api"], auto_offset_reset="earliest") as member:
            for record in member:
                if record.offset == 2:
                    break
            assert admin.describe_group("api-group").state == "Stable"
        assert admin.list_group_offsets("api-group") == {partition: 3}
        admin.alter_group_offsets("api-group", {partition: 1})
        admin.delete_group("api-group")
        assert "api-group" not in admin.list_groups()
        admin.delete_topic("api")


def test_transactions_work_with_kafka(kafka: KafkaBroker) -> None:
    servers = kafka.bootstrap_servers
    partition = TopicPartition("shop", 0)
    with barnabas.Client(servers) as client:
        admin = client.admin()
        admin.create_topic("shop", num_partitions=1)
        producer = client.producer(transactional_id="shop-1")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("shop", "dropped").result()
            raise ZeroDivisionError
        member = client.group_consumer(
            "shop-group",
            ["shop"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        with producer.transaction():
            producer.send("shop", "kept")
        found: list[bytes | None] = []

        def has_read() -> bool:
            found.extend(record.value for record in member.poll(0.5))
            return bool(found)

        eventually(has_read, "the committed record is read")
        assert found == [b"kept"]
        producer.begin_transaction()
        producer.send("shop", "receipt").result()
        producer.send_offsets_to_transaction(member)

        described = run("transactions", "describe", "shop-1", "-b", servers, "-o", "json")
        (view,) = json.loads(described.stdout)["transactions"]
        assert view["state"] == "Ongoing"
        assert {"topic": "shop", "partition": 0} in view["partitions"]
        listed = run("transactions", "list", "--state", "Ongoing", "-b", servers, "-o", "json")
        assert [each["transactional_id"] for each in json.loads(listed.stdout)["transactions"]] == [
            "shop-1"
        ]
        unknown = run("transactions", "describe", "shop-2", "-b", servers)
        assert "hint:  did you mean 'shop-1'?" in unknown.stderr

        producer.commit_transaction()
        eventually(lambda: member.committed(partition) == 3, "the offsets are committed")
        thief = client.producer(transactional_id="shop-1")
        producer.begin_transaction()
        with pytest.raises(barnabas.ApiError, match="another producer uses it"):
            producer.send("shop", "late").result()
        with thief.transaction():
            thief.send("shop", "last")
        aborted = run("transactions", "abort", "shop-1", "-y", "-b", servers)
        assert "has no open transaction" in aborted.stderr
