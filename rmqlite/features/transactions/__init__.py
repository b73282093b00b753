"""Transactions of producers: messages that nobody gets before they are committed.

halves        the records of a transaction, as RocketMQ writes them; which are open
transactions  ends them: a producer's word, and rounds of checks
"""
