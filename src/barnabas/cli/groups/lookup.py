"""Lookup of groups by name, name completion, and checks that a group exists and has no members."""

from __future__ import annotations

from shlex import quote

from barnabas.cli.cluster_command import complete_names, servers_hint
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.cli.terminal.output import plural
from barnabas.client.group_admin import GroupAdmin, GroupView
from barnabas.errors import ApiError, ConfigError, ErrorCode

MEMBERS_SHOWN_MAX = 3

complete_groups = complete_names(lambda cluster: group_names(GroupAdmin(cluster)))


def group_names(admin: GroupAdmin) -> list[str]:
    return [group.group_id for group in admin.list_groups()]


def reject_empty_name(option: str, name: str) -> None:
    """Raise ConfigError for an empty group name: offsets can be committed for it, but no member can join it."""
    if not name:
        raise ConfigError(option, "a group's name has at least one character")


def find_group(admin: GroupAdmin, name: str) -> GroupView:
    """Return the group. The error for an unknown group suggests similar names."""
    view = admin.describe_group(name)
    if not view.exists:
        raise unknown_group_error(name, group_names(admin))
    return view


def unknown_group_error(name: str, names: list[str]) -> ApiError:
    hint = suggest_names(name, names, "see `barnabas groups list`")
    return ErrorWithHint(
        ApiError(ErrorCode.GROUP_ID_NOT_FOUND), f"there is no group {name!r}", hint
    )


def reject_if_active(view: GroupView, why: str) -> None:
    """Raise NON_EMPTY_GROUP, with the members in the hint, if the group is not empty.

    error: NON_EMPTY_GROUP: group billing is Stable with 2 members: only a group without members can be deleted
    hint:  stop its consumers (barnabas at 10.0.0.7, loader at 10.0.0.8), then run this again; …
    """
    if not view.is_active:
        return
    names = [f"{member.client_id or member.member_id} at {member.host}" for member in view.members]
    shown = ", ".join(dict.fromkeys(names[:MEMBERS_SHOWN_MAX]))
    more = ", …" if len(names) > MEMBERS_SHOWN_MAX else ""
    consumers = f" ({shown}{more})" if names else ""
    members = plural(len(view.members), "member")
    raise ErrorWithHint(
        ApiError(ErrorCode.NON_EMPTY_GROUP),
        f"group {view.group_id} is {view.state} with {members}: {why}",
        f"stop its consumers{consumers}, then run this again; "
        # Quoted for the shell: users paste this command, and any client can choose a group name.
        f"`barnabas groups describe {quote(view.group_id)}{servers_hint()} --watch` shows the remaining members",
    )
