"""Verdicts: for one signature, of every target which filter refuses it first; and the one reason to show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controlplane.engine import words
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

_CODES = {reason: code for code, reason in enumerate(words.FILTERS)}
FITS = -1


def codes_of(room: Room, signature: Signature) -> NDArray[np.int64]:
    """For each target the first filter that refuses such a task, as a place in words.FILTERS, or FITS."""
    codes = np.full(len(room.floor.targets), FITS)
    for reason, mask in room.refusals(signature):
        codes[mask & (codes == FITS)] = _CODES[reason]
    return codes


def tally(room: Room, signature: Signature) -> tuple[dict[str, int], str]:
    """How many targets refuse such a task by which filter, and the one that comes closest to taking it."""
    codes = codes_of(room, signature)
    if not len(codes):
        return {}, ""
    kinds, counts = np.unique(codes[codes != FITS], return_counts=True)
    found = {words.FILTERS[code]: int(count) for code, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
    return found, room.floor.names[int(codes.argmax())]


def reason_of(room: Room, signature: Signature, owner: str) -> str:
    """Of all targets' refusals the nearest miss; Queued when it would fit somewhere."""
    if not room.floor.targets:
        return words.NO_TARGETS
    if room.owners.allowance(owner, signature) <= 0:
        return words.QUOTA
    lacking = room.lacks(signature)
    if lacking is not None:
        return lacking
    nearest = codes_of(room, signature)
    if (nearest == FITS).any():
        return words.HELD if room.allowance(signature) <= 0 else words.QUEUED
    return words.FILTERS[int(nearest.max())]
