"""Print docs/commands.md: `python -m barnabas.cli.reference > docs/commands.md`."""

from barnabas.cli.reference.page import commands_page
from barnabas.cli.terminal.output import write_out

write_out(commands_page().encode())
