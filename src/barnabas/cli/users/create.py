"""`barnabas users create`: a user with a password, which is typed, read from a file, or generated."""

from __future__ import annotations

import sys
from pathlib import Path
from random import SystemRandom
from secrets import token_urlsafe
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, is_encodable
from barnabas.cli.terminal.output import OutputFormat, prompt_password, show
from barnabas.cli.users.lookup import find_credentials
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import NewPassword, UserAdmin
from barnabas.errors import ConfigError
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS, SCRAM_SHA_512
from barnabas.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, check_new_password

GENERATED_BYTES = 24
PASSWORD_BYTES_MAX = 4096


@click.command("create")
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
    multiple=True,
    default=(SCRAM_SHA_512,),
    show_default=True,
    help="Mechanism of the logins; repeatable.",
)
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read the password from the first line of FILE; - is standard input.",
)
@click.option("--generate", is_flag=True, help="Generate a password, and print it once.")
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    help="Iterations of the hash.",
)
@click.option("--replace", is_flag=True, help="Set a new password for an existing user.")
@dry_run_option
@cluster_command
def create_user(
    cluster: Cluster,
    name: str,
    mechanisms: tuple[str, ...],
    password_file: Path | None,
    generate: bool,
    iterations: int,
    replace: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Create user NAME, who logs in with SCRAM. The password is asked for, unless an option gives it.

    \b
    barnabas users create alice
    barnabas users create alice --generate -o json
    """
    if not name or not is_encodable(name):
        raise ConfigError("NAME", "a user name has at least one character, in UTF-8")
    wanted = tuple(dict.fromkeys(mechanisms))
    admin = UserAdmin(cluster)
    present = {info.mechanism for info in find_credentials(admin, name) or ()}
    if (existing := present & set(wanted)) and not replace:
        why = f"user {name} has a password for {', '.join(sorted(existing))}"
        raise ConfigError("NAME", f"{why}; to set a new one, add --replace")
    password = "" if dry_run else read_password(name, password_file, generate=generate)
    if not dry_run:
        random = SystemRandom()
        errors = admin.alter_credentials(
            NewPassword(name, mechanism, password, random, iterations) for mechanism in wanted
        )
        for error in errors.values():
            if error is not None:
                raise error
    document = {
        "user": name,
        "mechanisms": list(wanted),
        "iterations": iterations,
        "replaced": bool(existing),
        "dry_run": dry_run,
        "password": password if generate and not dry_run else None,
    }
    show(output, document, created_text)


def read_password(name: str, file: Path | None, *, generate: bool) -> str:
    """Return the new password. Raises ConfigError if it cannot be read or used."""
    if generate and file is not None:
        raise ConfigError("--generate", "cannot be combined with --password-file")
    if generate:
        return token_urlsafe(GENERATED_BYTES)
    option = "password" if file is None else "--password-file"
    password = prompt_password(f"Password of {name}") if file is None else read_first_line(file)
    try:
        check_new_password(password)
    except ValueError as error:
        raise ConfigError(option, str(error)) from None
    return password


def read_first_line(file: Path) -> str:
    """Return the first line without its end. Raises ConfigError, also for more than PASSWORD_BYTES_MAX bytes."""
    limit = PASSWORD_BYTES_MAX + len("\r\n")
    try:
        if str(file) == "-":
            line = sys.stdin.buffer.readline(limit)
        else:
            with file.open("rb") as opened:
                line = opened.readline(limit)
        line = line.rstrip(b"\r\n")
        if len(line) > PASSWORD_BYTES_MAX:
            why = f"the first line of {file} has more than {PASSWORD_BYTES_MAX} bytes"
            raise ConfigError("--password-file", f"{why}; use a shorter password")
        return line.decode()
    except UnicodeDecodeError:
        raise ConfigError("--password-file", f"{file} is not UTF-8") from None
    except OSError as error:
        raise ConfigError("--password-file", f"cannot read {file}: {error.strerror}") from None


def created_text(document: dict[str, Any]) -> str:
    name, mechanisms = document["user"], ", ".join(document["mechanisms"])
    if document["dry_run"]:
        verb = "would replace the password of" if document["replaced"] else "would create"
        return f"{verb} user {name} ({mechanisms})"
    verb = "replaced the password of" if document["replaced"] else "created"
    line = f"{verb} user {name} ({mechanisms})"
    if document["password"] is None:
        return line
    return f"{line}\npassword: {document['password']}\nKeep it: it is not stored and cannot be shown again."
