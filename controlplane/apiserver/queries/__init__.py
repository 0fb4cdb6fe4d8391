"""The queries of users: objects, lists, watches, explanations and the state of the cluster, read from the cache.

A query writes nothing and knows no transport.
"""
