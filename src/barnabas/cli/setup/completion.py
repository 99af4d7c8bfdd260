"""`barnabas completion`: print the script that makes a shell complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from barnabas.cli.terminal.output import print_lines

SHELLS = ("bash", "zsh", "fish")
COMPLETE_VARIABLE = "_BARNABAS_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    bash   echo 'eval "$(barnabas completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(barnabas completion zsh)"' >> ~/.zshrc
    fish   barnabas completion fish > ~/.config/fish/completions/barnabas.fish
    """
    print_lines(*completion_script(shell).rstrip("\n").split("\n"), keep="\t")


def completion_script(shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    # BashComplete.source would start a bash to check its version.
    return ShellComplete.source(found(root, {}, "barnabas", COMPLETE_VARIABLE))
