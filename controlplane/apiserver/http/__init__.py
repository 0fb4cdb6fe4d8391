"""What the apiserver says over HTTP, on the same event loop as gRPC."""
