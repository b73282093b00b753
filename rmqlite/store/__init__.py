"""The bytes on disk, in RocketMQ 4.x's own files: no consumers, no retry, no gRPC.

The broker uses message_store; everybody else uses reader, check and repair.  Below them, dispatch
enters the records of commit_log into consume_queue and index/.  records/ has the format of a
record, and disk/ makes all system calls on files.
"""
