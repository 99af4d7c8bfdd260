"""kafka-configs with --bootstrap-server: sends requests to the brokers and prints Kafka's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.cli.kafka.config_options import (
    BROKERS,
    DEFAULT_NAME,
    LOGGERS,
    TOPICS,
    Entities,
    settings_to_add,
    settings_to_delete,
)
from barnabas.cli.kafka.describing import java_text
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import print_lines
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import check_topic_name
from barnabas.model import BrokerId
from barnabas.wire.codec import Message
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

R = TypeVar("R", bound=Message)

RESOURCES = {
    TOPICS: ResourceType.TOPIC,
    BROKERS: ResourceType.BROKER,
    LOGGERS: ResourceType.BROKER_LOGGER,
}
# Names that Kafka's command prints, which differ from the protocol's for two sources.
SOURCES = {source.value: source.name for source in ConfigSource} | {
    ConfigSource.TOPIC_CONFIG.value: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.CLIENT_METRICS_CONFIG.value: "DYNAMIC_CLIENT_METRICS_CONFIG",
}
CANNOT_CHANGE_HINT = (
    "these brokers cannot change settings at run time: set them when a topic is created, or with"
    " --zookeeper HOST:PORT; brokers apply the latter when they restart"
)


class BrokerConfigs:
    def __init__(self, cluster: Cluster, options: ParsedOptions, entities: Entities) -> None:
        self.cluster = cluster
        self.options = options
        self.entities = entities

    def run(self) -> None:
        kind = self.entities.type
        if kind not in RESOURCES:
            raise ErrorWithHint(
                ApiError(ErrorCode.UNSUPPORTED_VERSION),
                f"settings of {kind} are not supported",
                "use --entity-type topics or brokers",
            )
        if self.options.has("alter"):
            self.alter(kind, self.entities.names[0])
        else:
            self.describe(kind)

    # ---- describe

    def describe(self, kind: str) -> None:
        describes_all = self.options.has("all")
        for name in self.described_names(kind):
            if name == DEFAULT_NAME:
                print_lines(f"Default configs for {kind} in the cluster are:")
            else:
                print_lines(
                    f"{'All' if describes_all else 'Dynamic'} configs for {kind[:-1]} {name} are:"
                )
            for entry in self.entries(kind, name):
                if describes_all or is_dynamic(entry, kind, name):
                    print_lines(entry_line(entry))

    def described_names(self, kind: str) -> list[str]:
        if self.entities.name is not None:
            return [self.entities.name]
        view = self.cluster.refresh(None)
        if kind == TOPICS:
            return sorted(view.topics)
        return [*(str(broker) for broker in sorted(view.brokers)), DEFAULT_NAME]

    def entries(self, kind: str, name: str) -> list[DescribeConfigsResourceResult]:
        """Return all settings of the entity, in alphabetical order."""
        if kind == TOPICS:
            check_topic_name(name)
        resource = DescribeConfigsResource(
            resource_type=RESOURCES[kind], resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
        (result,) = self.ask(kind, name, request, DescribeConfigsResponse).results
        raise_if(result.error_code, result.error_message)
        return sorted(result.configs, key=lambda entry: entry.name)

    # ---- alter

    def alter(self, kind: str, name: str) -> None:
        added = settings_to_add(self.options)
        present = [
            entry.name for entry in self.entries(kind, name) if is_dynamic(entry, kind, name)
        ]
        deleted = settings_to_delete(self.options, present)
        self.send_changes(kind, name, build_changes(added, deleted))
        if name == DEFAULT_NAME:
            print_lines(f"Completed updating default config for {kind} in the cluster.")
        else:
            print_lines(f"Completed updating config for {kind[:-1]} {name}.")

    def send_changes(
        self, kind: str, name: str, configs: tuple[IncrementallyAlterableConfig, ...]
    ) -> None:
        resource = IncrementalAlterConfigsResource(
            resource_type=RESOURCES[kind], resource_name=name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,))
        try:
            response = self.ask(kind, name, request, IncrementalAlterConfigsResponse)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            why = "The node does not support INCREMENTAL_ALTER_CONFIGS"
            raise ErrorWithHint(error, why, CANNOT_CHANGE_HINT) from None
        for result in response.responses:
            raise_if(result.error_code, result.error_message)

    def ask(self, kind: str, name: str, request: Message, response: type[R]) -> R:
        """Send a request about a broker or its loggers to that broker, and any other request to any broker."""
        if kind == TOPICS or name == DEFAULT_NAME:
            return self.cluster.ask_any(request, response)
        brokers = self.cluster.refresh([]).brokers
        broker = BrokerId(int(name))
        if broker not in brokers:
            live = ", ".join(map(str, sorted(brokers)))
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker} is not alive; live brokers: {live}",
            )
        return self.cluster.ask(broker, request, response)


def is_dynamic(entry: DescribeConfigsResourceResult, kind: str, name: str) -> bool:
    """Return whether the setting was set dynamically for this entity. All settings of loggers count as dynamic."""
    if kind == LOGGERS:
        return True
    source = ConfigSource.TOPIC_CONFIG
    if kind == BROKERS:
        source = ConfigSource.DYNAMIC_BROKER_CONFIG
        if name == DEFAULT_NAME:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.config_source == source


def entry_line(entry: DescribeConfigsResourceResult) -> str:
    """Return `  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1}`."""
    synonyms = ", ".join(
        f"{SOURCES.get(each.source, 'UNKNOWN')}:{each.name}={java_text(each.value)}"
        for each in entry.synonyms
    )
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={java_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def build_changes(
    added: dict[str, str], deleted: Sequence[str]
) -> tuple[IncrementallyAlterableConfig, ...]:
    return (
        *(
            IncrementallyAlterableConfig(name, ConfigOperation.SET, value)
            for name, value in added.items()
        ),
        *(IncrementallyAlterableConfig(name, ConfigOperation.DELETE, "") for name in deleted),
    )
