"""One broker: connections, request handlers, topic administration, start, maintenance and shutdown."""
