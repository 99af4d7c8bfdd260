"""Admin client for configs and client quotas: describe and alter.

A call returns one result per resource: its settings, None for a successful change, or an ApiError. Only the named
broker knows the settings of a BROKER or BROKER_LOGGER resource, so its requests go to that broker. All other resources
go to any broker, in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec import Struct

from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId
from barnabas.wire.codec import Message
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    AlteredQuotas,
    AlteredQuotaValue,
)
from barnabas.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
    QuotaMatch,
)
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsSynonym,
    ResourceType,
)
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

CONFIG_SOURCES = {source.value: source for source in ConfigSource}
BROKER_TYPES = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class ConfigResource(NamedTuple):
    """A topic, a broker (by id, or empty for the defaults of all brokers) or the loggers of a broker (by id)."""

    type: ResourceType
    name: str


class ConfigChange(NamedTuple):
    """A change of one setting. `value` is None for DELETE. APPEND and SUBTRACT apply to lists."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigEntry(Struct, frozen=True, kw_only=True):
    """One setting. `value` is None if it is sensitive, or has no value.

    `synonyms` and `documentation` are set if the request asked for them.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    type: int = 0
    """Number of the type in the protocol (config.setting.Kind); 0 if unknown."""

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class QuotaEntity(NamedTuple):
    """The clients that a quota applies to. At least one field is set; `ip` stands alone.

    A field is None if the entity does not have this type, and DEFAULT_NAME for the default of the type.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


DEFAULT_NAME = "<default>"
"""Name of the default entity: quotas of all users, client ids or addresses without their own quota."""

