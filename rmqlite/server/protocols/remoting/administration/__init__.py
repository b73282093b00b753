"""Requests of mqadmin and other tools.

topics       settings, queues, who reads them
groups       settings of consumer groups
connections  who is connected
offsets      how far groups are
figures      traffic, disk, log
settings     the broker's configuration
relays       requests that the broker passes on to a client
large_bodies tables that are too long to be written at once
"""
