"""Wording for lists of brokers. The diagnosis of topics is in barnabas.explain."""

from __future__ import annotations

from barnabas.explain.wording import brokers_are, join_with_and, name_brokers

__all__ = ("brokers_are", "join_with_and", "name_brokers")
