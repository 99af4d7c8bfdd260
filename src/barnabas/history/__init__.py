"""The history of state changes: recorded by controllers, published to the topic `__state_changes`, read by reports.

event      one state change, election, request or response, in a line of JSON       event.py
recorder   formats the events of one controller in one epoch                        recorder.py
coordinator_event, coordinator_recorder                                             coordinator_event.py,
           the same for the groups and transactions that a broker coordinates       coordinator_recorder.py
journal    files on the broker that hold the events until they are published        journal.py
publisher  copies the journal to the topic                                          publisher.py
requester  the client that requested a change of a topic, for the event             requester.py
reader     events as entries of topics, and facts about controllers and brokers     reader.py
analysis   tables about topics, brokers and controllers; Spark runs it for large     analysis.py, brokers.py,
           histories                                                                incidents.py, spark_analysis.py
report     the tables as one document, Parquet columns, and an HTML page            report.py, columns.py, page.py,
                                                                                    timeline.py
"""
