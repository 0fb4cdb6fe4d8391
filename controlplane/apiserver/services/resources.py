"""The Resources service."""

from __future__ import annotations

from controlplane.apiserver.services.named import NamedObjects
from controlplane.model.resource import Resource
from controlplane.wire.v1 import resources_pb2


class Resources(NamedObjects):
    kind = Resource
    message = resources_pb2.Resource
    response = resources_pb2.ResourceResponse
    listed = resources_pb2.ListResourcesResponse
    event = resources_pb2.ResourceEvent
