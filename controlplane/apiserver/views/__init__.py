"""Objects as clients see them: what users wrote, joined with what the leader and the joblets say about it.

Views only read snapshots and ledgers; lists and watches are made from them.
"""
