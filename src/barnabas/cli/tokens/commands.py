"""`barnabas tokens`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

tokens = LazyGroup(
    "tokens",
    help="Create, list, renew and expire delegation tokens.",
    modules={
        "create": "barnabas.cli.tokens.create:create_token",
        "expire": "barnabas.cli.tokens.expire:expire_token",
        "list": "barnabas.cli.tokens.list:list_tokens",
        "renew": "barnabas.cli.tokens.renew:renew_token",
    },
)
