import asyncio
import json
from collections.abc import AsyncIterator
from random import Random

import pytest

from barnabas.errors import RegistryError
from barnabas.metadata import registration, znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Broker, BrokerId, Endpoint
from tests.contract.registry.harness import DEADLINE_S, Setup, eventually

BROKER = Broker(
    id=BrokerId(7), endpoints=(Endpoint(listener="PLAINTEXT", host="here", port=9092),), rack=None
)
PATH = "/brokers/ids/7"


@pytest.fixture
async def client(registry: Setup) -> AsyncIterator[RegistryClient]:
    client = await open_client(registry)
    await registration.create_persistent_paths(client)
    yield client
    await client.close()


async def open_client(registry: Setup, timeout_ms: int = 6000) -> RegistryClient:
    client = RegistryClient(registry.registry, timeout_ms)
    await client.open()
    return client


async def test_broker_epoch_is_creation_zxid(
    client: RegistryClient,
) -> None:
    epoch = await registration.register(client, BROKER, 123, wait_s=0)
    data, stat = await client.get(PATH)
    assert epoch == stat.czxid
    assert stat.ephemeral_owner == client.id
    assert stat.version == 1  # created, then set in the same transaction, as in Kafka
    assert stat.mzxid == stat.czxid
    assert json.loads(data) == json.loads(znodes.encode_broker(BROKER, timestamp_ms=123))


async def test_znode_of_own_session_counts_as_lost_response(client: RegistryClient) -> None:
    first = await registration.register(client, BROKER, 123, wait_s=0)
    assert await registration.register(client, BROKER, 123, wait_s=0) == first


async def test_znode_of_former_session_is_replaced(registry: Setup, client: RegistryClient) -> None:
    former = await registry.connect()
    client.session_ids.add(former.id)
    _, left_behind = await former.create(PATH, b"{}", ephemeral=True)
    epoch = await registration.register(client, BROKER, 123, wait_s=0)
    assert epoch > left_behind.czxid
    assert (await client.get(PATH))[1].ephemeral_owner == client.id


async def test_znode_of_another_broker_is_an_error_in_one_line(
    registry: Setup, client: RegistryClient
) -> None:
    other = await open_client(registry)
    theirs = await registration.register(other, BROKER, 123, wait_s=0)
    with pytest.raises(RegistryError, match="another broker is registered as 7") as failed:
        await registration.register(client, BROKER, 123, wait_s=0.05)
    assert "\n" not in str(failed.value)
    assert (await client.get(PATH))[1].czxid == theirs
    await other.close()


async def test_registration_waits_for_znode_of_another_broker(
    registry: Setup, client: RegistryClient
) -> None:
    other = await open_client(registry)
    theirs = await registration.register(other, BROKER, 123, wait_s=0)
    waiting = asyncio.ensure_future(registration.register(client, BROKER, 123, wait_s=DEADLINE_S))
    await other.set(PATH, b"{}")  # another change does not end the wait
    await client.children("/brokers/ids")
    assert not waiting.done()
    await other.close()
    assert await waiting > theirs
    assert (await client.get(PATH))[1].ephemeral_owner == client.id


async def test_killed_broker_registers_after_session_timeout(
    registry: Setup, client: RegistryClient
) -> None:
    killed = await open_client(registry, 1500)
    before = await registration.register(killed, BROKER, 123, wait_s=0)
    await killed.abandon()
    assert await registration.register(client, BROKER, 123, wait_s=DEADLINE_S) > before


async def test_registration_after_expiry_has_later_epoch(
    registry: Setup, client: RegistryClient
) -> None:
    before = await registration.register(client, BROKER, 123, wait_s=0)
    is_new = asyncio.Event()
    client.on_new_session = is_new.set
    assert client.session is not None
    await registry.expire(client.session)
    async with asyncio.timeout(DEADLINE_S):
        await is_new.wait()
    assert await registration.register(client, BROKER, 456, wait_s=0) > before


async def test_concurrent_brokers_get_same_cluster_id(
    registry: Setup, client: RegistryClient
) -> None:
    other = await open_client(registry)
    clients = [client, other] * 3
    ids = await asyncio.gather(
        *(
            registration.read_or_create_cluster_id(each, Random(seed))
            for seed, each in enumerate(clients)
        )
    )
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22
    await other.close()


async def test_persistent_paths_may_be_created_concurrently(
    registry: Setup, client: RegistryClient
) -> None:
    other = await open_client(registry)
    await asyncio.gather(
        *(registration.create_persistent_paths(each) for each in [client, other] * 2)
    )

    async def all_paths_exist() -> bool:
        found = [await other.exists(path) for path in znodes.PERSISTENT_PATHS]
        return None not in found

    await eventually(all_paths_exist)
    await other.close()
