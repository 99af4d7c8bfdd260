from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from barnabas.errors import ConfigError
from barnabas.formats.schema_registry import (
    RegisteredSchema,
    SchemaRegistry,
    SchemaRegistryError,
    UnknownSchemaId,
)
from support.schema_registry import RegistryServer, running_registry

FIRST = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
SECOND = json.dumps(
    {
        "type": "record",
        "name": "O",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 0}],
    }
)
INCOMPATIBLE = json.dumps(
    {
        "type": "record",
        "name": "O",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "int"}],
    }
)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with running_registry() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


def test_schema_is_registered_once_and_found(registry: SchemaRegistry) -> None:
    first = registry.register("orders/value ü", "AVRO", FIRST)
    second = registry.register("orders/value ü", "AVRO", SECOND)
    assert registry.register("orders/value ü", "AVRO", FIRST) == first != second
    assert registry.by_subject("orders/value ü") == RegisteredSchema(second, "AVRO", SECOND, ())
    assert registry.by_subject("orders/value ü", 1) == RegisteredSchema(first, "AVRO", FIRST, ())
    assert registry.by_id(first).text == FIRST


def test_schema_of_an_id_is_requested_once(server: RegistryServer) -> None:
    schema_id = server.store.register("s", {"schema": FIRST})
    registry = SchemaRegistry(server.url)
    for _ in range(3):
        registry.by_id(schema_id)
    assert server.store.requests == [f"GET /schemas/ids/{schema_id}"]


def test_references_are_fetched_in_order(server: RegistryServer) -> None:
    store = server.store

    def reference(name: str) -> dict[str, object]:
        return {"name": name, "subject": f"{name}-subject", "version": 1}

    def add(name: str, *names: str) -> int:
        references = [reference(each) for each in names]
        body = {"schema": name, "schemaType": "JSON", "references": references}
        return store.register(f"{name}-subject", body)

    add("c")
    add("b", "c")
    found = SchemaRegistry(server.url).by_id(add("a", "b", "c"))
    assert found.type == "JSON"
    assert found.references == (("c", "c"), ("b", "b"))


def test_protobuf_schema_is_requested_as_descriptor(server: RegistryServer) -> None:
    server.store.sends_descriptors = True
    text = 'syntax = "proto3"; message Order { int64 id = 1; }'
    schema_id = server.store.register("s", {"schema": text, "schemaType": "PROTOBUF"})
    found = SchemaRegistry(server.url).by_id(schema_id)
    assert b"Order" in base64.b64decode(found.text, validate=True)


def test_protobuf_text_is_used_if_the_registry_rejects_the_format(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    server.store.rejects_formats = True
    text = 'syntax = "proto3"; message Order { int64 id = 1; }'
    schema_id = server.store.register("s", {"schema": text, "schemaType": "PROTOBUF"})
    assert registry.by_id(schema_id).text == text
    assert len(server.store.requests) == 2


def test_password_is_sent_and_never_shown(server: RegistryServer) -> None:
    server.store.credentials = "Basic " + base64.b64encode(b"ann:p@ss").decode()
    schema_id = server.store.register("s", {"schema": FIRST})
    host = server.url.removeprefix("http://")
    assert SchemaRegistry(f"http://ann:p%40ss@{host}").by_id(schema_id).text == FIRST
    with pytest.raises(SchemaRegistryError, match="check user and password") as error:
        SchemaRegistry(f"http://ann:secret@{host}").by_id(schema_id)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_temporary_failure_is_retried(
    server: RegistryServer, registry: SchemaRegistry, status: int
) -> None:
    schema_id = server.store.register("s", {"schema": FIRST})
    server.store.failures = [status, status]
    assert registry.by_id(schema_id).text == FIRST
    assert len(server.store.requests) == 3


def test_permanent_failure_is_not_retried(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.store.failures = [403]
    with pytest.raises(SchemaRegistryError, match="HTTP status 403; check user and password"):
        registry.by_subject("s")
    assert len(server.store.requests) == 1


def test_failing_server_is_reported_after_the_retries(server: RegistryServer) -> None:
    server.store.failures = [500] * 100
    with pytest.raises(SchemaRegistryError, match="does not respond: Error in the backend"):
        SchemaRegistry(server.url, retry_s=0.3).by_id(1)
    assert len(server.store.requests) > 1


def test_unreachable_registry_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match=f"registry {url} does not respond.*refused"):
            SchemaRegistry(url, retry_s=0).by_id(1)


def test_silent_registry_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match="does not respond: timed out"):
            SchemaRegistry(url, retry_s=0, timeout_s=0.1).by_id(1)


class EndlessResponse(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):  # the client hangs up
            while True:
                self.wfile.write(b" ")


class TruncatedResponse(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "20")
        self.end_headers()
        self.wfile.write(b'{"schema":')


@pytest.mark.parametrize(
    ("handler", "why"),
    [(EndlessResponse, "the response takes too long"), (TruncatedResponse, "IncompleteRead")],
)
def test_response_that_does_not_end_is_reported(
    handler: type[BaseHTTPRequestHandler], why: str
) -> None:
    with HTTPServer(("127.0.0.1", 0), handler) as slow:
        handler.log_message = lambda *_: None  # type: ignore[method-assign]
        thread = Thread(target=slow.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{slow.server_port}"
        with pytest.raises(SchemaRegistryError, match=f"does not respond: {why}"):
            SchemaRegistry(url, retry_s=0, timeout_s=0.2).by_id(1)
        thread.join()


def test_unknown_names_are_explained(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.store.register("s", {"schema": FIRST})
    with pytest.raises(SchemaRegistryError, match="has no subject t; check subject="):
        registry.by_subject("t")
    with pytest.raises(SchemaRegistryError, match="subject s has no version 7; pass another"):
        registry.by_subject("s", 7)
    with pytest.raises(UnknownSchemaId, match="no schema with id 9; check that the producer"):
        registry.by_id(9)


def test_rejected_schemas_are_explained(server: RegistryServer, registry: SchemaRegistry) -> None:
    registry.register("s", "AVRO", FIRST)
    with pytest.raises(SchemaRegistryError, match=r"incompatible .*give new fields a default"):
        registry.register("s", "AVRO", INCOMPATIBLE)
    with pytest.raises(SchemaRegistryError, match=r"rejected the schema .*correct the schema"):
        registry.register("s", "AVRO", "nonsense")


@pytest.mark.parametrize("url", ["localhost:8081", "", "ftp://host", "http://", "http://h:x", None])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="registry: is not a URL; write http://host:8081"):
        SchemaRegistry(url)
