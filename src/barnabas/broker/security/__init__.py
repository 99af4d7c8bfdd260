"""Security of a broker: TLS of its listeners, logins, authorization and connections to other brokers."""
