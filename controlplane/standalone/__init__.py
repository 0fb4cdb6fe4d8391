"""`controlplane up` and `down`: an embedded control plane on one machine, and the supervisor that keeps it alive.

The supervisor starts processes and never opens a gRPC channel: child processes ask over gRPC instead (`wait_ready`,
`etcd_look`). This package parses no options: the commands of `cli` do, and call `launch` and `recorded_processes`.
"""
