"""The joblets' records as evidence: what was really started and ended on a machine."""

from __future__ import annotations

import msgspec

from controlplane.store import keys


class Record(msgspec.Struct, frozen=True):
    """One line of a joblet's records. `monotonic` may be compared within one boot of one machine only."""

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


_decoder = msgspec.json.Decoder(Record)


def parse(line: bytes) -> Record | None:
    """None for a line that is not whole: its writer was killed while it wrote."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
