"""Who makes and removes targets when a leader asks: one file per provider, each idempotent by the request's key.

Effects on the outside world only. Nothing here reads or writes etcd, or decides anything.
"""
