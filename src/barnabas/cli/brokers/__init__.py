"""Commands that show brokers, and commands that run them.

barnabas up                 up.py           a cluster on this machine
barnabas broker             broker.py       one broker
barnabas brokers list       list.py         the brokers of a cluster
barnabas controller show    controller.py   the controller of a cluster
"""
