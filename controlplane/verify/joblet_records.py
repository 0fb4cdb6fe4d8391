"""The joblets' records as evidence of the processes that started and ended on a machine."""

from __future__ import annotations

import msgspec

from controlplane.store import keys


class JobletRecord(msgspec.Struct, frozen=True):
    """A line of a joblet's records. `monotonic` may be compared only within the same `boot` of a machine."""

    event: str
    order: str
    job: str
    index: int
    attempt: int
    fulfilment: str
    target: str
    holds: tuple[str, ...]
    pid: int
    monotonic: float
    boot: str

    @property
    def run(self) -> tuple[str, str, int, int]:
        return self.order, self.job, self.index, self.attempt

    @property
    def key(self) -> str:
        return keys.desired(self.target, self.fulfilment)


_decoder = msgspec.json.Decoder(JobletRecord)


def parse(line: bytes) -> JobletRecord | None:
    """The record; None for a partial line, whose writer was killed while writing."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
