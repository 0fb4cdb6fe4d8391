"""The only package that talks to etcd: keys, codec, channels, calls, leases, watches, transactions with their Fence.

Packages above never import etcd's messages, and code in here knows an order only by the key.
"""
