"""The Packets service."""

from __future__ import annotations

from controlplane.apiserver.services.named import NamedObjects
from controlplane.model.packet import Packet
from controlplane.wire.v1 import packets_pb2


class Packets(NamedObjects):
    kind = Packet
    message = packets_pb2.Packet
    response = packets_pb2.PacketResponse
    listed = packets_pb2.ListPacketsResponse
    event = packets_pb2.PacketEvent
