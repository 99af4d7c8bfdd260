"""The pytest plugin under its public name (entry point `pytest11`); see cluster/pytest_plugin.py."""

from barnabas.cluster.pytest_plugin import (
    TopicFactory,
    _barnabas_log,
    _barnabas_pool,
    barnabas_cluster,
    barnabas_fresh_cluster,
    barnabas_session_cluster,
    barnabas_topic,
    barnabas_topics,
    pytest_addoption,
    pytest_configure,
    pytest_generate_tests,
    pytest_runtest_makereport,
    pytest_runtest_setup,
)

__all__ = [
    "TopicFactory",
    "_barnabas_log",
    "_barnabas_pool",
    "barnabas_cluster",
    "barnabas_fresh_cluster",
    "barnabas_session_cluster",
    "barnabas_topic",
    "barnabas_topics",
    "pytest_addoption",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
]
