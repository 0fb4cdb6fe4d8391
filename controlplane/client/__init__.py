"""The Python SDK: a `Client` over several endpoints, with the typed services behind them.

Promises: every call has a deadline, a dead or stopped replica costs at most a second, only calls that are safe to
repeat are repeated, and every failure is an error of `controlplane.model.errors`. Imports model, aio and wire only.
"""

from __future__ import annotations

from controlplane.client.api_client import Client

__all__ = ["Client"]
