"""Who may do what: accounts, the file that lists them, and the decision.

    accounts   the values: an account, its rights, and all accounts
    addresses  RocketMQ's patterns of remote addresses, for its white lists
    files      opens the file of accounts and of secrets; reads a secret from the environment
    plain_yaml YAML without its traps
    reading    plain_acl.yml -> accounts
    decision   an account, and what a request needs -> allowed, or the rule that forbids it

Nothing here knows a request, a signature or a connection.
"""
