"""What one joblet process is told at its start, cross-checked when it is built."""

from __future__ import annotations

import re

import msgspec

from controlplane.aio.failpoint import Failpoints
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.model.quantity import Number

DRIVERS = ("process", "simulated")
_NAME = re.compile(r"[a-z0-9.-]{1,63}")
_ENDPOINT = re.compile(r"[^\s/,]+:[0-9]{1,5}")


class JobletSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` simulated targets are NAME-0, NAME-1, ...; `duration`, `failure_rate` and `seed` are theirs too.

    `region` and `labels` are what a target gets that the joblet creates. A `resizable` one has no capacity of its own:
    its size is what its joblet reports, which may be another after a restart.
    """

    target: str
    endpoints: tuple[str, ...]
    driver: str = "process"
    capacity: dict[str, Number] = {}
    count: int = 1
    data_dir: str = ""
    duration: Number = 0.05
    failure_rate: float = 0.0
    seed: int = 0
    owner: str = ""
    region: str = ""
    labels: dict[str, str] = {}
    resizable: bool = False
    failpoints: str = ""

    def __post_init__(self) -> None:
        self._check_driver()
        for name in self.targets():
            if not _NAME.fullmatch(name):
                raise Invalid("target", f"{name!r} must be 1 to 63 characters of a-z, 0-9, dot and dash")
        if not self.endpoints:
            raise Invalid("endpoints", "must name at least one replica as host:port")
        for endpoint in self.endpoints:
            if not _ENDPOINT.fullmatch(endpoint):
                raise Invalid("endpoints", f"{endpoint!r} is not host:port")
        for name, amount in self.capacity.items():
            quantity.check(amount, f"capacity.{name}")
        quantity.check(self.duration, "duration")
        if not 0 <= self.failure_rate <= 1:
            raise Invalid("failure_rate", f"must be between 0 and 1, not {self.failure_rate}")
        try:
            Failpoints(self.failpoints)
        except ValueError as error:
            raise Invalid("failpoints", str(error)) from None

    def _check_driver(self) -> None:
        if self.driver == "kubernetes":
            raise Invalid("driver", "kubernetes is not built yet; take process or simulated")
        if self.driver not in DRIVERS:
            raise Invalid("driver", f"must be one of {', '.join(DRIVERS)}, not {self.driver!r}")
        if self.count < 1:
            raise Invalid("count", f"must be at least 1, not {self.count}")
        if self.driver == "process" and self.count != 1:
            raise Invalid("count", "must be 1 for the process driver: one joblet for one target")
        if self.driver == "process" and not self.data_dir:
            raise Invalid("data_dir", "must be given for the process driver: its commands outlive the joblet there")

    def targets(self) -> tuple[str, ...]:
        if self.count == 1:
            return (self.target,)
        return tuple(f"{self.target}-{number}" for number in range(self.count))
