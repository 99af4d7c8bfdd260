"""HTTP endpoints of a broker, on `barnabas.http.listener`.

/metrics   counters and state in Prometheus' text format (metrics_page.py)
/healthz   200 while the event loop runs
/readyz    200 while clients are served and the controller knows this broker, else 503 with the reason
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from barnabas.broker.metrics_page import MetricsPage, MonitoredBroker
from barnabas.errors import StorageError
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metrics.exposition import CONTENT_TYPE
from barnabas.metrics.http import HttpResponse, HttpServer, text_response
from barnabas.model import Endpoint
from barnabas.world.ports import SessionState

logger = logging.getLogger("barnabas.http")

LINES_PER_CHECK = 50
TURN_SECONDS = 0.002
PATHS = "/metrics, /healthz and /readyz"


class ReadyBroker(MonitoredBroker, Protocol):
    """The facts that decide whether a broker is ready."""

    registry: RegistryClient | None
    failure: StorageError | None


class Monitoring:
    """The HTTP server of one broker."""

    def __init__(self, broker: ReadyBroker) -> None:
        self.broker = broker
        self.page = MetricsPage(broker)
        self.server = HttpServer(broker.world.network, self.respond)
        self.building: asyncio.Task[bytes] | None = None
        self.address: Endpoint | None = None
        """The address of the open server."""

    async def open(self, endpoint: Endpoint) -> None:
        """Listen on the address. Raises AddressInUse."""
        _, port = await self.server.open(endpoint.host, endpoint.port)
        self.address = Endpoint(listener=endpoint.listener, host=endpoint.host, port=port)
        logger.info("serving %s url=http://%s", PATHS, self.address.address)

    async def close(self) -> None:
        self.address = None
        await self.server.close()
        if self.building is not None:
            self.building.cancel()

    async def respond(self, path: str) -> HttpResponse:
        match path:
            case "/metrics":
                return HttpResponse(200, await self.shared_page(), CONTENT_TYPE)
            case "/healthz":
                return text_response(200, "ok")
            case "/readyz":
                reason = self.unready_reason()
                return text_response(503, reason) if reason else text_response(200, "ready")
            case _:
                return text_response(404, f"not found; this server has {PATHS}")

    def unready_reason(self) -> str:
        """Return why this broker is not ready, or an empty text."""
        broker = self.broker
        if broker.failure is not None:
            return "all log directories have failed"
        if broker.is_stopping:
            return "shutting down"
        if not broker.is_started or broker.registry is None or broker.replicas is None:
            return "starting"
        if broker.registry.state is not SessionState.CONNECTED:
            return f"the registry session is {broker.registry.state}"
        if not broker.replicas.is_known_to_controller:
            return "waiting for the controller"
        return ""

    async def shared_page(self) -> bytes:
        """Return the page. Scrapes at the same time share one."""
        if self.building is None or self.building.done():
            self.building = asyncio.get_running_loop().create_task(self.build_page())
        return await asyncio.shield(self.building)

    async def build_page(self) -> bytes:
        """Build the page in turns, so that it does not delay clients."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        lines = []
        for number, line in enumerate(self.page.lines(began)):
            lines.append(line)
            if number % LINES_PER_CHECK == 0 and loop.time() - began > TURN_SECONDS:
                await asyncio.sleep(0)
                began = loop.time()
        return "".join(lines).encode()
