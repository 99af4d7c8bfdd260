"""Request handlers, one module per API, and modules they share: controller_queue, current_leader, registry_offsets."""
