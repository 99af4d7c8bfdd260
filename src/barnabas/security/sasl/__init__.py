"""SASL mechanisms, as state machines without I/O: the halves of clients and of servers.

    client: SaslClient.start() ─► bytes ─► broker ─► bytes ─► SaslClient.respond(…) ─► bytes, or None at the end

A message is a SaslAuthenticate request or response, or a frame without a header after SaslHandshake v0.
"""
