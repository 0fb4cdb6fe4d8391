"""Packet: a set of jobs, each a name or an inline object with a count, joined with resources."""

from __future__ import annotations

from controlplane.model.bounds import Line, Many, PositiveCount, TaskCount
from controlplane.model.job import Job
from controlplane.model.object import Named, Part


class PacketJob(Part, frozen=True, kw_only=True):
    job: Line | Job = ""
    count: TaskCount | None = None
    after: Many[Line] = ()


class Packet(Named, tag="Packet", frozen=True, kw_only=True):
    jobs: Many[PacketJob] = ()
    resources: Many[Line] = ()
    gang: bool | None = None
    pack: PositiveCount | None = None
