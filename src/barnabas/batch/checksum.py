"""CRC-32C, the checksum of record batches, from the package `crc32c`.

The `__init__` of that package imports `importlib.metadata`, which takes a tenth of the start time of a broker. So only
the compiled module of the package is loaded. If it is not found, the whole package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def load_compiled_module() -> ModuleType | None:
    package = find_spec("crc32c")
    if package is None:
        return None
    found = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def load_crc32c() -> Callable[..., int]:
    module = load_compiled_module()
    if module is None:
        import crc32c as package

        module = package
    function: Callable[..., int] = module.crc32c
    return function


crc32c: Callable[..., int] = load_crc32c()
"""`crc32c(data, value=0)`: checksum of a bytes-like object, continued from the checksum `value`."""
