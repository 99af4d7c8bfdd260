from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.spark.statement import check_is_query, check_same_query, claim, unclaim
from barnabas.errors import ConfigError


def test_checkpoint_accepts_same_query_with_other_whitespace(
    tmp_path: Path,
) -> None:
    assert claim(tmp_path / "_checkpoint", "select key\n  from orders;")
    check_same_query(tmp_path / "_checkpoint", " select  key from orders ")
    assert not claim(tmp_path / "_checkpoint", "select key from orders")


def test_checkpoint_rejects_another_query(tmp_path: Path) -> None:
    claim(tmp_path / "out" / "_checkpoint", "select key from orders")
    with pytest.raises(ConfigError) as refused:
        check_same_query(tmp_path / "out" / "_checkpoint", "select value from orders")
    assert f"{tmp_path / 'out'} belongs to another query" in str(refused.value)
    assert "choose another --to" in str(refused.value)
    assert "select key from orders" in str(refused.value)


def test_checkpoint_without_query_is_claimed(tmp_path: Path) -> None:
    check_same_query(tmp_path, "select 1")
    assert claim(tmp_path, "select 1")
    with pytest.raises(ConfigError):
        check_same_query(tmp_path, "select 2")


def test_unclaimed_checkpoint_accepts_another_query(tmp_path: Path) -> None:
    claim(tmp_path, "select count(*) from orders")
    unclaim(tmp_path)
    check_same_query(tmp_path, "select key from orders")


def test_non_utf8_query_matches_itself(tmp_path: Path) -> None:
    claim(tmp_path, "select '\udcff' from orders")
    check_same_query(tmp_path, "select '\udcff' from orders")


@pytest.mark.parametrize(
    "query",
    [
        "select 1",
        "SELECT 1",
        "-- what\n/* and\nwhy */ with a as (select 1) select * from a",
        "(select 1) union (select 2)",
        "from orders select key",
        "values (1)",
        "table orders",
        "show tables",
        "describe orders",
        "desc orders",
        "explain select 1",
        "select 'insert into' as `insert into` -- insert into",
    ],
)
def test_queries_are_accepted(query: str) -> None:
    check_is_query(query)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("create table a as select 1", "create"),
        ("insert into orders values (1)", "insert"),
        ("-- select\ndrop table orders", "drop"),
        ("/* select */ Set x=1", "set"),
        ("with a as (select 1) insert into orders select * from a", "insert"),
        ("from a insert overwrite b select *", "insert"),
        ("selct 1", "selct"),
    ],
)
def test_other_statements_are_rejected_with_alternatives(query: str, word: str) -> None:
    with pytest.raises(
        ConfigError, match=f"SQL: '{word}': only queries are supported here"
    ) as refused:
        check_is_query(query)
    assert "barnabas produce" in str(refused.value)
    assert "barnabas spark" in str(refused.value)


def test_empty_statement_is_rejected() -> None:
    for nothing in ("", "  ", "-- only a comment"):
        with pytest.raises(ConfigError, match="the query is empty"):
            check_is_query(nothing)
