"""Changes of settings: AlterConfigs, IncrementalAlterConfigs and client quotas."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.wire.apis import APIS
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    AlteredQuotas,
    AlteredQuotaValue,
)
from barnabas.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
    QuotaMatch,
)
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, ResourceType
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from interop.scenarios.requests import ask, batch, create, describe, new_topic, produce
from interop.scenarios.step import Await, ListZnodes, Step

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS = ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
EXACT, DEFAULT, ANY = QuotaMatch
CHANGED = "changed"

LARGE = batch(b"x" * 1000)
# A broker that has not yet applied the new limit must not write the batch, so the crc is wrong.
# The size is checked first.
LARGE_AND_CORRUPT = LARGE[:-1] + bytes([LARGE[-1] ^ 1])

Change = tuple[str, int, str | None]
Entity = tuple[tuple[str, str | None], ...]


def resource(kind: int, name: str, *changes: Change) -> IncrementalAlterConfigsResource:
    configs = tuple(IncrementallyAlterableConfig(*each) for each in changes)
    return IncrementalAlterConfigsResource(kind, name, configs)


def change(
    kind: int, name: str, *changes: Change, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=(resource(kind, name, *changes),), validate_only=validate_only
    )


def replace(
    kind: int, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
) -> AlterConfigsRequest:
    configs = tuple(AlterableConfig(*item) for item in settings.items())
    return AlterConfigsRequest(
        resources=(AlterConfigsResource(kind, name, configs),), validate_only=validate_only
    )


def quotas(entity: Entity, **values: float | None) -> AlteredQuotas:
    ops = (AlteredQuotaValue(key, value or 0.0, value is None) for key, value in values.items())
    return AlteredQuotas(tuple(AlteredQuotaEntity(*each) for each in entity), tuple(ops))


def alter_quotas(*entries: AlteredQuotas, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def describe_quotas(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    parts = tuple(QuotaFilterComponent(*each) for each in components)
    return DescribeClientQuotasRequest(components=parts, strict=strict)


def described(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    return describe(kind, name, *keys, include_synonyms=True)


def is_set(what: str, kind: int, name: str, key: str, value: str) -> Step:
    """A change is applied later than it is answered."""
    return Step(
        name=f"settings: {what}",
        action=Await(
            request=described(kind, name, key),
            path=f"results.{name}.configs.{key}.value",
            value=value,
        ),
    )


REJECTED_CHANGES: Mapping[str, IncrementalAlterConfigsRequest] = {
    "an empty topic": change(TOPIC, "", ("retention.ms", SET, "1")),
    "an unknown topic": change(TOPIC, "nobody", ("retention.ms", SET, "1")),
    "a bad topic name": change(TOPIC, "a/b", ("retention.ms", SET, "1")),
    "null": change(TOPIC, CHANGED, ("retention.ms", SET, None)),
    "null to append": change(TOPIC, CHANGED, ("cleanup.policy", APPEND, None)),
    "null to subtract": change(TOPIC, CHANGED, ("cleanup.policy", SUBTRACT, None)),
    "a setting twice": change(TOPIC, CHANGED, ("flush.ms", SET, "1"), ("flush.ms", SET, "2")),
    "set and delete": change(TOPIC, CHANGED, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None)),
    "an unknown setting": change(TOPIC, CHANGED, ("no.such.setting", SET, "1")),
    "a setting of brokers": change(TOPIC, CHANGED, ("log.retention.ms", SET, "1")),
    "a number that is none": change(TOPIC, CHANGED, ("retention.ms", SET, "soon")),
    "a number out of range": change(TOPIC, CHANGED, ("segment.bytes", SET, "13")),
    "an empty number": change(TOPIC, CHANGED, ("retention.ms", SET, "")),
    "no in-sync replica": change(TOPIC, CHANGED, ("min.insync.replicas", SET, "0")),
    "a boolean that is none": change(TOPIC, CHANGED, ("preallocate", SET, "perhaps")),
    "an unknown codec": change(TOPIC, CHANGED, ("compression.type", SET, "rar")),
    "an unknown policy": change(TOPIC, CHANGED, ("cleanup.policy", SET, "burn")),
    "an unknown policy appended": change(TOPIC, CHANGED, ("cleanup.policy", APPEND, "burn")),
    "append to a number": change(TOPIC, CHANGED, ("retention.ms", APPEND, "1")),
    "subtract from a number": change(TOPIC, CHANGED, ("retention.ms", SUBTRACT, "1")),
    "throttled replicas that are none": change(
        TOPIC, CHANGED, ("leader.replication.throttled.replicas", SET, "0-1")
    ),
    "lags that contradict": change(
        TOPIC, CHANGED, ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")
    ),
    "another broker": change(BROKER, "77", ("max.connections", SET, "100")),
    "a broker that is no number": change(BROKER, "one", ("max.connections", SET, "100")),
    "a read-only setting": change(BROKER, "1", ("broker.id", SET, "7")),
    "a read-only setting of all brokers": change(BROKER, "", ("num.partitions", SET, "7")),
    "a bad value of a broker": change(BROKER, "1", ("max.connections", SET, "many")),
    "a negative number of a broker": change(BROKER, "1", ("log.cleaner.threads", SET, "-1")),
    "too many threads": change(BROKER, "1", ("num.io.threads", SET, "1000")),
    "too few threads": change(BROKER, "1", ("num.io.threads", SET, "0")),
    "too many fetchers": change(BROKER, "1", ("num.replica.fetchers", SET, "3")),
    "too many cleaners": change(BROKER, "1", ("log.cleaner.threads", SET, "3")),
    "listeners of all brokers": change(BROKER, "", ("listeners", SET, "PLAINTEXT://:1")),
    "advertised listeners without a listener": change(
        BROKER, "1", ("advertised.listeners", SET, "OTHER://a:1")
    ),
    "a key store without a listener": change(BROKER, "1", ("ssl.keystore.location", SET, "/x")),
    "append to a number of a broker": change(BROKER, "1", ("max.connections", APPEND, "1")),
    "a negative throttle": change(BROKER, "1", ("leader.replication.throttled.rate", SET, "-1")),
    "an unknown operation for a broker": change(BROKER, "1", ("log.cleanup.policy", 9, "x")),
    "null for a broker": change(BROKER, "1", ("max.connections", SET, None)),
    "loggers of another broker": change(LOGGER, "77", ("root", SET, "INFO")),
    "loggers of no broker": change(LOGGER, "", ("root", SET, "INFO")),
    "an unknown logger": change(LOGGER, "1", ("no.such.logger", SET, "INFO")),
    "an unknown level": change(LOGGER, "1", ("root", SET, "LOUD")),
    "a level in small letters": change(LOGGER, "1", ("root", SET, "info")),
    "the level of root deleted": change(LOGGER, "1", ("root", DELETE, None)),
    "a level appended": change(LOGGER, "1", ("root", APPEND, "INFO")),
    "metrics of clients": change(METRICS, "m", ("interval.ms", SET, "1")),
    "an unknown kind": change(77, "x", ("a", SET, "1")),
    "kind 0": change(0, "x", ("a", SET, "1")),
}
QUIRKS: Mapping[str, IncrementalAlterConfigsRequest] = {
    "append to an unknown setting": change(TOPIC, CHANGED, ("no.such.list", APPEND, "1")),
    "an unknown operation": change(TOPIC, CHANGED, ("retention.ms", 9, "1")),
    "an unknown setting of a broker": change(BROKER, "1", ("no.such", SET, "1")),
    "a setting of topics for a broker": change(BROKER, "1", ("retention.ms", SET, "1")),
}
"""Kafka fails unexpectedly, or accepts what has no effect."""
VALIDATED: Mapping[str, IncrementalAlterConfigsRequest] = {
    "a setting of a topic": change(TOPIC, CHANGED, ("retention.ms", SET, "1")),
    "a setting of a broker": change(BROKER, "1", ("max.connections", SET, "100")),
    "a setting of all brokers": change(BROKER, "", ("log.retention.ms", SET, "100")),
    "a level": change(LOGGER, "1", ("root", SET, "INFO")),
    "no change": change(TOPIC, CHANGED),
}
REJECTED_REPLACEMENTS: Mapping[str, AlterConfigsRequest] = {
    "an empty topic": replace(TOPIC, "", {"retention.ms": "1"}),
    "an unknown topic": replace(TOPIC, "nobody", {"retention.ms": "1"}),
    "null": replace(TOPIC, CHANGED, {"retention.ms": None}),
    "an unknown setting": replace(TOPIC, CHANGED, {"no.such.setting": "1"}),
    "a bad value": replace(TOPIC, CHANGED, {"retention.ms": "soon"}),
    "another broker": replace(BROKER, "77", {"max.connections": "100"}),
    "a read-only setting": replace(BROKER, "1", {"broker.id": "7"}),
    "loggers": replace(LOGGER, "1", {"root": "INFO"}),
    "metrics of clients": replace(METRICS, "m", {"interval.ms": "1"}),
    "an unknown kind": replace(77, "x", {"a": "1"}),
}
REJECTED_QUOTAS: Mapping[str, AlteredQuotas] = {
    "no entity": quotas((), producer_byte_rate=1.0),
    "an empty user": quotas((("user", ""),), producer_byte_rate=1.0),
    "an unknown type": quotas((("group", "g"),), producer_byte_rate=1.0),
    "an address and a user": quotas(
        (("ip", "10.0.0.1"), ("user", "u")), connection_creation_rate=1.0
    ),
    "an address that is none": quotas((("ip", "10.0.0.300"),), connection_creation_rate=1.0),
    "an unknown quota": quotas((("user", "u"),), no_such_quota=1.0),
    "a quota of addresses": quotas((("user", "u"),), connection_creation_rate=1.0),
    "a quota of users": quotas((("ip", "10.0.0.1"),), producer_byte_rate=1.0),
    "half a byte": quotas((("user", "u"),), producer_byte_rate=0.5),
}
REJECTED_FILTERS: Mapping[str, DescribeClientQuotasRequest] = {
    "an empty type": describe_quotas(("", ANY, None)),
    "an unknown type": describe_quotas(("group", ANY, None)),
    "a type twice": describe_quotas(("user", ANY, None), ("user", ANY, None)),
    "addresses and users": describe_quotas(("user", ANY, None), ("ip", ANY, None)),
}
ANNA: Entity = (("user", "anna b*~"),)
ANNAS_CLIENT: Entity = (("user", "anna b*~"), ("client-id", None))


STEPS: tuple[Step, ...] = (
    ask("settings: a topic", create(new_topic(CHANGED, 2, configs={"flush.ms": "1000"}))),
    *(ask(f"settings, change: {what}", request) for what, request in REJECTED_CHANGES.items()),
    *(
        ask(
            f"settings, quirk: {what}",
            IncrementalAlterConfigsRequest(resources=each.resources, validate_only=True),
        )
        for what, each in QUIRKS.items()
    ),
    *(
        ask(
            f"settings, validate only: {what}",
            IncrementalAlterConfigsRequest(resources=each.resources, validate_only=True),
        )
        for what, each in {**REJECTED_CHANGES, **VALIDATED}.items()
    ),
    ask("settings, change: nothing", IncrementalAlterConfigsRequest(resources=())),
    ask(
        "settings, change: a topic twice",
        IncrementalAlterConfigsRequest(
            resources=(
                resource(TOPIC, CHANGED, ("flush.ms", SET, "1")),
                resource(TOPIC, CHANGED, ("flush.ms", SET, "2")),
            )
        ),
    ),
    ask("settings: still as created", described(TOPIC, CHANGED)),
    # ---- topics
    *(
        ask(
            f"settings, change: version {version}",
            change(TOPIC, CHANGED, ("retention.ms", SET, str(10_000_000 + version))),
            version,
        )
        for version in APIS[IncrementalAlterConfigsRequest.API_KEY].versions
    ),
    ask(
        "settings, change: several",
        change(
            TOPIC,
            CHANGED,
            ("cleanup.policy", APPEND, "compact"),
            ("flush.ms", DELETE, None),
            ("segment.ms", DELETE, None),
            ("max.message.bytes", SET, " 500 "),
        ),
    ),
    ask("settings: of the topic", described(TOPIC, CHANGED)),
    ask(
        "settings, change: append again",
        change(TOPIC, CHANGED, ("cleanup.policy", APPEND, "compact,delete")),
    ),
    ask("settings: appended", described(TOPIC, CHANGED, "cleanup.policy")),
    ask(
        "settings, change: subtract",
        change(TOPIC, CHANGED, ("cleanup.policy", SUBTRACT, "compact")),
    ),
    ask("settings: subtracted", described(TOPIC, CHANGED, "cleanup.policy")),
    ask(
        "settings, change: throttled replicas",
        change(TOPIC, CHANGED, ("leader.replication.throttled.replicas", APPEND, "0:1")),
    ),
    ask(
        "settings, change: more throttled replicas",
        change(TOPIC, CHANGED, ("leader.replication.throttled.replicas", APPEND, "1:1")),
    ),
    ask(
        "settings: throttled replicas",
        described(TOPIC, CHANGED, "leader.replication.throttled.replicas"),
    ),
    Step(
        name="settings: a large batch is rejected now",
        action=Await(
            request=produce(CHANGED, LARGE_AND_CORRUPT),
            path=f"responses.{CHANGED}.partition_responses.0.error_code",
            value="MESSAGE_TOO_LARGE",
        ),
    ),
    ask(
        "settings, change: the limit deleted",
        change(TOPIC, CHANGED, ("max.message.bytes", DELETE, None)),
    ),
    Step(
        name="settings: a large batch is accepted again",
        action=Await(
            request=produce(CHANGED, LARGE),
            path=f"responses.{CHANGED}.partition_responses.0.error_code",
            value="NONE",
        ),
    ),
    *(ask(f"settings, replace: {what}", each) for what, each in REJECTED_REPLACEMENTS.items()),
    ask("settings, replace: validate only", replace(TOPIC, CHANGED, {}, validate_only=True)),
    ask("settings: not replaced", described(TOPIC, CHANGED)),
    *(
        ask(
            f"settings, replace: version {version}",
            replace(TOPIC, CHANGED, {"segment.ms": str(10_000_000 + version)}),
            version,
        )
        for version in APIS[AlterConfigsRequest.API_KEY].versions
    ),
    ask("settings: replaced", described(TOPIC, CHANGED)),
    ask("settings, replace: by nothing", replace(TOPIC, CHANGED, {})),
    ask("settings: replaced by nothing", described(TOPIC, CHANGED)),
    ask(
        "settings, change: good and bad in one",
        IncrementalAlterConfigsRequest(
            resources=(
                resource(TOPIC, CHANGED, ("flush.ms", SET, "70000")),
                resource(TOPIC, "nobody", ("flush.ms", SET, "70000")),
                resource(BROKER, "77", ("max.connections", SET, "100")),
                resource(LOGGER, "1", ("root", SET, "LOUD")),
            )
        ),
    ),
    ask("settings: the good one", described(TOPIC, CHANGED, "flush.ms")),
    # ---- brokers
    ask(
        "settings, change: of all brokers",
        change(
            BROKER,
            "",
            ("log.index.interval.bytes", SET, "5000"),
            ("log.retention.ms", SET, "9000000"),
        ),
    ),
    is_set("of all brokers are used", BROKER, "1", "log.index.interval.bytes", "5000"),
    ask("settings: of all brokers", described(BROKER, "")),
    ask(
        "settings: the default of a topic",
        described(TOPIC, CHANGED, "index.interval.bytes", "retention.ms"),
    ),
    ask(
        "settings, change: of the broker",
        change(
            BROKER, "1", ("log.index.interval.bytes", SET, "6000"), ("max.connections", SET, "1000")
        ),
    ),
    is_set("of the broker are used", BROKER, "1", "log.index.interval.bytes", "6000"),
    ask(
        "settings: of the broker",
        described(
            BROKER,
            "1",
            "log.index.interval.bytes",
            "max.connections",
            "log.retention.ms",
            "log.retention.hours",
            "num.io.threads",
        ),
    ),
    ask(
        "settings, change: threads",
        change(BROKER, "1", ("num.io.threads", SET, "12"), ("background.threads", SET, "5")),
    ),
    is_set("threads", BROKER, "1", "num.io.threads", "12"),
    ask(
        "settings, change: throttles",
        change(BROKER, "1", ("leader.replication.throttled.rate", SET, "1000000")),
    ),
    is_set("throttles", BROKER, "1", "leader.replication.throttled.rate", "1000000"),
    ask(
        "settings, change: a password",
        change(BROKER, "1", ("listener.name.plaintext.ssl.key.password", SET, "x")),
    ),
    ask(
        "settings, replace: of the broker",
        replace(BROKER, "1", {"log.cleaner.backoff.ms": "14000"}),
    ),
    is_set("replaced settings of the broker", BROKER, "1", "log.index.interval.bytes", "5000"),
    ask(
        "settings: of the broker, replaced",
        described(BROKER, "1", "log.cleaner.backoff.ms", "max.connections", "num.io.threads"),
    ),
    ask(
        "settings, change: of all brokers, deleted",
        change(
            BROKER,
            "",
            ("log.index.interval.bytes", DELETE, None),
            ("log.retention.ms", DELETE, None),
        ),
    ),
    is_set("deleted settings of all brokers", BROKER, "1", "log.index.interval.bytes", "4096"),
    ask("settings: of all brokers, deleted", described(BROKER, "")),
    # ---- quotas
    *(ask(f"quotas: {what}", alter_quotas(each)) for what, each in REJECTED_QUOTAS.items()),
    *(ask(f"quotas, filter: {what}", each) for what, each in REJECTED_FILTERS.items()),
    ask(
        "quotas: a negative rate",
        alter_quotas(quotas((("user", "u"),), producer_byte_rate=-1.0), validate_only=True),
    ),
    ask("quotas, quirk: an unknown match", describe_quotas(("user", 9, None))),
    ask("quotas, quirk: an exact match of null", describe_quotas(("user", EXACT, None))),
    ask("quotas: none", describe_quotas()),
    ask(
        "quotas: validate only",
        alter_quotas(quotas(ANNA, producer_byte_rate=1.0), validate_only=True),
    ),
    ask("quotas: nothing is stored", describe_quotas()),
    *(
        ask(
            f"quotas: version {version}",
            alter_quotas(
                quotas(ANNA, producer_byte_rate=1000.0 + version, request_percentage=12.5)
            ),
            version,
        )
        for version in APIS[AlterClientQuotasRequest.API_KEY].versions
    ),
    *(
        ask(f"quotas, filter: version {version}", describe_quotas(("user", ANY, None)), version)
        for version in APIS[DescribeClientQuotasRequest.API_KEY].versions
    ),
    ask("quotas: of a user's clients", alter_quotas(quotas(ANNAS_CLIENT, consumer_byte_rate=7.0))),
    ask(
        "quotas: of a client",
        alter_quotas(quotas((("client-id", "c/d"),), controller_mutation_rate=2.0)),
    ),
    ask(
        "quotas: of all clients",
        alter_quotas(quotas((("client-id", None),), consumer_byte_rate=9.0)),
    ),
    ask(
        "quotas: of an address",
        alter_quotas(quotas((("ip", "10.0.0.1"),), connection_creation_rate=3.0)),
    ),
    ask(
        "quotas: of all addresses",
        alter_quotas(quotas((("ip", None),), connection_creation_rate=4.0)),
    ),
    ask(
        "quotas, filter: a user, strictly",
        describe_quotas(("user", EXACT, "anna b*~"), strict=True),
    ),
    ask("quotas, filter: another user", describe_quotas(("user", EXACT, "bert"))),
    ask("quotas, filter: all users, strictly", describe_quotas(("user", ANY, None), strict=True)),
    ask(
        "quotas, filter: the default client",
        describe_quotas(("client-id", DEFAULT, None), strict=True),
    ),
    ask("quotas, filter: a client", describe_quotas(("client-id", EXACT, "c/d"))),
    ask(
        "quotas, filter: a user and the default client",
        describe_quotas(("user", ANY, None), ("client-id", DEFAULT, None)),
    ),
    ask("quotas, filter: an address", describe_quotas(("ip", EXACT, "10.0.0.1"))),
    ask("quotas, filter: the default address", describe_quotas(("ip", DEFAULT, None))),
    ask("quotas, filter: nothing, strictly", describe_quotas(strict=True)),
    ask("quotas: one removed", alter_quotas(quotas(ANNA, request_percentage=None))),
    ask("quotas, filter: one removed", describe_quotas(("user", EXACT, "anna b*~"), strict=True)),
    Step(name="znodes with settings and quotas", action=ListZnodes()),
    ask(
        "quotas: what is not there removed",
        alter_quotas(quotas((("user", "nobody"),), producer_byte_rate=None)),
    ),
    ask("quotas: all of a user removed", alter_quotas(quotas(ANNA, producer_byte_rate=None))),
    ask(
        "quotas: of a user's clients removed",
        alter_quotas(quotas(ANNAS_CLIENT, consumer_byte_rate=None)),
    ),
    ask(
        "quotas: of a client removed",
        alter_quotas(quotas((("client-id", "c/d"),), controller_mutation_rate=None)),
    ),
    ask(
        "quotas: of all clients removed",
        alter_quotas(quotas((("client-id", None),), consumer_byte_rate=None)),
    ),
    ask(
        "quotas: of an address removed",
        alter_quotas(quotas((("ip", "10.0.0.1"),), connection_creation_rate=None)),
    ),
    ask(
        "quotas: of all addresses removed",
        alter_quotas(quotas((("ip", None),), connection_creation_rate=None)),
    ),
    ask("quotas: all removed", describe_quotas()),
)
AFTER_RESTART: tuple[Step, ...] = (
    ask(
        "restarted: changed settings of the broker",
        described(BROKER, "1", "log.cleaner.backoff.ms"),
    ),
    ask("restarted: changed settings of a topic", described(TOPIC, CHANGED, "flush.ms")),
)
