"""Groups of commands that import a command only when it is run or its help is shown."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class UnknownCommand(click.UsageError):
    """There is no such command, but there are similar ones."""

    def __init__(self, message: str, similar: list[str], ctx: click.Context) -> None:
        super().__init__(message, ctx)
        self.possibilities = [repr(name) for name in similar]


class LazyGroup(click.Group):
    """Click group with a table of commands: name → `module:attribute`. Help lists them in the order of the table."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module, _, name = self.modules[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = get_close_matches(args[0], self.modules, n=1)
            if not near:
                raise
            raise UnknownCommand(f"no such command {args[0]!r}", near, ctx) from None
