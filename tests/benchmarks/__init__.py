"""Benchmarks of the whole system: real processes, real etcd, each number beside a bare baseline of the same run.

They report; they assert nothing. Run by `scripts/bench`.
"""
