"""The server side of the joblets' streams: sessions, what is desired, heartbeats, reports.

Any replica serves any joblet. Nothing that must hold depends on which one: every write compares the session's lease,
the desired key and the revision it is based on in etcd itself.
"""
