"""Configuration: Kafka's property names in files, typed and frozen values in code.

    config, warnings = load_broker_config(parse_properties(text, "server.properties"))  # load.py
    topic = config.topic_defaults().with_overrides({"retention.ms": "1000"})

describe.py builds DescribeConfigs responses, and page.py writes docs/configuration.md, from the same declarations.
"""

from barnabas.config.broker import BROKER_SETTINGS, BrokerConfig
from barnabas.config.properties import parse_properties
from barnabas.config.topic import TOPIC_SETTINGS, TopicConfig

__all__ = ["BROKER_SETTINGS", "TOPIC_SETTINGS", "BrokerConfig", "TopicConfig", "parse_properties"]
