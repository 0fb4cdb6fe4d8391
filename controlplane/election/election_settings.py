"""The times of an election, checked against each other when built."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from controlplane.model.errors import Invalid

_SHORTEST_TTL_SECONDS = 2  # etcd lengthens shorter leases


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """All times in seconds.

    ttl: life of the leader's lease without renewal. loop_silence: an event loop without a tick for so long loses its
    lease. tick: the step in which silence is counted, so that a stopped process counts no silence. pulse_silence: a
    leader that was reached and is silent for so long is asked once more, and has pulse_answer to respond. pulse_beat:
    how often a leader sends its pulse. pulse_advertise: the address at which other replicas reach the pulse, when
    different from the bound address.
    """

    ttl_seconds: int = 5
    loop_silence_seconds: float = 2.0
    tick_seconds: float = 0.1
    pulse_silence_seconds: float = 2.0
    pulse_beat_seconds: float = 0.25
    pulse_answer_seconds: float = 0.3
    pulse_host: str = "127.0.0.1"
    pulse_port: int = 0
    pulse_advertise: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_seconds") and not (math.isfinite(value) and value > 0):
                raise Invalid(field.name, f"must be a number of seconds above 0, not {value!r}")
        if type(self.ttl_seconds) is not int or self.ttl_seconds < _SHORTEST_TTL_SECONDS:
            raise Invalid("ttl_seconds", f"must be a whole number of at least {_SHORTEST_TTL_SECONDS} seconds")
        self._at_most("loop_silence_seconds", self.ttl_seconds, "ttl_seconds: later the lease ends by itself")
        silence = self.ttl_seconds - self.pulse_answer_seconds
        self._at_most("pulse_silence_seconds", silence, "ttl_seconds - pulse_answer_seconds: later the lease is gone")
        self._at_most("tick_seconds", self.loop_silence_seconds / 4, "a quarter of loop_silence_seconds")
        self._at_most("tick_seconds", self.pulse_silence_seconds / 4, "a quarter of pulse_silence_seconds")
        self._at_most("tick_seconds", self.pulse_answer_seconds, "pulse_answer_seconds")
        self._at_most("pulse_beat_seconds", self.pulse_silence_seconds / 4, "a quarter of pulse_silence_seconds")
        if not 0 <= self.pulse_port <= 65535:
            raise Invalid("pulse_port", f"must be 0 (any free one) to 65535, not {self.pulse_port}")

    def _at_most(self, name: str, most: float, bound: str) -> None:
        if getattr(self, name) > most:
            raise Invalid(name, f"is {getattr(self, name)} but must not be above {most}, {bound}")

    @property
    def renew_seconds(self) -> float:
        return self.ttl_seconds / 3

    @property
    def patience_seconds(self) -> float:
        """How long a call to etcd may take before the next endpoint is tried: several calls fit into a lease."""
        return self.ttl_seconds / 4

    @property
    def pulse_off_seconds(self) -> float:
        """How long pulses end no term after a wrong end of a term by a pulse."""
        return 3.0 * self.ttl_seconds

    def ticks(self, seconds: float) -> int:
        return math.ceil(seconds / self.tick_seconds)
