"""RocketMQ 4.x's remoting protocol as values: bytes in, values out, and back; no I/O, no waiting.

    command   one request or answer, and how an answer says that it ended
    frame     bytes <-> commands; a malformed frame is a FrameError, which means: close
    fields    a request's ext fields <-> a NamedTuple; wire names, texts, numbers and their limits
    shapes    JSON bodies <-> dataclasses, RocketMQ's odd JSON included
    batch     several messages in one body
    requests/ the table, by noun: every request with its code, its fields, its answer and its bodies

The reference is the protocol as RocketMQ 4.9.8 and its clients speak it.
"""
