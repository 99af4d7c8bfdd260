"""Every example of examples/pipelines gives the expected result."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.spark.formats import to_avro
from support.schema_registry import running_registry
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
DAY = "2026-11-17T"
DEADLINE_S = 120


@pytest.fixture
def example(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The names of an example. It is not imported as a module, because Spark's workers could not import it."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{request.param}.py")))


def click(user: str, time: str) -> str:
    return json.dumps({"user": user, "at": f"{DAY}{time}Z"})


def values(topics: Topics, topic: str) -> list[Any]:
    found = [record for records in topics.records(topic).values() for record in records]
    return sorted((json.loads(record.value or b"") for record in found), key=json.dumps)


@pytest.mark.parametrize("example", ["windows"], indirect=True)
def test_windows_count_each_minute_once(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    clicks, counts = topics.create("clicks", partitions=2), topics.create("counts")
    early = [click("frieda", "12:00:05"), click("frieda", "12:00:55"), click("k", "12:00:30")]
    for events in (early, [click("k", "12:01:10"), click("k", "13:00:00")]):
        topics.write(clicks, events)
        for query in example.start(
            topics.spark, tmp_path, topics.servers, clicks, counts, availableNow=True
        ):
            assert query.awaitTermination(DEADLINE_S)
    table = topics.spark.read.parquet(str(tmp_path / "minutes"))
    rows = table.selectExpr("date_format(minute, 'HH:mm') m", "user", "clicks").collect()
    assert sorted(map(tuple, rows)) == [
        ("12:00", "frieda", 2),
        ("12:00", "k", 1),
        ("12:01", "k", 1),
    ]
    assert [(row["user"], row["clicks"]) for row in values(topics, counts)] == [
        ("frieda", 2),
        ("k", 1),
        ("k", 1),
    ]


@pytest.mark.parametrize("example", ["join"], indirect=True)
def test_join_finds_payments_within_an_hour(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    orders, payments, paid = (topics.create(name) for name in ("orders", "payments", "paid"))

    def at(order: int, time: str, **fields: object) -> str:
        return json.dumps({"order": order, "at": f"{DAY}{time}Z", **fields})

    def run() -> None:
        names = (orders, payments, paid)
        query = example.start(topics.spark, tmp_path, topics.servers, names, availableNow=True)
        assert query.awaitTermination(DEADLINE_S)

    topics.write(orders, [at(n, "12:00:00", item=f"item {n}") for n in (1, 2, 3)])
    topics.write(payments, [at(1, "12:10:00", amount=10)])
    run()
    topics.write(payments, [at(2, "12:59:00", amount=20), at(3, "13:01:00", amount=30)])
    run()
    found = [(row["order"], row["item"], row["amount"]) for row in values(topics, paid)]
    assert found == [(1, "item 1", 10), (2, "item 2", 20)]


@pytest.mark.parametrize("example", ["sessions"], indirect=True)
def test_sessions_end_after_a_pause(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    clicks, target = topics.create("clicks"), topics.create("sessions")
    first = [click("frieda", "12:20:00"), click("frieda", "12:00:00"), click("k", "12:05:00")]
    then = [click("frieda", "12:45:00"), click("frieda", "13:30:00"), click("k", "15:00:00")]
    for events in (first, then):
        topics.write(clicks, events)
        query = example.start(
            topics.spark, tmp_path, topics.servers, clicks, target, availableNow=True
        )
        assert query.awaitTermination(DEADLINE_S)
    found = [(row["user"], row["begin"][11:16], row["clicks"]) for row in values(topics, target)]
    assert sorted(found) == [("frieda", "12:00", 3), ("frieda", "13:30", 1), ("k", "12:05", 1)]


@pytest.mark.parametrize("example", ["upserts"], indirect=True)
def test_upserts_keep_last_value_of_each_key(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    customers = topics.create("customers", partitions=2)

    def change(*changes: tuple[str, dict[str, str] | None]) -> list[tuple[Any, ...]]:
        rows = [(key, value and json.dumps(value)) for key, value in changes]
        frame = topics.spark.createDataFrame(rows, "key string, value string").coalesce(1)
        topics.writer(frame, topic=customers).save()
        query = example.start(topics.spark, tmp_path, topics.servers, customers, availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        return sorted(map(tuple, topics.spark.read.parquet(str(tmp_path / "current")).collect()))

    klamm, frieda = {"name": "Klamm", "city": "Castle"}, {"name": "Frieda", "city": "Village"}
    assert change(("1", frieda), ("2", klamm), ("1", klamm), ("3", frieda)) == [
        (1, "Klamm", "Castle"),
        (2, "Klamm", "Castle"),
        (3, "Frieda", "Village"),
    ]
    assert change(("2", None), ("3", None), ("3", frieda), ("4", klamm)) == [
        (1, "Klamm", "Castle"),
        (3, "Frieda", "Village"),
        (4, "Klamm", "Castle"),
    ]


@pytest.mark.parametrize("example", ["dead_letters"], indirect=True)
def test_bad_records_become_dead_letters(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    orders, valid, dead = (topics.create(name) for name in ("orders", "valid", "dead"))
    good = ['{"order": 1, "amount": 5}', '{"order": 4, "amount": 1}']
    bad = {
        "not JSON": "value is JSON; order has a number; amount is positive",
        '{"order": 2, "amount": -5}': "amount is positive",
        '{"amount": 5}': "order has a number",
    }
    topics.write(orders, [good[0], *bad, good[1]])
    query = example.start(
        topics.spark, tmp_path, topics.servers, (orders, valid, dead), availableNow=True
    )
    assert query.awaitTermination(DEADLINE_S)
    assert [json.dumps(each) for each in values(topics, valid)] == good
    found = {
        (record.value or b"").decode(): dict(record.headers) for record in topics.records(dead)[0]
    }
    assert found.keys() == bad.keys()
    for offset, (value, reason) in enumerate(bad.items(), 1):
        assert found[value]["__connect.errors.exception.message"] == reason.encode()
        assert found[value]["__connect.errors.topic"] == orders.encode()
        assert found[value]["__connect.errors.offset"] == str(offset).encode()


@pytest.mark.parametrize("example", ["schema_change"], indirect=True)
def test_orders_of_old_and_new_schema_have_same_columns(
    example: SimpleNamespace, topics: Topics, tmp_path: Path
) -> None:
    orders, target = topics.create("avro"), topics.create("json")
    id_and_amount = json.loads(example.SCHEMA)["fields"][:2]
    currency = {"name": "currency", "type": "string", "default": "CHF"}
    note = {"name": "note", "type": "string", "default": ""}

    def run(registry: str, rows: str, *fields: dict[str, str]) -> None:
        """Write the rows with a schema of these fields, and run the example."""
        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        order = topics.spark.sql(f"select {rows} as o").select(
            to_avro("o", schema=schema, registry=registry, subject=f"{orders}-value").alias("value")
        )
        topics.writer(order, topic=orders).save()
        query = example.start(
            topics.spark, tmp_path, topics.servers, registry, (orders, target), availableNow=True
        )
        assert query.awaitTermination(DEADLINE_S)

    with running_registry() as registry:
        run(registry.url, "struct(1L as id, 2D as amount)", *id_and_amount)
        rows = "struct(2L as id, 3D as amount, 'USD' as currency, 'new' as note)"
        run(registry.url, rows, *id_and_amount, currency, note)
    assert values(topics, target) == [
        {"id": 1, "amount": 2.0, "currency": "EUR"},
        {"id": 2, "amount": 3.0, "currency": "USD"},
    ]
