"""The election: the lease kept by a thread of its own, the candidate key, the term and its fence, the pulse.

Leadership is a key in etcd and its create revision. This package only decides when a replica tries for leadership, when
a leader stops believing in its term, and when a standby helps etcd to notice a dead leader. A wrong decision costs a
change of leader, never a wrong write: the fence prevents wrong writes. The work of a leader in its term is passed in
by the caller and unknown here.
"""
