"""The requests by noun, as in bytes/requests: each handler stands below the row it answers.

sends        everything that arrives together is stored by one append; recalls, replies
messages     pulled, failed, looked for; the ends of transactions
pop          messages that are leased, and how a group gets its messages
clients      who is connected: heartbeats, members, producers
relays       lists of clients, and requests that the broker passes on to a client
groups       settings of consumer groups, and how far they have read
topics       settings, queues, who reads them; offsets and locks
broker       traffic, disk, log, timers, and the broker's configuration
name_server  routes, clusters, values of tools; other brokers that register here
"""
