"""A plan as a document, and as text: bars for each broker before and after, bytes to copy, duration.

BROKER         LEADERS               REPLICAS              BYTES
1      before  ██████████████    6   ██████████████   12   ██████████████  1.2 GB
       after   █████████▎        4   ██████████▌       9   ██████████▌     0.9 GB
"""

from __future__ import annotations

from typing import Any

from barnabas.byte_units import bytes_text
from barnabas.cli.terminal.output import GAP, format_table, join_numbers, plural
from barnabas.cli.terminal.units import bar_text, duration_text
from barnabas.reassignment.json_file import reassignment_document
from barnabas.reassignment.layout import BrokerLoad
from barnabas.reassignment.plan import ReassignmentPlan

BAR_WIDTH = 14
ROWS_MAX = 20
NOTHING_TO_MOVE = "nothing to move: the cluster is already as planned"


def plan_document(plan: ReassignmentPlan, throttle: int | None) -> dict[str, Any]:
    """Return Kafka's reassignment JSON, with more facts. Kafka's tools ignore the additional fields."""
    return {
        **reassignment_document(plan.targets),
        "rollback": reassignment_document(
            {each: plan.layout.partitions[each].replicas for each in plan.targets}
        ),
        "copied_replicas": len(plan.copies),
        "copied_bytes": plan.copied_bytes,
        "reordered_partitions": len(plan.reordered),
        "throttle_bytes_per_second": throttle,
        "seconds_at_throttle": None if throttle is None else plan.seconds_at(throttle),
        "brokers": [
            {
                "broker": broker,
                "alive": broker in plan.layout.brokers,
                "rack": plan.layout.brokers.get(broker),
                "before": load_document(before),
                "after": load_document(after),
            }
            for broker, (before, after) in plan.loads().items()
        ],
        "changes": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "from": list(placed.replicas),
                "to": list(target),
                "adding": [each for each in target if each not in placed.replicas],
                "removing": [each for each in placed.replicas if each not in target],
                "bytes": placed.size,
            }
            for partition, target in plan.targets.items()
            for placed in [plan.layout.partitions[partition]]
        ],
    }


def load_document(load: BrokerLoad) -> dict[str, int]:
    return {"leaders": load.leaders, "replicas": load.replicas, "bytes": load.size}


def plan_text(document: dict[str, Any]) -> str:
    """Return the text of a plan document."""
    if not document["partitions"]:
        return f"{NOTHING_TO_MOVE}\n\n{load_picture(document['brokers'])}"
    return "\n\n".join(
        [
            plan_summary(document),
            load_picture(document["brokers"]),
            changes_text(document["changes"]),
        ]
    )


def plan_summary(document: dict[str, Any]) -> str:
    """Return `4 partitions change: copies 4 replicas, 1.2 GB; at least 24 s at 50 MB/s`."""
    changes = len(document["partitions"])
    text = f"{plural(changes, 'partition')} {'changes' if changes == 1 else 'change'}: "
    if not document["copied_replicas"]:
        return f"{text}no bytes to copy, only removed replicas or another order"
    replicas = plural(document["copied_replicas"], "replica")
    text += f"copy {replicas}, {bytes_text(document['copied_bytes'])}"
    throttle = document["throttle_bytes_per_second"]
    if throttle is None:
        return f"{text}; without a throttle (--throttle 50MB/s)"
    seconds = duration_text(max(1, document["seconds_at_throttle"]))
    return f"{text}; takes {seconds} or more at {bytes_text(throttle)}/s per broker"


def load_picture(brokers: list[dict[str, Any]]) -> str:
    """Return two lines per broker, before and after, with bars for leaders, replicas and bytes."""
    highest = {
        key: max((row[when][key] for row in brokers for when in ("before", "after")), default=0)
        for key in ("leaders", "replicas", "bytes")
    }
    texts = {key: bytes_text if key == "bytes" else str for key in highest}
    widths = {
        key: max(
            [len(texts[key](row[when][key])) for row in brokers for when in ("before", "after")],
            default=1,
        )
        for key in highest
    }
    names = [name_broker(row) for row in brokers]
    name_width = max([len("BROKER"), *map(len, names)])
    heads = [key.upper().ljust(BAR_WIDTH + 1 + widths[key]) for key in highest]
    lines = [GAP.join(["BROKER".ljust(name_width), " " * 6, *heads]).rstrip()]
    for name, row in zip(names, brokers, strict=True):
        for when in ("before", "after"):
            cells = [
                f"{bar_text(row[when][key] / (highest[key] or 1), BAR_WIDTH)} "
                f"{texts[key](row[when][key]):>{widths[key]}}"
                for key in highest
            ]
            shown = name if when == "before" else ""
            lines.append(GAP.join([shown.ljust(name_width), when.ljust(6), *cells]).rstrip())
    return "\n".join(lines)


def name_broker(row: dict[str, Any]) -> str:
    notes = [row["rack"]] if row["rack"] else []
    notes += [] if row["alive"] else ["down"]
    return f"{row['broker']} ({', '.join(notes)})" if notes else str(row["broker"])


def changes_text(changes: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{change['topic']}-{change['partition']}",
            join_numbers(change["from"]),
            join_numbers(change["to"]),
            bytes_text(change["bytes"] * len(change["adding"])) if change["adding"] else "no copy",
        ]
        for change in changes[:ROWS_MAX]
    ]
    text = format_table(["partition", "from", "to", "bytes to copy"], rows)
    rest = len(changes) - ROWS_MAX
    return (
        f"{text}\n… and {plural(rest, 'more partition')}; -o json shows all" if rest > 0 else text
    )
