"""Attempts as child processes that outlive the joblet: a folder and a shim for each attempt."""
