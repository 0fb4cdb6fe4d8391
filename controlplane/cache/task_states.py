"""A byte for each task of a job, stored only for tasks that have changed.

Untouched tasks in a row share a byte, so that a job of a million waiting tasks costs no memory. A small job is plain
bytes: the shared, immutable zeros until the first change, a bytearray of its own from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

_BITS = 12
_CHUNK = 1 << _BITS
_WITHIN = _CHUNK - 1


class SparseStates:
    """A bytearray of `count` bytes, as far as ledgers use a bytearray, with memory only for written parts."""

    __slots__ = ("_chunks", "_count", "_rest")

    def __init__(self, count: int, rest: int = 0) -> None:
        self._count = count
        self._rest = rest
        self._chunks: dict[int, bytearray] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._count:
            raise IndexError(index)
        chunk = self._chunks.get(index >> _BITS)
        return self._rest if chunk is None else chunk[index & _WITHIN]

    def __setitem__(self, index: int, state: int) -> None:
        if not 0 <= index < self._count:
            raise IndexError(index)
        chunk = self._chunks.get(index >> _BITS)
        if chunk is None:
            start = index & ~_WITHIN
            chunk = bytearray((self._rest,)) * min(_CHUNK, self._count - start)
            self._chunks[index >> _BITS] = chunk
        chunk[index & _WITHIN] = state

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self._count, _CHUNK):
            yield from self._chunk(start >> _BITS)

    def find(self, state: int, start: int = 0) -> int:
        return next(self.where(state, start), -1)

    def where(self, state: int, start: int = 0) -> Iterator[int]:
        """The indices in this state, from `start` on; states behind the last index given may change meanwhile."""
        for number in range(start >> _BITS, (self._count + _WITHIN) >> _BITS):
            base = number << _BITS
            at = max(start - base, 0)
            chunk = self._chunks.get(number)
            if chunk is not None:
                at = chunk.find(state, at)
                while at >= 0:
                    yield base + at
                    at = chunk.find(state, at + 1)
            elif state == self._rest:
                yield from range(base + at, min(base + _CHUNK, self._count))

    def translate(self, table: bytes) -> SparseStates:
        changed = SparseStates(self._count, table[self._rest])
        changed._chunks = {number: chunk.translate(table) for number, chunk in self._chunks.items()}
        return changed

    def _chunk(self, number: int) -> bytes | bytearray:
        chunk = self._chunks.get(number)
        length = min(_CHUNK, self._count - (number << _BITS))
        return bytes((self._rest,)) * length if chunk is None else chunk


States: TypeAlias = bytes | bytearray | SparseStates


def untouched(count: int) -> bytes | SparseStates:
    """The states of untouched tasks: all zero."""
    return _zeros(count) if count <= _CHUNK else SparseStates(count)


@lru_cache(maxsize=1024)
def _zeros(count: int) -> bytes:
    return bytes(count)


def writable(states: States) -> bytearray | SparseStates:
    """The same states, to be changed in place."""
    return bytearray(states) if isinstance(states, bytes) else states


def where(states: States, state: int, start: int = 0) -> Iterator[int]:
    """The indices in this state, from `start` on."""
    if isinstance(states, SparseStates):
        yield from states.where(state, start)
        return
    index = states.find(state, start)
    while index >= 0:
        yield index
        index = states.find(state, index + 1)
