"""`barnabas doctor`: check this machine, and say what to fix."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import click

import barnabas
from barnabas.cli.options import output_option
from barnabas.cli.registry.source import DEFAULT_DATA_DIRECTORY
from barnabas.cli.setup.checks import (
    Check,
    CheckState,
    check_code,
    check_descriptors,
    check_disk,
    check_package,
    check_port,
    ok,
    problem,
    warning,
)
from barnabas.cli.setup.profiles import profile_in_use
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.exit_codes import FAILED
from barnabas.cli.terminal.output import OutputFormat, show, wrap_around_commands
from barnabas.errors import BarnabasError, ConfigError, reason

BROKER_TIMEOUT_S = 1.0
STATE_STYLES = {
    CheckState.OK.value: Style.GOOD,
    CheckState.WARNING.value: Style.WARNING,
    CheckState.PROBLEM.value: Style.BAD,
}


@click.command("doctor")
@click.option(
    "--data",
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    metavar="DIR",
    help="Data directory whose disk is checked.",
)
@click.option(
    "--port",
    "ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    default=[9092],
    show_default=True,
    help="Port for a broker; repeatable.",
)
@output_option
def doctor(data: str, ports: Sequence[int], output: OutputFormat) -> None:
    """Check this machine: Python, Java, packages, ports, limits and disk space. Exits with 1 on a problem."""
    checks = list(run_checks(data, ports))
    document = {
        "problems": sum(each.state is CheckState.PROBLEM for each in checks),
        "warnings": sum(each.state is CheckState.WARNING for each in checks),
        "checks": [
            {"check": each.name, "state": each.state.value, "text": each.text, "fix": each.fix}
            for each in checks
        ],
    }
    show(output, document, doctor_text)
    if document["problems"]:
        raise click.exceptions.Exit(FAILED)


def run_checks(data: str, ports: Sequence[int]) -> Iterator[Check]:
    yield ok("python", f"{platform.python_version()} ({platform.machine()})")
    mode = barnabas.code_mode
    yield check_code(
        barnabas.__version__,
        is_compiled=mode.is_compiled,
        is_stale=mode.is_stale,
        reason=mode.reason,
    )
    yield check_java()
    yield check_package(
        "pyspark",
        package_version("pyspark"),
        purpose="needed for sql, spark, pipeline and jobs over topics",
        install="pip install 'barnabas[spark]'",
    )
    yield check_package(
        "librdkafka",
        librdkafka_version(),
        purpose="used only by other clients on this machine",
        install="pip install confluent-kafka",
    )
    for port in dict.fromkeys(ports):
        is_free = can_listen(port)
        yield check_port(port, is_free=is_free, has_broker=not is_free and has_broker(port))
    yield check_descriptors(descriptor_limit())
    yield check_data_directory(data)
    yield check_profile()


def check_java() -> Check:
    from barnabas.java.find import HOW_TO_INSTALL, find_java

    try:
        found = find_java("Spark")
    except ConfigError as error:
        fix = f"Spark and ZooKeeper {HOW_TO_INSTALL}; brokers need no Java"
        return warning("java", error.why.partition(f"; Spark {HOW_TO_INSTALL}")[0], fix)
    return ok("java", f"{found.version} in {found.home}")


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def librdkafka_version() -> str | None:
    try:
        from confluent_kafka import libversion
    except ImportError:
        return None
    return f"{libversion()[0]}, in confluent-kafka {package_version('confluent-kafka')}"


def can_listen(port: int) -> bool:
    """Return whether a broker could listen on this port of the loopback interface now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(1)
        except OSError:
            return False
    return True


def has_broker(port: int) -> bool:
    from barnabas.client.cluster import Cluster

    try:
        with Cluster(f"127.0.0.1:{port}", timeout_s=BROKER_TIMEOUT_S) as cluster:
            cluster.refresh([])
    except BarnabasError:
        return False
    return True


def descriptor_limit() -> int | None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def check_data_directory(data: str) -> Check:
    """Check the disk of the directory, or of the nearest parent that exists."""
    path = Path(data).absolute()
    while not os.access(path, os.F_OK):
        path = path.parent
    if not os.access(path, os.W_OK | os.X_OK):
        return problem("disk", f"{path} is not writable", "choose another directory with --data")
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        return problem("disk", f"{path}: {reason(error)}", "choose another directory with --data")
    return check_disk(str(path), usage.free, usage.total)


def check_profile() -> Check:
    try:
        found = profile_in_use()
    except ConfigError as error:
        return problem("profile", str(error), "correct the file, or delete it")
    return ok("profile", "none" if found is None else f"{found.name} ({found.servers})")


def doctor_text(document: dict[str, Any]) -> str:
    width = max(len(each["check"]) for each in document["checks"])
    lines = []
    for each in document["checks"]:
        state = paint(each["state"].ljust(8), STATE_STYLES[each["state"]])
        line = f"{state} {each['check'].ljust(width)}  {each['text']}"
        lines.append(wrap_around_commands(line, indent=width + 11))
        if each["fix"]:
            fix = f"{' ' * (width + 11)}fix: {each['fix']}"
            lines.append(wrap_around_commands(fix, indent=width + 16))
    return "\n".join(lines)
