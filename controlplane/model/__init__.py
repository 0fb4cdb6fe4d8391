"""The vocabulary of the system: frozen structs, and pure functions over them.

No I/O, no asyncio, no clock and no randomness: callers pass time and random bytes in.
"""
