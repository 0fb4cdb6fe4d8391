"""The HTTP face of the apiserver, on the same event loop as gRPC."""
