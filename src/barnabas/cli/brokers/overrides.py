"""Parser for `--override KEY=VALUE`."""

from __future__ import annotations

from barnabas.errors import ConfigError


def parse_overrides(texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--override", f"'{text}' is not KEY=VALUE, as in num.partitions=3")
        settings[key.strip()] = value.strip()
    return settings
