from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from barnabas.cli.cluster_command import complete_names
from barnabas.cli.main import run_command
from barnabas.cli.options import default_servers, servers_text
from barnabas.cli.setup.profiles import (
    ProfileInUse,
    Profiles,
    format_profiles,
    parse_profiles,
    profile_in_use,
    profiles_path,
    read_profiles,
)
from barnabas.errors import ConfigError


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_PROFILE", raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path


def create(name: str, servers: str, *options: str) -> int:
    return run_command(["profile", "create", name, "-b", servers, *options])


def test_file_is_in_the_xdg_directory(config_home: Path) -> None:
    assert profiles_path() == config_home / "barnabas" / "profiles.toml"
    for base in ("", "relative"):
        path = profiles_path({**os.environ, "XDG_CONFIG_HOME": base})
        assert path == Path.home() / ".config" / "barnabas" / "profiles.toml"


def test_written_file_is_read_back() -> None:
    import tomllib

    profiles = Profiles({"dev": "localhost:9092", "b-2": "[::1]:9092,größe:1"}, "b-2")
    assert parse_profiles(tomllib.loads(format_profiles(profiles)), "file") == profiles


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("current = 1", "current: is not the name"),
        ("profiles = 1", "profiles: is not a table"),
        ("other = 1", "other: unknown key"),
        ("[profiles.dev]", "profiles.dev: needs bootstrap-servers"),
        ('[profiles.dev]\nbootstrap-servers="a:1"\nx=1', "profiles.dev.x: unknown key"),
        (
            '[profiles.dev]\nbootstrap-servers="a:1"\ncommand-config=1',
            "profiles.dev.command-config: is not the path of a file",
        ),
        ("= broken", "cannot be read"),
    ],
)
def test_invalid_file_is_rejected_with_its_place(config_home: Path, text: str, why: str) -> None:
    path = profiles_path()
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as raised:
        read_profiles(path)
    assert raised.value.key == str(path)
    assert run_command(["topics", "list", "--timeout", "0.1"]) == 2
    # With -b, the file is not needed.
    assert run_command(["topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.1"]) == 1


def test_first_profile_is_in_use_until_another_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert create("dev", "127.0.0.1:1") == 0
    assert create("prod", "prod:9092") == 0
    assert default_servers() == "127.0.0.1:1"
    assert run_command(["profile", "use", "prod"]) == 0
    assert profile_in_use() == ProfileInUse("prod", "prod:9092", str(profiles_path()))
    capsys.readouterr()
    assert run_command(["profile", "list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["current"] == "prod"
    assert [each["profile"] for each in listed["profiles"]] == ["dev", "prod"]
    assert run_command(["profile", "delete", "prod"]) == 0
    assert profile_in_use() is None
    assert default_servers() == "localhost:9092"


def test_option_comes_before_environment_and_environment_before_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create("dev", "127.0.0.1:1")
    create("other", "127.0.0.1:4")
    assert run_command(["topics", "list", "--timeout", "0.1"]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:1: " in error
    assert "profile dev is in use" in error
    monkeypatch.setenv("BARNABAS_PROFILE", "other")
    assert default_servers() == "127.0.0.1:4"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", "127.0.0.1:2")
    run_command(["topics", "list", "--timeout", "0.1"])
    error = capsys.readouterr().err
    assert "127.0.0.1:2: " in error
    assert "profile" not in error
    run_command(["topics", "list", "--timeout", "0.1", "-b", "127.0.0.1:3"])
    assert "127.0.0.1:3: " in capsys.readouterr().err
    assert run_command(["profile", "show"]) == 0
    assert "commands connect to 127.0.0.1:2" in capsys.readouterr().out


def test_hints_name_servers_only_if_the_profile_has_others() -> None:
    create("dev", "127.0.0.1:1")
    assert servers_text("127.0.0.1:1") == ""
    assert servers_text("localhost:9092") == " -b localhost:9092"


def test_completion_survives_an_invalid_file(config_home: Path) -> None:
    import click

    path = profiles_path()
    path.parent.mkdir()
    path.write_text("broken")
    command = click.Command("x")
    complete = complete_names(lambda cluster: ["never"])
    assert complete(click.Context(command), click.Argument(["name"]), "") == []


def test_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert create("dev", "127.0.0.1:1", "--dry-run") == 0
    assert capsys.readouterr().out == "would create profile dev (127.0.0.1:1), in use\n"
    assert not profiles_path().exists()
    create("dev", "127.0.0.1:1")
    assert run_command(["profile", "delete", "dev", "--dry-run"]) == 0
    assert "dev" in read_profiles(profiles_path()).servers


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "a b", "-b", "x:1"],
        ["create", "dev", "-b", "x:port"],
        ["create", "dev", "-b", "x:1"],
        ["use", "missing"],
        ["delete", "missing"],
    ],
)
def test_wrong_names_are_rejected(arguments: list[str]) -> None:
    create("dev", "127.0.0.1:1")
    assert run_command(["profile", *arguments]) == 2
    assert read_profiles(profiles_path()).servers == {"dev": "127.0.0.1:1"}


def test_unknown_profile_in_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    create("dev", "127.0.0.1:1")
    monkeypatch.setenv("BARNABAS_PROFILE", "missing")
    with pytest.raises(ConfigError, match="existing profiles: dev"):
        default_servers()
