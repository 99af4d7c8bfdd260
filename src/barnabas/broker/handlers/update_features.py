"""UpdateFeatures: changes the finalized features in /feature. Only the active controller serves it."""

from __future__ import annotations

import logging

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields, not_controller
from barnabas.controller.feature_updates import decide_features
from barnabas.errors import (
    ApiError,
    BadVersion,
    ErrorCode,
    MultiFailed,
    RegistryError,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.security.acl.model import Operation
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.world.ports import CheckVersion, SetData

logger = logging.getLogger("barnabas.features")

CONTROLLER_CHECK = 0
RESULTS_PER_TURN = 500
Errors = dict[str, ApiError | None]


async def handle(
    context: BrokerContext,
    request: UpdateFeaturesRequest,
    header: RequestHeader,
    connection: Connection,
) -> UpdateFeaturesResponse:
    try:
        context.security.access.require_cluster(connection, Operation.ALTER)
        if not context.controller.is_active:
            raise not_controller()
        errors = await update_features(context, request, header.api_version)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = []
    turns = Turns(RESULTS_PER_TURN)
    for feature, failed in errors.items():
        results.append(UpdatableFeatureResult(feature, *error_fields(failed)))
        await turns.yield_if_due()
    return UpdateFeaturesResponse(results=tuple(results))


async def update_features(
    context: BrokerContext, request: UpdateFeaturesRequest, version: int
) -> Errors:
    """Decide and write. Decide again if another program has changed the features meanwhile."""
    registry = context.registry
    updates = request.feature_updates
    backoff = Backoff(*CONFLICT_S, random=context.topics.random)
    errors: Errors = dict.fromkeys(update.feature for update in updates)
    try:
        check = CheckVersion(
            path=znodes.CONTROLLER, version=await context.topics.controller_version()
        )
        while True:
            data, stat = await registry.get(znodes.FEATURE)
            current = znodes.decode_features(data).levels
            levels, errors = await in_thread_if_large(
                len(updates), decide_features, current, updates, version
            )
            if levels == current or request.validate_only:
                return errors
            write = SetData(
                path=znodes.FEATURE, data=znodes.encode_features(levels), version=stat.version
            )
            try:
                await registry.multi([check, write])
            except MultiFailed as failed:
                if failed.index == CONTROLLER_CHECK:
                    raise not_controller() from failed
                if not isinstance(failed.error, BadVersion):
                    raise
                await backoff.wait()
            else:
                logger.info("updated features names=%s", ",".join(levels) or "none")
                return errors
    except (RegistryError, StorageError) as error:
        logger.error("cannot update features error=%s", error)
        failure = ApiError(ErrorCode.FEATURE_UPDATE_FAILED, str(error))
        return {name: found or failure for name, found in errors.items()}
