from __future__ import annotations

import pytest

from barnabas.cli.transactions.describe import transaction_document, transactions_text
from barnabas.cli.transactions.find_hanging import hanging_document, hanging_text
from barnabas.cli.transactions.list import STATES, listing_document, listing_table
from barnabas.cli.transactions.lookup import parse_longer_than
from barnabas.client.transaction_admin import (
    OpenTransaction,
    TransactionListing,
    TransactionView,
    is_hanging,
)
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.transactions.transaction import TransactionState

ORDERS = TopicPartition("orders", 0)
OPEN = OpenTransaction(ORDERS, 42, 1000, 3, -1, 5_000)


def view(*partitions: TopicPartition, start_ms: int | None = 2_000) -> TransactionView:
    return TransactionView(
        "orders-1", "Ongoing", "h:9092", 1000, 3, 60_000, start_ms, tuple(partitions)
    )


def test_transaction_hangs_unless_its_coordinator_has_the_partition() -> None:
    assert is_hanging(OPEN, {})
    assert is_hanging(OPEN, {7: view(ORDERS)})
    assert is_hanging(OPEN, {1000: view(TopicPartition("orders", 1))})
    assert not is_hanging(OPEN, {1000: view(ORDERS)})


def test_states_of_the_filter_are_those_of_the_coordinator() -> None:
    assert {*STATES, "Dead"} == {str(each) for each in TransactionState}


def test_described_transaction_has_age_and_partitions() -> None:
    partitions = [TopicPartition("orders", number) for number in (0, 1, 2)]
    document = transaction_document(view(*partitions, TopicPartition("paid", 4)), 14_000)
    assert transactions_text({"transactions": [document]}).splitlines()[1:] == [
        "  coordinator h:9092, producer id 1000, epoch 3",
        "  partitions orders 0-2; paid 4",
    ]
    assert document["open_ms"] == 12_000
    idle = transaction_document(view(start_ms=None), 14_000)
    assert idle["open_ms"] is None
    assert "partitions" not in transactions_text({"transactions": [idle]})
    assert transactions_text({"transactions": []}).startswith("no transactional ids")


def test_table_of_hanging_transactions_ends_with_the_next_command() -> None:
    document = {"partitions_searched": 1, "hanging": [hanging_document(OPEN, 65_000)]}
    assert hanging_text(document, " -b h:1").splitlines() == [
        "TOPIC   PARTITION  START OFFSET  PRODUCER ID  EPOCH  LAST RECORD BEFORE",
        "orders          0            42         1000      3  1 min",
        "next: `barnabas transactions abort --partition orders-0 --start-offset 42 -b h:1` "
        "ends the first one",
    ]
    nothing = {"partitions_searched": 3, "hanging": []}
    assert hanging_text(nothing, "") == "no hanging transactions in 3 partitions"


def test_list_is_a_table() -> None:
    listed = listing_document(TransactionListing("orders-1", "CompleteCommit", 1000, 2))
    assert listing_table({"transactions": [listed]}).splitlines() == [
        "TRANSACTIONAL ID  STATE           PRODUCER ID  COORDINATOR",
        "orders-1          CompleteCommit         1000            2",
    ]
    assert listing_table({"transactions": []}) == ""


@pytest.mark.parametrize(("text", "ms"), [(None, None), ("15m", 900_000), ("1h30m", 5_400_000)])
def test_durations_are_parsed(text: str | None, ms: int | None) -> None:
    assert parse_longer_than(text) == ms


@pytest.mark.parametrize("text", ["", "15", "m", "-1s", "15 m"])
def test_wrong_durations_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="try 90s"):
        parse_longer_than(text)
