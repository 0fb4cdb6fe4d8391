"""A cancellation must never get lost: who waits for a task that was told to end would wait for ever."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "controlplane"
# Before Python 3.12 it returns the result, and forgets the cancellation, when both come in the same moment.
FORGETS = re.compile(r"asyncio\.wait_for\(")


def test_nobody_waits_with_what_forgets_a_cancellation() -> None:
    users = [str(path) for path in ROOT.rglob("*.py") if FORGETS.search(path.read_text(encoding="utf-8"))]
    assert users == [], "use `async with asyncio.timeout(...)`"
