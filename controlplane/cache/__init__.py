"""A replica's own picture of etcd: reflector, immutable snapshots at a known revision, and ledgers derived from them.

All components of a replica read it; nothing here writes to etcd.
"""
