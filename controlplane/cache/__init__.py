"""A replica's copy of etcd: reflector, immutable snapshots at a known revision, and ledgers derived from the changes.

All components of a replica read the cache; no code in here writes orders or targets to etcd.
"""
