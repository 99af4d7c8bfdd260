"""Topic administration: creates, extends and deletes topics, and keeps their settings."""
