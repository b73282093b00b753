"""Values <-> bytes of a protocol; knows no broker and no store.

The modules here are rmqlite.v1, in protobuf: pairs of to_pb and from_pb.  remoting/ is RocketMQ
4.x's protocol, rocketmq_v2/ that of RocketMQ 5's gRPC clients.
"""
