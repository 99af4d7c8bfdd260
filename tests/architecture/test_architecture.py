"""The folder tree is the architecture, and this is what holds it.

Three shades. *Real* code stands in world/ and alone touches time, sockets, files and threads (the command line and the
clusters that are started from it open these doors). *Driven* code is async, over a World that is handed to it: the list
below is the whole concurrent surface. All the rest is *pure*.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "barnabas"
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

OPENS_REAL_DOORS = (
    "world/",
    "cli/",
    "spark/",
    "java/",
    "cluster/",
    "progress_line.py",
)
BLOCKING_SOCKET = "client/blocking.py"
BLOCKING = ("socket", "selectors", "time")
DRIVEN = (
    "retry.py",
    "tasks.py",
    "broker/bounded_work.py",
    "broker/broker.py",
    "broker/connection.py",
    "broker/control_plane.py",
    "broker/controlled_shutdown.py",
    "broker/handlers/alter_partition.py",
    "broker/handlers/controlled_shutdown.py",
    "broker/handlers/controller_queue.py",
    "broker/handlers/create_partitions.py",
    "broker/handlers/create_topics.py",
    "broker/handlers/delete_records.py",
    "broker/handlers/delete_topics.py",
    "broker/handlers/describe_configs.py",
    "broker/handlers/elect_leaders.py",
    "broker/handlers/fetch.py",
    "broker/handlers/find_coordinator.py",
    "broker/handlers/init_producer_id.py",
    "broker/handlers/join_group.py",
    "broker/handlers/leader_and_isr.py",
    "broker/handlers/metadata.py",
    "broker/handlers/offset_commit.py",
    "broker/handlers/offset_fetch.py",
    "broker/handlers/produce.py",
    "broker/handlers/registry_offsets.py",
    "broker/handlers/stop_replica.py",
    "broker/handlers/sync_group.py",
    "broker/handlers/update_metadata.py",
    "broker/init_producer_id.py",
    "broker/lazy_groups.py",
    "broker/listener.py",
    "broker/log_cleaner.py",
    "broker/maintenance.py",
    "broker/router.py",
    "broker/startup/lost_logs.py",
    "broker/startup/stray_logs.py",
    "broker/state_log.py",
    "broker/topic_admin/auto_creation.py",
    "broker/topic_admin/create_partitions.py",
    "broker/topic_admin/create_topics.py",
    "broker/topic_admin/delete_topics.py",
    "broker/topic_admin/topics.py",
    "client/connection.py",
    "controller/channels.py",
    "controller/controller.py",
    "controller/execution.py",
    "controller/queue.py",
    "controller/requests.py",
    "controller/store.py",
    "controller/znode_requests.py",
    "groups/commits.py",
    "groups/coordinator.py",
    "groups/coordinator_timers.py",
    "groups/expiry.py",
    "groups/loading.py",
    "groups/store.py",
    "history/publisher.py",
    "metadata/cache.py",
    "metadata/registration.py",
    "metadata/registry_client.py",
    "replication/alter_partition.py",
    "replication/fetcher.py",
    "replication/fetcher_manager.py",
    "replication/integrity.py",
    "replication/lost_replicas.py",
    "replication/partition.py",
    "replication/replica_manager.py",
    "world/ports.py",
)

OUTSIDE = {
    *("os", "time", "socket", "selectors", "select", "threading", "subprocess", "pathlib"),
    *("shutil", "tempfile", "signal", "sqlite3", "fcntl", "mmap", "secrets", "kazoo"),
    "multiprocessing",
}
HARMLESS = {("random", "Random"), ("pathlib", "PurePath"), ("pathlib", "PurePosixPath")}

# package or module → what it may import of the others; everybody may see FOR_EVERYBODY.
# The longest name decides: `history` is for those of its modules that have no entry of their own.
LAYERS: dict[str, set[str]] = {
    "wire": set(),
    "config": set(),
    "storage": {"wire", "config"},
    "metadata": {"wire", "config"},
    "history": set(),
    "history.recorder": {"metadata", "wire"},
    "history.journal": {"history.recorder", "storage", "log_rate_limiter"},
    "history.publisher": {
        *("history.journal", "history.recorder", "metadata", "wire", "client"),
        "log_rate_limiter",
    },
    "controller": {"history.recorder", "metadata", "config", "wire", "client", "tasks"},
    "replication": {"storage", "metadata", "wire", "config", "client", "tasks"},
    "groups": {"replication", "storage", "metadata", "wire", "config", "tasks"},
    "broker": {
        *("controller", "groups", "replication", "storage", "metadata", "wire", "config", "client"),
        *("history.recorder", "history.publisher", "history.requester"),
        *("log_rate_limiter", "tasks"),
    },
    "client": {"wire"},
    "java": set(),
    "spark": {"client", "java", "wire", "progress_line"},
    "cluster": {"broker", "client", "config", "java", "metadata", "spark", "world"},
    "world": set(),
}
FOR_EVERYBODY = {"model", "errors", "retry", "printable", "world.ports", "__version__"}


def layer_of(name: str) -> str:
    """The entry of LAYERS for a dotted name, or its first part if there is none.

    >>> layer_of("history.recorder"), layer_of("history.page"), layer_of("tasks")
    ('history.recorder', 'history', 'tasks')
    """
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in LAYERS), parts[0])


def tree_of(module: str) -> ast.Module:
    return ast.parse((SRC / module).read_text())


def imports(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """(module, name) for every import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(tree_of(module)), f"{module} has no docstring"


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(OPENS_REAL_DOORS)])
def test_only_the_doors_touch_the_outside(module: str) -> None:
    for name, what in imports(tree_of(module)):
        root = name.split(".")[0]
        if (root, what) in HARMLESS or (module == BLOCKING_SOCKET and root in BLOCKING):
            continue
        assert root not in OUTSIDE | {"random"}, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(OPENS_REAL_DOORS)])
def test_only_the_listed_modules_are_concurrent(module: str) -> None:
    tree = tree_of(module)
    waits = any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree))
    waits = waits or any(name.split(".")[0] == "asyncio" for name, _ in imports(tree))
    assert waits == (module in DRIVEN), f"{module}: is it driven or pure? The list says otherwise"


def is_module(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("module", [m for m in MODULES if m.split("/")[0] in LAYERS])
def test_imports_point_one_way(module: str) -> None:
    layer = layer_of(module.removesuffix(".py").replace("/", "."))
    for name, what in imports(tree_of(module)):
        if not name.startswith("barnabas"):
            continue
        imported = ".".join(name.split(".")[1:])
        inner = f"{imported}.{what}".lstrip(".")
        if not imported or is_module(inner):
            imported = inner
        allowed = LAYERS[layer] | {layer} | FOR_EVERYBODY
        assert layer_of(imported) in allowed or imported in allowed, f"{module} imports {imported}"


@pytest.mark.parametrize("module", MODULES)
def test_a_file_is_one_sitting(module: str) -> None:
    assert len((SRC / module).read_text().splitlines()) <= 600


WRITERS = {"print", "click.echo", "click.secho", "click.confirm", "click.prompt"}
STREAMS = ("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer")


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.startswith("cli/") and m != "cli/terminal/output.py"]
)
def test_commands_print_through_cli_output(module: str) -> None:
    """That module escapes names from outside; JSON, too, is written by its `to_json`."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute):
            assert not ast.unparse(node).startswith(STREAMS), f"{module}:{node.lineno}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in WRITERS, f"{module}:{node.lineno} calls {called}"
            keywords = {keyword.arg for keyword in node.keywords}
            assert "ensure_ascii" not in keywords, f"{module}:{node.lineno} writes JSON"
