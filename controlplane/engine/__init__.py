"""The pure part of scheduling: what fits where, what goes first, and why something waits.

No I/O, no clock, no randomness: (world, queues, budget) in, decisions and reasons out.
"""
