"""Compiled and interpreted code decide alike about damaged batches."""

from __future__ import annotations

import subprocess
import sys

from support.process import ENVIRONMENT

COUNT = 4_000


def verdicts(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "support.mutated_batches", str(COUNT)],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


def test_verdicts_do_not_depend_on_the_mode() -> None:
    mode, *found = verdicts()
    interpreted, *expected = verdicts(BARNABAS_PURE="1")
    assert interpreted == "interpreted: BARNABAS_PURE is set"
    assert found == expected, mode
    assert "'NONE'" in found[0] and "'INVALID_RECORD'" in found[0]
