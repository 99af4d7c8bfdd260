"""Options that the definitions of a pipeline get, and passwords among them. Pure.

Options are part of the plans that the command sends to the Spark Connect server.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ConfigError
from barnabas.security.client_settings import SECRET_SETTINGS
from barnabas.spark.client_settings import BOOTSTRAP, PREFIX
from barnabas.spark.security_options import CLIENT_CONFIG

SERVERS_OPTION = PREFIX + BOOTSTRAP


def added_options(client_options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the cluster that a source or a sink does not have. `given` has names in lower case.

    Options with brokers get none. With `clientConfig`, the security settings come from the file.
    """
    if SERVERS_OPTION in given:
        return {}
    if CLIENT_CONFIG.lower() in given:
        return {SERVERS_OPTION: client_options[SERVERS_OPTION]}
    return {name: value for name, value in client_options.items() if name not in given}


def check_secrets(options: Mapping[str, str], location: str) -> None:
    """Raise ConfigError if options have secrets. The connection to the server would not protect them."""
    secrets = [
        name
        for name, value in options.items()
        if value and name.removeprefix(PREFIX) in SECRET_SETTINGS
    ]
    if secrets:
        why = f"{', '.join(sorted(secrets))} would be sent to --remote without encryption"
        hint = f"put the settings into a file on the server and name it with the option {CLIENT_CONFIG}"
        raise ConfigError(location, f"{why}; {hint}, or add /;use_ssl=true to the address")
