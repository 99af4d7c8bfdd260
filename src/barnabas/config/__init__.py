"""Configuration: Kafka's property names outside, typed and frozen values inside.

properties, warnings…   BrokerConfig.load(read_properties(text, "server.properties"))
a topic's settings      config.topic_defaults().with_overrides({"retention.ms": "1000"})
DescribeConfigs         describe_topic(...), describe_broker(...)
"""

from barnabas.config.broker import BROKER_SETTINGS, BrokerConfig
from barnabas.config.topic import TOPIC_SETTINGS, TopicConfig
from barnabas.config.without_effect import WITHOUT_EFFECT

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "WITHOUT_EFFECT",
    "BrokerConfig",
    "TopicConfig",
]
