"""The Dockerfile, compose.yaml, the systemd unit and the workflows of docs/deploying.md.

There may be no Docker engine here. So the files are parsed, their commands are parsed by the real command line, and the
brokers run as processes with the same settings. Only addresses and directories differ.
"""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from barnabas.cli.main import cli
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.config.load import load_broker_config
from barnabas.config.properties import parse_properties
from support.command import COMMAND, run
from support.ports import free_port
from support.process import ENVIRONMENT, ChildProcess
from support.waiting import eventually
from tests.packaging.test_build import ROOT, build_wheel

DATA = "/var/lib/barnabas/data"
SINGLE = ROOT / "deploy/server.properties"
CLUSTER = ROOT / "deploy/cluster.properties"
UNIT = ROOT / "deploy/systemd/barnabas.service"
PAGE = (ROOT / "docs/deploying.md").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
BROKERS = ("broker-1", "broker-2", "broker-3")
INSTRUCTIONS = {
    *("FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "HEALTHCHECK"),
    *("ENTRYPOINT", "CMD"),
}


# ---- reading the files


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def arguments(instruction: str) -> list[str]:
    """Return the arguments of the last instruction of this name."""
    return [rest for name, rest in dockerfile() if name == instruction][-1:]


def image_command() -> list[str]:
    (entry,), (command,) = arguments("ENTRYPOINT"), arguments("CMD")
    return [*json.loads(entry), *json.loads(command)]


def health_command() -> list[str]:
    (check,) = arguments("HEALTHCHECK")
    words: list[str] = json.loads(check.partition(" CMD ")[2])
    return words


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read(UNIT)
    return parser


def workflows() -> list[list[str]]:
    """Return the `run` steps of each workflow of the page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    jobs = [yaml.safe_load(block)["jobs"]["test"] for block in blocks]
    return [[step["run"] for step in job["steps"] if "run" in step] for job in jobs]


def barnabas_commands() -> Iterator[list[str]]:
    """Yield every `barnabas …` of the files and the page, without the word `barnabas`."""
    yield image_command()[1:]
    for name in BROKERS:
        yield COMPOSE["services"][name]["command"]
    yield shlex.split(unit()["Service"]["ExecStart"])[1:]
    shell = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in "\n".join([*shell, *(step for steps in workflows() for step in steps)]).split("\n"):
        if "pip install" in line or line.startswith("docker build"):
            continue
        if found := re.search(r"(?:^|\| |exec \S+ |^docker run )barnabas (\w[^>&|]*)", line):
            yield shlex.split(found[1], comments=True)


def parse_command(words: list[str]) -> click.Context:
    """Parse arguments as `barnabas` does. A usage error raises an exception."""
    command: click.Command = cli
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no such command: {words}"
        command, words = found, words[1:]
    return command.make_context(command.name, list(words))


def settings_of(file: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    return {**parse_properties(file.read_text(), file.name), **overrides}


def overrides_of(command: list[str]) -> dict[str, str]:
    chosen = parse_command(command).params["overrides"]
    return dict(each.split("=", 1) for each in chosen)


def ports_of(service: str) -> dict[int, int]:
    """Return port of the container → port of the host. All are published on loopback only."""
    found = [mapping.split(":") for mapping in COMPOSE["services"][service]["ports"]]
    assert all(address == "127.0.0.1" for address, _, _ in found)
    return {int(inner): int(outer) for _, outer, inner in found}


# ---- the files


def test_commands_are_accepted_by_the_command_line() -> None:
    found = list(barnabas_commands())
    assert len(found) >= 12
    for words in found:
        parse_command(words)


def test_wrong_option_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse_command(["up", "--detach"])


def test_dockerfile_runs_a_broker_as_a_user_without_rights() -> None:
    found = dockerfile()
    assert {name for name, _ in found} <= INSTRUCTIONS
    names = [name for name, _ in found]
    assert names.count("FROM") == 2 and names[-2:] == ["ENTRYPOINT", "CMD"]
    assert arguments("USER") == ["barnabas"]
    assert arguments("VOLUME") == [DATA]
    settings = settings_of(SINGLE, {})
    ports = {settings["listeners"].rpartition(":")[2], settings["barnabas.http.listener"][-4:]}
    assert set(arguments("EXPOSE")[0].split()) == ports
    assert f"//127.0.0.1:{settings['barnabas.http.listener'][-4:]}/" in health_command()[-1]
    assert image_command()[-1] == "/etc/barnabas/server.properties"


def test_image_builds_from_files_that_dockerignore_leaves(tmp_path: Path) -> None:
    """The wheel of the first stage, without its compilation."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    excluded = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for name in (line[1:] for line in lines if line.startswith("!")):
        source, target = ROOT / name, tmp_path / name
        assert source.exists(), name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*excluded))
        else:
            shutil.copy(source, target)
    copied = [rest.split()[-2] for name, rest in dockerfile() if name == "COPY"]
    mounted = re.findall(r"type=bind,source=([^,]+)", (ROOT / "Dockerfile").read_text())
    assert not [name for name in [*copied, *mounted] if not (tmp_path / name).exists()]
    build = build_wheel(tmp_path, BARNABAS_PURE="1")
    assert build.exit_code == 0, build.output
    assert not [name for name in build.files if fnmatch.fnmatch(name, "*.so")]


