"""Changes of settings in tests, with `_` for `.` in their names."""

from __future__ import annotations

from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


def alter(configs: ConfigAdmin, kind: ResourceType, name: str, **settings: str | None) -> None:
    """Change settings of one resource. None deletes a setting."""
    resource = ConfigResource(kind, name)
    changes = [
        ConfigChange(
            key.replace("_", "."),
            value,
            ConfigOperation.DELETE if value is None else ConfigOperation.SET,
        )
        for key, value in settings.items()
    ]
    assert configs.incremental_alter_configs({resource: changes}) == {resource: None}
