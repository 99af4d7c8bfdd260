"""A schema registry for tests: an HTTP server on loopback with the part of Confluent's API that clients of schemas use.

It keeps schemas in memory, gives equal schemas the same id, and checks only what tests need: Avro schemas must be
JSON, and a new version must not have a new field without a default. Its port is chosen by the operating system.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from barnabas.formats.protoc import compile_text


class RegistryFailure(Exception):
    """An error response."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class SchemaStore:
    """Schemas by id, and the versions of subjects as lists of ids."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        """Method and path of every request."""
        self.failures: list[int] = []
        """Statuses of the next responses."""
        self.credentials: str | None = None
        self.sends_descriptors = False
        """Whether Protobuf schemas are sent compiled if a client asks for it, as Confluent's registry does."""

        self.rejects_formats = False
        """Whether the parameter `format` is an error, as in some versions of Redpanda."""

    def register(self, subject: str, body: dict[str, Any]) -> int:
        schema = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType", "AVRO"),
            "references": body.get("references", []),
        }
        if schema["schemaType"] == "AVRO":
            self.check_avro(subject, schema["schema"])
        known = [number for number, each in self.schemas.items() if each == schema]
        schema_id = known[0] if known else len(self.schemas) + 1
        self.schemas[schema_id] = schema
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def check_avro(self, subject: str, text: str) -> None:
        try:
            fields = json.loads(text)["fields"]
        except (ValueError, KeyError, TypeError):
            raise RegistryFailure(422, 42201, "Invalid schema") from None
        for schema_id in self.subjects.get(subject, ()):
            names = {
                each["name"] for each in json.loads(self.schemas[schema_id]["schema"])["fields"]
            }
            if any(each["name"] not in names and "default" not in each for each in fields):
                raise RegistryFailure(409, 409, "READER_FIELD_MISSING_DEFAULT_VALUE")

    def version(self, subject: str, version: str) -> dict[str, Any]:
        if subject not in self.subjects:
            raise RegistryFailure(404, 40401, f"Subject '{subject}' not found.")
        versions = self.subjects[subject]
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            raise RegistryFailure(404, 40402, f"Version {version} not found.")
        schema_id = versions[number - 1]
        return {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id]}

    def by_id(self, schema_id: str) -> dict[str, Any]:
        if int(schema_id) not in self.schemas:
            raise RegistryFailure(404, 40403, f"Schema {schema_id} not found")
        return self.schemas[int(schema_id)]

    def compiled(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a Protobuf schema with its descriptor instead of its text."""
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        imports = {
            each["name"]: self.version(each["subject"], str(each["version"]))["schema"]
            for each in schema["references"]
        }
        files = FileDescriptorSet.FromString(compile_text(schema["schema"], imports)).file
        return {**schema, "schema": base64.b64encode(files[-1].SerializeToString()).decode()}

    def answer(self, method: str, path: str, query: str, body: bytes) -> dict[str, Any]:
        found: dict[str, Any]
        if self.rejects_formats and "format" in parse_qs(query):
            raise RegistryFailure(501, 501, "format is not implemented")
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", schema_id]:
                found = self.by_id(schema_id)
            case "GET", ["subjects", subject, "versions", version]:
                found = self.version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self.register(subject, json.loads(body))}
            case _:
                raise RegistryFailure(404, 404, "HTTP 404 Not Found")
        if found["schemaType"] == "AVRO":
            # Confluent's registry leaves the type of Avro schemas out.
            return {key: value for key, value in found.items() if key != "schemaType"}
        wants_descriptor = parse_qs(query).get("format") == ["serialized"]
        if found["schemaType"] == "PROTOBUF" and wants_descriptor and self.sends_descriptors:
            return self.compiled(found)
        return found


class RegistryServer(ThreadingHTTPServer):
    """The HTTP server of a store."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RegistryRequest)
        self.store = SchemaStore()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class RegistryRequest(BaseHTTPRequestHandler):
    """One connection."""

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def respond(self) -> None:
        assert isinstance(self.server, RegistryServer)
        store = self.server.store
        store.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        try:
            if store.failures:
                raise RegistryFailure(
                    store.failures.pop(0), 50001, "Error in the backend data store"
                )
            if store.credentials and self.headers.get("Authorization") != store.credentials:
                raise RegistryFailure(401, 401, "Unauthorized")
            status, answer = 200, store.answer(self.command, parts.path, parts.query, body)
        except RegistryFailure as failure:
            status, answer = failure.status, {"error_code": failure.code, "message": str(failure)}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@contextmanager
def running_registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
