"""The command line: `barnabas <noun> <verb>` is in cli/<noun>/<verb>.py, or in <noun>/commands.py.

    barnabas topics …, groups …, configs …, registry …    topics/, groups/, configs/, registry/
    barnabas quotas …, users …, acls …                    quotas/, users/, acls/
    barnabas elect-leaders                                elections/
    barnabas … explain, cluster health                    explain/
    barnabas produce, consume                             records/
    barnabas up, broker, node, top, brokers …, controller …  brokers/
    barnabas zookeeper                                    zookeeper.py
    barnabas sql, spark                                   spark/
    barnabas pipeline …                                   pipelines/
    barnabas topics history, lifecycle report             history/
    barnabas reassign …, brokers drain, decommission      reassign/
    barnabas bench …                                      bench/
    barnabas doctor, profile …, completion                setup/
    barnabas kafka-topics, kafka-configs, …               kafka/

main.py is the entry point and lists all commands. reference/ has the kinds of all commands, for docs/commands.md.
terminal/ has output, prompts, progress, signals and exit codes.
"""
