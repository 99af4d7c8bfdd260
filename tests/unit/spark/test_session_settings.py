from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.errors import ConfigError
from barnabas.spark.installation import spark_home
from barnabas.spark.launcher import (
    JAVA_OPTIONS,
    REDACTED_TEXT,
    check_master,
    default_settings,
    environment,
    hide_lost_connections,
    local_cores,
    write_log4j_file,
)


def test_importing_barnabas_spark_imports_no_pyspark() -> None:
    code = (
        "import sys, barnabas.spark; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_accessing_session_imports_no_pyspark() -> None:
    code = (
        "import sys, barnabas.spark, barnabas.spark.launcher; assert callable(barnabas.spark.session); "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_invalid_master_is_rejected_before_java_starts() -> None:
    for master in ("local", "local[*]", "local[2]", "yarn", "spark://a:7077", "k8s://https://a:1"):
        check_master(master)
    for master in ("", "foo", "localhost:7077", "spark:/a:7077", "spark://", "local[", "yarnx"):
        with pytest.raises(ConfigError, match=r"is not a master; write local\[4\]"):
            check_master(master)


def test_local_master_has_no_ui_and_small_shuffles() -> None:
    settings = default_settings("local[3]", Path("/log"), "-Xarchive")
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert (
        settings[JAVA_OPTIONS]
        == "-XX:+UseSerialGC -Xss16m -Dlog4j2.configurationFile=file:/log -Xarchive"
    )


def test_remote_master_keeps_its_settings() -> None:
    settings = default_settings("spark://far:7077", Path("/log"), "-Dderby=/catalog")
    redaction = {"spark.redaction.regex", "spark.redaction.string.regex"}
    assert set(settings) == {"spark.ui.showConsoleProgress", *redaction, JAVA_OPTIONS}
    assert settings[JAVA_OPTIONS] == "-Xss16m -Dlog4j2.configurationFile=file:/log -Dderby=/catalog"


def test_secret_options_in_text_of_a_plan_are_redacted() -> None:
    shown = 'options { key: "subscribe"\n value: "orders" }'
    for name in ("sasl.jaas.config", "sasl.password", "ssl.keystore.key", "ssl.key.pem"):
        secret = f'options {{ key: "kafka.{name}"\n  value: "a \\"hunter2\\"; hunter2" }}'
        redacted = re.sub(REDACTED_TEXT, "***", f"{secret} {shown}")
        assert redacted == f"options {{ *** }} {shown}"


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[2]", 2), ("local[4,3]", 4)])
def test_cores_of_local_master(master: str, cores: int) -> None:
    assert local_cores(master) == cores


def test_local_star_uses_available_cores() -> None:
    assert 1 <= local_cores("local[*]") <= (os.cpu_count() or 1)


def test_invalid_local_cores_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"write local\[\*\] or local\[4\]"):
        local_cores("local[many]")


def test_environment_is_restored_after_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/mine")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with environment(JAVA_HOME="/theirs", PYSPARK_PYTHON="p"):
        assert (os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"]) == ("/theirs", "p")
    assert os.environ["JAVA_HOME"] == "/mine"
    assert "PYSPARK_PYTHON" not in os.environ


def test_log4j_file_is_written_once(tmp_path: Path) -> None:
    path = write_log4j_file(tmp_path)
    assert "rootLogger.level = error" in path.read_text()
    assert write_log4j_file(tmp_path) == path


def test_missing_pyspark_names_both_ways_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        spark_home()
    assert "pip install '.[spark]' in a checkout" in str(refused.value)
    assert "pip install 'barnabas[spark]'" in str(refused.value)


def test_only_lost_connections_of_accumulator_server_are_hidden(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pyspark.accumulators import _start_update_server

    server = _start_update_server("token", False)
    hide_lost_connections(SimpleNamespace(_accumulatorServer=server))

    def connect_once(token: bytes) -> str:
        """Send no values and close the connection. Return what the server prints, once it is free for the next one."""
        no_values = bytes(4)
        for sent in (token, b"token"):
            with socket.create_connection(server.server_address) as connection:
                connection.sendall(sent + no_values)
                connection.recv(1)
        return capsys.readouterr().err

    try:
        assert connect_once(b"token") == ""
        assert "ValueError: The value of the provided token" in connect_once(b"wrong")
    finally:
        server.shutdown()
