"""HTTP client of a schema registry with Confluent's API. It blocks, retries and caches.

    registry = SchemaRegistry("http://user:password@host:8081")
    registry.by_id(7)                              the schema of a record, cached: an id never changes its schema
    registry.by_subject("orders-value")            the latest version
    registry.register("orders-value", "AVRO", …)   returns the id; the same schema gets the same id again

A request that fails because of the network or the server is repeated for RETRY_S. Raises SchemaRegistryError, and
UnknownSchemaId for an id that the registry does not have: that is a fault of a record rather than of the registry.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPException, HTTPResponse, IncompleteRead
from random import Random
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from barnabas.errors import BarnabasError, ConfigError, reason
from barnabas.formats.problems import DecodeError
from barnabas.printable import printable
from barnabas.retry import Backoff

RETRY_S = 5.0
"""Time for retries. Spark repeats a failed task, so a longer outage is its concern."""
TIMEOUT_S = 10.0
"""Timeout of one request."""
RESPONSE_BYTES_MAX = 16 << 20
PIECE_BYTES = 1 << 16
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
LATEST = "latest"
REFERENCES_MAX = 1_000
NOT_IMPLEMENTED = 501


class SchemaRegistryError(BarnabasError):
    """The schema registry is unreachable, or rejected a request."""


class UnknownSchemaId(DecodeError):
    """The registry has no schema with the id of a record."""


class Reference(NamedTuple):
    """A schema that another one imports under `name`."""

    name: str
    schema: str


class RegisteredSchema(NamedTuple):
    """A schema of the registry. `references` has all imported schemas, each one after its own references."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...]


