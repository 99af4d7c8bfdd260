"""The table of all commands, and the page docs/commands.md that is generated from it."""
