"""Hosted joblets: a replica runs, as child processes, the joblets of the targets assigned by the leader.

Follows etcd through the replica's cache and writes only events. No other part of the project opens secrets to use them;
their content reaches a joblet through descriptors, never through arguments, the environment or a file. May not import
the three components.
"""
