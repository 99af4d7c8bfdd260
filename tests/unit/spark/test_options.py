from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.batch.compression import Compression
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.options import ReadOptions, parse_read, parse_write
from barnabas.spark.planning import EARLIEST, LATEST, AtOffsets, AtTime, AtTimes, EarliestOrLatest

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}


def read(streaming: bool = False, /, **options: str) -> ReadOptions:
    return parse_read({**ORDERS, **options}, streaming=streaming)


def rejection(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(ConfigError) as error:
        parse_read(options, streaming=streaming)
    return str(error.value)


def test_batch_reads_everything_by_default() -> None:
    options = read()
    assert options.starting == EarliestOrLatest(option="startingOffsets", offset=EARLIEST)
    assert options.ending == EarliestOrLatest(option="endingOffsets", offset=LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.warnings == ()


def test_stream_starts_at_latest_by_default() -> None:
    assert read(True).starting == EarliestOrLatest(option="startingOffsets", offset=LATEST)


def test_option_names_ignore_case() -> None:
    assert read(MAXOFFSETSPERTRIGGER="7").rows_max == 7
    assert read(maxoffsetspertrigger="7").rows_max == 7


def test_topics_are_comma_separated_and_unique() -> None:
    assert read(subscribe=" b, a ,,b").selection.topics == ("b", "a")


def test_partitions_can_be_assigned() -> None:
    options = parse_read({**SERVERS, "assign": '{"b":[1,0],"a":[2]}'}, streaming=False)
    assert options.selection.partitions == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


def test_timestamp_takes_precedence_over_timestamps_and_offsets() -> None:
    offsets = '{"orders":{"0":5}}'
    assert isinstance(read(startingOffsets=offsets).starting, AtOffsets)
    assert isinstance(
        read(startingOffsets=offsets, startingOffsetsByTimestamp=offsets).starting, AtTimes
    )
    options = read(
        startingOffsets=offsets, startingOffsetsByTimestamp=offsets, startingTimestamp="9"
    )
    assert options.starting == AtTime(option="startingTimestamp", timestamp=9)


def test_every_option_of_spark_source_is_understood() -> None:
    options = read(
        True,
        **{
            "startingOffsets": "EARLIEST",
            "startingOffsetsByTimestampStrategy": "latest",
            "failOnDataLoss": "False",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "minPartitions": "4",
            "maxRecordsPerPartition": "1000",
            "includeHeaders": "TRUE",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
        },
    )
    assert options.starting == EarliestOrLatest(option="startingOffsets", offset=EARLIEST)
    assert (options.rows_max, options.rows_min, options.trigger_delay_ms_max) == (100, 10, 30_000)
    assert (options.partitions_min, options.records_max) == (4, 1000)
    assert (options.look_up_attempts, options.look_up_pause_ms) == (5, 0)
    assert options.include_headers
    assert not options.fail_on_data_loss
    assert not options.no_match_is_error


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("2 h", 7_200_000), ("500", 500), ("500ms", 500), ("1min", 60_000)],
)
def test_delays_use_spark_units(text: str, ms: int) -> None:
    assert read(True, maxTriggerDelay=text).trigger_delay_ms_max == ms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscrbe": "x"}, "subscrbe: there is no such option; did you mean subscribe?"),
        ({"failOnDataLos": "x"}, "failondatalos: there is no such option; did you mean failOnDataLoss?"),
        ({"bootstrap.servers": "x"}, "bootstrap.servers: there is no such option; did you mean kafka.boot"),
        ({"zzz": "x"}, "zzz: there is no such option; remove it"),
        ({"topic": "x"}, "topic: is an option of the sink; use subscribe to read"),
        ({"path": "x"}, "path: a topic is not a path; use load() and option subscribe"),
        ({"kafka.aks": "x"}, "kafka.aks: Kafka's clients have no such setting; did you mean kafka.acks?"),
        ({"assign": "{}"}, "assign: cannot be combined with subscribe; keep one of subscribe, assign"),
        ({"subscribePattern": "a"}, "subscribePattern: cannot be combined with subscribe"),
        ({"subscribe": " , "}, "subscribe: names no topic"),
        ({"subscribe": "a b"}, "subscribe: 'a b' is not a valid topic name"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers: is missing; set it to host:port"),
        ({"kafka.bootstrap.servers": "a:b"}, "kafka.bootstrap.servers: 'a:b' is not an address"),
        ({"kafka.bootstrap.servers": "a:1,b"}, "kafka.bootstrap.servers: 'b' is not an address; write host:port"),
        ({"kafka.bootstrap.servers": "[::1]"}, "kafka.bootstrap.servers: '[::1]' is not an address; write host:port"),
        ({"kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms: must be between 1 and 2147483647, not 0"),
        ({"publishOffsetsToGroup": " "}, "publishOffsetsToGroup: is empty; set the name of a consumer group"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch that starts at latest reads nothing; use"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch that ends at earliest reads nothing; use"),
        ({"startingOffsets": "newest"}, "startingOffsets: 'newest' is neither earliest nor latest, nor JSON"),
        ({"startingOffsets": '{"orders":'}, "startingOffsets: {\"orders\": is not JSON"),
        ({"startingOffsets": '{"orders":5}'}, "startingOffsets: 'orders' must have an object of partitions"),
        ({"startingOffsets": '{"orders":{"0":"5"}}'}, 'startingOffsets: "5" is not a valid number for orders-0; write'),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets: -3 is not a valid number for orders-0"),
        ({"startingOffsets": '{"orders":{"x":3}}'}, "startingOffsets: 'x' is not a partition number of orders"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets: orders-0 has -1: a batch that starts at latest"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: must be an integer of at least 0 (milliseconds"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "startingOffsetsByTimestamp: -1 is not a valid"),
        ({"startingOffsetsByTimestampStrategy": "X"}, "Strategy: must be error or latest, not 'X'"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "endingTimestamp: 8 is before startingTimestamp (9)"),
        ({"failOnDataLoss": " Maybe"}, "failOnDataLoss: must be true or false, not ' Maybe'"),
        ({"minPartitions": "0"}, "minPartitions: must be an integer of at least 1, not 0"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition: must be an integer of at least 1, not 'x'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger: 6 is more than max"),
        ({"maxTriggerDelay": "Soon"}, "must be a number and a unit (us, ms, s, m, min, h, d), as in 15m; not 'Soon'"),
        ({"kafka.auto.offset.reset": "x"}, "kafka.auto.offset.reset: is not supported: Spark keeps the offsets"),
        ({"kafka.enable.auto.commit": "x"}, "kafka.enable.auto.commit: is not supported"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer: is not supported"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: 'TLS' is not one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: is missing; set PLAIN"),
        ({"kafka.isolation.level": "X"}, "must be read_committed or read_uncommitted, not 'X'"),
        ({"kafka.metadata.max.age.ms": "2147483648"}, "must be between 0 and 2147483647, not 2147483648"),
    ],
)  # fmt: skip
def test_invalid_option_is_named_with_next_step(options: dict[str, str], message: str) -> None:
    assert message in rejection({**ORDERS, **options})


def test_pattern_must_be_a_regular_expression() -> None:
    assert "'(' is not a regular expression" in rejection({**SERVERS, "subscribePattern": "("})
    assert "subscribePattern: is empty" in rejection({**SERVERS, "subscribePattern": " "})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders", "is not JSON"),
        ("[1]", "is not an object of lists"),
        ('{"orders":[-1]}', "-1 is not a partition number"),
        ('{"orders":[true]}', "true is not a partition number"),
        ("{}", "names no partition"),
    ],
)
def test_invalid_assignment_is_rejected_with_example(text: str, reason: str) -> None:
    message = rejection({**SERVERS, "assign": text})
    assert message.startswith("assign: ")
    assert reason in message
    assert message.endswith('write it like {"orders":[0,1]}')


