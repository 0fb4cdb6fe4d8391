"""The kinds of driver that a joblet can have, and how they differ: the only table from a kind to its traits.

A joblet names its kind in its hello, and sessions, targets and jobs are stored with that word. Everybody else, the
driver classes of the joblet included, reads the traits here instead of comparing the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

PROCESS, SIMULATED, KUBERNETES = "process", "simulated", "kubernetes"


class DriverTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind of driver differs from a child process on the joblet's own machine.

    stops_single_tasks: a task of a pack can be stopped while its neighbours go on.
    kills_holders: holders of unique resources die by themselves when their joblet is silent. Nothing in a cluster does
    that: a pod runs on until its time limit.
    needs_image: a task without an image cannot run.
    has_nodes: the target is a cluster, whose nodes a job may choose and which a replica can host the joblet of.
    runs_commands: a task is a process on the joblet's machine, with a niceness, output files and a pid.
    outlives_joblet: the work goes on without the joblet, which needs a folder to find it again.
    """

    stops_single_tasks: bool = True
    kills_holders: bool = True
    needs_image: bool = False
    has_nodes: bool = False
    runs_commands: bool = False
    outlives_joblet: bool = True


_TRAITS: Mapping[str, DriverTraits] = MappingProxyType(
    {
        PROCESS: DriverTraits(runs_commands=True),
        SIMULATED: DriverTraits(outlives_joblet=False),
        KUBERNETES: DriverTraits(stops_single_tasks=False, kills_holders=False, needs_image=True, has_nodes=True),
    }
)
DRIVERS = tuple(sorted(_TRAITS))
NEEDING_IMAGES = tuple(kind for kind in DRIVERS if _TRAITS[kind].needs_image)
WITH_NODES = tuple(kind for kind in DRIVERS if _TRAITS[kind].has_nodes)
_UNKNOWN = DriverTraits()


def traits_of(kind: str) -> DriverTraits:
    """The defaults for a kind that is not in the table, which only a record written by hand can name."""
    return _TRAITS.get(kind, _UNKNOWN)
