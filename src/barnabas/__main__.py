"""`python -m barnabas` is the same as `barnabas`."""

from __future__ import annotations

from barnabas.cli.entry import main

main()