def test_topics_and_servers_are_required() -> None:
    assert rejection(SERVERS).startswith("subscribe: is missing; set subscribe or")
    assert rejection({"subscribe": "a"}).startswith("kafka.bootstrap.servers: is missing")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_has_no_ending_offsets(name: str) -> None:
    message = rejection({**ORDERS, name: "5"}, streaming=True)
    assert message == f"{name}: a stream has no end; remove it, or use trigger(availableNow=True)"


def test_both_ends_of_batch_name_same_partitions() -> None:
    ends = {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'}
    assert "endingOffsets: must name the same partitions" in rejection({**ORDERS, **ends})
    ends["endingOffsets"] = '{"orders":{"0":4}}'
    assert "ends at 4 in orders-0, before startingOffsets (5)" in rejection({**ORDERS, **ends})


def test_settings_without_effect_warn_once_each() -> None:
    options = read(
        **{
            "kafka.group.id": "g",
            "groupIdPrefix": "p",
            "kafka.ssl.provider": "x",
            "kafka.acks": "1",
        },
        maxOffsetsPerTrigger="5",
    )
    assert options.warnings == (
        "kafka.acks, kafka.ssl.provider have no effect here",
        "groupIdPrefix and kafka.group.id have no effect: no consumer group is used",
        "maxOffsetsPerTrigger has no effect in a batch query",
    )


def test_sink_defaults_are_safe() -> None:
    options = parse_write({**SERVERS, "topic": " orders ", "checkpointlocation": "/x"})
    assert (options.topic, options.acks, options.compression) == ("orders", -1, Compression.NONE)
    assert options.idempotent is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "x"}, "subscribe: there is no such option"),
        ({"topic": ""}, "topic: '' is not a valid topic name"),
        ({"kafka.acks": "Two"}, "kafka.acks: must be all, 1 or 0, not 'Two'"),
        ({"kafka.compression.type": "RAR"}, "must be none, gzip, snappy, lz4, zstd, not 'RAR'"),
        ({"kafka.enable.idempotence": "true", "kafka.acks": "1"}, "kafka.enable.idempotence: needs kafka.acks"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: is not supported"),
        ({"exactlyOnce": "yes"}, "exactlyOnce: must be true or false"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "exactlyOnce: needs kafka.acks=all"),
        (
            {"exactlyOnce": "true", "kafka.enable.idempotence": "false"},
            "exactlyOnce: needs kafka.enable.idempotence=true",
        ),
        ({"transactionalId": "job"}, "transactionalId: needs exactlyOnce=true"),
        ({"exactlyOnce": "true", "transactionalId": "a/b"}, "transactionalId: 'a/b' is not a valid"),
        ({"exactlyOnce": "true", "batchId": "3"}, "batchId: needs transactionalId"),
        (
            {"exactlyOnce": "true", "onLostTransactions": "no"},
            "onLostTransactions: must be fail or repeat or skip",
        ),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer: is not supported"),
        ({"kafka.request.timeout.ms": "x"}, "kafka.request.timeout.ms: must be an integer, not 'x'"),
    ],
)  # fmt: skip
def test_invalid_sink_option_is_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_write({**SERVERS, "topic": "orders", **options})
    assert message in str(error.value)


