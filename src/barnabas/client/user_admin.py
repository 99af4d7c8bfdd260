"""Admin client for users with SCRAM credentials. Passwords are hashed here: a broker gets only the hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError
from barnabas.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.security.sasl.scram import ITERATIONS_MIN, create_salt, salt_password
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramType,
)
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribedUserName,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

MECHANISM_TYPES = {
    SCRAM_SHA_256: ScramType.SCRAM_SHA_256,
    SCRAM_SHA_512: ScramType.SCRAM_SHA_512,
}
MECHANISM_NAMES: dict[int, str] = {number: name for name, number in MECHANISM_TYPES.items()}


class ScramInfo(NamedTuple):
    mechanism: str
    iterations: int


class NewPassword(NamedTuple):
    """The password of a user for one mechanism. `random` must be secure."""

    user: str
    mechanism: str
    password: str
    random: Random
    iterations: int = ITERATIONS_MIN

    def __repr__(self) -> str:
        return f"NewPassword({self.user!r}, {self.mechanism})"


class UserAdmin:
    """Methods raise ApiError if a whole request fails."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def describe_users(
        self, names: Sequence[str] = ()
    ) -> dict[str, tuple[ScramInfo, ...] | ApiError]:
        """Return the credentials of these users, or of all. The error of an unknown user is RESOURCE_NOT_FOUND."""
        users = tuple(DescribedUserName(name) for name in names) or None
        request = DescribeUserScramCredentialsRequest(users=users)
        response = self.cluster.ask_any(request, DescribeUserScramCredentialsResponse)
        raise_if(response.error_code, response.error_message)
        return {
            each.user: error_of(each.error_code, each.error_message)
            or tuple(
                ScramInfo(MECHANISM_NAMES.get(info.mechanism, "unknown"), info.iterations)
                for info in each.credential_infos
            )
            for each in response.results
        }

    def alter_credentials(
        self,
        passwords: Iterable[NewPassword] = (),
        deletions: Iterable[tuple[str, str]] = (),
    ) -> dict[str, ApiError | None]:
        """Set passwords, and delete credentials, each given by user and mechanism. Returns the error of each user."""
        request = AlterUserScramCredentialsRequest(
            upsertions=tuple(map(salted, passwords)),
            deletions=tuple(
                ScramCredentialDeletion(user, MECHANISM_TYPES[mechanism])
                for user, mechanism in deletions
            ),
        )
        response = self.cluster.ask_controller(
            request,
            AlterUserScramCredentialsResponse,
            codes=lambda answer: [each.error_code for each in answer.results],
        )
        return {
            each.user: error_of(each.error_code, each.error_message) for each in response.results
        }


def salted(new: NewPassword) -> ScramCredentialUpsertion:
    """Hash a password. Takes milliseconds."""
    salt = create_salt(new.random)
    hashed = salt_password(new.mechanism, new.password, salt, new.iterations)
    mechanism = MECHANISM_TYPES[new.mechanism]
    return ScramCredentialUpsertion(new.user, mechanism, new.iterations, salt, hashed)
