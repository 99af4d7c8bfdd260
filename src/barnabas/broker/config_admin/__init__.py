"""Settings that change while brokers run: validated, written to the registry, and applied by every broker."""
