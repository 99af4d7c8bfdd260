"""`barnabas configs`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

configs = LazyGroup(
    "configs",
    help="Describe, alter and reset settings of topics, brokers and loggers, and quotas of clients.",
    modules={
        "alter": "barnabas.cli.configs.alter:alter_configs",
        "describe": "barnabas.cli.configs.describe:describe_configs",
        "reset": "barnabas.cli.configs.reset:reset_configs",
    },
)
