"""How long one training step takes: in one process, over raw sockets, over bare gRPC streams, and in this system."""
