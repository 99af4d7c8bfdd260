"""A plan as text and as a document."""

from __future__ import annotations

import json

from barnabas.cli.reassign.picture import ROWS_MAX, plan_document, plan_text
from barnabas.reassignment.json_file import parse_reassignment_json
from barnabas.reassignment.plan import build_plan
from tests.unit.reassignment.layouts import layout_of, tp

LAYOUT = layout_of(
    "orders-0 1,2 · orders-1 2,1",
    brokers={1: "east", 2: "west", 3: "west"},
    sizes={"orders-0": 2_000_000_000, "orders-1": 500_000_000},
)
PLAN = build_plan(LAYOUT, {tp("orders-0"): (1, 3)})


def test_picture_shows_each_broker_before_and_after() -> None:
    assert plan_text(plan_document(PLAN, 50_000_000)) == "\n".join(
        [
            "1 partition changes: copy 1 replica, 2.0 GB; takes 40 s or more at 50 MB/s per broker",
            "",
            "BROKER            LEADERS           REPLICAS          BYTES",
            "1 (east)  before  ██████████████ 1  ██████████████ 2  ██████████████ 2.5 GB",
            "          after   ██████████████ 1  ██████████████ 2  ██████████████ 2.5 GB",
            "2 (west)  before  ██████████████ 1  ██████████████ 2  ██████████████ 2.5 GB",
            "          after   ██████████████ 1  ███████        1  ██▊            500 MB",
            "3 (west)  before                 0                 0                    0 B",
            "          after                  0  ███████        1  ███████████▎   2.0 GB",
            "",
            "PARTITION  FROM  TO   BYTES TO COPY",
            "orders-0   1,2   1,3  2.0 GB",
        ]
    )


def test_document_is_kafkas_json_with_facts() -> None:
    document = plan_document(PLAN, None)
    assert parse_reassignment_json(json.dumps(document)).targets == [(tp("orders-0"), (1, 3))]
    rollback = parse_reassignment_json(json.dumps(document["rollback"]))
    assert rollback.targets == [(tp("orders-0"), (1, 2))]
    assert document["copied_bytes"] == 2_000_000_000
    assert document["seconds_at_throttle"] is None
    assert document["changes"][0]["adding"] == [3]
    assert document["brokers"][2]["after"] == {"leaders": 0, "replicas": 1, "bytes": 2_000_000_000}


def test_broker_that_is_down_is_marked() -> None:
    layout = layout_of("a-0 1,2", brokers={1: None}, isr={"a-0": (1,)})
    text = plan_text(plan_document(build_plan(layout, {tp("a-0"): (1,)}), None))
    assert "no bytes to copy" in text
    assert "2 (down)  before" in text


def test_empty_plan_says_so() -> None:
    text = plan_text(plan_document(build_plan(LAYOUT, {}), None))
    assert text.startswith("nothing to move: the cluster is already as planned\n")


def test_long_plan_is_cut_and_fits_the_width() -> None:
    rows = " · ".join(f"a-long-topic-name-{number} 1,2" for number in range(ROWS_MAX + 5))
    layout = layout_of(rows, brokers={1: None, 2: None, 3: None})
    plan = build_plan(layout, dict.fromkeys(layout.partitions, (1, 3)))
    lines = plan_text(plan_document(plan, None)).split("\n")
    assert lines[-1] == "… and 5 more partitions; -o json shows all"
    assert all(len(line) <= 100 for line in lines)
