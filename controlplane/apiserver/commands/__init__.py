"""The commands of users: changes of orders, named objects and settings, from admission to the write in etcd.

A command compares the keys it changes, so a write with a lost answer is decided by reading again. Commands know no
transport, and write neither placements nor any other key of a leader.
"""
