"""The Rules service."""

from __future__ import annotations

from controlplane.apiserver.services.named import NamedObjects
from controlplane.model.rule import Rule
from controlplane.wire.v1 import rules_pb2


class Rules(NamedObjects):
    kind = Rule
    message = rules_pb2.Rule
    response = rules_pb2.RuleResponse
    listed = rules_pb2.ListRulesResponse
    event = rules_pb2.RuleEvent
