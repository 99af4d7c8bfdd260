"""The pytest plugin under its public name (entry point `pytest11`); see cluster/pytest_plugin.py."""

from barnabas.cluster.pytest_plugin import (
    barnabas_cluster,
    barnabas_topic,
    pytest_addoption,
    pytest_configure,
)

__all__ = ["barnabas_cluster", "barnabas_topic", "pytest_addoption", "pytest_configure"]
