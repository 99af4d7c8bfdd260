"""A web server that issues OAuth tokens for client credentials, as in RFC 6749."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from tests.security.logins import TokenIssuer


class TokenServer:
    """Issues a token with the client id as `sub`."""

    def __init__(self, issuer: TokenIssuer, secrets: dict[str, str]) -> None:
        self.issuer = issuer
        self.secrets = secrets
        """Client id → its secret."""
        self.scopes: list[str] = []
        """The scope of each request with valid credentials."""
        self.url = ""

    def respond(self, authorization: str, body: str) -> tuple[int, object]:
        """Return the status and the document of the response."""
        form = parse_qs(body)
        client, _, secret = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if self.secrets.get(client) != secret:
            return 401, {"error": "invalid_client"}
        self.scopes.append(form.get("scope", [""])[0])
        return 200, {"access_token": self.issuer.token(sub=client), "expires_in": 600}


@contextmanager
def token_server(issuer: TokenIssuer, secrets: dict[str, str]) -> Iterator[TokenServer]:
    tokens = TokenServer(issuer, secrets)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, document = tokens.respond(self.headers["Authorization"], body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        tokens.url = f"http://127.0.0.1:{server.server_port}/token"
        try:
            yield tokens
        finally:
            server.shutdown()
            thread.join()
