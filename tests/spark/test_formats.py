"""Columns in Avro, Protobuf and JSON through topics, and dead letters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.client.producer import Producer
from barnabas.errors import ConfigError
from barnabas.formats.framing import frame_header
from barnabas.spark import expect
from barnabas.spark.formats import (
    from_avro,
    from_json,
    from_protobuf,
    to_avro,
    to_json,
    to_protobuf,
)
from support.schema_registry import RegistryServer, running_registry
from tests.spark.followed_stream import FollowedStream
from tests.spark.topics import Topics
from tests.unit.formats.golden import (
    AVRO_RECORD,
    AVRO_ROW,
    AVRO_SCHEMA,
    JSON_RECORD,
    JSON_SCHEMA,
    ORDER_RECORD,
    PROTO_SCHEMA,
    REFUND_RECORD,
)

ID = {"name": "id", "type": "long"}
AMOUNT = {"name": "amount", "type": "double"}
NOTE = {"name": "note", "type": "string", "default": "none"}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with running_registry() as running:
        running.store.register("golden-avro", {"schema": AVRO_SCHEMA})
        for kind, text in (("PROTOBUF", PROTO_SCHEMA), ("JSON", JSON_SCHEMA)):
            body = {"schema": text, "schemaType": kind}
            running.store.register(f"golden-{kind.lower()}", body)
        yield running


def schema_of(*fields: dict[str, str]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def avro_record(schema_id: int, schema: str, row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    stream.write(frame_header(schema_id))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    return stream.getvalue()


def send(topics: Topics, topic: str, values: list[bytes | None]) -> None:
    with topics.client() as cluster, Producer(cluster) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"k%d" % number, headers=(("trace", b"t"),))


def rows_of(topics: Topics, values: list[bytes | None]) -> DataFrame:
    return topics.spark.createDataFrame([(value,) for value in values], "value binary")


def decoded(topics: Topics, values: list[bytes | None], column: Column) -> list[Any]:
    """Return the decoded values, as nested dicts."""
    rows = rows_of(topics, values).select(column.alias("found")).collect()
    return [row.found.asDict(recursive=True) if row.found else None for row in rows]


def test_avro_stream_continues_after_schema_change(
    topics: Topics, registry: RegistryServer, checkpoint: str
) -> None:
    topic = topics.create("avro", partitions=2)
    subject = f"{topic}-value"
    first, second = schema_of(ID, AMOUNT), schema_of(ID, NOTE, AMOUNT)
    source: dict[str, Any] = {"registry": registry.url, "subject": subject}
    # The first version is registered by to_avro, which writes half of the records.
    rows = topics.spark.range(50).selectExpr("struct(id / 2D as amount, id) as row")
    encoded = rows.select(to_avro("row", schema=first, **source).alias("value"))
    topics.writer(encoded, topic=topic).save()
    order = from_avro("value", **source)
    stream = FollowedStream(
        topics,
        topics.stream(subscribe=topic, startingOffsets="earliest")
        .load()
        .select(F.to_json(order).cast("binary").alias("value")),
        checkpoint,
    )
    try:
        stream.wait_for(50)
        new_id = registry.store.register(subject, {"schema": second})
        newer = [{"id": number, "note": "new", "amount": 0.5} for number in range(50, 100)]
        send(topics, topic, [avro_record(new_id, second, row) for row in newer])
        values = stream.wait_for(100)
    finally:
        stream.query.stop()
    found = sorted((json.loads(value) for value in values), key=lambda row: int(row["id"]))
    assert found == [
        {"id": number, "amount": number / 2 if number < 50 else 0.5} for number in range(100)
    ]

    # A query that starts later reads with the second version. Old records get the default.
    latest = topics.reader(subscribe=topic).load().select(from_avro("value", **source).alias("row"))
    assert latest.select("row.*").dtypes == [
        ("id", "bigint"),
        ("note", "string"),
        ("amount", "double"),
    ]
    notes = latest.groupBy("row.note").agg(F.count("*").alias("n"), F.sum("row.id").alias("ids"))
    assert sorted(tuple(row) for row in notes.collect()) == [
        ("new", 50, sum(range(50, 100))),
        ("none", 50, sum(range(50))),
    ]


def test_records_of_other_clients(topics: Topics, registry: RegistryServer) -> None:
    """The ids in the golden records are those of the fixture."""
    url = registry.url
    avro = from_avro("value", registry=url, subject="golden-avro")
    rows = rows_of(topics, [AVRO_RECORD, None]).select(avro.alias("row"))
    assert rows.schema["row"].dataType.simpleString() == (
        "struct<id:bigint,user:string,amount:decimal(10,2),day:date,at:timestamp,at2:timestamp,uid:string,"
        "state:string,items:array<struct<sku:string,t:timestamp>>,tags:map<string,int>,"
        "first:struct<sku:string,t:timestamp>>"
    )
    row, null = (each.row for each in rows.collect())
    assert null is None
    assert (row.id, row.amount, row.day) == tuple(
        AVRO_ROW[name] for name in ("id", "amount", "day")
    )
    assert row["items"][0].t == row.at == row.at2
    assert row.at.timestamp() == AVRO_ROW["at"].timestamp()
    back = rows.select(to_avro("row", registry=url, subject="golden-avro").alias("value"))
    assert [each.value for each in back.collect()] == [AVRO_RECORD, None]

    source: dict[str, Any] = {"registry": url, "subject": "golden-protobuf"}
    order = from_protobuf("value", message="Order", mode="PERMISSIVE", **source)
    orders = rows_of(topics, [ORDER_RECORD, REFUND_RECORD, b"x", None]).select(order.alias("row"))
    found = [each.row for each in orders.collect()]
    assert found[1:] == [None, None, None]
    assert (found[0].id, found[0].big, found[0].state, found[0].card) == (
        -5,
        2**64 - 1,
        "PAID",
        "c",
    )
    again = orders.select(to_protobuf("row", message="Order", **source).alias("value"))
    assert [each.value for each in again.collect()] == [ORDER_RECORD, None, None, None]

    source = {"registry": url, "subject": "golden-json"}
    invalid = [b"\1" + JSON_RECORD[1:], JSON_RECORD[:-1], JSON_RECORD[:5], b"", b"\0\0\0\0\3\xff"]
    values = [JSON_RECORD, *invalid, None]
    parsed = decoded(topics, [*values], from_json("value", mode="PERMISSIVE", **source))
    assert parsed == [{"id": 1, "user": "ü"}, *[None] * 6]
    row_column = F.struct(F.lit(1).alias("id"), F.lit("ü").alias("user"))
    encoded = topics.spark.range(1).select(to_json(row_column, **source).alias("value"))
    assert [each.value for each in encoded.collect()] == [JSON_RECORD]


def test_schema_files_without_registry(topics: Topics, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(AVRO_SCHEMA)
    (tmp_path / "order.proto").write_text(PROTO_SCHEMA)
    (tmp_path / "order.json").write_text(JSON_SCHEMA)
    values: list[bytes | None] = [AVRO_RECORD[5:], None]
    avro = from_avro("value", schema=tmp_path / "order.avsc")
    assert [row and row["id"] for row in decoded(topics, values, avro)] == [-5, None]
    path = str(tmp_path / "order.proto")
    protobuf = from_protobuf(F.col("value"), schema=path, message="Order")
    rows = rows_of(topics, [ORDER_RECORD[6:]]).select(protobuf.alias("row"))
    back = rows.select(to_protobuf("row", schema=path, message="Order").alias("value"))
    assert back.collect()[0].value == ORDER_RECORD[6:]
    found = decoded(topics, [JSON_RECORD[5:]], from_json("value", schema=tmp_path / "order.json"))
    assert found == [{"id": 1, "user": "ü"}]


def test_first_invalid_record_fails_the_query(topics: Topics, registry: RegistryServer) -> None:
    columns = [
        (from_avro("value", schema='"long"'), "union or enum; first bytes: ff (1 bytes)"),
        (
            from_protobuf("value", schema=PROTO_SCHEMA, message="Refund"),
            "not a message shop.Refund",
        ),
        (from_json("value", schema=JSON_SCHEMA), "not JSON that fits the schema; first bytes: ff"),
        (
            from_avro("value", registry=registry.url, subject="golden-avro"),
            "too short for a schema id; first bytes: ff (1 bytes); mode='PERMISSIVE'",
        ),
    ]
    for column, why in columns:
        with pytest.raises(Exception) as error:
            rows_of(topics, [b"\xff"]).select(column).collect()
        assert why in str(error.value)
    rows = topics.spark.range(1).selectExpr("struct(id as key) as row")
    with pytest.raises(Exception) as error:
        rows.select(to_avro("row", schema=schema_of(ID))).collect()
    assert "has the field key, which is not in the schema; the schema has id" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "schema: is missing; pass schema=, or registry= and subject="),
        ({"registry": True}, "subject: is missing"),
        ({"subject": "s"}, "schema: is missing"),
        ({"subject": "s", "schema": '"long"'}, "registry: is missing"),
        ({"schema": '"long"', "mode": "DROP"}, "mode: 'DROP' is unknown"),
        ({"registry": True, "subject": "golden-json"}, "has a JSON schema; use from_json"),
        ({"schema": "nowhere.avsc"}, "file nowhere.avsc does not exist"),
    ],
)
def test_invalid_arguments_are_rejected_before_the_job(
    registry: RegistryServer, arguments: dict[str, Any], why: str
) -> None:
    if "registry" in arguments:
        arguments = {**arguments, "registry": registry.url}
    with pytest.raises(ConfigError) as error:
        from_avro("value", **arguments)
    assert why in str(error.value)


def test_invalid_records_go_to_dead_letter_topic(
    topics: Topics, registry: RegistryServer, tmp_path: Path
) -> None:
    source, good_topic, dead_topic = (
        topics.create(name, partitions=2) for name in ("orders", "good", "dead")
    )
    subject, schema = f"{source}-value", schema_of(ID, AMOUNT)
    schema_id = registry.store.register(subject, {"schema": schema})
    orders: list[bytes | None] = [
        avro_record(schema_id, schema, {"id": number, "amount": float(number)})
        for number in range(-20, 100)
    ]
    invalid: list[bytes | None] = [b"garbage %d" % number for number in range(7)]
    unknown: list[bytes | None] = [frame_header(999) + b"\2"]
    send(topics, source, orders + invalid + unknown)
    order = from_avro("value", registry=registry.url, subject=subject, mode="PERMISSIVE")
    rows = topics.stream(subscribe=source, startingOffsets="earliest", includeHeaders=True).load()
    good, dead = expect(
        rows.withColumn("order", order),
        {
            "value is an order": "order is not null",
            "id is not negative": F.col("order.id") >= 0,
            "amount is positive": "order.amount > 0",
        },
        dead_letter_topic=dead_topic,
    )
    kept = good.select("key", F.to_json("order").alias("value"), F.lit(good_topic).alias("topic"))
    queries = [
        stream.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start()
        for name, stream in (("good", kept), ("dead", dead))
    ]
    assert all(query.awaitTermination(120) for query in queries)
    sent = [each for records in topics.records(good_topic).values() for each in records]
    assert sorted(json.loads(each.value or b"")["id"] for each in sent) == list(range(1, 100))

    letters = [each for records in topics.records(dead_topic).values() for each in records]
    reasons: dict[str, list[bytes]] = {}
    originals = {
        (each.partition, each.offset): each
        for records in topics.records(source).values()
        for each in records
    }
    for letter in letters:
        names = [name for name, _ in letter.headers]
        assert names == [
            *("trace", "__connect.errors.exception.message", "__connect.errors.topic"),
            *("__connect.errors.partition", "__connect.errors.offset", "barnabas.errors.timestamp"),
        ]
        facts = {name: (value or b"").decode() for name, value in letter.headers}
        place = (int(facts["__connect.errors.partition"]), int(facts["__connect.errors.offset"]))
        original = originals.pop(place)
        assert (letter.key, letter.value) == (original.key, original.value)
        assert facts["__connect.errors.topic"] == source
        assert int(facts["barnabas.errors.timestamp"]) == original.timestamp
        reasons.setdefault(facts["__connect.errors.exception.message"], []).append(
            letter.value or b""
        )
    everything = "value is an order; id is not negative; amount is positive"
    assert {reason: len(values) for reason, values in reasons.items()} == {
        everything: 8,
        "id is not negative; amount is positive": 20,
        "amount is positive": 1,
    }
    assert set(reasons[everything]) == set(invalid + unknown)
    assert len(originals) == 99


def test_expect_works_with_the_columns_that_exist(topics: Topics) -> None:
    rows = topics.spark.sql("select 'a' value, 1 n union all select 'b', null")
    good, dead = expect(rows, {"n is set": "n > 0"}, dead_letter_topic="dead")
    assert [tuple(row) for row in good.collect()] == [("a", 1)]
    (letter,) = dead.collect()
    assert (letter.topic, letter.key, letter.value) == ("dead", None, b"b")
    headers = [(header.key, bytes(header.value)) for header in letter.headers]
    assert headers == [("__connect.errors.exception.message", b"n is set")]
    for column, why in (("1 value", "column value: is int, not the bytes"), ("1 n", "is missing")):
        with pytest.raises(ConfigError, match=why):
            expect(topics.spark.sql(f"select {column}"), {"x": "true"}, dead_letter_topic="dead")
    for expectations, topic, why in (
        ({}, "dead", "is empty"),
        ({"": "true"}, "dead", "a name is empty"),
        ({"x": "true"}, "no topic", "is not a topic name"),
    ):
        with pytest.raises(ConfigError, match=why):
            expect(rows, expectations, dead_letter_topic=topic)


def test_snippets_of_the_documentation_run(topics: Topics, registry: RegistryServer) -> None:
    orders = schema_of({"name": "user", "type": "string"}, AMOUNT)
    registry.store.register("orders-value", {"schema": orders})
    for topic in ("orders", "payments", "payments-dead"):
        topics.create(topic, mark=False)
    topics.write("payments", ['{"user": "ann", "amount": 5}', "{"])
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 4
    code = "".join(snippets)
    code = code.replace("localhost:9092", topics.servers)
    code = code.replace("http://localhost:8081", registry.url)
    names: dict[str, Any] = {"spark": topics.spark}
    exec(compile(code, "docs/formats.md", "exec"), names)
    ((letter,),) = topics.records("payments-dead").values()
    assert letter.value == b"{"
    assert dict(letter.headers)["__connect.errors.topic"] == b"payments"
    assert [row.payment.user for row in names["good"].collect()] == ["ann"]
    assert registry.store.subjects["totals-value"]
