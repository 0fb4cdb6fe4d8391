"""Quantities in the notation of a cluster, and back. Pure.

A cluster knows cpu, memory, ephemeral-storage, huge pages and extended resources, whose names have a domain
(`nvidia.com/gpu`). Any other quantity of a job, such as `power`, belongs to the control plane alone: it counts against
the target's capacity, and is never sent to the cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from controlplane.model.quantity import Number, whole

CPU, MEMORY, PODS = "cpu", "memory", "pods"
# Shorter names of the control plane.
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
    """The requests of a container, rounded up to the unit that the cluster counts in. Amounts of 0 are left out."""
    amounts: dict[str, str] = {}
    for name, amount in sorted(requests.items()):
        cluster_name = names.get(name, name)
        if amount <= 0:
            continue
        if cluster_name == CPU:
            amounts[cluster_name] = f"{_up(float(amount) * 1000)}m"
        elif _BYTES.fullmatch(cluster_name) or _EXTENDED.fullmatch(cluster_name):
            amounts[cluster_name] = str(_up(amount))
    return amounts


def _up(amount: Number) -> int:
    """The next whole number; a billionth above a whole number is an error of floats."""
    return max(1, math.ceil(round(amount, 6)))


def of_cluster(amounts: Mapping[str, Any] | None, names: Mapping[str, str] = NAMES) -> dict[str, Number]:
    """The amounts under the control plane's names; unreadable amounts are left out."""
    own_names = {cluster_name: name for name, cluster_name in names.items()}
    parsed: dict[str, Number] = {}
    for name, text in (amounts or {}).items():
        if name in (CPU, PODS) or _BYTES.fullmatch(name) or _EXTENDED.fullmatch(name):
            amount = parse(text)
            if amount is not None:
                parsed[own_names.get(name, name)] = amount
    return parsed


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
