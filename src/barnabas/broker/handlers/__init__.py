"""Request handlers, one module per API: ApiKey.ELECT_LEADERS is handled by `elect_leaders.handle`.

Several handlers share controller_queue, current_leader and registry_offsets.
"""
