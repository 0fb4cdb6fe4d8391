"""The only speaker of etcd: keys, codec, channels, calls, leases, watch, transactions with their Fence.

Nothing above this package imports etcd's messages, and nothing in it knows what an order is beyond its key.
"""
