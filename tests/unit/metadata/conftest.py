"""What a broker does with its registry is tested on every kind of it."""

from tests.contract.registry.conftest import registry

__all__ = ("registry",)
