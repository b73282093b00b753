"""Generated from proto/; see tests/generate_pb.py."""
