"""Hosted joblets: a replica runs the joblets of the targets that the leader gave to it, as processes of its own.

Follows etcd through the replica's cache and writes nothing there but events. It opens secrets, and is the only part
that does so to use them; what it opened goes to the joblet through descriptors, never into arguments, the environment
or a file. May not import the three components.
"""
