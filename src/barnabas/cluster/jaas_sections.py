"""The JAAS file of a broker process: the file that KAFKA_OPTS names with -Djava.security.auth.login.config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from barnabas.config import BrokerConfig
from barnabas.security.jaas_file import jaas_path, java_properties, read_sections


def with_jaas_sections(
    config: BrokerConfig, environment: Mapping[str, str] = os.environ
) -> BrokerConfig:
    """Return the config with the sections of the JAAS file, if there is one. Raises ConfigError."""
    properties = java_properties(environment)
    path = jaas_path(properties)
    if path is None:
        return config
    return replace(config, jaas_sections=read_sections(path, read_text, properties))


def read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
