"""`barnabas kafka-acls`: the options, requests and output of Kafka's command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.kafka.acl_options import (
    ABOUT,
    OPTIONS,
    check_options,
    list_filters,
    parse_principals,
    wanted_entries,
)
from barnabas.cli.kafka.command import (
    FAILED,
    OK,
    KafkaCommand,
    connect_client,
    print_hint,
    run_kafka_command,
)
from barnabas.cli.kafka.failures import (
    InvalidCommandLine,
    WrongUsage,
    error_message,
    exception_name,
)
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.terminal.output import answers_yes, print_lines
from barnabas.client.acl_admin import AclAdmin
from barnabas.errors import ApiError, BarnabasError
from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.model import AccessControlEntry, Acl, PatternType, ResourcePattern


@click.command("kafka-acls", cls=KafkaCommand)
def kafka_acls(arguments: Sequence[str]) -> None:
    code = run_kafka_command(arguments, known=OPTIONS, about=ABOUT, brief=ABOUT, run=run_and_report)
    raise click.exceptions.Exit(code)


def run_and_report(options: ParsedOptions) -> int:
    """Kafka's command prints errors on standard output, except wrong usage."""
    try:
        check_options(options)
        with connect_client(options) as cluster:
            run(AclAdmin(cluster), options)
    except (InvalidCommandLine, WrongUsage):
        raise
    except BarnabasError as error:
        print_lines(f"Error while executing ACL command: {error_message(error)}")
        print_lines(f"{exception_name(error)}: {error_message(error)}")
        print_hint(error)
        return FAILED
    return OK


def run(admin: AclAdmin, options: ParsedOptions) -> None:
    if options.has("add"):
        add(admin, options)
    elif options.has("remove"):
        remove(admin, options)
    else:
        show_acls(admin, options)


def add(admin: AclAdmin, options: ParsedOptions) -> None:
    entries = wanted_entries(options)
    for wanted in entries:
        if wanted.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            why = f"A '--resource-pattern-type' value of '{wanted.pattern.name}' is not valid"
            raise WrongUsage(f"{why} when adding acls.")
    if not all(entries.values()):
        raise WrongUsage(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    for wanted, found in entries.items():
        assert wanted.name is not None, "options name every resource"
        pattern = ResourcePattern(wanted.type, wanted.name, wanted.pattern)
        print_entries(f"Adding ACLs for resource `{pattern_text(wanted)}`: ", found)
        raise_first(admin.create_acls([Acl(pattern, entry) for entry in found]))


def remove(admin: AclAdmin, options: ParsedOptions) -> None:
    for wanted, found in wanted_entries(options).items():
        place = f"resource filter `{pattern_text(wanted)}`"
        if found:
            lines = [" ", *(f" \t{entry_text(each)}" for each in found)]
            question = [
                "Are you sure you want to remove ACLs: ",
                *lines[1:],
                f" from {place}? (y/n)",
            ]
        else:
            question = [f"Are you sure you want to delete all ACLs for {place}? (y/n)"]
        if not options.has("force"):
            print_lines(*question, keep="\t")
            if not answers_yes():
                continue
        filters = [AclFilter(wanted, EntryFilter(*each)) for each in found]
        for deleted in admin.delete_acls(filters or [AclFilter(wanted)]):
            raise_first([each.error for each in deleted])


def show_acls(admin: AclAdmin, options: ParsedOptions) -> None:
    found: dict[Acl, None] = {}
    for wanted in list_filters(options) or [PatternFilter()]:
        found.update(dict.fromkeys(admin.describe_acls(AclFilter(wanted))))
    principals = parse_principals(options, "principal")
    if not principals:
        print_by_resource(list(found))
    for principal in principals:
        print_lines(f"ACLs for principal `{principal}`")
        print_by_resource([acl for acl in found if acl.entry.principal == principal])


def print_by_resource(acls: Sequence[Acl]) -> None:
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for acl in acls:
        by_pattern.setdefault(acl.pattern, []).append(acl.entry)
    for pattern, entries in by_pattern.items():
        text = pattern_text(PatternFilter(*pattern))
        print_entries(f"Current ACLs for resource `{text}`: ", entries)


def print_entries(head: str, entries: Sequence[AccessControlEntry]) -> None:
    """Print the lines with the blanks that Kafka's command prints."""
    texts = [f"\t{entry_text(each)}" for each in entries] or [""]
    texts[0] = f" {texts[0]}"
    texts[-1] = f"{texts[-1]} "
    print_lines(head, *texts, "", keep="\t")


def entry_text(entry: AccessControlEntry) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})"
    )


def pattern_text(pattern: PatternFilter) -> str:
    name = "<any>" if pattern.name is None else pattern.name
    kind, form = pattern.type.name, pattern.pattern.name
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={form})"


def raise_first(errors: Sequence[ApiError | None]) -> None:
    for error in errors:
        if error is not None:
            raise error
