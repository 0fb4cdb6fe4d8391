"""Objects as clients see them: the user's object, joined with the words of the leader and the joblets.

Views only read snapshots and ledgers; lists and watches are built on views.
"""
