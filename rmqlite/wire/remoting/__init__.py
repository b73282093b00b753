"""RocketMQ 4.x's remoting protocol as values: bytes in, values out, and back; no I/O, no waiting.

    command   one request or answer
    frame     bytes <-> commands; a malformed frame is a FrameError, which means: close
    header    the two spellings of a frame's header, JSON and binary
    limits    how long and how many, for everything that a client sends
    names     wire names, and the texts and numbers that many requests have
    fields    a request's ext fields <-> a NamedTuple
    codes/    the table: every request with its fields, its answer and its bodies
    shapes    JSON bodies <-> dataclasses, RocketMQ's odd JSON included
    odd_json  maps whose keys are numbers or objects
    bodies/   the dataclasses of all JSON bodies
    batch     several messages in one body
    settings_text   key=value lines, the body of settings

The reference is the protocol as RocketMQ 4.9.8 and its clients speak it.
"""
