"""SCRAM credentials of users in kafka-configs, with Kafka's output: --add-config 'SCRAM-SHA-256=[password=…]'.

With --bootstrap-server, requests change them. With --zookeeper, znodes: so a cluster whose brokers log in with SCRAM
gets its first users. Output never has the stored values, since they are secrets too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import SystemRandom

from barnabas.cli.kafka.failures import RequestRejected, error_message, exception_name
from barnabas.cli.terminal.output import print_lines
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import NewPassword, UserAdmin
from barnabas.errors import ApiError
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS
from barnabas.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    check_new_password,
    create_credential,
    format_credential,
)

CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
SECRET = re.compile(r"(password=).*", re.DOTALL)
HIDDEN = r"\1[hidden]"
ADD_CONFIG = "--add-config"


def hide_passwords(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command for an error message, without passwords and all values of --add-config.

    >>> hide_passwords(["--alter", "--add-config", "SCRAM-SHA-256=[password=secret]"])
    ['--alter', '--add-config', '[hidden]']
    >>> hide_passwords(["--add-config=ssl.keystore.password=secret"])
    ['--add-config=[hidden]']
    """
    shown = []
    is_value = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        # Kafka accepts abbreviations.
        is_added = option.startswith("--add") and ADD_CONFIG.startswith(option)
        if is_value:
            shown.append("[hidden]")
        elif is_added and equals:
            shown.append(f"{option}=[hidden]")
        else:
            shown.append(SECRET.sub(HIDDEN, argument))
        is_value = is_added and not equals and not is_value
    return shown


def describe_scram(cluster: Cluster, names: Sequence[str]) -> None:
    """Print the credentials of these users, or of all."""
    for user, found in sorted(UserAdmin(cluster).describe_users(names).items()):
        if isinstance(found, ApiError):
            name = exception_name(found)
            why = f"ExecutionException: {name}: {error_message(found)}"
            print_lines(
                f"Error retrieving SCRAM credential configs for user-principal '{user}': {why}"
            )
        else:
            infos = ", ".join(f"{each.mechanism}=iterations={each.iterations}" for each in found)
            print_lines(f"SCRAM credential configs for user-principal '{user}' are {infos}")


def alter_scram(
    cluster: Cluster, user: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set and delete credentials of a user. Raises RequestRejected and ApiError."""
    random = SystemRandom()
    passwords = []
    for mechanism, text in added.items():
        iterations, password = parse_credential(mechanism, text)
        passwords.append(NewPassword(user, mechanism, password, random, iterations))
    admin = UserAdmin(cluster)
    errors = admin.alter_credentials(passwords, [(user, mechanism) for mechanism in deleted])
    for error in errors.values():
        if error is not None:
            raise error


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """Return the iterations and the password. The message does not repeat the text, since it has the password."""
    found = CREDENTIAL.fullmatch(text)
    if found is None or not found[2]:
        raise RequestRejected(
            f"Invalid credential property {mechanism}; write [iterations=8192,password=...]"
        )
    try:
        check_new_password(found[2])
    except ValueError as error:
        raise RequestRejected(f"Invalid credential property {mechanism}: {error}") from None
    iterations = ITERATIONS_MIN if found[1] in (None, "-1", "") else int(found[1])
    if iterations > ITERATIONS_MAX:
        raise RequestRejected(
            f"Iterations {iterations} is greater than the maximum {ITERATIONS_MAX} for {mechanism}"
        )
    if iterations < ITERATIONS_MIN:
        raise RequestRejected(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for"
            f" {mechanism}"
        )
    return iterations, found[2]


def stored_credentials(added: Mapping[str, str]) -> dict[str, str]:
    """Return new settings of a user with the stored form of each password. Takes milliseconds."""
    random = SystemRandom()
    stored = dict(added)
    for name in filter(is_scram, added):
        iterations, password = parse_credential(name, added[name])
        stored[name] = format_credential(create_credential(name, password, random, iterations))
    return stored


def shown_value(name: str, value: str) -> str:
    """Return the value of a setting of a user, for output: of a credential only the iterations."""
    if not is_scram(name):
        return value
    found = re.search(r"iterations=\d+", value)
    return found[0] if found else "[hidden]"


def is_scram(name: str) -> bool:
    return name in SCRAM_MECHANISMS
