"""CreatePartitions with counts and with assignments."""

from __future__ import annotations

from barnabas.wire.messages.create_partitions import CreatePartitionsRequest
from interop.scenarios.requests import batch, create, delete, grow, grown, produce
from interop.scenarios.three.step import Step
from interop.scenarios.three.topic_creation import ask, assigned

VERSIONS = CreatePartitionsRequest.VERSIONS

ACCEPTED = {
    "by one": grown("grow", 3),
    "by four": grown("grow", 7),
    "by hand": grown("grow", 9, (3, 1), (1, 2)),
    "to a broker that has none of it": grown("grow-1", 2, (3,)),
    "what has three copies": grown("grow-3", 4),
    "what has one": grown("grow-1", 6),
}
REFUSED = {
    "what nobody knows": grown("nobody", 3),
    "an empty name": grown("", 3),
    "a bad name": grown("a/b", 3),
    "to what it has": grown("grow", 2),
    "to less": grown("grow", 1),
    "to nothing": grown("grow", 0),
    "to less than nothing": grown("grow", -1),
    "with too few lists": grown("grow", 5, (1, 2)),
    "with too many lists": grown("grow", 3, (1, 2), (2, 3)),
    "with lists for all": grown("grow", 3, (1, 2), (2, 3), (3, 1)),
    "with one replica too few": grown("grow", 3, (1,)),
    "with one replica too many": grown("grow", 3, (1, 2, 3)),
    "with a broker twice": grown("grow", 3, (1, 1)),
    "with an empty list": grown("grow", 3, ()),
    "with a broker nobody knows": grown("grow", 3, (1, 77)),
    "with a broker nobody knows and too few lists": grown("grow", 5, (1, 77)),
    "with a negative broker": grown("grow", 3, (1, -1)),
    "to less, by hand": grown("grow", 1, (1, 2)),
    "to what it has, by hand": grown("grow", 2, (1, 2)),
}

STEPS: tuple[Step, ...] = (
    ask(
        "create what grows",
        create(
            assigned("grow", (2, 3), (1, 2)),
            assigned("grow-1", (2,)),
            assigned("grow-3", (3, 1, 2), **{"min.insync.replicas": "2"}),
            *(assigned(f"grow-v{version}", (1, 3)) for version in VERSIONS),
        ),
    ),
    *(ask(f"grow {what}", grow(topic)) for what, topic in REFUSED.items()),
    *(
        ask(f"check growing {what}", grow(topic, validate_only=True))
        for what, topic in REFUSED.items()
    ),
    ask("check growing by ten", grow(grown("grow", 12), validate_only=True)),
    ask("check growing by hand", grow(grown("grow", 3, (3, 1)), validate_only=True)),
    ask("of broker 2: grow", grow(grown("grow", 3)), 2),
    ask("of broker 2: grow badly", grow(grown("grow", 1), grown("nobody", 3)), 2),
    ask("grow nothing", grow()),
    ask("grow one twice", grow(grown("grow", 3), grown("grow", 4), grown("nobody", 2))),
    *(ask(f"grow {what}", grow(topic)) for what, topic in ACCEPTED.items()),
    *(
        ask(
            f"grow, version {version}",
            grow(grown(f"grow-v{version}", 3)),
            version=version,
        )
        for version in VERSIONS
    ),
    ask(
        "grow good and bad in one",
        grow(grown("grow-v0", 4), grown("nobody", 4), grown("grow-v1", 4, (2, 3)), grown("a/b", 1)),
    ),
    ask("grow without waiting", grow(grown("grow-v2", 4), timeout_ms=0)),
    ask("grow with a negative patience", grow(grown("grow-v3", 4), timeout_ms=-1)),
    ask("grow the impatient badly", grow(grown("grow-v3", 4), timeout_ms=0)),
    ask(
        "produce to what was added",
        produce("grow-1", batch(b"added"), partition=1),
        3,
        until=("responses.grow-1.partition_responses.1.error_code", "NONE"),
    ),
    ask("delete what has grown", delete("grow-v0", "grow-v1")),
    ask("grow what is deleted", grow(grown("grow-v0", 9))),
    ask("create what had grown", create(assigned("grow-v0", (2, 1)))),
    ask("grow what is new", grow(grown("grow-v0", 2))),
)
