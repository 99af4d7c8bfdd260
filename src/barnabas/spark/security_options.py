"""Security settings of a source or a sink that are not among its options: from a properties file or the environment.

They are read where Spark plans the query, on the driver, and reach the executors with the tasks. Plans, the user
interface and the event log do not contain settings of a file or of the environment. Options are different: those of a
SQL statement and of Spark Connect are part of plans. Spark hides their values by spark.redaction.regex.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.security.client_settings import is_security_setting, merge_settings
from barnabas.security.client_sources import read_environment, read_settings_file
from barnabas.spark.client_settings import PREFIX

CLIENT_CONFIG = "clientConfig"
"""Option with the path of a properties file."""


def add_security_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Add the settings of the file in `clientConfig`, or else of the environment. Raises ConfigError.

    Options have precedence over the file. The environment applies only if the options have no security settings.
    """
    others = {}
    given = {}
    path = None
    for option, value in options.items():
        name = option.lower()
        if name == CLIENT_CONFIG.lower():
            path = value.strip()
        elif name.startswith(PREFIX) and is_security_setting(name.removeprefix(PREFIX)):
            given[name.removeprefix(PREFIX)] = value
        else:
            others[option] = value
    if path is not None:
        found = merge_settings([read_settings_file(path), given])
    else:
        found = merge_settings([given]) if given else read_environment()
    return {**others, **{PREFIX + name: value for name, value in found.items()}}
