"""kafka-configs with --bootstrap-server: sends requests to the brokers and prints Kafka's output."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.cli.configs.names import effect_note
from barnabas.cli.configs.reading import SOURCE_NAMES, override_sources
from barnabas.cli.kafka.config_options import (
    BROKERS,
    CLIENTS,
    DEFAULT_NAME,
    IPS,
    LOGGERS,
    TOPICS,
    USERS,
    Entities,
    change_warnings,
    completed_line,
    settings_to_add,
    settings_to_delete,
)
from barnabas.cli.kafka.describing import java_text
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.quotas_by_protocol import BrokerQuotas
from barnabas.cli.kafka.topic_settings import INVALID_CONFIGURATION
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigEntry, ConfigResource
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import check_topic_name
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

RESOURCES = {
    TOPICS: ResourceType.TOPIC,
    BROKERS: ResourceType.BROKER,
    LOGGERS: ResourceType.BROKER_LOGGER,
}


def run_configs_on_brokers(cluster: Cluster, options: ParsedOptions, entities: Entities) -> None:
    kind = entities.type
    if kind in (USERS, CLIENTS, IPS):
        BrokerQuotas(cluster, options, entities).run()
    elif kind in RESOURCES:
        BrokerConfigs(cluster, options, entities).run()
    else:
        raise ErrorWithHint(
            ApiError(ErrorCode.UNSUPPORTED_VERSION),
            f"settings of {kind} are not supported",
            "use --entity-type topics, brokers, broker-loggers, users, clients or ips",
        )


class BrokerConfigs:
    """Settings of topics, brokers and loggers."""

    def __init__(self, cluster: Cluster, options: ParsedOptions, entities: Entities) -> None:
        self.cluster = cluster
        self.admin = ConfigAdmin(cluster)
        self.options = options
        self.entities = entities

    def run(self) -> None:
        kind = self.entities.type
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
            resource = ConfigResource(RESOURCES[kind], name)
            for entry in self.entries(resource):
                if describes_all or is_dynamic(entry, resource):
                    print_lines(entry_line(entry))

    def described_names(self, kind: str) -> list[str]:
        if self.entities.name is not None:
            return [self.entities.name]
        view = self.cluster.refresh(None)
        if kind == TOPICS:
            return sorted(view.topics)
        return [*(str(broker) for broker in sorted(view.brokers)), DEFAULT_NAME]

    def entries(self, resource: ConfigResource) -> list[ConfigEntry]:
        """Return all settings of the entity, in alphabetical order."""
        self.check_name(resource)
        result = self.admin.describe_configs([resource], include_synonyms=True)[resource]
        if isinstance(result, ApiError):
            raise result
        return sorted(result, key=lambda entry: entry.name)

    def check_name(self, resource: ConfigResource) -> None:
        """Raise ApiError for an invalid topic name, and for a broker that is not alive."""
        if resource.type is ResourceType.TOPIC:
            check_topic_name(resource.name)
        elif resource.name != DEFAULT_NAME:
            brokers = self.cluster.refresh([]).brokers
            if int(resource.name) not in brokers:
                live = ", ".join(map(str, sorted(brokers)))
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"broker {resource.name} is not alive; live brokers: {live}",
                )

    # ---- alter

    def alter(self, kind: str, name: str) -> None:
        added = settings_to_add(self.options)
        print_lines(*change_warnings(added))
        resource = ConfigResource(RESOURCES[kind], name)
        present = [each.name for each in self.entries(resource) if is_dynamic(each, resource)]
        if kind == LOGGERS:
            deleted = self.loggers_to_reset(added, present)
        else:
            deleted = settings_to_delete(self.options, present)
        changes = build_changes(added, deleted)
        error = self.admin.incremental_alter_configs({resource: changes})[resource]
        if error is not None:
            raise error
        print_lines(completed_line(kind, name))
        if note := effect_note(resource, added):
            print_note(f"note: {note}")

    def loggers_to_reset(self, added: Collection[str], known: Sequence[str]) -> list[str]:
        """Return the loggers of --delete-config. Raises RequestRejected if one of them, or of `added`, is unknown."""
        deleted = [name.strip() for name in self.options.values("delete-config")]
        unknown = [name for name in (*deleted, *added) if name not in known]
        if unknown:
            raise RequestRejected(
                f"Invalid broker logger(s): {','.join(unknown)}", INVALID_CONFIGURATION
            )
        return deleted


def is_dynamic(entry: ConfigEntry, resource: ConfigResource) -> bool:
    """Return whether the setting was set dynamically for this entity. All settings of loggers count as dynamic."""
    return resource.type is ResourceType.BROKER_LOGGER or entry.source in override_sources(resource)


def entry_line(entry: ConfigEntry) -> str:
    """Return `  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1}`."""
    synonyms = ", ".join(
        f"{SOURCE_NAMES.get(each.source, 'UNKNOWN')}:{each.name}={java_text(each.value)}"
        for each in entry.synonyms
    )
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={java_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def build_changes(added: dict[str, str], deleted: Sequence[str]) -> list[ConfigChange]:
    return [
        *(ConfigChange(name, value) for name, value in added.items()),
        *(ConfigChange(name, "", ConfigOperation.DELETE) for name in deleted),
    ]