QUOTA_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Entity types of the protocol, by field of QuotaEntity."""


class QuotaFilter(NamedTuple):
    """A condition on one entity type (`user`, `client-id` or `ip`). `name` is set for an EXACT match only."""

    entity_type: str
    match: QuotaMatch = QuotaMatch.ANY
    name: str | None = None


class ConfigAdmin:
    """Admin client for configs and quotas. Methods raise ApiError if a whole request fails."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry] | ApiError]:
        """Return the settings of each resource, or only `names`, in the order of the resources."""
        keys = None if names is None else tuple(names)

        def build(group: Sequence[ConfigResource]) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=tuple(DescribeConfigsResource(*each, keys) for each in group),
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        def parse(
            response: DescribeConfigsResponse,
        ) -> dict[ConfigResource, list[ConfigEntry] | ApiError]:
            found: dict[ConfigResource, list[ConfigEntry] | ApiError] = {}
            for each in response.results:
                error = error_of(each.error_code, each.error_message)
                resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                found[resource] = error or [parse_config_entry(entry) for entry in each.configs]
            return found

        return self.ask_each_target(list(resources), build, DescribeConfigsResponse, parse)

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, ApiError | None]:
        """Change the named settings, and keep the others."""

        def build(group: Sequence[ConfigResource]) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest(
                resources=tuple(
                    IncrementalAlterConfigsResource(
                        *resource,
                        tuple(
                            IncrementallyAlterableConfig(each.name, each.operation, each.value)
                            for each in changes[resource]
                        ),
                    )
                    for resource in group
                ),
                validate_only=validate_only,
            )

        return self.ask_each_target(
            list(changes), build, IncrementalAlterConfigsResponse, parse_alter_configs
        )

    def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, ApiError | None]:
        """Replace all settings of each resource. Settings that are not named return to their defaults."""

        def build(group: Sequence[ConfigResource]) -> AlterConfigsRequest:
            return AlterConfigsRequest(
                resources=tuple(
                    AlterConfigsResource(
                        *resource,
                        tuple(AlterableConfig(*item) for item in settings[resource].items()),
                    )
                    for resource in group
                ),
                validate_only=validate_only,
            )

        return self.ask_each_target(
            list(settings), build, AlterConfigsResponse, parse_alter_configs
        )

    def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that match every filter.

        `strict` excludes entities with a type that no filter names. Without filters, all quotas are returned.
        """
        response = self.cluster.ask_any(
            DescribeClientQuotasRequest(
                components=tuple(QuotaFilterComponent(*each) for each in filters), strict=strict
            ),
            DescribeClientQuotasResponse,
        )
        raise_if(response.error_code, response.error_message)
        return {
            to_quota_entity(entry.entity): {each.key: each.value for each in entry.values}
            for entry in response.entries or ()
        }

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, ApiError | None]:
        """Set quotas by name, such as producer_byte_rate. The value None removes a quota."""
        request = AlterClientQuotasRequest(
            entries=tuple(
                AlteredQuotas(
                    from_quota_entity(entity),
                    tuple(
                        AlteredQuotaValue(key, value or 0.0, value is None)
                        for key, value in values.items()
                    ),
                )
                for entity, values in changes.items()
            ),
            validate_only=validate_only,
        )

        def ask() -> dict[QuotaEntity, ApiError | None]:
            response = self.cluster.ask_any(request, AlterClientQuotasResponse)
            results = {
                to_quota_entity(entry.entity): error_of(entry.error_code, entry.error_message)
                for entry in response.entries
            }
            raise_without_controller(results.values())
            return results

        return self.cluster.retry(ask)

    def ask_each_target(
        self,
        resources: Sequence[ConfigResource],
        build: Callable[[Sequence[ConfigResource]], Message],
        response: type[R],
        parse: Callable[[R], Mapping[ConfigResource, T | ApiError]],
    ) -> dict[ConfigResource, T | ApiError]:
        """Send each resource to its broker. Returns the results in the order of the resources.

        If a broker cannot be reached, its resources have this error, and the others their own results. While the
        cluster has no controller, the request is retried.
        """
        by_broker: dict[BrokerId | None, list[ConfigResource]] = {}
        for resource in resources:
            by_broker.setdefault(target_broker(resource), []).append(resource)
        found: dict[ConfigResource, T | ApiError] = {}
        for broker, group in by_broker.items():
            request = build(group)
            try:
                found.update(
                    self.cluster.retry(partial(self.ask_target, broker, request, response, parse))
                )
            except ApiError as error:
                if broker is None:
                    raise
                found.update(dict.fromkeys(group, error))
        missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no result")
        return {resource: found.get(resource, missing) for resource in resources}

    def ask_target(
        self,
        broker: BrokerId | None,
        request: Message,
        response: type[R],
        parse: Callable[[R], Mapping[ConfigResource, T | ApiError]],
    ) -> Mapping[ConfigResource, T | ApiError]:
        """Send a request to one broker, or to any. Raises NOT_CONTROLLER if every resource has this error."""
        if broker is None:
            answer = self.cluster.ask_any(request, response)
        else:
            answer = self.cluster.ask(broker, request, response)
        results = parse(answer)
        raise_without_controller(results.values())
        return results


def raise_without_controller(results: Collection[object]) -> None:
    """Raise NOT_CONTROLLER, which is retried, if every result is this error."""
    errors = [each for each in results if isinstance(each, ApiError)]
    if len(errors) == len(results) and {each.code for each in errors} == {ErrorCode.NOT_CONTROLLER}:
        raise errors[0]


def target_broker(resource: ConfigResource) -> BrokerId | None:
    """Return the broker that must handle the resource; None if any broker can, or rejects it."""
    if resource.type in BROKER_TYPES and resource.name.isascii() and resource.name.isdigit():
        return BrokerId(int(resource.name))
    return None


def parse_alter_configs(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> dict[ConfigResource, ApiError | None]:
    return {
        ConfigResource(ResourceType(each.resource_type), each.resource_name): error_of(
            each.error_code, each.error_message
        )
        for each in response.responses
    }


def parse_config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=CONFIG_SOURCES.get(entry.config_source, ConfigSource.UNKNOWN),
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        documentation=entry.documentation,
        synonyms=entry.synonyms,
        type=entry.config_type,
    )


def from_quota_entity(entity: QuotaEntity) -> tuple[AlteredQuotaEntity, ...]:
    return tuple(
        AlteredQuotaEntity(QUOTA_TYPES[field], None if name == DEFAULT_NAME else name)
        for field, name in entity._asdict().items()
        if name is not None
    )


def to_quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    names = {entity_type: DEFAULT_NAME if name is None else name for entity_type, name in parts}
    return QuotaEntity(*(names.get(entity_type) for entity_type in QUOTA_TYPES.values()))
