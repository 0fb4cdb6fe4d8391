"""A filter which depends only on the signature and on fixed properties of targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Protocol

from controlplane.engine.arrays import Mask
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature
from controlplane.model.job import Constraint


class Columns(Protocol):
    """The columns read by static filters: `target_columns.TargetColumns`."""

    def named(self, names: tuple[str, ...]) -> Mask: ...

    def of_region(self, regions: tuple[str, ...]) -> Mask: ...

    def of_driver(self, drivers: tuple[str, ...]) -> Mask: ...

    def matching(self, constraint: Constraint) -> Mask: ...


class StaticFilter(ABC):
    """Waiting never lifts the refusal of a static filter: a person has to change the order or the target."""

    code: ClassVar[str]
    ends_with_other_work: ClassVar[bool] = False

    @abstractmethod
    def refused(self, columns: Columns, signature: Signature) -> Iterable[Mask]:
        """Masks of the targets refusing such a task; none when the signature does not ask for the filter."""

    @abstractmethod
    def why(self, target: TargetFacts, signature: Signature) -> str:
        """The rest of a sentence which begins with the name of a refusing target."""
