"""Fixtures: registry code is tested on every kind of registry."""

from tests.contract.registry.conftest import registry

__all__ = ("registry",)
