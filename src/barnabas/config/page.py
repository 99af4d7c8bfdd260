"""docs/configuration.md, written from the declarations: `python -m barnabas.config`."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.config.broker import BROKER_SETTINGS
from barnabas.config.setting import ANY, Setting
from barnabas.config.topic import BROKER_SYNONYMS, TOPIC_SETTINGS
from barnabas.config.without_effect import NOT_YET, WITHOUT_EFFECT

HEAD = """\
# Configuration

<!-- Written by `python -m barnabas.config`; change the declarations in src/barnabas/config/. -->

A broker is configured by a file of Kafka's own format, `server.properties`, with Kafka's own names.
Flags of the command line win over the file. White space around a value is dropped; lists are
separated by commas; a value of the wrong type or out of its range stops the broker with one line
that says what is allowed.

- [Settings of a broker](#settings-of-a-broker) do what they say.
- [Settings of a topic](#settings-of-a-topic) are given when a topic is created, or changed later.
- [Accepted without effect](#accepted-without-effect): every other setting of Kafka 3.9, so that a
  file written for Kafka works unchanged. They are checked, and named in one warning at start. For
  one listener they may be given as `listener.name.<name>.<setting>`.
- A name that is in none of these tables is an error.

A value of `—` means that there is none unless one is given.
"""

BROKER = """
## Settings of a broker

Where several settings mean one thing, the finest unit wins: `log.retention.ms` over
`log.retention.minutes` over `log.retention.hours`, and so for `log.roll.` and `log.roll.jitter.`.
Names that begin with `barnabas.` are not Kafka's.

`leader.replication.throttled.rate` and `follower.replication.throttled.rate`, in bytes a second, are
read from the file here; Kafka knows them only as settings that are changed while brokers run. They
hold for the replicas that a topic lists in its settings of the same beginning, and only as long as
those are out of sync.
"""

TOPIC = """
## Settings of a topic

A topic's own setting wins; without one, the broker's setting in the last column holds.
"""

MEMORY = """
## Memory of connections and sessions

Every connection, request and session has a bound, so that one client cannot exhaust the memory of a broker.

| What | Bound |
| --- | --- |
| buffer of an idle connection | 16 KiB |
| buffer of a busy connection | 256 KiB |
| a larger request, while it arrives and is served | `socket.request.max.bytes`; 1 MiB unless it is a Produce |
| larger requests of all connections | `queued.max.request.bytes`; -1 means 128 MiB |
| large requests decoded or encoded at a time | 2 |
| a response, without records | 32 MiB |
| responses that clients have not read yet | 64 MiB on all connections |
| decompressed records of a batch, while it is validated | 32 MiB, one large batch at a time |
| produce requests that wait for replicas | 64 on a connection, 10,000 on all |
| partitions in the fetch sessions of consumers | 100,000 in `max.incremental.fetch.session.cache.slots` sessions |
"""

WITHOUT = """
## Accepted without effect
"""


def page() -> str:
    return "".join(
        (HEAD, BROKER, broker_table(), TOPIC, topic_table(), MEMORY, WITHOUT, without_table())
    )


def broker_table() -> str:
    return table(
        ("Name", "Type", "Default", "Allowed", "What it does"),
        (
            (*columns(each), cell(each.doc))
            for each in documented(BROKER_SETTINGS)
            if each.name not in NOT_YET
        ),
    )


def topic_table() -> str:
    return table(
        ("Name", "Type", "Default", "Allowed", "What it does", "Set for all topics by"),
        (
            (*columns(each), cell(each.doc), ", ".join(f"`{n}`" for n, _ in synonyms(each)) or "—")
            for each in documented(TOPIC_SETTINGS)
        ),
    )


def without_table() -> str:
    return table(
        ("Name", "Type", "Default", "Allowed", "What it does in Kafka"),
        ((*columns(each), cell(each.doc)) for each in documented(WITHOUT_EFFECT | not_yet())),
    )


def not_yet() -> dict[str, Setting]:
    return {name: BROKER_SETTINGS[name] for name in NOT_YET}


def documented(settings: dict[str, Setting]) -> list[Setting]:
    return [settings[name] for name in sorted(settings) if not settings[name].internal]


def synonyms(declared: Setting) -> tuple[tuple[str, int], ...]:
    return BROKER_SYNONYMS.get(declared.name, ())


def columns(declared: Setting) -> tuple[str, str, str, str]:
    default = declared.show(declared.default)
    shown = "—" if default is None else f"`{default}`" if default else "empty"
    allowed = "" if declared.check is ANY else cell(declared.check.allowed)
    return f"`{declared.name}`", declared.kind.name.lower(), shown, allowed


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("__", "\\_\\_")


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
