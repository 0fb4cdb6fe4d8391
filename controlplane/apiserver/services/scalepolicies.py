"""The ScalePolicies service."""

from __future__ import annotations

from controlplane.apiserver.services.named import NamedObjects
from controlplane.apiserver.views.named import ScalePolicyView
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.wire.v1 import scalepolicies_pb2


class ScalePolicies(NamedObjects):
    kind = ScalePolicy
    message = scalepolicies_pb2.ScalePolicy
    response = scalepolicies_pb2.ScalePolicyResponse
    listed = scalepolicies_pb2.ListScalePoliciesResponse
    event = scalepolicies_pb2.ScalePolicyEvent

    def make_view(self) -> ScalePolicyView:
        return ScalePolicyView()
