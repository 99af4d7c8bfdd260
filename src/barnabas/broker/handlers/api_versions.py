"""ApiVersions: the APIs that this broker serves, with their versions."""

from __future__ import annotations

import re

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

API_KEYS = tuple(
    ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])
    for api in sorted(APIS.values())
)
UNSUPPORTED = ApiVersionsResponse(
    error_code=ErrorCode.UNSUPPORTED_VERSION,
    api_keys=tuple(entry for entry in API_KEYS if entry.api_key == ApiVersionsRequest.API_KEY),
)
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    context: BrokerContext,
    request: ApiVersionsRequest,
    header: RequestHeader,
    connection: Connection,
) -> ApiVersionsResponse:
    name, version = request.client_software_name, request.client_software_version
    if header.api_version >= 3:
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        connection.client_software = (name, version)
    return ApiVersionsResponse(api_keys=API_KEYS, finalized_features_epoch=context.features.epoch)
