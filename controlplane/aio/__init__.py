"""Additions to asyncio: clock, background tasks, back-off, work queue, group commit, threads, processes, failpoints.

No domain words.
"""
