"""Objects of classes that an operator writes and names in a setting: policies and authorizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from barnabas.errors import ConfigError, reason


def create_plugin(
    setting: str, what: str, properties: Mapping[str, str], *, name: str, group: str, method: str
) -> Any:
    """Create the object, and call its `configure` if it has one. `what` is its kind: `policy`. Raises ConfigError."""
    try:
        plugin = find_class(setting, name, group)()
        configure = getattr(plugin, "configure", None)
        if configure is not None:
            configure(dict(properties))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(setting, f"cannot create {what} '{name}': {reason(error)}") from error
    if not callable(getattr(plugin, method, None)):
        raise ConfigError(setting, f"{what} '{name}' has no method {method}")
    return plugin


def find_class(setting: str, name: str, group: str) -> Callable[[], Any]:
    """Find a class by `module:Class`, or by the name of an entry point in a group."""
    module, colon, attribute = name.partition(":")
    if colon:
        found = getattr(import_module(module), attribute)
    else:
        from importlib.metadata import entry_points  # slow to import, and rarely needed

        named = entry_points(group=group, name=name)
        if not named:
            why = f"no entry point '{name}' in group {group}; write module:Class for a class"
            raise ConfigError(setting, why)
        found = next(iter(named)).load()
    if not isinstance(found, type):
        raise ConfigError(setting, f"'{name}' is not a class")
    return found
