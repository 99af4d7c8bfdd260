"""The packages that pipelines need beyond those of Spark: the extra `pipelines`."""

from __future__ import annotations

import importlib.util

from barnabas.errors import ConfigError

MODULES = {
    "pyspark": "pyspark",
    "yaml": "PyYAML",
    "pandas": "pandas",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
    "pyspark.pipelines": "pyspark 4.2",
}
"""Module → package. PySpark's Connect client refuses to start without one of them."""


def check_packages() -> None:
    """Raise ConfigError if a package is not installed."""
    missing = [package for module, package in MODULES.items() if not is_installed(module)]
    if missing:
        why = f"{', '.join(missing)} not installed; run: pip install 'barnabas[pipelines]'"
        raise ConfigError("pipelines", why)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
