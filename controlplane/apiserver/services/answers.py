"""Pieces of answers that several services give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from controlplane.apiserver.admission.warnings import Warning

M = TypeVar("M", bound=Any)


def warned(message: M, warnings: Iterable[Warning]) -> M:
    for warning in warnings:
        message.warnings.add(field=warning.field, message=warning.message)
    return message
