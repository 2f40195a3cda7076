"""The verifier: engine, one-step pipeline and gRPC service."""