class HttpFailure(Exception):
    """A response with an error status. `code` is that of the registry, for example 40401."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.status = status
        self.code = code


class SchemaRegistry:
    """Client of one registry."""

    def __init__(self, url: str, *, retry_s: float = RETRY_S, timeout_s: float = TIMEOUT_S) -> None:
        self.base, self.authorization = split_url(url)
        self.retry_s = retry_s
        self.timeout_s = timeout_s
        self.schemas: dict[int, RegisteredSchema] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return a schema by its id, from the cache if possible."""
        if schema_id not in self.schemas:
            try:
                found = self.fetch(f"/schemas/ids/{schema_id}")
            except HttpFailure as failure:
                if failure.status == 404:
                    raise UnknownSchemaId(
                        f"the registry {self.base} has no schema with id {schema_id}; "
                        "check that the producer uses this registry"
                    ) from None
                raise self.rejected(f"schema {schema_id}", failure) from None
            self.schemas[schema_id] = self.with_references(schema_id, found)
        return self.schemas[schema_id]

    def by_subject(self, subject: str, version: int | str = LATEST) -> RegisteredSchema:
        """Return a version of a subject."""
        try:
            found = self.version_of(subject, version)
        except HttpFailure as failure:
            raise self.no_version(subject, version, failure) from None
        schema_id = found.get("id")
        if not isinstance(schema_id, int):
            raise self.not_a_registry("a version without an id")
        self.schemas[schema_id] = self.with_references(schema_id, found)
        return self.schemas[schema_id]

    def register(self, subject: str, schema_type: str, text: str) -> int:
        """Add a schema to a subject and return its id. Registering it again returns the same id."""
        body = (
            {"schema": text} if schema_type == AVRO else {"schema": text, "schemaType": schema_type}
        )
        try:
            found = self.request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        except HttpFailure as failure:
            if failure.status == 409:
                raise SchemaRegistryError(
                    f"schema of subject {subject} is incompatible with its earlier versions: {failure}; "
                    "give new fields a default, or change the compatibility of the subject"
                ) from None
            if failure.status == 422:
                raise SchemaRegistryError(
                    f"the registry {self.base} rejected the schema of subject {subject}: {failure}; "
                    "correct the schema"
                ) from None
            raise self.rejected(f"subject {subject}", failure) from None
        schema_id = found.get("id")
        if not isinstance(schema_id, int):
            raise self.not_a_registry("no id for a registered schema")
        return schema_id

    def version_of(self, subject: str, version: int | str) -> dict[str, Any]:
        return self.fetch(
            f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}"
        )

    def fetch(self, path: str) -> dict[str, Any]:
        """Request a schema. Some registries can send a Protobuf schema as a descriptor, which needs no compiler.

        Other registries ignore or reject the parameter. Then the text is used.
        """
        found = self.request("GET", path)
        if found.get("schemaType") == PROTOBUF:
            with suppress(HttpFailure):
                return self.request("GET", f"{path}?format=serialized")
        return found

    def with_references(self, schema_id: int, found: Mapping[str, Any]) -> RegisteredSchema:
        """Fetch all schemas that this one imports, directly or indirectly."""
        references: dict[str, str] = {}
        self.add_references(found, references, set())
        return RegisteredSchema(
            schema_id,
            found.get("schemaType") or AVRO,
            self.text_of(found),
            tuple(Reference(name, text) for name, text in references.items()),
        )

    def add_references(
        self, found: Mapping[str, Any], references: dict[str, str], visited: set[str]
    ) -> None:
        for each in found.get("references") or ():
            name, subject, version = each["name"], each["subject"], each["version"]
            if name in visited:
                continue
            visited.add(name)
            if len(visited) > REFERENCES_MAX:
                raise self.not_a_registry(f"more than {REFERENCES_MAX} references of one schema")
            try:
                imported = self.version_of(subject, version)
            except HttpFailure as failure:
                raise self.no_version(subject, version, failure) from None
            self.add_references(imported, references, visited)
            references[name] = self.text_of(imported)

    def text_of(self, found: Mapping[str, Any]) -> str:
        text = found.get("schema")
        if not isinstance(text, str):
            raise self.not_a_registry("a response without a schema")
        return text

    # ---- HTTP -----------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request, and repeat it while the registry is unreachable or reports an error of its own.

        Raises HttpFailure for any other error status, and SchemaRegistryError after RETRY_S.
        """
        backoff = Backoff(0.1, 1.0, random=Random())
        deadline = time.monotonic() + self.retry_s
        while True:
            try:
                return self.send(method, path, body)
            except (OSError, HTTPException, HttpFailure) as error:
                if isinstance(error, HttpFailure) and not is_temporary(error.status):
                    raise
                if time.monotonic() >= deadline:
                    why = printable(reason(getattr(error, "reason", None) or error), limit=300)
                    raise SchemaRegistryError(
                        f"schema registry {self.base} does not respond: {why}; "
                        "check the address and that the registry runs"
                    ) from None
            time.sleep(backoff.next_s())

    def send(self, method: str, path: str, body: object) -> dict[str, Any]:
        headers = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE}
        if self.authorization:
            headers["Authorization"] = self.authorization
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.base + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=self.timeout_s) as response:
                content = read_content(response, time.monotonic() + self.timeout_s)
        except HTTPError as error:
            with error:
                raise http_failure(error.code, error.read(RESPONSE_BYTES_MAX)) from None
        try:
            found = json.loads(content)
        except ValueError:
            raise self.not_a_registry("a response that is not JSON") from None
        if not isinstance(found, dict):
            raise self.not_a_registry("a response that is not a JSON object")
        return found

    # ---- errors ---------------------------------------------------------------------------------------------------

    def no_version(
        self, subject: str, version: int | str, failure: HttpFailure
    ) -> SchemaRegistryError:
        if failure.status != 404:
            return self.rejected(f"subject {subject}, version {version}", failure)
        if failure.code == 40402:
            hint = "pass another version=, or leave it out for the latest one"
            return SchemaRegistryError(f"subject {subject} has no version {version}; {hint}")
        hint = "check subject=; a topic's values usually have the subject <topic>-value"
        return SchemaRegistryError(f"the registry {self.base} has no subject {subject}; {hint}")

    def rejected(self, what: str, failure: HttpFailure) -> SchemaRegistryError:
        hint = ""
        if failure.status in (401, 403):
            hint = "; check user and password in registry='http://user:password@host:port'"
        status = f"HTTP status {failure.status}"
        return SchemaRegistryError(f"{self.base} rejected {what}: {failure}, {status}{hint}")

    def not_a_registry(self, what: str) -> SchemaRegistryError:
        hint = "check that registry= is the address of a schema registry"
        return SchemaRegistryError(f"{self.base} sent {what}; {hint}")


def read_content(response: HTTPResponse, deadline: float) -> bytes:
    """Read a response. The timeout of the socket is for each piece, so that a slow server could send for hours."""
    content = b""
    while len(content) < RESPONSE_BYTES_MAX and (piece := response.read1(PIECE_BYTES)):
        content += piece
        if time.monotonic() > deadline:
            raise TimeoutError("the response takes too long")
    if response.length and len(content) < RESPONSE_BYTES_MAX:
        raise IncompleteRead(content)
    return content


@lru_cache(maxsize=16)
def shared_registry(url: str) -> SchemaRegistry:
    """Return the client of this process, so that all tasks of a worker share its cache."""
    return SchemaRegistry(url)


def split_url(url: str) -> tuple[str, str | None]:
    """Return the URL without user and password, and the header Authorization. Raises ConfigError."""
    # The value may contain a password, so the message does not repeat it.
    invalid = ConfigError("registry", "is not a URL; write http://host:8081")
    try:
        parts = urlsplit(str(url))
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise invalid from None
    if not is_valid:
        raise invalid
    host = parts.netloc.rpartition("@")[2]
    base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    if parts.username is None:
        return base, None
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return base, "Basic " + base64.b64encode(credentials.encode()).decode()


def is_temporary(status: int) -> bool:
    """Return whether the same request may succeed later."""
    return (status >= 500 and status != NOT_IMPLEMENTED) or status in (408, 429)


def http_failure(status: int, content: bytes) -> HttpFailure:
    """Return the failure that an error response describes."""
    try:
        body = json.loads(content)
        code, message = int(body["error_code"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        code, message = status, content[:200].decode(errors="replace") or "no explanation"
    return HttpFailure(status, code, printable(message, limit=300))
