"""How busy processes are: the processor time of each over a stretch of time, in percent of one core."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(pid: int) -> float:
    """Processor time that a process has used since it began; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Meter:
    """Started when it is made."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = dict(processes)
        self._used = {name: seconds_of(pid) for name, pid in self._processes.items()}
        self._began = time.perf_counter()

    def percent(self) -> dict[str, float]:
        """Of one core, by process, the fullest first."""
        took = time.perf_counter() - self._began
        used = {name: 100 * (seconds_of(pid) - self._used[name]) / took for name, pid in self._processes.items()}
        return dict(sorted(used.items(), key=lambda item: -item[1]))
