"""`barnabas acls`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

acls = LazyGroup(
    "acls",
    help="Add, list and remove permissions (ACLs), and check which one decides.",
    modules={
        "add": "barnabas.cli.acls.add:add_acls",
        "check": "barnabas.cli.acls.check:check_access",
        "list": "barnabas.cli.acls.list:list_acls",
        "remove": "barnabas.cli.acls.remove:remove_acls",
    },
)
