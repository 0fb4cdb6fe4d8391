"""Quantities in the words of a cluster, and back. Pure.

A cluster knows cpu, memory, ephemeral-storage, huge pages and extended resources, whose names have a domain
(`nvidia.com/gpu`). Any other quantity of a job, such as `power`, is the control plane's own account: it is counted
there against the target's capacity, and never sent to the cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from controlplane.model.quantity import Number, whole

CPU, MEMORY, PODS = "cpu", "memory", "pods"
# What the control plane calls by a shorter name.
NAMES: Mapping[str, str] = MappingProxyType({"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"})
_BYTES = re.compile(r"memory|ephemeral-storage|hugepages-[0-9]+[KMGTPE]i?")
_EXTENDED = re.compile(
    r"(?![^/]*kubernetes\.io/)(?!requests\.)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.[a-z]+"
    r"/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def in_cluster(requests: Mapping[str, Number], names: Mapping[str, str] = NAMES) -> dict[str, str]:
    """What a container asks for: amounts are rounded up to what the cluster counts in; nothing is not asked for."""
    found: dict[str, str] = {}
    for name, amount in sorted(requests.items()):
        known = names.get(name, name)
        if amount <= 0:
            continue
        if known == CPU:
            found[known] = f"{_up(float(amount) * 1000)}m"
        elif _BYTES.fullmatch(known) or _EXTENDED.fullmatch(known):
            found[known] = str(_up(amount))
    return found


def _up(amount: Number) -> int:
    """A billionth above a whole number is an error of floats, no wish for more."""
    return max(1, math.ceil(round(amount, 6)))


def of_cluster(amounts: Mapping[str, Any] | None, names: Mapping[str, str] = NAMES) -> dict[str, Number]:
    """The same in the control plane's words; what cannot be read is no amount."""
    shorter = {known: name for name, known in names.items()}
    found: dict[str, Number] = {}
    for known, text in (amounts or {}).items():
        if known in (CPU, PODS) or _BYTES.fullmatch(known) or _EXTENDED.fullmatch(known):
            amount = parse(text)
            if amount is not None:
                found[shorter.get(known, known)] = amount
    return found


def parse(text: object) -> Number | None:
    """A quantity as the API writes it: `1500m`, `4039984Ki`, `12e3`, `110`."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    amount: Number = float(digits + (exponent or "")) if exponent or "." in digits else int(digits)
    if suffix in _BINARY:
        return whole(amount * 2 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        power = _DECIMAL[suffix]
        return whole(round(amount / 10**-power, 9) if power < 0 else amount * 10**power)
    return whole(amount)
