"""Security that brokers and clients share: principals, TLS, SASL mechanisms and ACLs, without sockets and registry."""
