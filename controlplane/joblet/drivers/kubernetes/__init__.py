"""Fulfilments as Pods of a cluster.

Pure, over plain JSON as the API speaks it, and knowing nothing of any client: pod with nodes (what is asked for),
observing (what its status means), results (what a task said), availability (how much room the cluster has), amounts
(quantities in its words).
"""
