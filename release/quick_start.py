"""The quick start of README.md, run with an installed package, outside the repository."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from release.build import OUR_VARIABLES, ROOT, StepFailed

UP = "barnabas up --topic"
STEPS = ("barnabas topics create clicks", "seq 1000 | barnabas produce")
CONSUME = "barnabas consume clicks -O"
SPARK_STEP = "barnabas sql"
SECONDS = 120.0
POLL_SECONDS = 0.02


def readme_line(start: str) -> str:
    """Return the first command in README.md that starts with `start`, without its comment."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"^{re.escape(start)}.*$", text, re.MULTILINE)
    if found is None:
        raise StepFailed(f"README.md has no command that starts with '{start}'")
    return re.sub(r"\s+# .*$", "", found[0])


def run_quick_start(programs: Path, directory: Path, *, has_spark: bool) -> float:
    """Run the commands of README.md in an empty directory. Returns the monotonic time of the first consumed record."""
    kept = {name: value for name, value in os.environ.items() if name not in OUR_VARIABLES}
    environment = kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    variables = directory / "cluster.env"
    up = shlex.split(readme_line(UP))
    log = directory / "up.log"
    with log.open("w") as output:
        broker = subprocess.Popen(
            [str(programs / up[0]), *up[1:], "--port=0", f"--write-env={variables}"],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for_file(variables, broker, log)
        environment |= dict(line.split("=", 1) for line in variables.read_text().splitlines())
        for start in STEPS:
            run_line(readme_line(start), directory, environment)
        shown = run_line(readme_line(CONSUME), directory, environment)
        first_record_at = time.monotonic()
        if len(shown.splitlines()) != 10:
            raise StepFailed(f"{readme_line(CONSUME)}: expected 10 lines\n{shown}")
        if has_spark:
            run_line(readme_line(SPARK_STEP), directory, environment)
            count = 'barnabas sql -o json "select count(*) as records from clicks"'
            if '"records":1000' not in run_line(count, directory, environment).replace(" ", ""):
                raise StepFailed(f"{count}: Spark did not count 1000 records")
    finally:
        broker.send_signal(signal.SIGTERM)
        code = broker.wait(SECONDS)
    if code != 0:
        raise StepFailed(f"{readme_line(UP)}\nexit code {code}\n{log.read_text()}")
    return first_record_at


def wait_for_file(file: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise StepFailed(f"the cluster did not start\n{log.read_text()}")
        time.sleep(POLL_SECONDS)


def run_line(line: str, directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", line],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode != 0:
        raise StepFailed(f"{line}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
