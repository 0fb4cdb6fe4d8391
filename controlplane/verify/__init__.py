"""The promises of the system, judged from what etcd still remembers: one file a promise, named after it.

A check is pure: it gets the state at the oldest revision, then every revision with its changes, and gives a verdict.
Only `reading` talks to etcd. Nothing here writes, and nothing here imports the code that it judges: what a scheduler or
a controller meant to do is no evidence.
"""
