"""The server side of the joblets' streams: sessions, desired fulfilments, heartbeats, reports.

Any replica serves any joblet, and no promise depends on the choice of the replica: every write compares the session's
lease, the desired key and the revision of its base in etcd itself.
"""