def test_property_files_are_valid() -> None:
    for file, overrides in [
        (SINGLE, {}),
        *((CLUSTER, overrides_of(COMPOSE["services"][name]["command"])) for name in BROKERS),
    ]:
        settings, warnings = load_broker_config(settings_of(file, overrides), {})
        assert list(map(str, settings.log_dirs)) == [f"{DATA}/logs"]
        # Containers listen on all interfaces. compose.yaml publishes their ports on localhost only.
        assert all("without authentication" in each for each in warnings)


def test_compose_ports_and_volumes_are_consistent() -> None:
    services: dict[str, Any] = COMPOSE["services"]
    used = [volume.split(":")[0] for each in services.values() for volume in each["volumes"]]
    named = [name for name in used if not name.startswith(".")]
    assert sorted(named) == sorted(COMPOSE["volumes"])
    assert all((ROOT / name).exists() for name in used if name.startswith("."))
    assert f"{named[0]}:{DATA}" in services["barnabas"]["volumes"]
    host_ports = list[int]()
    for name in BROKERS:
        assert f"{name}:{DATA}" in services[name]["volumes"]
        ports = ports_of(name)
        host_ports += ports.values()
        advertised = overrides_of(services[name]["command"])["advertised.listeners"]
        assert advertised == f"INSIDE://{name}:9092,OUTSIDE://localhost:{ports[19092]}"
        assert f"| `{name}` | `localhost:{ports[19092]}` | `{name}:9092` |" in PAGE
        assert f"`localhost:{ports[9308]}`" in PAGE
    host_ports += ports_of("barnabas").values()
    assert len(host_ports) == len(set(host_ports)) == 8
    ids = [overrides_of(services[name]["command"])["broker.id"] for name in BROKERS]
    assert ids == ["1", "2", "3"]


def test_systemd_unit_is_valid(tmp_path: Path) -> None:
    service = unit()["Service"]
    assert DATA.startswith(f"/var/lib/{service['StateDirectory']}/")
    assert service["RestartPreventExitStatus"] == "2" and service["Restart"] == "on-failure"
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze to check the unit; install systemd")
    copy = tmp_path / UNIT.name  # with a program that exists
    copy.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text()))
    done = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not ours, done.stderr


# ---- the same steps without containers


def substitute(text: str, replacements: Mapping[str, str]) -> str:
    pattern = "|".join(map(re.escape, sorted(replacements, key=len, reverse=True)))
    return re.sub(pattern, lambda found: replacements[found[0]], text)


class LocalService:
    """One broker of the files, as a process. `replacements` has the addresses and directories of this machine."""

    def __init__(
        self, name: str, command: list[str], file: Path, directory: Path, extra: Mapping[str, str]
    ) -> None:
        client, inside, http = free_port(), free_port(), free_port()
        outside = f"localhost:{ports_of(name)[19092]}" if name in BROKERS else "localhost:19092"
        self.replacements = {
            f"{name}:9092": f"127.0.0.1:{inside}",
            "0.0.0.0:9092": f"127.0.0.1:{inside}",
            "localhost:9092": f"127.0.0.1:{inside}",
            "0.0.0.0:19092": f"127.0.0.1:{client}",
            outside: f"127.0.0.1:{client}",
            "0.0.0.0:9308": f"127.0.0.1:{http}",
            "127.0.0.1:9308": f"127.0.0.1:{http}",
            DATA: str(directory / name),
            **extra,
        }
        self.servers = f"127.0.0.1:{client if name in BROKERS else inside}"
        config = directory / f"{name}.properties"
        config.write_text(substitute(file.read_text(), self.replacements))
        self.replacements[f"/etc/barnabas/{file.name}"] = str(config)
        words = [substitute(word, self.replacements) for word in command]
        self.process = ChildProcess(name, [*COMMAND, *words], log=directory / f"{name}.log")

    def is_healthy(self) -> bool:
        assert self.process.is_running, self.process.describe()
        _, *words = [substitute(word, self.replacements) for word in health_command()]
        done = subprocess.run([sys.executable, *words], capture_output=True, timeout=30)
        return done.returncode == 0


