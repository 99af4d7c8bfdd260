from __future__ import annotations

import pytest

from barnabas.spark.tables import find_unquoted_topic, names_in, quote_topic, topics_in

TOPICS = ["orders", "Orders", "web-orders", "eu.orders", "users", "2024"]


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("select key, count(*) from orders group by key", ["orders"]),
        ("select * from ORDERS", ["Orders"]),
        ("select * from Orders", ["Orders"]),
        ("select * from `web-orders` o join users u on o.key = u.key", ["users", "web-orders"]),
        ("select * from web-orders", ["orders"]),
        ("select 'orders' from users", ["users"]),
        ('select "it\\"s orders" from users', ["users"]),
        ("select 1 -- from orders\n from users /* orders */", ["users"]),
        ("select * from `2024`", ["2024"]),
        ("select 1", []),
    ],
)
def test_only_mentioned_topics_become_tables(query: str, topics: list[str]) -> None:
    assert topics_in(query, TOPICS) == topics


def test_backquotes_in_names_are_doubled() -> None:
    assert "a`b" in names_in("select * from `a``b`")


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("select * from web-orders", "web-orders"),
        ("select * FROM users JOIN\n eu.orders e", "eu.orders"),
        ("select * from `web-orders`", None),
        ("select 'from web-orders' from users", None),
        ("select * from web-orders-2", None),
    ],
)
def test_missing_backquotes_are_noticed(query: str, topic: str | None) -> None:
    assert find_unquoted_topic(query, TOPICS) == topic


def test_only_names_that_need_it_are_quoted() -> None:
    assert [quote_topic(topic) for topic in TOPICS[1:4]] == [
        "Orders",
        "`web-orders`",
        "`eu.orders`",
    ]
