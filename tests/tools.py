"""Install the tools that tests need beyond pip, where possible, and list the missing ones.

    python -m tests.tools

kcat and chromium come from Debian's packages, kafkajs from npm. In CI, a missing tool is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

KAFKAJS = Path(__file__).parent / "compatibility" / "kafkajs"
KAFKAJS_VERSION = "2.2.4"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def have_kcat() -> bool:
    return shutil.which("kcat") is not None


def have_kafkajs() -> bool:
    return shutil.which("node") is not None and (KAFKAJS / "node_modules" / "kafkajs").is_dir()


def have_chromium() -> bool:
    return chromium() is not None


def chromium() -> str | None:
    """The path of the installed browser."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def install_kcat() -> None:
    install_from_debian("kcat")


def install_chromium() -> None:
    install_from_debian("chromium")


def install_from_debian(package: str) -> None:
    if shutil.which("apt-get") and os.geteuid() == 0:
        attempt("apt-get", "update", "-qq")
        attempt("apt-get", "install", "-y", "-qq", "--no-install-recommends", package)


def install_kafkajs() -> None:
    if shutil.which("npm"):
        attempt(
            *("npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"),
            *("--silent", "--prefix", str(KAFKAJS), f"kafkajs@{KAFKAJS_VERSION}"),
        )


def attempt(*command: str) -> None:
    """Run the command and ignore its result; the caller checks for the tool."""
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def main() -> None:
    missing = []
    for name, have, install, hint in (
        ("kcat", have_kcat, install_kcat, "apt-get install kcat"),
        ("chromium", have_chromium, install_chromium, "apt-get install chromium"),
        ("kafkajs", have_kafkajs, install_kafkajs, "install node and npm"),
    ):
        if not have():
            install()
        if not have():
            missing.append(f"{name} ({hint})")
    if missing:
        print(f"tests are skipped because these tools cannot be installed: {', '.join(missing)}")
        if os.environ.get("CI"):
            sys.exit("in CI no tool may be missing")


if __name__ == "__main__":
    main()
