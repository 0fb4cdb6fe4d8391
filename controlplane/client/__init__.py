"""The way in for programs: one `Client` that knows several endpoints and the typed services behind them.

Promises: every call has a deadline, a dead or stopped replica costs at most a second, only calls that are safe to
repeat are repeated, and every failure is one of `controlplane.model.errors`. Knows model, aio and wire only.
"""

from __future__ import annotations

from controlplane.client.client import Client

__all__ = ["Client"]
