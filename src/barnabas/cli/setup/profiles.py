"""Profiles: named connections in one TOML file, and the profile in use.

    current = "dev"

    [profiles.dev]
    bootstrap-servers = "localhost:9092"

    [profiles.prod]
    bootstrap-servers = "kafka1:9093"
    command-config = "/home/alice/prod.properties"

The file is `barnabas/profiles.toml` in $XDG_CONFIG_HOME, which is ~/.config by default. $BARNABAS_PROFILE selects a
profile for one process. An option comes before the environment, and the environment before the profile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.errors import ConfigError

PROFILE_VARIABLE = "BARNABAS_PROFILE"
SERVERS_KEY = "bootstrap-servers"
CONFIG_KEY = "command-config"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Profiles(NamedTuple):
    """The contents of the file: profile → bootstrap servers, and the name of the profile in use.

    `configs` are the files with the client settings of some profiles.
    """

    servers: Mapping[str, str]
    current: str | None = None
    configs: Mapping[str, str] = {}


class ProfileInUse(NamedTuple):
    """The profile that commands use. `source` is the file or the environment variable that selects it."""

    name: str
    servers: str
    source: str
    command_config: str | None = None


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or ""
    # The XDG specification says to ignore relative paths.
    root = Path(base) if base.startswith("/") else Path.home() / ".config"
    return root / "barnabas" / "profiles.toml"


def profile_in_use(environment: Mapping[str, str] = os.environ) -> ProfileInUse | None:
    """Return the profile in use, or None. Raises ConfigError for an unknown profile and for an invalid file."""
    path = profiles_path(environment)
    chosen = environment.get(PROFILE_VARIABLE)
    if not chosen and not os.access(path, os.F_OK):
        return None
    found = read_profiles(path)
    name = chosen or found.current
    if not name:
        return None
    source = PROFILE_VARIABLE if chosen else str(path)
    if name not in found.servers:
        raise ConfigError(source, unknown_profile_text(name, found))
    return ProfileInUse(name, found.servers[name], source, found.configs.get(name))


def unknown_profile_text(name: str, found: Profiles) -> str:
    known = ", ".join(sorted(found.servers)) or "none"
    return f"there is no profile {name!r}; existing profiles: {known}"


def read_profiles(path: Path) -> Profiles:
    """Return the profiles; none if the file does not exist. Raises ConfigError."""
    import tomllib

    try:
        return parse_profiles(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError:
        return Profiles({})
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(str(path), f"cannot be read: {why}") from None


def parse_profiles(document: Mapping[str, Any], place: str) -> Profiles:
    """Raises ConfigError for anything that is not as in the module's example."""

    def reject(key: str, why: str) -> ConfigError:
        return ConfigError(place, f"{key}: {why}")

    for key in document.keys() - {"current", "profiles"}:
        raise reject(key, "unknown key; expected current or profiles")
    current = document.get("current")
    tables = document.get("profiles", {})
    if current is not None and not isinstance(current, str):
        raise reject("current", "is not the name of a profile")
    if not isinstance(tables, dict):
        raise reject("profiles", "is not a table; write [profiles.NAME]")
    servers, configs = {}, {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get(SERVERS_KEY), str):
            raise reject(f"profiles.{name}", f'needs {SERVERS_KEY} = "HOST:PORT"')
        for key in table.keys() - {SERVERS_KEY, CONFIG_KEY}:
            expected = f"{SERVERS_KEY} or {CONFIG_KEY}"
            raise reject(f"profiles.{name}.{key}", f"unknown key; expected {expected}")
        servers[name] = table[SERVERS_KEY]
        if CONFIG_KEY in table:
            if not isinstance(table[CONFIG_KEY], str):
                raise reject(f"profiles.{name}.{CONFIG_KEY}", "is not the path of a file")
            configs[name] = table[CONFIG_KEY]
    return Profiles(servers, current, configs)


def format_profiles(profiles: Profiles) -> str:
    """Return the file. Names and servers are printable, so JSON strings are valid TOML strings."""
    from barnabas.cli.terminal.output import to_json

    lines = ["# Written by `barnabas profile`. Comments are not kept."]
    if profiles.current is not None:
        lines.append(f"current = {to_json(profiles.current)}")
    for name, servers in sorted(profiles.servers.items()):
        lines += ["", f"[profiles.{to_json(name)}]", f"{SERVERS_KEY} = {to_json(servers)}"]
        if name in profiles.configs:
            lines.append(f"{CONFIG_KEY} = {to_json(profiles.configs[name])}")
    return "\n".join(lines) + "\n"


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the file. A crash leaves the old or the new file. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(format_profiles(profiles), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from None


def check_profile_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise ConfigError("NAME", f"{name!r} is not a name of 1 to 64 letters, digits, - or _")
