"""`barnabas profile`: keep connections under names, and choose the one that commands use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.options import (
    SERVERS_VARIABLE,
    completions,
    default_servers,
    dry_run_option,
    output_option,
)
from barnabas.cli.setup.profiles import (
    Profiles,
    check_profile_name,
    profile_in_use,
    profiles_path,
    read_profiles,
    unknown_profile_text,
    write_profiles,
)
from barnabas.cli.terminal.output import OutputFormat, format_table, show
from barnabas.errors import BarnabasError, ConfigError


def complete_profiles(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    try:
        return completions(sorted(read_profiles(profiles_path()).servers), incomplete)
    except BarnabasError:
        return []


@click.group("profile")
def profile() -> None:
    """Keep connections under names. A command uses -b, else $BARNABAS_BOOTSTRAP_SERVERS, else the profile."""


@profile.command("create")
@click.argument("name")
@click.option(
    "-b", "--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="Bootstrap brokers."
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Kafka client settings for TLS and logins. The file itself is not copied.",
)
@click.option("--use", is_flag=True, help="Use the profile from now on. The first one always is.")
@click.option("--replace", is_flag=True, help="Replace an existing profile.")
@dry_run_option
@output_option
def create_profile(
    name: str,
    bootstrap_servers: str,
    command_config: Path | None,
    use: bool,
    replace: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Create profile NAME.

    Example: barnabas profile create staging -b kafka1:9092,kafka2:9092 --use
    """
    from barnabas.client.cluster import parse_addresses
    from barnabas.security.client_sources import load_security

    check_profile_name(name)
    parse_addresses(bootstrap_servers)
    found = read_profiles(profiles_path())
    if name in found.servers and not replace:
        raise ConfigError("NAME", f"profile {name} exists; to replace it, add --replace")
    current = name if use or not found.servers else found.current
    configs = {each: file for each, file in found.configs.items() if each != name}
    if command_config is not None:
        load_security(command_config)
        configs[name] = str(command_config.absolute())
    save(Profiles({**found.servers, name: bootstrap_servers}, current, configs), dry_run)
    document = {
        "profile": name,
        "bootstrap_servers": bootstrap_servers,
        "command_config": configs.get(name),
        "current": current == name,
        "dry_run": dry_run,
    }
    show(output, document, lambda shown: changed_text("create", shown))


@profile.command("use")
@click.argument("name", shell_complete=complete_profiles)
@dry_run_option
@output_option
def use_profile(name: str, dry_run: bool, output: OutputFormat) -> None:
    """Use profile NAME in all commands from now on."""
    found = read_profiles(profiles_path())
    require_profile(name, found)
    save(found._replace(current=name), dry_run)
    document = {
        "profile": name,
        "bootstrap_servers": found.servers[name],
        "current": True,
        "dry_run": dry_run,
    }
    show(output, document, lambda shown: changed_text("use", shown))


@profile.command("list")
@output_option
def list_profiles(output: OutputFormat) -> None:
    """List the profiles."""
    path = profiles_path()
    found = read_profiles(path)
    document = {
        "file": str(path),
        "current": found.current,
        "profiles": [
            {
                "profile": name,
                "bootstrap_servers": servers,
                "command_config": found.configs.get(name),
                "current": name == found.current,
            }
            for name, servers in sorted(found.servers.items())
        ],
    }
    show(output, document, profile_table)


@profile.command("show")
@output_option
def show_profile(output: OutputFormat) -> None:
    """Show the profile in use, and the brokers that commands connect to."""
    found = profile_in_use()
    document = {
        "profile": None if found is None else found.name,
        "selected_by": None if found is None else found.source,
        "profile_servers": None if found is None else found.servers,
        "bootstrap_servers": default_servers(),
        "command_config": None if found is None else found.command_config,
        "file": str(profiles_path()),
    }
    show(output, document, profile_text)


@profile.command("delete")
@click.argument("name", shell_complete=complete_profiles)
@dry_run_option
@output_option
def delete_profile(name: str, dry_run: bool, output: OutputFormat) -> None:
    """Delete profile NAME. If it is in use, no profile is in use afterwards."""
    found = read_profiles(profiles_path())
    require_profile(name, found)
    left = {each: servers for each, servers in found.servers.items() if each != name}
    configs = {each: file for each, file in found.configs.items() if each != name}
    save(Profiles(left, None if found.current == name else found.current, configs), dry_run)
    document = {
        "profile": name,
        "bootstrap_servers": found.servers[name],
        "current": False,
        "dry_run": dry_run,
    }
    show(output, document, lambda shown: changed_text("delete", shown))


def require_profile(name: str, found: Profiles) -> None:
    if name not in found.servers:
        raise ConfigError("NAME", unknown_profile_text(name, found))


def save(profiles: Profiles, dry_run: bool) -> None:
    if not dry_run:
        write_profiles(profiles_path(), profiles)


def changed_text(verb: str, document: dict[str, Any]) -> str:
    past = {"create": "created", "use": "now in use:", "delete": "deleted"}[verb]
    name, servers = document["profile"], document["bootstrap_servers"]
    line = f"would {verb} profile {name}" if document["dry_run"] else f"{past} profile {name}"
    in_use = ", in use" if document["current"] and verb == "create" else ""
    return f"{line} ({servers}){in_use}"


def profile_table(document: dict[str, Any]) -> str:
    if not document["profiles"]:
        return "no profiles yet; create one with `barnabas profile create NAME -b HOST:PORT`"
    rows = [
        [
            "*" if each["current"] else "",
            each["profile"],
            each["bootstrap_servers"],
            each["command_config"] or "",
        ]
        for each in document["profiles"]
    ]
    return format_table(["", "profile", "bootstrap servers", "client settings"], rows)


def profile_text(document: dict[str, Any]) -> str:
    servers = document["bootstrap_servers"]
    if document["profile"] is None:
        return f"no profile is in use; commands connect to {servers}"
    line = f"profile {document['profile']}: {document['profile_servers']}"
    line = f"{line}, selected by {document['selected_by']}"
    if servers == document["profile_servers"]:
        return line
    return f"{line}\n{SERVERS_VARIABLE} takes precedence: commands connect to {servers}"
