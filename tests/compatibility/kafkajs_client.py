"""Runs kafkajs in its own process and exchanges JSON with it."""

import json
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from tests.compatibility.sample import Sample
from tests.tools import KAFKAJS

SECONDS = 120


class KafkaJsError(Exception):
    """An error that kafkajs reported; `kind` is Kafka's error name if there is one."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def start(servers: str, command: str, **options: Any) -> "subprocess.Popen[str]":
    """Start kafkajs with a command; its results can be read line by line."""
    process = subprocess.Popen(
        ["node", str(KAFKAJS / "client.js")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({**options, "servers": servers, "command": command}))
    process.stdin.close()
    process.stdin = None
    return process


def ask(servers: str, command: str, **options: Any) -> Any:
    process = start(servers, command, **options)
    try:
        text, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return result_in(text)


def result_in(line: str) -> Any:
    answer = json.loads(line)
    if "error" in answer:
        raise KafkaJsError(answer["error"]["type"], answer["error"]["message"])
    return answer["result"]


def administer(servers: str, method: str, **options: Any) -> Any:
    return ask(servers, "administer", method=method, options=options)


def produce(servers: str, topic: str, samples: Sequence[Sample], **options: Any) -> Any:
    records = [
        {
            "key": text(sample.key),
            "value": text(sample.value),
            "timestamp": sample.timestamp,
            "headers": headers(sample),
        }
        for sample in samples
    ]
    return ask(servers, "produce", topic=topic, records=records, **options)


def text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def headers(sample: Sample) -> dict[str, list[str]]:
    """kafkajs groups the values of headers with the same name."""
    found: dict[str, list[str]] = {}
    for name, value in sample.headers:
        found.setdefault(name, []).append(value.decode())
    return found
