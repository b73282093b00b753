"""The protocol of RocketMQ 5's gRPC clients (apache.rocketmq.v2): values <-> bytes.

rpcs         the table of its calls
limits       the limits of all fields, checked before a request is parsed
codes        how a call ends; our errors as these codes
rules        what the fields of requests must be
messages     a message that is sent -> a draft; a record -> the message that a client receives;
             the id of a transaction
"""
