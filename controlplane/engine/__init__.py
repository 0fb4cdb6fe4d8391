"""The pure part of scheduling: which task fits where, which task goes first, and why a task waits.

No I/O, no clock, no randomness: world (with the settings) and queues in, decisions and reasons out.
"""
