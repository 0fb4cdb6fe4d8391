"""Providers create and remove targets when a leader asks: one file per provider, each idempotent by the request's key.

Providers act on the outside world only. No module here reads or writes etcd, or decides anything.
"""
