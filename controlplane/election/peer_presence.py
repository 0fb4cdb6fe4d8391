"""Peer presence: which of the other replicas answer, according to their pulses.

A leader that gives work to other replicas learns here at once when a process is gone; the end of the lease shows the
same only later. Presence never ends a lease or a term. A replica whose pulse answers again is present again; with the
cluster key, a pulse that does not prove itself is no answer (`listener`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from controlplane.election.election_settings import ElectionSettings
from controlplane.election.listener import Listener
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.verdict import PulseEvent, PulseState
from controlplane.election.view import CandidateEntry


class PeerPresence:
    """`absent` holds the incarnations of absent replicas; `changed` is called whenever the set changes."""

    def __init__(self, settings: ElectionSettings, incarnation: str, *, prover: PulseProver | None = None) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._prover = prover
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.absent: set[str] = set()
        self.changed: Callable[[], None] = lambda: None

    def follow(self, entries: Iterable[CandidateEntry]) -> None:
        """Follows exactly these candidates from now on, except the own incarnation."""
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
            reached = partial(self._note, life, here=True)
            listener = _PresenceListener(self._settings, self._incarnation, entry, reached, prover=self._prover)
            await listener.follow()
            self._note(life, here=False)

    def _note(self, life: str, *, here: bool) -> None:
        if here == (life in self.absent):
            (self.absent.discard if here else self.absent.add)(life)
            self.changed()


class _PresenceListener(Listener):
    """A listener that calls `reached` whenever the followed replica answers."""

    def __init__(
        self,
        settings: ElectionSettings,
        incarnation: str,
        entry: CandidateEntry,
        reached: Callable[[], None],
        *,
        prover: PulseProver | None,
    ) -> None:
        super().__init__(settings, incarnation, entry, prover=prover)
        self._reached = reached

    def _take(self, event: PulseEvent) -> None:
        super()._take(event)
        if self.state is PulseState.UP:
            self._reached()
