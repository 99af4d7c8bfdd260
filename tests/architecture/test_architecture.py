"""The folder tree is the architecture; these tests enforce it.

Code is of three kinds. *Real* code in world/ uses time, sockets, files and threads; the command
line and the clusters it starts may do so as well. *Driven* code is async and reaches the outside
only through its World; DRIVEN lists every concurrent module. All other code is *pure*.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "barnabas"
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

MAY_USE_REAL_IO = (
    "world/",
    "cli/",
    "spark/",
    "jobs/",
    "java/",
    "cluster/",
    "formats/protoc.py",
    "formats/schema_files.py",
    "formats/schema_registry.py",
    *(f"pipelines/{name}.py" for name in ("client", "project", "registry")),
    *(f"pipelines/{name}.py" for name in ("runner", "server", "server_process", "storage")),
    "compiled.py",
    "progress_line.py",
    "security/client_sources.py",
    "security/tls/context.py",
)
LONG_LOOP = "batch/record_checks.py"
"""Calls sleep(0) in a thread, so that the event loop gets the interpreter lock."""
BLOCKING_SOCKET = "client/blocking.py"
BLOCKING = ("socket", "selectors", "time")
DRIVEN = (
    "retry.py",
    "tasks.py",
    "broker/bounded_work.py",
    "broker/broker.py",
    "broker/config_admin/alter.py",
    "broker/config_admin/apply.py",
    "broker/config_admin/changes.py",
    "broker/config_admin/quotas.py",
    "broker/config_admin/write.py",
    "broker/connection.py",
    "broker/control_plane.py",
    "broker/controlled_shutdown.py",
    "broker/handlers/add_offsets_to_txn.py",
    "broker/handlers/add_partitions_to_txn.py",
    "broker/handlers/allocate_producer_ids.py",
    "broker/handlers/alter_client_quotas.py",
    "broker/handlers/alter_configs.py",
    "broker/handlers/alter_user_scram_credentials.py",
    "broker/handlers/create_delegation_token.py",
    "broker/handlers/describe_delegation_token.py",
    "broker/handlers/describe_user_scram_credentials.py",
    "broker/handlers/expire_delegation_token.py",
    "broker/handlers/renew_delegation_token.py",
    "broker/handlers/alter_partition.py",
    "broker/handlers/alter_partition_reassignments.py",
    "broker/handlers/controlled_shutdown.py",
    "broker/handlers/controller_queue.py",
    "broker/handlers/create_acls.py",
    "broker/handlers/create_partitions.py",
    "broker/handlers/create_topics.py",
    "broker/handlers/delete_acls.py",
    "broker/handlers/delete_records.py",
    "broker/handlers/delete_topics.py",
    "broker/handlers/describe_acls.py",
    "broker/handlers/describe_client_quotas.py",
    "broker/handlers/describe_configs.py",
    "broker/handlers/elect_leaders.py",
    "broker/handlers/end_txn.py",
    "broker/handlers/fetch.py",
    "broker/handlers/find_coordinator.py",
    "broker/handlers/incremental_alter_configs.py",
    "broker/handlers/init_producer_id.py",
    "broker/handlers/join_group.py",
    "broker/handlers/leader_and_isr.py",
    "broker/handlers/list_partition_reassignments.py",
    "broker/handlers/metadata.py",
    "broker/handlers/offset_commit.py",
    "broker/handlers/offset_fetch.py",
    "broker/handlers/produce.py",
    "broker/produce_appends.py",
    "broker/security/acl_store.py",
    "broker/security/authorization.py",
    "broker/security/bearer_tokens.py",
    "broker/security/broker_security.py",
    "broker/security/credentials.py",
    "broker/security/exchanges.py",
    "broker/security/login.py",
    "broker/security/logins.py",
    "broker/security/peer_login.py",
    "broker/security/peer_tokens.py",
    "broker/security/tokens.py",
    "broker/security/listener_tls.py",
    "broker/security/peer_network.py",
    "broker/handlers/registry_offsets.py",
    "broker/handlers/stop_replica.py",
    "broker/handlers/txn_offset_commit.py",
    "broker/handlers/write_txn_markers.py",
    "broker/transaction_verification.py",
    "broker/handlers/sync_group.py",
    "broker/handlers/update_features.py",
    "broker/handlers/update_metadata.py",
    "broker/init_producer_id.py",
    "broker/lazy_coordinator.py",
    "broker/lazy_transactions.py",
    "broker/listener.py",
    "broker/log_cleaner.py",
    "broker/maintenance.py",
    "broker/monitoring.py",
    "broker/memory_budget.py",
    "broker/mutation_quotas.py",
    "broker/policies.py",
    "broker/router.py",
    "broker/startup/lost_logs.py",
    "broker/startup/stray_logs.py",
    "broker/topic_admin/auto_creation.py",
    "broker/topic_admin/create_partitions.py",
    "broker/topic_admin/create_topics.py",
    "broker/topic_admin/delete_topics.py",
    "broker/topic_admin/topics.py",
    "broker/unassigned_replicas.py",
    "client/connection.py",
    "controller/assignment_store.py",
    "controller/channels.py",
    "controller/controller.py",
    "controller/execution.py",
    "controller/queue.py",
    "controller/requests.py",
    "controller/store.py",
    "controller/znode_requests.py",
    "groups/commits.py",
    "groups/consumer_coordinator.py",
    "groups/coordinator.py",
    "groups/coordinator_timers.py",
    "groups/expiry.py",
    "groups/loading.py",
    "groups/store.py",
    "history/publisher.py",
    "metrics/http.py",
    "metadata/cache.py",
    "metadata/features.py",
    "metadata/registration.py",
    "metadata/registry_client.py",
    "replication/alter_partition.py",
    "replication/fetcher.py",
    "replication/fetcher_manager.py",
    "replication/flushes.py",
    "replication/integrity.py",
    "replication/internal_topic_loader.py",
    "replication/log_dir_moves.py",
    "replication/lost_replicas.py",
    "replication/partition.py",
    "replication/replica_manager.py",
    "transactions/coordinator.py",
    "transactions/coordinator_checks.py",
    "transactions/leader_exchange.py",
    "transactions/loading.py",
    "transactions/marker_channels.py",
    "transactions/store.py",
    "transactions/verification_channels.py",
    "world/ports.py",
)

REAL_IO_MODULES = {
    *("os", "time", "socket", "selectors", "select", "threading", "subprocess", "pathlib"),
    *("shutil", "tempfile", "signal", "sqlite3", "fcntl", "mmap", "secrets", "kazoo"),
    "multiprocessing",
}
PURE_IMPORTS = {
    ("random", "Random"),
    ("pathlib", "PurePath"),
    ("pathlib", "PurePosixPath"),
    ("mmap", "mmap"),  # as memory, without a file
}

# Package or module → the packages it may import, besides COMMON_MODULES. The longest matching name
# applies: `history` covers the modules of history without an entry of their own.
LAYERS: dict[str, set[str]] = {
    "wire": set(),
    "config": set(),
    "batch": {"wire", "config"},
    "storage": {"batch", "config"},
    "metadata": {"wire", "config"},
    "history": set(),
    "history.recorder": {"metadata", "wire"},
    "history.coordinator_recorder": {"history.recorder"},
    "history.journal": {"history.recorder", "storage", "log_rate_limiter"},
    "history.publisher": {
        *("history.journal", "history.recorder", "history.coordinator_recorder"),
        *("metadata", "batch", "wire", "client", "log_rate_limiter"),
    },
    "metrics": set(),
    "controller": {"history.recorder", "metadata", "config", "wire", "client", "tasks", "metrics"},
    "replication": {
        *("storage", "batch", "metadata", "wire", "config", "client", "tasks", "metrics"),
    },
    "groups": {
        *("replication", "storage", "batch", "metadata", "wire", "config", "tasks"),
        "history.coordinator_recorder",
    },
    "transactions": {
        *("replication", "storage", "batch", "metadata", "wire", "config", "tasks", "client"),
        *("groups.store", "history.coordinator_recorder"),
    },
    "broker": {
        *("controller", "groups", "transactions", "replication", "storage", "batch", "metadata"),
        *("wire", "config"),
        *("client", "metrics", "security"),
        *("history.recorder", "history.publisher", "history.requester"),
        "history.coordinator_recorder",
        *("log_rate_limiter", "policies", "authorizers", "tasks"),
    },
    "security": {"config", "world.download"},
    "client": {"batch", "wire", "security"},
    "api": {"batch", "client", "wire", "security"},
    "reassignment": set(),
    "explain": {"client", "metadata", "history"},
    "formats": set(),
    "java": set(),
    "spark": {"client", "formats", "java", "batch", "wire", "security", "progress_line"},
    "jobs": {"client", "spark", "history", "batch", "wire", "security"},
    "pipelines": {"client", "spark", "security"},
    "cluster": {
        *("broker", "client", "config", "java", "log_lines", "metadata", "security", "spark"),
        "world",
    },
    "world": {"security"},
}
COMMON_MODULES = {
    "model",
    "errors",
    "retry",
    "printable",
    "byte_units",
    "world.ports",
    "__version__",
    "code_mode",
}


def layer_of(name: str) -> str:
    """Return the entry of LAYERS for a dotted name, or its first part if there is none.

    >>> layer_of("history.recorder"), layer_of("history.page"), layer_of("tasks")
    ('history.recorder', 'history', 'tasks')
    """
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in LAYERS), parts[0])


@cache
def nodes_of(module: str) -> tuple[ast.AST, ...]:
    """The syntax tree of a module, and all nodes below it."""
    return tuple(ast.walk(ast.parse((SRC / module).read_text())))


def imports(module: str) -> Iterator[tuple[str, str | None]]:
    """Yield (module, name) for every import, including imports inside functions."""
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("module", MODULES)
def test_module_has_docstring(module: str) -> None:
    tree = nodes_of(module)[0]
    assert isinstance(tree, ast.Module)
    assert ast.get_docstring(tree), f"{module} has no docstring"


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(MAY_USE_REAL_IO)])
def test_only_real_code_imports_io_modules(module: str) -> None:
    for name, imported_name in imports(module):
        root = name.split(".")[0]
        if (root, imported_name) in PURE_IMPORTS or (
            module == BLOCKING_SOCKET and root in BLOCKING
        ):
            continue
        if module == LONG_LOOP and (root, imported_name) == ("time", "sleep"):
            continue
        assert root not in REAL_IO_MODULES | {"random"}, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(MAY_USE_REAL_IO)])
def test_only_driven_modules_are_concurrent(module: str) -> None:
    is_async = any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes_of(module))
    is_async = is_async or any(name.split(".")[0] == "asyncio" for name, _ in imports(module))
    assert is_async == (module in DRIVEN), (
        f"{module}: async code must be listed in DRIVEN, and only async code"
    )


def is_module(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("module", [m for m in MODULES if m.split("/")[0] in LAYERS])
def test_imports_respect_layers(module: str) -> None:
    layer = layer_of(module.removesuffix(".py").replace("/", "."))
    for name, imported_name in imports(module):
        if not name.startswith("barnabas"):
            continue
        imported = ".".join(name.split(".")[1:])
        inner = f"{imported}.{imported_name}".lstrip(".")
        if not imported or is_module(inner):
            imported = inner
        allowed = LAYERS[layer] | {layer} | COMMON_MODULES
        assert layer_of(imported) in allowed or imported in allowed, f"{module} imports {imported}"


@pytest.mark.parametrize("module", MODULES)
def test_file_has_at_most_600_lines(module: str) -> None:
    assert len((SRC / module).read_text().splitlines()) <= 600


WRITERS = {"print", "click.echo", "click.secho", "click.confirm", "click.prompt"}
STREAMS = ("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer")


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.startswith("cli/") and m != "cli/terminal/output.py"]
)
def test_commands_print_through_cli_output(module: str) -> None:
    """cli/terminal/output.py escapes names from outside; its `to_json` writes all JSON."""
    for node in nodes_of(module):
        if isinstance(node, ast.Attribute):
            assert not ast.unparse(node).startswith(STREAMS), f"{module}:{node.lineno}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in WRITERS, f"{module}:{node.lineno} calls {called}"
            keywords = {keyword.arg for keyword in node.keywords}
            assert "ensure_ascii" not in keywords, f"{module}:{node.lineno} writes JSON"
