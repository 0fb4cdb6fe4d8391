"""The measurements of a joblet's machine and work: hardware once, stats now and then.

Numbers are rounded to steps that a person would call a change, so that an idle machine does not report all the time.
Numbers that the system does not provide are left out. One `Machine` serves all targets of a process and is read at most
once a second.
"""

from __future__ import annotations

import os
import platform
from collections import Counter, deque
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.model.fulfilment import Observed
from controlplane.model.task import ENDED, AttemptPhase
from controlplane.wire.v1 import targets_pb2

_KEPT_SECONDS = 1.0
_MINUTE = 60.0
_STEPS = 64
_CPU_STEP = 5
_BUSY = {phase.value: phase.lower() for phase in AttemptPhase if phase in ENDED}


class Machine:
    """The machine that this process runs on, as /proc shows it; `folder` is on the disk that is measured."""

    def __init__(self, folder: str, clock: Clock, proc: Path = Path("/proc")) -> None:
        self._folder = folder or "/"
        self._clock = clock
        self._proc = proc
        self._read_at = float("-inf")
        self._last: dict[str, float] = {}
        self._ticks = (0, 0)

    def hardware(self) -> targets_pb2.Hardware:
        memory = _memory(self._text("meminfo"))
        return targets_pb2.Hardware(
            cpu_model=_model(self._text("cpuinfo")),
            cpus=os.cpu_count() or 0,
            memory=memory.get("MemTotal", 0),
            disk=self._disk()[0],
            os=_os_name(_read(Path("/etc/os-release"))) or platform.system(),
            kernel=platform.release(),
        )

    def stats(self) -> dict[str, float]:
        now = self._clock.monotonic()
        if now - self._read_at >= _KEPT_SECONDS:
            self._read_at, self._last = now, self._measure()
        return self._last

    def _measure(self) -> dict[str, float]:
        stats: dict[str, float] = {}
        load = self._text("loadavg").split()
        if load:
            stats["load"] = round(float(load[0]), 1)
        memory = _memory(self._text("meminfo"))
        if "MemAvailable" in memory:
            stats["memory_free"] = _stepped(memory["MemAvailable"], memory.get("MemTotal", 0))
        total, free = self._disk()
        if total:
            stats["disk_free"] = _stepped(free, total)
        busy = self._busy()
        if busy is not None:
            stats["cpu_percent"] = busy
        return stats

    def _busy(self) -> float | None:
        """The part of all processors that was in use since the last call, in percent."""
        ticks = [int(word) for word in self._text("stat").partition("\n")[0].split()[1:9]]
        if len(ticks) < 5:
            return None
        before, self._ticks = self._ticks, (sum(ticks), sum(ticks) - ticks[3] - ticks[4])
        passed = self._ticks[0] - before[0]
        if not before[0] or passed <= 0:
            return None
        return float(round(100 * (self._ticks[1] - before[1]) / passed / _CPU_STEP) * _CPU_STEP)

    def _disk(self) -> tuple[float, float]:
        """(all, free) bytes of the disk that the folder is on, or will be on once the folder exists."""
        for folder in (Path(self._folder), *Path(self._folder).parents):
            try:
                disk = os.statvfs(folder)
            except OSError:
                continue
            return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return 0, 0

    def _text(self, name: str) -> str:
        return _read(self._proc / name)


class WorkCounter:
    """The tasks that one target has ended since its joblet started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: Counter[str] = Counter()
        self._lately: deque[tuple[float, int]] = deque()

    def ended(self, observed: Observed) -> None:
        """The end of the fulfilment is reported, and the fulfilment is no longer desired."""
        over = [_BUSY[task.phase] for task in observed.tasks if task.phase in _BUSY]
        if over:
            self._ended.update(over)
            self._lately.append((self._clock.monotonic(), len(over)))

    def stats(self) -> dict[str, float]:
        since = self._clock.monotonic() - _MINUTE
        while self._lately and self._lately[0][0] <= since:
            self._lately.popleft()
        return {**{name: self._ended[name] for name in _BUSY.values()}, "per_minute": sum(n for _, n in self._lately)}


def _stepped(amount: float, whole: float) -> float:
    """The amount rounded down to a step of the whole: a free amount that wanders a little stays the same."""
    step = whole // _STEPS
    return amount // step * step if step else amount


def _memory(text: str) -> dict[str, float]:
    """Bytes by name."""
    amounts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            amounts[name] = float(words[0]) * 1024
    return amounts


def _model(text: str) -> str:
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def _os_name(text: str) -> str:
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip('"')
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
