"""`barnabas transactions`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

transactions = LazyGroup(
    "transactions",
    help="List, describe and abort transactions, find hanging ones, and show their history.",
    modules={
        "abort": "barnabas.cli.transactions.abort:abort_transaction_command",
        "describe": "barnabas.cli.transactions.describe:describe_transactions",
        "find-hanging": "barnabas.cli.transactions.find_hanging:find_hanging_transactions",
        "history": "barnabas.cli.history.coordinator_history:transaction_history",
        "list": "barnabas.cli.transactions.list:list_transactions",
    },
)
