"""The promises of the system, judged from etcd's history: every file p1 to p10 checks the promise in its name.

A check is pure: it gets the state at the oldest revision, then every revision with its changes, and gives a verdict.
Only `gathering` does I/O, and only for reading. A check imports no scheduler, controller or engine: the intent of the
judged code is no evidence. `verification` runs all checks.
"""
