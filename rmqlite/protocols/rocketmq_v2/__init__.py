"""apache.rocketmq.v2 over gRPC: what the clients of RocketMQ 5 ask for, through the service.

calls         a request as a message to a method, its outcome as a status
guard         who makes a call
clients       who is there: producers, consumers, their Telemetry calls
telemetry     what clients say about themselves, and what the broker asks them
routes        where a topic is
sends         messages that come in, each once; recalls
storing       what comes together is stored together
sent_window   the results of recent sends, for clients that send a message again
receiving     messages that go out, and what becomes of them
pulling       messages by their offset, and committed offsets
transactions  how transactions end, and producers that are asked
table         which method answers which call
"""
