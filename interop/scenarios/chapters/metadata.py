"""Metadata, DescribeConfigs, DescribeCluster, DescribeLogDirs."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.apis import APIS
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from interop.scenarios.requests import ask, create, describe, metadata, new_topic
from interop.scenarios.step import Await, Step

UNKNOWN_ID = UUID("00000000-0000-4000-8000-00000000beef")
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
VERSIONS = APIS[MetadataRequest.API_KEY].versions
DESCRIBE_VERSIONS = APIS[DescribeConfigsRequest.API_KEY].versions

STEPS: tuple[Step, ...] = (
    ask("metadata: a topic to ask for", create(new_topic("known", 2))),
    *(
        ask(f"metadata: all topics, version {version}", MetadataRequest(topics=None), version)
        for version in VERSIONS
        if version >= 1
    ),
    ask("metadata: all topics, version 0", MetadataRequest(topics=()), 0),
    *(
        ask(
            f"metadata: one topic, version {version}",
            metadata("known", create=version < 4),
            version,
        )
        for version in VERSIONS
    ),
    ask("metadata: no topics", metadata()),
    ask("metadata: a topic twice", metadata("known", "known")),
    ask("metadata: an unknown topic", metadata("nobody")),
    *(
        ask(f"metadata: a bad name, creating: {create}", metadata("a/b", "", create=create))
        for create in (False, True)
    ),
    ask("metadata: an unknown topic to be created", metadata("born", "born-2", create=True)),
    *(
        Step(
            name=f"metadata: {name} was created",
            action=Await(
                request=metadata(name), path=f"topics.{name}.partitions.0.leader_id", value=1
            ),
        )
        for name in ("born", "born-2")
    ),
    ask("metadata: a colliding topic to be created", metadata("a_b", create=True)),
    ask(
        "metadata: by id",
        lambda context: MetadataRequest(
            topics=(MetadataRequestTopic(context.topic_id("known")),),
            allow_auto_topic_creation=False,
        ),
    ),
    ask(
        "metadata: an unknown id",
        MetadataRequest(topics=(MetadataRequestTopic(UNKNOWN_ID),), allow_auto_topic_creation=True),
    ),
    *(
        ask(
            f"metadata: by id, version {version}",
            lambda context: MetadataRequest(
                topics=(MetadataRequestTopic(context.topic_id("known"), "known"),)
            ),
            version,
        )
        for version in (10, 11, 12)
    ),
    ask(
        "metadata: by id with an empty name",
        lambda context: MetadataRequest(
            topics=(
                MetadataRequestTopic(context.topic_id("known"), ""),
                MetadataRequestTopic(UNKNOWN_ID, ""),
                MetadataRequestTopic(context.topic_id("known"), "known"),
            ),
            allow_auto_topic_creation=True,
        ),
    ),
    ask(
        "metadata: by id next to a name",
        lambda context: MetadataRequest(
            topics=(
                MetadataRequestTopic(context.topic_id("known")),
                MetadataRequestTopic(name="unborn"),
            ),
            allow_auto_topic_creation=True,
        ),
    ),
    ask(
        "metadata: a null name, version 10",
        MetadataRequest(topics=(MetadataRequestTopic(UNKNOWN_ID, None),)),
        10,
    ),
    ask(
        "metadata: with authorized operations",
        MetadataRequest(
            topics=(MetadataRequestTopic(name="known"),),
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        9,
    ),
    ask(
        "metadata: with authorized operations of an unknown topic",
        MetadataRequest(
            topics=(MetadataRequestTopic(name="nobody"),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
    ),
    # ---- settings
    *(
        ask(
            f"configs: a topic, version {version}",
            describe(
                TOPIC, "set", include_synonyms=version >= 1, include_documentation=version >= 3
            ),
            version,
        )
        for version in DESCRIBE_VERSIONS
    ),
    ask("configs: a topic without settings", describe(TOPIC, "known", include_synonyms=True)),
    ask("configs: without synonyms", describe(TOPIC, "set")),
    ask("configs: two names", describe(TOPIC, "set", "retention.ms", "no.such.setting")),
    ask("configs: an unknown topic", describe(TOPIC, "nobody")),
    ask("configs: a bad name", describe(TOPIC, "a/b")),
    ask("configs: an empty topic", describe(TOPIC, "")),
    ask("configs: an unknown kind", describe(77, "x")),
    ask("configs: kind 0", describe(0, "x")),
    ask("configs: another broker", describe(BROKER, "77")),
    ask("configs: a broker that is no number", describe(BROKER, "one")),
    ask("configs: the defaults of all brokers", describe(BROKER, "")),
    ask("configs: the broker", describe(BROKER, "1", include_synonyms=True)),
    ask(
        "configs: the broker, three names",
        describe(BROKER, "1", "num.partitions", "log.retention.hours", "auto.create.topics.enable"),
    ),
    ask("configs: a broker's loggers", describe(ResourceType.BROKER_LOGGER, "77")),
    ask("configs: metrics of clients", describe(ResourceType.CLIENT_METRICS, "nobody")),
    ask(
        "configs: one thing twice",
        DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(TOPIC, "set", ("retention.ms",)),
                DescribeConfigsResource(TOPIC, "set", ("segment.bytes",)),
            )
        ),
    ),
    ask("configs: nothing", DescribeConfigsRequest(resources=())),
    # ---- the cluster
    *(
        ask(f"cluster: version {version}", DescribeClusterRequest(), version)
        for version in APIS[DescribeClusterRequest.API_KEY].versions
    ),
    *(
        ask(f"cluster: endpoints of type {kind}", DescribeClusterRequest(endpoint_type=kind))
        for kind in (2, 3)
    ),
    ask(
        "cluster: authorized operations",
        DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    *(
        ask(
            f"log dirs: version {version}",
            DescribeLogDirsRequest(topics=(DescribableLogDirTopic("known", (0, 1)),)),
            version,
        )
        for version in APIS[DescribeLogDirsRequest.API_KEY].versions
    ),
    ask("log dirs: everything", DescribeLogDirsRequest(topics=None)),
    ask("log dirs: nothing", DescribeLogDirsRequest(topics=())),
    ask(
        "log dirs: unknown",
        DescribeLogDirsRequest(
            topics=(DescribableLogDirTopic("known", (0, 7)), DescribableLogDirTopic("nobody", (0,)))
        ),
    ),
)
