"""The public Python API with Apache Kafka."""

from __future__ import annotations

from random import Random

import pytest

import barnabas
from barnabas import TopicPartition
from interop.harness.kafka import KafkaBroker


def test_python_api_works_with_kafka(kafka: KafkaBroker) -> None:
    partition = TopicPartition("api", 0)
    with barnabas.Client(kafka.bootstrap_servers) as client:
        admin = client.admin()
        admin.create_topic("api", num_partitions=1, configs={"retention.ms": -1})
        admin.alter_configs({"max.message.bytes": 2_000}, topic="api")
        assert admin.describe_configs(topic="api")["max.message.bytes"].value == "2000"

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
