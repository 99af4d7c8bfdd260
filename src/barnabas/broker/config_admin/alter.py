"""Changes of settings that clients request: validate, write to the registry, and apply on this broker.

Every broker changes the settings of topics. The settings of a broker are validated by that broker, which knows its
file. Each resource has its own result: an invalid one does not affect the others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from barnabas.broker.config_admin.apply import ConfigApplier, format_settings
from barnabas.broker.config_admin.loggers import change_log_levels
from barnabas.broker.config_admin.operations import (
    ResourceChange,
    apply_operations,
    check_resources,
    invalid_request,
    require_own_id,
)
from barnabas.broker.config_admin.write import Decide, Entity, change_settings, read_entity
from barnabas.broker.context import BrokerContext
from barnabas.broker.policies import check_alter_config_policy
from barnabas.broker.topic_admin.topics import run_limited, to_api_error
from barnabas.config import TOPIC_SETTINGS, BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.config.dynamic import (
    UnsupportedSetting,
    build_effective,
    check_change,
    check_setting,
    select_valid,
)
from barnabas.config.load import find_setting
from barnabas.errors import (
    AddressInUse,
    ApiError,
    ConfigError,
    ErrorCode,
    RegistryError,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.tasks import SMALL_MAX, in_thread_if_large
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

logger = logging.getLogger("barnabas.config")

SECURITY_NAME = re.compile(r"(^|\.)(ssl|sasl)\.|^listener")
"""Names of settings that the security of listeners depends on."""
NOT_NEEDED = -1
"""Controller version of a request that writes nothing."""


async def alter_configs(
    context: BrokerContext, requested: Sequence[ResourceChange], *, validate_only: bool
) -> list[ApiError | None]:
    """Change the settings of all resources, or only validate the changes. Returns the errors in request order."""
    size = count_changes(requested)
    errors = await in_thread_if_large(size, check_resources, requested, context.metadata.topics)
    valid = [index for index, error in enumerate(errors) if error is None]
    if not valid:
        return errors
    controller_version = NOT_NEEDED
    if not validate_only and any(requested[n].type != ResourceType.BROKER_LOGGER for n in valid):
        try:
            controller_version = await context.topics.controller_version()
        except (ApiError, RegistryError, StorageError) as error:
            failed = to_api_error(error)
            return [each or failed for each in errors]
    alter = partial(try_alter, context, controller_version, validate_only)
    topics = [index for index in valid if requested[index].type == ResourceType.TOPIC]
    results = await run_limited(alter, [requested[index] for index in topics])
    for index, result in zip(topics, results, strict=True):
        errors[index] = result
    for index in valid:
        if requested[index].type != ResourceType.TOPIC:
            errors[index] = await alter(requested[index])
    return errors


def count_changes(requested: Sequence[ResourceChange]) -> int:
    """Return the number of changes, or only that of resources if these are many."""
    if len(requested) > SMALL_MAX:
        return len(requested)
    return sum(1 + len(each.changes) for each in requested)


async def try_alter(
    context: BrokerContext, controller_version: int, validate_only: bool, requested: ResourceChange
) -> ApiError | None:
    alter = alter_topic if requested.type == ResourceType.TOPIC else alter_broker
    try:
        if requested.type == ResourceType.BROKER_LOGGER:
            require_own_id(context.config, requested.name)
            change_log_levels(requested.changes, validate_only=validate_only)
        else:
            await alter(context, controller_version, validate_only, requested)
    except ApiError as error:
        return error
    except (RegistryError, StorageError) as error:
        logger.error(
            "cannot change settings type=%d name=%s error=%s", requested.type, requested.name, error
        )
        return to_api_error(error)
    return None


async def change_entity(
    context: BrokerContext,
    entity: Entity,
    decide: Decide,
    requested: ResourceChange,
    *,
    controller_version: int,
    validate_only: bool,
    required_path: str | None = None,
) -> bool:
    """Validate a change, ask alter.config.policy.class.name, and write. Returns whether it was written.

    Raises ApiError if the change is invalid, or if the policy rejects it.
    """
    size = len(requested.changes)
    await in_thread_if_large(size, decide, (await read_entity(context.registry, entity)).settings)
    configs = await in_thread_if_large(size, describe_changes, requested)
    kind = "topic" if requested.type == ResourceType.TOPIC else "broker"
    error = await check_alter_config_policy(context.topics.policies, kind, requested.name, configs)
    if error is not None:
        raise error
    if validate_only:
        return False
    changed = await change_settings(
        context.registry,
        entity,
        decide,
        size=size,
        controller_version=controller_version,
        required_path=required_path,
    )
    logger.info("changed settings %s=%s settings=%s", kind, entity.name, format_settings(changed))
    return True


def describe_changes(requested: ResourceChange) -> dict[str, str | None]:
    """Return the changes for a policy. The value of a removed setting is None."""
    return {
        each.name: None if each.operation == ConfigOperation.DELETE else each.value
        for each in requested.changes
    }


# ---- topics


async def alter_topic(
    context: BrokerContext, controller_version: int, validate_only: bool, requested: ResourceChange
) -> None:
    name = requested.name
    entity = Entity("topics", name)

    def decide(settings: dict[str, str]) -> dict[str, str]:
        changed = apply_operations(settings, requested, TOPIC_SETTINGS.get)
        try:
            context.topics.defaults.with_overrides(changed)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return changed

    await change_entity(
        context,
        entity,
        decide,
        requested,
        controller_version=controller_version,
        validate_only=validate_only,
        required_path=znodes.topic_path(name),
    )


# ---- brokers


async def alter_broker(
    context: BrokerContext, controller_version: int, validate_only: bool, requested: ResourceChange
) -> None:
    name = requested.name or znodes.DEFAULT_ENTITY
    if requested.name:
        require_own_id(context.config, requested.name)
        await check_new_listeners(context, requested)
        await check_security(context, requested)
    is_written = await change_entity(
        context,
        Entity("brokers", name),
        partial(decide_broker_settings, context, requested),
        requested,
        controller_version=controller_version,
        validate_only=validate_only,
    )
    if is_written:
        # Other brokers learn of the change by its notification. Here a client that reads the settings next sees them.
        await ConfigApplier(context).apply_broker(name)


async def check_new_listeners(context: BrokerContext, requested: ResourceChange) -> None:
    """Raise INVALID_REQUEST if the broker cannot listen on a requested address.

    The broker opens its listeners after the response. An invalid value is not reported here.
    """
    current = context.current_config
    if not any(
        each.name == "listeners" and each.operation != ConfigOperation.DELETE
        for each in requested.changes
    ):
        return
    size = len(requested.changes)
    settings = await in_thread_if_large(size, compute_settings, requested, current.stored.broker)
    try:
        wanted = build_effective(current.static, replace(current.stored, broker=settings)).listeners
    except ConfigError:
        return
    own_ports = [each.port for each in current.value.listeners]
    for each in wanted:
        if each.port in own_ports:
            continue  # a listener may move to another interface, or to the port of another one
        try:
            listener = await context.network.listen(each.host, each.port, lambda _: None)
        except AddressInUse as error:
            raise invalid_request(f"listeners: {error}") from error
        await listener.close()


async def check_security(context: BrokerContext, requested: ResourceChange) -> None:
    """Raise INVALID_REQUEST if a listener could not use the requested settings.

    An invalid value is not reported here.
    """
    config = await in_thread_if_large(
        len(requested.changes), find_changed_security, context.current_config, requested
    )
    if config is None:
        return
    try:
        await context.security.check(config)
    except ConfigError as error:
        raise invalid_request(str(error)) from error


def find_changed_security(current: CurrentConfig, requested: ResourceChange) -> BrokerConfig | None:
    """Return the configuration after a change. None if it concerns no security setting, or is invalid."""
    before = current.stored.broker
    settings = compute_settings(requested, before)
    names = {each.name for each in requested.changes} | (before.keys() ^ settings.keys())
    if not any(SECURITY_NAME.search(name) for name in names):
        return None
    try:
        valid, _ = select_valid(settings, per_broker=True)
        return build_effective(current.static, replace(current.stored, broker=valid))
    except ConfigError:
        return None


def compute_settings(requested: ResourceChange, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the dynamic settings of brokers after a change. Former ones that are invalid are dropped."""
    known, _ = select_valid(settings, per_broker=bool(requested.name))
    return apply_operations(known, requested, find_setting)


def decide_broker_settings(
    context: BrokerContext, requested: ResourceChange, settings: dict[str, str]
) -> dict[str, str]:
    """Return the changed dynamic settings. Settings that are invalid already, written by hand, are dropped.

    As in Kafka, an invalid value gets INVALID_REQUEST. A setting that does not exist gets INVALID_CONFIG.
    """
    current = context.current_config
    per_broker = bool(requested.name)
    changed = compute_settings(requested, settings)
    try:
        for name, text in changed.items():
            check_setting(name, text, per_broker=per_broker)
        after = (
            replace(current.stored, broker=changed)
            if per_broker
            else replace(current.stored, default=changed)
        )
        check_change(current.static, current.dynamic, after)
    except UnsupportedSetting as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ConfigError as error:
        raise invalid_request(str(error)) from error
    return changed
