from __future__ import annotations

import pytest

from barnabas.cli.groups.reset import (
    OffsetReset,
    Target,
    parse_time_ago,
    parse_topic_partitions,
    require_one_target,
    reset_document,
    reset_text,
    shift_offsets,
)
from barnabas.client.consumer import Beginning, End, FromOffset, FromTime
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOUR = 3_600_000


def test_exactly_one_target_is_required() -> None:
    targets: dict[str, Target | None] = {"--to-earliest": None, "--to-offset": FromOffset(0)}
    assert require_one_target(targets) == FromOffset(0)
    with pytest.raises(ConfigError, match="--to-earliest: cannot be combined with --to-latest"):
        require_one_target({"--to-earliest": Beginning(), "--to-latest": End(), "--shift-by": None})
    with pytest.raises(ConfigError, match="choose a target: one of --to-latest, --shift-by"):
        require_one_target({"--to-latest": None, "--shift-by": None})


def test_shift_by_zero_is_a_target() -> None:
    assert require_one_target({"--to-latest": None, "--shift-by": 0}) == 0


@pytest.mark.parametrize(
    ("text", "back_ms"),
    [
        ("1h", HOUR),
        ("1d12h", 36 * HOUR),
        ("PT1H", HOUR),
        ("P1DT12H", 36 * HOUR),
        ("P2D", 48 * HOUR),
        ("PT1H30M10S", 5_410_000),
    ],
)
def test_duration_is_parsed_in_both_notations(text: str, back_ms: int) -> None:
    assert parse_time_ago(text, 10**12) == FromTime(10**12 - back_ms)


@pytest.mark.parametrize("text", ["", "P", "PT", "1 hour", "-1h", "H1", "PT1H30"])
def test_invalid_duration_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="try 1h, 1d12h or PT1H30M"):
        parse_time_ago(text, 10**12)


def test_topic_may_list_partitions_after_colon() -> None:
    assert parse_topic_partitions("orders") == ("orders", [])
    assert parse_topic_partitions("orders:0,12") == ("orders", [0, 12])
    for wrong in ("", "orders:", "orders:a", "orders:1,", ":1", "orders:-1"):
        with pytest.raises(ConfigError, match="try orders or orders:0,2"):
            parse_topic_partitions(wrong)


def test_shift_requires_committed_offset() -> None:
    assert shift_offsets("billing", [ORDERS_0], {ORDERS_0: 7}, -3) == {ORDERS_0: 4}
    with pytest.raises(ConfigError, match="billing has no offset in orders-1 to shift"):
        shift_offsets("billing", [ORDERS_0, ORDERS_1], {ORDERS_0: 7}, -3)


def test_text_shows_dry_run_changes_and_how_to_execute() -> None:
    moves = [
        OffsetReset(ORDERS_0, 7, 0, -3),
        OffsetReset(ORDERS_1, None, 10, 12),
        OffsetReset(TopicPartition("orders", 2), 5, 5, 5),
    ]
    assert reset_text(reset_document("billing", moves, executed=False)).splitlines() == [
        "group billing: would set 3 offsets",
        "TOPIC   PARTITION  BEFORE  AFTER",
        "orders          0       7      0  the beginning, instead of -3",
        "orders          1       -     10  the end, instead of 12",
        "orders          2       5      5  unchanged",
        "nothing was changed; add --execute to apply it",
    ]
    done = reset_text(reset_document("billing", moves, executed=True))
    assert done.startswith("group billing: set 3 offsets")
    assert "--execute" not in done


def test_reset_without_offsets_suggests_topic_option() -> None:
    assert "--topic" in reset_text(reset_document("billing", [], executed=True))
