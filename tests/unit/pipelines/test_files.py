"""Files of pipelines: new projects, storage directories, and the state of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.errors import ConfigError
from barnabas.pipelines.names import Namespace
from barnabas.pipelines.project import create_project, find_spec, load_spec, source_files
from barnabas.pipelines.storage import (
    check_owner,
    claim_storage,
    flows_with_checkpoints,
    forget_topic_ids,
    topic_ids_directory,
    topics_with_ids,
)
from barnabas.spark.run_state import RunState, is_running, list_runs, state_directory


def test_new_project_is_valid(tmp_path: Path) -> None:
    create_project(tmp_path, "orders", "lines")
    spec_path = find_spec(tmp_path / "orders")
    spec = load_spec(spec_path)
    assert spec.name == "orders"
    (file,) = source_files(spec, spec_path.parent)
    compile(file.read_text(), str(file), "exec")


def test_project_is_not_written_into_used_directory(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    create_project(tmp_path, "orders", "lines")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        create_project(tmp_path, "orders", "lines")
    with pytest.raises(ConfigError, match="must have 1 to 100 letters"):
        create_project(tmp_path, "../x", "lines")


def test_missing_files_have_hints(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="barnabas pipeline init"):
        find_spec(tmp_path)
    (tmp_path / "spark-pipeline.yml").write_text("name: a\nstorage: b\n")
    with pytest.raises(ConfigError, match=r"no \.py or \.sql file matches"):
        source_files(load_spec(find_spec(tmp_path)), tmp_path)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "a.txt").touch()
    with pytest.raises(ConfigError, match=r"neither \.py nor \.sql"):
        source_files(load_spec(find_spec(tmp_path)), tmp_path)


def test_storage_of_other_pipeline_is_refused(tmp_path: Path) -> None:
    claim_storage(tmp_path / "storage", "a")
    claim_storage(tmp_path / "storage", "a")
    with pytest.raises(ConfigError, match="belongs to the pipeline a; choose another"):
        claim_storage(tmp_path / "storage", "b")


def test_storage_of_spark_pipelines_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "_checkpoints").mkdir()
    claim_storage(tmp_path, "a")
    claim_storage(tmp_path, "b")
    assert [path.name for path in tmp_path.iterdir()] == ["_checkpoints"]


def test_unusable_storage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"pipeline\.json is corrupt; delete it"):
        claim_storage(tmp_path, "a")
    with pytest.raises(ConfigError, match=r"storage: .*pipeline\.json: Not a directory"):
        check_owner(tmp_path / "pipeline.json", "a")


@pytest.mark.parametrize("command", [["dry-run"], ["run", "--dry-run"], ["run"]])
def test_commands_refuse_storage_of_other_pipeline(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    create_project(tmp_path, "orders", "lines")
    project = tmp_path / "orders"
    claim_storage(project / "storage", "payments")
    done = CliRunner().invoke(cli, ["pipeline", *command, str(project), "-b", "127.0.0.1:1"])
    assert isinstance(done.exception, ConfigError)
    assert "belongs to the pipeline payments" in str(done.exception)


def test_checkpoints_name_their_flows(tmp_path: Path) -> None:
    (tmp_path / "_checkpoints/spark_catalog/default/words/to_words/0").mkdir(parents=True)
    (tmp_path / "_checkpoints/spark_catalog/shop/Eu.Words/to_words/0").mkdir(parents=True)
    (tmp_path / "_checkpoints/sink/to_sink/0").mkdir(parents=True)
    found = {"words": ["to_words"], "shop.eu.words": ["to_words"]}
    assert flows_with_checkpoints(tmp_path) == found
    other = {"default.words": ["to_words"], "eu.words": ["to_words"]}
    assert flows_with_checkpoints(tmp_path, Namespace(database="shop")) == other
    assert flows_with_checkpoints(tmp_path / "missing") == {}


def test_stored_ids_name_the_topics_of_earlier_runs(tmp_path: Path) -> None:
    assert topics_with_ids(tmp_path) == set()
    flow = topic_ids_directory(tmp_path, "words", "words")
    for path in (flow / "eu.orders.json", flow / "1" / "users.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert topics_with_ids(tmp_path) == {"eu.orders", "users"}


def test_full_refresh_forgets_the_topics_of_a_table(tmp_path: Path) -> None:
    for table in ("`Words`", "other"):
        path = topic_ids_directory(tmp_path, f"spark_catalog.default.{table}", "to/words")
        assert path.name == "to%2Fwords"
        path.mkdir(parents=True)
    forget_topic_ids(tmp_path, ["words", "unknown"])
    assert [path.name for path in (tmp_path / "topic-ids").iterdir()] == ["other"]


def test_state_of_killed_process_is_removed(tmp_path: Path) -> None:
    state = RunState.open(tmp_path, "a")
    state.save({"name": "a", "pid": 17, "spec": "/x"})
    assert list_runs(tmp_path) == [{"name": "a", "pid": 17, "spec": "/x"}]
    with pytest.raises(ConfigError, match=r"is run by process 17 \(/x\)"):
        RunState.open(tmp_path, "a")
    state.lock.close()  # as the system does when it kills the process
    assert not is_running(tmp_path, "a")
    assert list_runs(tmp_path) == []
    assert not state.path.exists()
    (tmp_path / "b.json").write_text(json.dumps({"name": "b"}))
    assert list_runs(tmp_path) == []


def test_relative_state_home_is_ignored() -> None:
    assert state_directory("pipelines", {"XDG_STATE_HOME": "/x"}) == Path("/x/barnabas/pipelines")
    home = Path.home() / ".local/state/barnabas/pipelines"
    assert state_directory("pipelines", {"XDG_STATE_HOME": "x"}) == home
