"""CRC-32C, the checksum of record batches, from the package `crc32c`, without what that package loads beside it.

Its `__init__` asks `importlib.metadata` for its own version, which brings in zipfile, csv and the e-mail parser: a
tenth of the time in which a broker starts. The compiled module inside it is all we need; where it is not found under
its name, the package is imported the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def compiled_module() -> ModuleType | None:
    package = find_spec("crc32c")
    if package is None:
        return None
    found = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def load() -> Callable[..., int]:
    module = compiled_module()
    if module is None:
        import crc32c as package

        module = package
    function: Callable[..., int] = module.crc32c
    return function


crc32c: Callable[..., int] = load()
"""`crc32c(data, value=0)`: of any bytes-like object, going on from `value`."""
