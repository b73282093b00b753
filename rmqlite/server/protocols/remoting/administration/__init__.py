"""Requests of mqadmin and other tools.

topics       settings, queues, who reads them
groups       settings of consumer groups, and how far they have read
clients      who is connected, and requests that the broker passes on to a client
broker       traffic, disk, log, and the broker's configuration
large_bodies tables that are too long to be written at once
"""
