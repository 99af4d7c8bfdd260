"""The checks of `barnabas doctor` as pure functions: facts in, a `Check` out."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from barnabas.byte_units import bytes_text
from barnabas.compiled import PURE_VARIABLE

DESCRIPTORS_NEEDED = 1024
DESCRIPTORS_RECOMMENDED = 65_536
DISK_NEEDED_BYTES = 500_000_000
DISK_RECOMMENDED_BYTES = 10_000_000_000


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(NamedTuple):
    """Result of a check. `fix` says what to do, and is empty if the state is ok."""

    name: str
    state: CheckState
    text: str
    fix: str = ""


def ok(name: str, text: str) -> Check:
    return Check(name, CheckState.OK, text)


def warning(name: str, text: str, fix: str) -> Check:
    return Check(name, CheckState.WARNING, text, fix)


def problem(name: str, text: str, fix: str) -> Check:
    return Check(name, CheckState.PROBLEM, text, fix)


def check_code(version: str, *, is_compiled: bool, is_stale: bool, reason: str) -> Check:
    """Check the code of Barnabas itself. `reason` says why it is interpreted."""
    if is_compiled:
        return ok("barnabas", f"{version}, compiled")
    if PURE_VARIABLE in reason:
        return warning("barnabas", f"{version}, interpreted: {reason}", f"unset {PURE_VARIABLE}")
    if is_stale:
        fix = "run `make compile`, or install the package again"
        return warning("barnabas", f"{version}, interpreted: {reason}", fix)
    fix = "install a C compiler and the package again; compiled code is several times faster"
    return warning("barnabas", f"{version}, interpreted: {reason}", fix)


def check_package(name: str, version: str | None, *, purpose: str, install: str) -> Check:
    """Check an optional package. It is no problem if it is missing."""
    if version is None:
        return ok(name, f"not installed; {purpose} (`{install}`)")
    return ok(name, version)


def check_descriptors(limit: int | None) -> Check:
    """Check the hard limit of open files. None means no limit. Brokers raise their soft limit to it."""
    name = "open files"
    if limit is None:
        return ok(name, "no limit")
    text = f"at most {limit:,}"
    fix = "raise it: `ulimit -n`, LimitNOFILE of a systemd unit, or /etc/security/limits.conf"
    if limit < DESCRIPTORS_NEEDED:
        return problem(name, f"{text}; a broker needs {DESCRIPTORS_NEEDED:,}", fix)
    if limit < DESCRIPTORS_RECOMMENDED:
        why = f"{text}; {DESCRIPTORS_RECOMMENDED:,} are enough for thousands of partitions and clients"
        return warning(name, why, fix)
    return ok(name, text)


def check_disk(path: str, free: int, total: int) -> Check:
    text = f"{bytes_text(free)} of {bytes_text(total)} free for {path}"
    fix = "free some space, or choose another directory with `barnabas up --data DIR`"
    if free < DISK_NEEDED_BYTES:
        return problem("disk", text, fix)
    return warning("disk", text, fix) if free < DISK_RECOMMENDED_BYTES else ok("disk", text)


def check_port(port: int, *, is_free: bool, has_broker: bool) -> Check:
    name = f"port {port}"
    if is_free:
        return ok(name, "free")
    if has_broker:
        return ok(name, "a broker answers")
    fix = "stop that program, or choose another port with `barnabas up --port`"
    return warning(name, "another program uses it", fix)
