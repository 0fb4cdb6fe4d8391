"""Packing: how many tasks of one job travel together as one fulfilment, and what they need together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controlplane.model.quantity import Number, whole


def sizes(count: int, pack: int) -> Iterator[int]:
    """So many tasks, up to `pack` at a time."""
    for begun in range(0, count, pack):
        yield min(pack, count - begun)


def together(requests: Iterable[tuple[str, Number]], count: int) -> dict[str, Number]:
    """What so many equal tasks request; fractions that only floats make are left out."""
    return {name: whole(round(amount * count, 9)) for name, amount in requests}
