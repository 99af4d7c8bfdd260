"""`barnabas topics|partitions|brokers|groups|cluster explain` and `barnabas cluster health`.

gather.py and its helpers collect the facts, barnabas.explain finds the causes, output.py prints them.
"""
