"""The controller: elects partition leaders, and creates and deletes topics. One broker at a time is the controller."""
