"""DescribeUserScramCredentials: the SCRAM mechanisms and iterations of users. Secrets are never sent."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int8, Int16, Int32


class DescribedUserName(NamedTuple):
    name: str


class DescribeUserScramCredentialsRequest(ApiMessage, frozen=True, kw_only=True):
    """`users` of None or without an item are all users."""

    users: tuple[DescribedUserName, ...] | None


class ScramCredentialInfo(NamedTuple):
    """`mechanism` is a number of `ScramType`."""

    mechanism: Int8
    iterations: Int32


class DescribedUserScramCredentials(NamedTuple):
    user: str
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: tuple[ScramCredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: tuple[DescribedUserScramCredentials, ...] = ()
