"""DescribeUserScramCredentials: the SCRAM mechanisms and iterations of users, read from the registry."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.config_admin.write import Entity, read_entity
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.credentials import Credentials, read_all_users, read_credentials
from barnabas.broker.topic_admin.topics import error_fields, run_limited, to_api_error
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.security.acl.model import Operation
from barnabas.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_user_scram_credentials import ScramType
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribedUserScramCredentials,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
)

USERS_MAX = 10_000
"""Users in one request. Without names, it returns all users."""
TYPES = {SCRAM_SHA_256: ScramType.SCRAM_SHA_256, SCRAM_SHA_512: ScramType.SCRAM_SHA_512}


async def handle(
    context: BrokerContext,
    request: DescribeUserScramCredentialsRequest,
    _: RequestHeader,
    connection: Connection,
) -> DescribeUserScramCredentialsResponse:
    try:
        context.security.access.require_cluster(connection, Operation.DESCRIBE)
        if request.users and len(request.users) > USERS_MAX:
            why = f"{len(request.users)} users in one request; the limit is {USERS_MAX}"
            raise ApiError(ErrorCode.INVALID_REQUEST, why)
        if not request.users:
            users = await read_all_users(context.registry)
            results = [describe(user, users[user]) for user in sorted(users)]
        else:
            results = await describe_users(context, [each.name for each in request.users])
    except (ApiError, RegistryError, StorageError) as error:
        code, message = error_fields(to_api_error(error))
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)
    return DescribeUserScramCredentialsResponse(results=tuple(results))


async def describe_users(
    context: BrokerContext, names: list[str]
) -> list[DescribedUserScramCredentials]:
    counts = Counter(names)

    async def describe_user(name: str) -> DescribedUserScramCredentials:
        if not name:
            return fail(name, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
        if counts[name] > 1:
            why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            return fail(name, ErrorCode.DUPLICATE_RESOURCE, why)
        found = await read_entity(context.registry, Entity("users", znodes.sanitise(name)))
        credentials = read_credentials(name, found.settings)
        if not credentials:
            why = f"Attempt to describe a user credential that does not exist: {name}"
            return fail(name, ErrorCode.RESOURCE_NOT_FOUND, why)
        return describe(name, credentials)

    return await run_limited(describe_user, list(counts))


def describe(user: str, credentials: Credentials) -> DescribedUserScramCredentials:
    infos = tuple(
        ScramCredentialInfo(TYPES[mechanism], credential.iterations)
        for mechanism, credential in credentials.items()
    )
    return DescribedUserScramCredentials(user, credential_infos=infos)


def fail(user: str, code: ErrorCode, why: str) -> DescribedUserScramCredentials:
    return DescribedUserScramCredentials(user, *error_fields(ApiError(code, why)))
