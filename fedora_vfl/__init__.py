"""Training and forgetting in vertical federated learning, over gRPC, with every byte counted."""
