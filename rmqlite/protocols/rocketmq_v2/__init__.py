"""apache.rocketmq.v2 over gRPC: what the clients of RocketMQ 5 ask for, through the service.

calls         who makes a call; a request as a message to a method, its outcome as a status
clients       who is there: producers, consumers, their Telemetry calls
telemetry     what clients say about themselves, and what the broker asks them
sends         messages that come in, each once; recalls; ends of transactions
receiving     messages that go out, and what becomes of them; offsets
table         which method answers which call; where a topic is
"""
