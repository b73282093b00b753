"""Reads a store without changing it: views of log and queues, searches and figures."""
