"""CreateTopics on three brokers: with counts and with assignments, sent to the controller and to other brokers."""

from __future__ import annotations

from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import CreatableTopic
from interop.scenarios.requests import create, delete, metadata, new_topic
from interop.scenarios.step import Request
from interop.scenarios.three.step import Ask, Role, Step, Which

CONTROLLER = 1


def ask(
    name: str,
    request: Request,
    broker: Which = CONTROLLER,
    *,
    version: int | None = None,
    until: tuple[str, object] | None = None,
    is_recorded: bool = True,
) -> Step:
    return Step(
        name=f"three brokers: {name}",
        action=Ask(broker=broker, request=request, version=version, until=until),
        is_recorded=is_recorded,
    )


def assigned(name: str, *replicas: tuple[int, ...], **configs: str) -> CreatableTopic:
    """A topic with the given replicas of each partition."""
    return new_topic(name, -1, -1, assignments=dict(enumerate(replicas)), configs=configs)


ACCEPTED = {
    "three partitions of three": new_topic("any-nine", 3, 3),
    "six partitions of two": new_topic("any-twelve", 6, 2),
    "seven partitions of one": new_topic("any-seven", 7, 1),
    "counts left to the broker": new_topic("any-default", -1, -1),
    "partitions left to the broker": new_topic("any-factor", -1, 3),
    "replicas left to the broker": new_topic("any-partitions", 3, -1),
    "an assignment": assigned("ring", (1, 2), (2, 3), (3, 1)),
    "an assignment to all": assigned("all", (1, 2, 3)),
    "an assignment in another order": assigned("back", (3, 2, 1), (2, 1, 3)),
    "an assignment to one that is not the controller": assigned("third", (3,)),
    "partitions in any order": new_topic(
        "shuffled", -1, -1, assignments={2: (3, 1), 0: (1, 3), 1: (2, 1)}
    ),
    "settings": new_topic(
        "any-set",
        1,
        3,
        configs={
            "min.insync.replicas": "2",
            "retention.ms": "-1",
            "cleanup.policy": "compact",
            "unclean.leader.election.enable": "false",
        },
    ),
    "more in sync than there are": new_topic(
        "any-minimum", 1, 2, configs={"min.insync.replicas": "3"}
    ),
    "a dot": new_topic("any-dot.ted", 1, 1),
}

REFUSED = {
    "no partitions": new_topic("new", 0, 3),
    "no replicas": new_topic("new", 1, 0),
    "four replicas": new_topic("new", 1, 4),
    "a bad name": new_topic("a/b", 1, 3),
    "an empty name": new_topic("", 1, 3),
    "a long name": new_topic("x" * 250, 1, 3),
    "a bad name and four replicas": new_topic("a/b", 1, 4),
    "a number and an assignment": new_topic("new", 1, -1, assignments={0: (1, 2)}),
    "a broker twice": assigned("new", (1, 2), (3, 3)),
    "unequal numbers of replicas": assigned("new", (1, 2), (1, 2, 3)),
    "a gap": new_topic("new", -1, -1, assignments={0: (1, 2), 2: (2, 3)}),
    "partitions from 1 on": new_topic("new", -1, -1, assignments={1: (1, 2), 2: (2, 3)}),
    "null as a value": new_topic("new", 1, 3, configs={"retention.ms": None}),
    "an unknown setting": new_topic("new", 1, 3, configs={"no.such.setting": "1"}),
    "a bad value": new_topic("new", 1, 3, configs={"min.insync.replicas": "0"}),
    "what exists": new_topic("ring", 3, 2),
    "what exists, with four replicas": new_topic("ring", 3, 4),
    "a name that collides": new_topic("any-dot_ted", 1, 1),
}

# Validated only: Kafka would create them, and some would never have a leader.
QUIRKS = {
    "an unknown broker": assigned("new", (1, 77)),
    "only unknown brokers": assigned("new", (77, 78)),
    "partition ids with the right sum": new_topic(
        "new", -1, -1, assignments={-1: (1, 2), 0: (2, 3), 3: (3, 1)}
    ),
}

OF_ANOTHER: dict[str, Message] = {
    "create": create(new_topic("new", 1, 3)),
    "create two, one badly": create(new_topic("new", 1, 3), new_topic("a/b", 0, 9)),
    "create what exists": create(assigned("ring", (1, 2))),
    "create the same twice": create(new_topic("new", 1, 3), new_topic("new", 1, 3)),
    "only check": create(new_topic("new", 1, 3), validate_only=True),
    "create without waiting": create(new_topic("new", 1, 3), timeout_ms=0),
    "create nothing": create(),
    "delete": delete("ring"),
    "delete the unknown": delete("nobody"),
}

STEPS: tuple[Step, ...] = (
    ask("nothing yet", metadata()),
    *(ask(f"create {what}", create(topic)) for what, topic in ACCEPTED.items()),
    *(ask(f"create {what}", create(topic)) for what, topic in REFUSED.items()),
    *(
        ask(f"check {what}", create(topic, validate_only=True))
        for what, topic in {**REFUSED, **QUIRKS}.items()
    ),
    ask("check three replicas", create(new_topic("new", 3, 3), validate_only=True)),
    ask("check an assignment", create(assigned("new", (2, 3)), validate_only=True)),
    ask("create without waiting", create(assigned("hasty", (2, 3, 1)), timeout_ms=0)),
    ask("create with a negative patience", create(assigned("hastier", (3, 1)), timeout_ms=-1)),
    ask("create the hasty again", create(assigned("hasty", (1,)), timeout_ms=0)),
    ask("create the same twice", create(new_topic("new", 1, 3), new_topic("new", 1, 2))),
    ask(
        "create good and bad in one",
        create(
            assigned("good", (2, 1)),
            new_topic("bad", 1, 9),
            new_topic("ring", 1, 1),
            assigned("better", (3, 2)),
        ),
    ),
    *(ask(f"of broker 2: {what}", request, 2) for what, request in OF_ANOTHER.items()),
    ask("of broker 3: create", create(new_topic("new", 1, 3)), 3),
    # Every broker creates requested topics by itself; there is no forwarding.
    ask("of broker 3: created by asking", metadata("any-asked", create=True), 3),
    ask("of broker 2: not created by asking", metadata("any-unasked"), 2),
    ask("of the controller: created by asking", metadata("any-asked-2", create=True)),
    ask("delete", delete("hasty", "hastier", "nobody")),
    ask("create what was deleted", create(assigned("hasty", (1, 3, 2)))),
)

CLEARED: tuple[Step, ...] = (
    # Randomly placed topics get a random history as soon as a broker stops.
    ask(
        "delete what lies by chance",
        delete(
            *("any-nine", "any-twelve", "any-seven", "any-default", "any-factor", "any-partitions"),
            *("any-set", "any-minimum", "any-dot.ted", "any-asked", "any-asked-2"),
        ),
    ),
)
AGAIN: tuple[Step, ...] = (
    ask("of the new controller: create", create(new_topic("any-late", 2, 2)), Role.CONTROLLER),
    ask("of another: create", create(new_topic("any-later", 2, 2)), Role.OTHER),
)
