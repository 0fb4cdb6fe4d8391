"""Packet: a set of jobs, each by name or as the object itself with a count, joined with resources."""

from __future__ import annotations

from controlplane.model.job import Job
from controlplane.model.object import Named, Part


class PacketJob(Part, frozen=True, kw_only=True):
    job: str | Job = ""
    count: int | None = None
    after: tuple[str, ...] = ()


class Packet(Named, tag="Packet", frozen=True, kw_only=True):
    jobs: tuple[PacketJob, ...] = ()
    resources: tuple[str, ...] = ()
    gang: bool | None = None
    pack: int | None = None
