"""Invalid frames and unsupported requests."""

from __future__ import annotations

from barnabas.wire.messages.api_versions import ApiVersionsRequest
from interop.scenarios.requests import ask
from interop.scenarios.step import SendBytes, Step
from tests.raw_connection import with_size

FRAMES = {
    "a frame of length -1": b"\xff\xff\xff\xff",
    "an empty frame": b"\0\0\0\0",
    "a frame of two gigabytes": b"\x7f\xff\xff\xff",
    "three bytes of a header": b"\0\0\0\3\0\0\0",
    "an unknown request": with_size(b"\3\xe7\0\0\0\0\0\1\xff\xff"),
    "a version that is not there": with_size(b"\0\3\0\x63\0\0\0\1\xff\xff"),
    "a request without its body": with_size(b"\0\3\0\1\0\0\0\1\xff\xff"),
    "api versions of a future version": with_size(b"\0\x12\0\x63\0\0\0\1\xff\xff\0\1\1\0"),
    "api versions of a negative version": with_size(b"\0\x12\xff\xff\0\0\0\1\xff\xff"),
    "a hello of another protocol": b"GET / HTTP/1.1\r\n\r\n",
}

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
STEPS: tuple[Step, ...] = (
    *(Step(name=f"frame: {what}", action=SendBytes(data=data)) for what, data in FRAMES.items()),
    *(
        ask(f"api versions: version {version}", ApiVersionsRequest(**SOFTWARE), version)
        for version in range(5)
    ),
    ask(
        "api versions: software without a name",
        ApiVersionsRequest(client_software_name="", client_software_version="1"),
    ),
    ask(
        "api versions: software with a strange name",
        ApiVersionsRequest(client_software_name="-x-", client_software_version="1"),
    ),
)
