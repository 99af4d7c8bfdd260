"""AlterUserScramCredentials: sets and removes the SCRAM credentials of users. Only the controller serves it.

A user with one invalid change is not changed at all. The other users are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas.broker.config_admin.write import Entity, change_settings
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.security.acl.model import Operation
from barnabas.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of,
    format_credential,
    salt_password,
)
from barnabas.tasks import Turns, in_thread
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlteredUserScramCredentials,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramType,
)

MECHANISMS = {ScramType.SCRAM_SHA_256: SCRAM_SHA_256, ScramType.SCRAM_SHA_512: SCRAM_SHA_512}
SALT_BYTES_MAX = 1024

Alteration = ScramCredentialUpsertion | ScramCredentialDeletion


async def handle(
    context: BrokerContext,
    request: AlterUserScramCredentialsRequest,
    _: RequestHeader,
    connection: Connection,
) -> AlterUserScramCredentialsResponse:
    turns = Turns()
    alterations: tuple[Alteration, ...] = (*request.deletions, *request.upsertions)
    by_user: dict[str, list[Alteration]] = {}
    for each in alterations:
        by_user.setdefault(each.name, []).append(each)
        await turns.yield_if_due()
    results = []
    try:
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "send the request to the controller")
        context.security.access.require_cluster(connection, Operation.ALTER)
        controller_version = await context.topics.controller_version()
    except (ApiError, RegistryError, StorageError) as error:
        failed = error_fields(to_api_error(error))
        for user in by_user:
            results.append(AlteredUserScramCredentials(user, *failed))
            await turns.yield_if_due()
        return AlterUserScramCredentialsResponse(results=tuple(results))
    for user, changes in by_user.items():
        failure = find_error(changes)
        if failure is None:
            failure = await alter_user(context, user, changes, controller_version)
        results.append(AlteredUserScramCredentials(user, *error_fields(failure)))
        await turns.yield_if_due()
    # Errors come first, as in Kafka.
    results.sort(key=lambda each: each.error_code == ErrorCode.NONE)
    return AlterUserScramCredentialsResponse(results=tuple(results))


def find_error(alterations: Sequence[Alteration]) -> ApiError | None:
    """Return the error of the changes of one user, without a look at its credentials."""
    for each in alterations:
        if not each.name:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if each.mechanism not in MECHANISMS:
            return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(each, ScramCredentialUpsertion):
            if each.iterations < ITERATIONS_MIN:
                return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
            if each.iterations > ITERATIONS_MAX:
                return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
            if not each.salted_password or not 0 < len(each.salt) <= SALT_BYTES_MAX:
                return ApiError(
                    ErrorCode.UNACCEPTABLE_CREDENTIAL,
                    "the salt or the salted password is empty or too long",
                )
    if max(Counter(each.mechanism for each in alterations).values()) > 1:
        return ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    return None


async def alter_user(
    context: BrokerContext, user: str, alterations: Iterable[Alteration], controller_version: int
) -> ApiError | None:
    """Write the changes of one user. Returns the error, or None."""
    entity = Entity("users", znodes.sanitise(user))

    def decide(settings: dict[str, str]) -> dict[str, str]:
        return apply_alterations(settings, alterations)

    try:
        await refuse_empty_passwords(alterations)
        settings = await change_settings(
            context.registry, entity, decide, controller_version=controller_version
        )
    except (ApiError, RegistryError, StorageError) as error:
        return to_api_error(error)
    # Other brokers learn of the change by its notification. Here a client can log in at once.
    context.security.logins.credentials.update(entity.name, settings)
    return None


async def refuse_empty_passwords(alterations: Iterable[Alteration]) -> None:
    """Raise ApiError if a salted password is that of the empty password, with which any client could log in."""
    for each in alterations:
        if isinstance(each, ScramCredentialUpsertion):
            mechanism = MECHANISMS[ScramType(each.mechanism)]
            salted = await in_thread(
                salt_password, mechanism, "", bytes(each.salt), each.iterations
            )
            if salted == each.salted_password:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the password is empty")


def apply_alterations(
    settings: dict[str, str], alterations: Iterable[Alteration]
) -> dict[str, str]:
    """Return the settings of a user with the changed credentials. Raises ApiError."""
    changed = dict(settings)
    for each in alterations:
        mechanism = MECHANISMS[ScramType(each.mechanism)]
        if isinstance(each, ScramCredentialUpsertion):
            credential = credential_of(
                mechanism, bytes(each.salted_password), bytes(each.salt), each.iterations
            )
            changed[mechanism] = format_credential(credential)
        elif changed.pop(mechanism, None) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return changed
