"""AlterUserScramCredentials: sets and removes the SCRAM credentials of users."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int8, Int16, Int32


class ScramType(IntEnum):
    """Numbers of the SCRAM mechanisms in requests."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredentialDeletion(NamedTuple):
    name: str
    mechanism: Int8


class ScramCredentialUpsertion(NamedTuple):
    """`salted_password` is computed by the client, so the broker never sees the password."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsRequest(ApiMessage, frozen=True, kw_only=True):
    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlteredUserScramCredentials(NamedTuple):
    user: str
    error_code: Int16 = 0
    error_message: str | None = None


class AlterUserScramCredentialsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[AlteredUserScramCredentials, ...] = ()
