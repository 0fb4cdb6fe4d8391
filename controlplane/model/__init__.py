"""The words of the system as frozen structs, and pure functions over them.

No I/O, no asyncio, no clock and no randomness live here: who needs the time or chance passes it in.
"""
