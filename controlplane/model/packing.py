"""Packing: the number of tasks of a job in a fulfilment, and their requests together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controlplane.model.quantity import Number, whole


def sizes(count: int, pack: int) -> Iterator[int]:
    """`count` tasks, up to `pack` at a time."""
    for begun in range(0, count, pack):
        yield min(pack, count - begun)


def together(requests: Iterable[tuple[str, Number]], count: int) -> dict[str, Number]:
    """The requests of `count` equal tasks, without float noise."""
    return {name: whole(round(amount * count, 9)) for name, amount in requests}
