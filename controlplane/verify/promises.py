"""The promises of the system, one sentence each: `cpctl verify` shows the sentence beside the verdict.

How each promise is checked is told in `docs/promises.md`, which a test compares with these sentences.
"""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    "P1": "Every write of a leader carries the epoch that led at that revision.",
    "P2": "An acknowledged order is never lost, and a repeated submit of one identity is one order.",
    "P3": "An attempt of a task is placed once and started once.",
    "P4": "A unique resource has at most one holder at every revision, and holders never overlap in reality.",
    "P5": "The placements on a target never exceed its capacity, unless the target itself shrank.",
    "P6": "No task is placed while a task of higher priority waits that could have used the same room.",
    "P7": "Phases change only along the lifecycles, a final phase is final, and reports of old attempts are refused.",
    "P8": "The cache of every replica equals a linearisable list of etcd, and follows etcd.",
    "P9": "After every fault a leader is elected again, and every accepted order goes on.",
    "P10": "Every pending task has a reason.",
    "P11": "The chunks of a divisible job cover its work exactly once.",
}
