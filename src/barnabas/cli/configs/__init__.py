"""`barnabas configs`: one file per command.

entity.py     options that select a topic, a broker, loggers or quotas
names.py      known setting names: completion, suggestions for typos
reading.py    settings of an entity, as one type for configs and quotas
changes.py    changes of settings: predicted values, requests, output
"""
