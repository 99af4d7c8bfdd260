"""The messages of Kafka's protocol, one module per API; the schema of ApiKey.ELECT_LEADERS is in elect_leaders.py.

Several APIs share current_leader.py and control_plane.py.
"""
