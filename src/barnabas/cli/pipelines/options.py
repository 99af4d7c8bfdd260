"""Options of the commands that run a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from barnabas.cli.connection import connection_options, find_security
from barnabas.cli.options import master_option, timeout_option
from barnabas.errors import ConfigError
from barnabas.pipelines.dependencies import check_packages
from barnabas.pipelines.project import find_spec, load_spec
from barnabas.pipelines.runner import RunOptions
from barnabas.spark.launcher import BOOTSTRAP_SERVERS

spec_argument = click.argument(
    "spec", metavar="[SPEC|DIR]", default=Path(), type=click.Path(path_type=Path)
)
remote_option = click.option(
    "--remote", metavar="sc://HOST:PORT", help="Use a running Spark Connect server."
)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument SPEC, and the options for Spark and the cluster."""
    for option in (timeout_option, connection_options, remote_option, master_option, spec_argument):
        command = option(command)
    return command


def run_options(
    spec: Path,
    *,
    log: Callable[[str], Path],
    bootstrap_servers: str,
    master: str | None,
    remote: str | None,
    timeout_s: float,
    **more: Any,
) -> RunOptions:
    """Load the pipeline file, and choose the brokers: from -b, else from the file, else the default of all commands."""
    check_packages()
    if master is not None and remote is not None:
        raise ConfigError("--remote", "cannot be combined with --master; the server has a master")
    path = find_spec(spec)
    loaded = load_spec(path)
    context = click.get_current_context()
    is_given = context.get_parameter_source("bootstrap_servers") is ParameterSource.COMMANDLINE
    in_file = loaded.configuration.get(BOOTSTRAP_SERVERS)
    servers = bootstrap_servers if is_given or in_file is None else in_file
    return RunOptions(
        spec_path=path,
        spec=loaded,
        servers=servers,
        security=find_security(servers, context),
        log=log(loaded.name),
        master=master,
        remote=remote,
        timeout_s=timeout_s,
        **more,
    )
