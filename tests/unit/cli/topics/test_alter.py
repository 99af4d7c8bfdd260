from __future__ import annotations

from math import lcm

import pytest

from barnabas.cli.topics.alter import (
    altered_document,
    altered_text,
    keys_moved_percent,
    keys_warning,
)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 4), (3, 6), (6, 9), (10, 12)])
def test_keys_moved_percent_matches_enumeration(before: int, after: int) -> None:
    hashes = range(lcm(before, after))
    moved = sum(value % before != value % after for value in hashes)
    assert keys_moved_percent(before, after) == round(100 * moved / len(hashes))


def test_alter_text_and_key_warning() -> None:
    document = altered_document("orders", 3, 4, dry_run=False)
    assert altered_text(document) == "altered topic orders: 4 partitions, 3 before"
    assert keys_warning(document).startswith("about 75 % of keys will map to another")
    dry = altered_document("orders", 3, 4, dry_run=True)
    assert altered_text(dry) == "would alter topic orders: 4 partitions, 3 before"
    assert (dry["altered"], document["altered"]) == (False, True)
