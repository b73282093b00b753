"""Bytes on disk, in RocketMQ 4.x's own files; knows no consumers, no retry, no gRPC.

message_store is the door for the broker, reader, check and repair the doors for everybody else.
Below them: dispatch over commit_log, consume_queue and index/; records/ and disk/.
"""
