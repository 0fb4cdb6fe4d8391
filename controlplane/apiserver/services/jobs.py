"""The Jobs service."""

from __future__ import annotations

from controlplane.apiserver.services.named import NamedObjects
from controlplane.model.job import Job
from controlplane.wire.v1 import jobs_pb2


class Jobs(NamedObjects):
    kind = Job
    message = jobs_pb2.Job
    response = jobs_pb2.JobResponse
    listed = jobs_pb2.ListJobsResponse
    event = jobs_pb2.JobEvent
