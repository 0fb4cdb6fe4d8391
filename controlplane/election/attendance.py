"""Which of the other replicas answer, as one replica knows it from their pulses.

For what a leader gives to others to do: that a process is gone shows here at once, in its lease only later. Nothing
here ends a lease or a term. One that answers again is there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from controlplane.election.listener import Listener
from controlplane.election.settings import ElectionSettings
from controlplane.election.verdict import Event, State
from controlplane.election.view import CandidateEntry


class Attendance:
    """`absent` names lives of replicas; `changed` is called whenever that becomes another set."""

    def __init__(self, settings: ElectionSettings, incarnation: str) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.absent: set[str] = set()
        self.changed: Callable[[], None] = lambda: None

    def follow(self, entries: Iterable[CandidateEntry]) -> None:
        """From now on these, and nobody else; itself it need not ask."""
        wanted = {entry.candidate.incarnation: entry for entry in entries}
        wanted.pop(self._incarnation, None)
        for life in self._tasks.keys() - wanted.keys():
            self._tasks.pop(life).cancel()
            self.absent.discard(life)
        for life, entry in wanted.items():
            if life not in self._tasks:
                self._tasks[life] = asyncio.get_running_loop().create_task(self._attend(life, entry))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self.follow(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, life: str, entry: CandidateEntry) -> None:
        while True:
            await _Ear(self._settings, self._incarnation, entry, lambda: self._note(life, here=True)).follow()
            self._note(life, here=False)

    def _note(self, life: str, *, here: bool) -> None:
        if here == (life in self.absent):
            (self.absent.discard if here else self.absent.add)(life)
            self.changed()


class _Ear(Listener):
    """Tells when it reaches whom it follows."""

    def __init__(
        self, settings: ElectionSettings, incarnation: str, entry: CandidateEntry, reached: Callable[[], None]
    ) -> None:
        super().__init__(settings, incarnation, entry)
        self._reached = reached

    def _take(self, event: Event) -> None:
        super()._take(event)
        if self.state is State.UP:
            self._reached()
