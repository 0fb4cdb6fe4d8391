"""Past cycles run again: the world of a cycle from etcd's history, its inputs from its record, then the same engine.

Reads etcd and writes nothing.
"""
