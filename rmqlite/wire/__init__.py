"""Values <-> protobuf: pairs of to_pb and from_pb; knows no broker and no store."""
