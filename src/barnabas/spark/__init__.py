"""Topics as Spark sources and sinks, and the session everything of ours runs in."""
