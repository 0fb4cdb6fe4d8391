"""Evidence for the checks: etcd's history, joblets' records, a client's record, answers of replicas, past cycles.

The modules here read etcd, files and replicas, and may import `replay` and `client`. They write nothing and judge
nothing: the checks of `controlplane.verify` judge.
"""
