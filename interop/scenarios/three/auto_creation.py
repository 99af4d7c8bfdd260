"""Automatic topic creation by Metadata requests to the controller and to other brokers."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from interop.scenarios.requests import batch, create, delete, fetch, metadata, new_topic, produce
from interop.scenarios.three.step import Step
from interop.scenarios.three.topic_creation import CONTROLLER, ask

UNKNOWN_ID = UUID("00000000-0000-4000-8000-00000000beef")
OTHER = 2
VERSIONS = (0, 3, 4, 12)
OWN = ("__consumer_offsets", "__transaction_state")
# In the order in which Kafka processes them, which is that of its hash table; ours is the order of the request.
ALIKE = {1: ("any-alike_1", "any-alike.1"), 2: ("any-alike.2", "any-alike_2")}
MANY = tuple(f"any-many-{number}" for number in range(6))


def by_id(*topics: MetadataRequestTopic) -> MetadataRequest:
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


STEPS: tuple[Step, ...] = (
    *(
        ask(
            f"of broker {broker}: wanted, version {version}",
            metadata(f"any-{broker}-v{version}", create=True),
            broker,
            version=version,
        )
        for broker in (CONTROLLER, OTHER)
        for version in VERSIONS
    ),
    *(
        ask(
            f"of broker {broker}: not wanted, version {version}",
            metadata("new"),
            broker,
            version=version,
        )
        for broker in (CONTROLLER, OTHER)
        for version in (4, 12)
    ),
    *(
        step
        for broker in (CONTROLLER, OTHER)
        for step in (
            ask(
                f"of broker {broker}: good and bad names",
                metadata("a/b", f"any-good-{broker}", "", "x" * 250, "..", create=True),
                broker,
            ),
            ask(
                f"of broker {broker}: one name twice",
                metadata(f"any-twice-{broker}", f"any-twice-{broker}", create=True),
                broker,
            ),
            ask(
                f"of broker {broker}: what is there and what is not",
                metadata("ring", f"any-beside-{broker}", create=True),
                broker,
            ),
            ask(
                f"of broker {broker}: two names that look alike",
                metadata(*ALIKE[broker], create=True),
                broker,
            ),
            ask(
                f"of broker {broker}: a name like one that is there",
                metadata(ALIKE[broker][1], create=True),
                broker,
            ),
            ask(
                f"of broker {broker}: an id nobody has",
                by_id(MetadataRequestTopic(UNKNOWN_ID, None)),
                broker,
            ),
            ask(f"of broker {broker}: produce to nothing", produce("new", batch(b"x")), broker),
            ask(f"of broker {broker}: fetch nothing", fetch("new", {0: 0}), broker, version=12),
        )
    ),
    ask("of broker 3: many at once", metadata(*MANY, create=True), 3),
    ask("of broker 3: Kafka's own", metadata(OWN[0], create=True), 3),
    ask("of the controller: Kafka's own", metadata(OWN[1], create=True)),
    ask("delete Kafka's own", delete(*OWN)),
    ask("create what was asked for", create(new_topic(MANY[0], 1, 1))),
    ask("delete what was asked for and ask for it", delete(*MANY)),
    ask("of broker 2: wanted again", metadata(MANY[0], MANY[1], create=True), 2),
    ask(
        "delete what came by asking",
        delete(
            *MANY[:2],
            *(f"any-{broker}-v{version}" for broker in (1, 2) for version in VERSIONS),
            *(f"any-{what}-{broker}" for what in ("good", "twice", "beside") for broker in (1, 2)),
            *ALIKE[1],
            *ALIKE[2],
        ),
    ),
)
