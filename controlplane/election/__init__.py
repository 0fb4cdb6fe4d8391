"""Who leads: the lease kept by a thread of its own, the candidate key, the term and its fence, the pulse.

Leadership is a key in etcd and its create revision; everything here only decides when to try for it, when to stop
believing in it, and when to help etcd notice that a leader is gone. A wrong decision costs a change of leader, never a
wrong write: that is the fence's work. Nothing here knows what a leader does with its term.
"""
