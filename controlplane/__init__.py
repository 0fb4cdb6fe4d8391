"""A highly available control plane on etcd: orders of work, run on many targets."""

__version__ = "0.1.0"
