"""`controlplane up` and `down`: an embedded control plane on one machine, and the supervisor that keeps it alive.

The supervisor starts processes and never opens a gRPC channel: whether all is ready is asked by a process of its own.
"""