def test_transaction_timeout_applies_only_to_exactly_once() -> None:
    timeout = {"kafka.transaction.timeout.ms": "60000"}
    options = parse_write({**SERVERS, **timeout, "exactlyOnce": "true"})
    assert options.exactly_once
    assert options.transaction_timeout_ms == 60_000
    assert not options.warnings
    assert parse_write({**SERVERS, **timeout}).warnings


def test_catalog_table_is_rejected() -> None:
    table = {"provider": "barnabas", "owner": "me", "option.subscribe": "orders"}
    assert "use create temporary view" in rejection({**ORDERS, **table})


def test_topic_ids_are_kept_on_a_local_disk() -> None:
    assert read(True).topic_ids_location is None
    assert read(True, topicIdsLocation="/some/ids").topic_ids_location == Path("/some/ids")
    assert read(True, topicIdsLocation="file:///some/my%20ids").topic_ids_location == Path(
        "/some/my ids"
    )
    relative = read(True, topicIdsLocation="ids #1").topic_ids_location
    assert relative == Path.cwd() / "ids #1"
    assert read(topicIdsLocation="ids").warnings == (
        "topicIdsLocation has no effect in a batch query",
    )
    for elsewhere in ("s3://bucket/ids", "hdfs:/ids", ""):
        message = rejection({**ORDERS, "topicIdsLocation": elsewhere}, streaming=True)
        assert message == (
            f"topicIdsLocation: {elsewhere!r} is not a local directory of the driver;"
            " use a path or a file: URL"
        )