def use_topic(servers: str) -> None:
    """Create a topic, write to it and read it."""
    # Right after the start, the brokers create the topic of their history.
    eventually(
        lambda: not run("cluster", "health", "-b", servers).returncode, "the cluster is healthy"
    )
    for arguments in (
        ["topics", "create", "orders", "--partitions", "6"],
        ["produce", "orders", str(SINGLE)],
    ):
        done = run(*arguments, "-b", servers)
        assert done.returncode == 0, done.stdout + done.stderr
    records = run("consume", "orders", "-e", "-b", servers).stdout.splitlines()
    assert sorted(records) == sorted(SINGLE.read_text().splitlines())


def test_brokers_of_compose_form_a_cluster(
    shared_zookeeper: ZooKeeperServers, tmp_path: Path
) -> None:
    zookeeper = {"zookeeper:2181": shared_zookeeper.connect_string}
    commands = {name: COMPOSE["services"][name]["command"] for name in BROKERS}
    brokers = [
        LocalService(name, command, CLUSTER, tmp_path, zookeeper)
        for name, command in commands.items()
    ]
    try:
        for broker in brokers:
            eventually(broker.is_healthy, f"{broker.process.name} is healthy", 60)
        use_topic(brokers[1].servers)
        described = run("topics", "describe", "orders", "-o", "json", "-b", brokers[2].servers)
        partitions = json.loads(described.stdout)
        assert "[1, 2, 3]" in json.dumps(sorted_replicas(partitions)), described.stdout
        assert [broker.process.stop() for broker in brokers] == [0, 0, 0]
    finally:
        for broker in brokers:
            broker.process.kill()


def sorted_replicas(document: Any) -> list[list[int]]:
    """Return the replicas of each partition, from any depth of a document."""
    match document:
        case {"replicas": [*replicas]}:
            return [sorted(replicas)]
        case dict():
            return [found for value in document.values() for found in sorted_replicas(value)]
        case list():
            return [found for value in document for found in sorted_replicas(value)]
        case _:
            return []


def test_broker_of_image_keeps_all_its_data_in_the_volume(tmp_path: Path) -> None:
    (_, *command) = image_command()
    broker = LocalService("single", command, SINGLE, tmp_path, {})
    try:
        eventually(broker.is_healthy, "the broker is healthy", 60)
        use_topic(broker.servers)
        grouped = run(
            "consume", "orders", "-g", "readers", "-O", "beginning", "-c", "3", "-b", broker.servers
        )
        assert len(grouped.stdout.splitlines()) == 3, grouped.stderr
        assert broker.process.stop() == 0
    finally:
        broker.process.kill()
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"single", "single.log", "single.properties"}
    assert {path.name for path in (tmp_path / "single").iterdir()} == {"logs", "registry"}


def test_workflow_with_background_cluster_runs(tmp_path: Path) -> None:
    """Each step runs in its own shell, and gets the variables of earlier steps, as on GitHub."""
    program = tmp_path / "bin/barnabas"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    program.chmod(0o755)
    variables = tmp_path / "github.env"
    variables.touch()
    environment = ENVIRONMENT | {
        "PATH": f"{program.parent}:{ENVIRONMENT['PATH']}",
        "GITHUB_ENV": str(variables),
    }
    _, *steps = workflows()[1]
    steps[0] = steps[0].replace(" &\n", " & echo $! > up.pid\n")
    assert "up.pid" in steps[0]
    outputs = list[str]()
    try:
        for step in steps:
            known = dict(line.split("=", 1) for line in variables.read_text().splitlines())
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step],
                cwd=tmp_path,
                env=environment | known,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{step}: {done.stdout}"
            outputs.append(done.stdout)
    finally:
        subprocess.run(["kill", (tmp_path / "up.pid").read_text().strip()], check=False)
    assert len(outputs[-1].splitlines()) == 1000
    eventually(lambda: not (tmp_path / "cluster.env").exists(), "the cluster stops")
