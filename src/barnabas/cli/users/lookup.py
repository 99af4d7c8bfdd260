"""Lookup of users by name, and name completion."""

from __future__ import annotations

from barnabas.cli.cluster_command import complete_names
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.client.user_admin import ScramInfo, UserAdmin
from barnabas.errors import ApiError, ErrorCode

complete_users = complete_names(lambda cluster: sorted(UserAdmin(cluster).describe_users()))


def find_credentials(admin: UserAdmin, name: str) -> tuple[ScramInfo, ...] | None:
    """Return the credentials of a user, or None if there is no such user. Raises ApiError."""
    found = admin.describe_users([name]).get(name)
    if isinstance(found, ApiError):
        if found.code is ErrorCode.RESOURCE_NOT_FOUND:
            return None
        raise found
    return found


def unknown_user_error(admin: UserAdmin, name: str) -> ApiError:
    hint = suggest_names(name, admin.describe_users(), "see `barnabas users list`")
    why = f"there is no user {name!r} with SCRAM credentials"
    return ErrorWithHint(ApiError(ErrorCode.RESOURCE_NOT_FOUND), why, hint)
