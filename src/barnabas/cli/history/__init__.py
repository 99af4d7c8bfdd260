"""Commands that read the history of state changes.

barnabas topics history      history.py    the state changes of one topic
barnabas lifecycle report    report.py     all topics and controllers, analysed with Spark
"""
