"""The use of etcd's space, and the levels that follow. Pure.

The used part counts, not the size of the file: free pages are used again. etcd itself refuses writes once the file has
grown to its quota, and raises an alarm, which always counts. A level is left below the point where it was entered, so
that the level does not change with every write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GIB = 2**30


class Level(StrEnum):
    OK = "Ok"
    NEAR = "Near"
    FULL = "Full"


# (entered at, left below), as parts of the quota.
_NEAR = (0.80, 0.75)
_FULL = (0.90, 0.85)
# A file whose used part is below the first number is worth being defragmented, when larger than the second part of the
# quota.
_SPARSE = 0.5
_LARGE = 0.8


@dataclass(frozen=True, slots=True)
class Space:
    """`size` is the size of the file, `in_use` the used part; `alarm` is set when etcd has no space left."""

    cluster_id: str
    version: str
    size: int
    in_use: int
    quota: int
    alarm: bool
    level: Level = Level.OK

    @property
    def used(self) -> float:
        return self.in_use / self.quota if self.quota else 0.0

    def sentence(self) -> str:
        """The reason for the level, and what helps; empty when all is well."""
        used = f"{self.in_use / GIB:.2f} of {self.quota / GIB:g} GiB"
        if self.alarm:
            return (
                f"etcd is out of space ({used} in use): compact it, `etcdctl defrag`, then `etcdctl alarm disarm`; "
                "shorter `clean_up` and `history` settings keep it smaller"
            )
        if self.level is not Level.OK:
            return f"etcd has {used} in use ({self.used:.0%}); `clean_up` and `history` say what is kept"
        if self.quota and self.size > _LARGE * self.quota and self.in_use < _SPARSE * self.size:
            return (
                f"etcd's file has {self.size / GIB:.2f} GiB, of which {self.in_use / GIB:.2f} are in use: defragment it"
            )
        return ""


def level_of(used: float, *, alarm: bool, before: Level) -> Level:
    if alarm or used >= _FULL[0] or (before is Level.FULL and used >= _FULL[1]):
        return Level.FULL
    if used >= _NEAR[0] or (before is not Level.OK and used >= _NEAR[1]):
        return Level.NEAR
    return Level.OK
