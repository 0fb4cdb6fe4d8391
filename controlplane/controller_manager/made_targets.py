"""Made targets: brings each made target to its record, by asking the provider.

Every step is on record before the provider is asked, with the key under which the provider may be asked again: a leader
that dies in between leaves no step that the next leader would do twice. A target goes in three steps, each a
transaction of its own. First the target takes no new work (`want`): the scheduler's placements compare the record, so
that no placement follows. Then, if no work is placed on the target, which is compared too, the target is Removing, from
where there is no way back, and only now the provider is asked. When the joblet is gone, the target's config goes with
the record: the leader deletes, and never edits, a config that its own request brought about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Entry
from controlplane.controller_manager import release
from controlplane.controller_manager import scaling_moves as moves
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.errors import ControlPlaneError, Refused
from controlplane.model.scalepolicy import REMOVE, Made, MadePhase
from controlplane.store import codec, keys
from controlplane.store.transaction import Compare, Item, absent, delete, mod_is, nothing_below, put
from controlplane.survey.world_builder import WorldBuilder

# How long a provider's "done" is believed while the result does not show.
_ASK_AGAIN_SECONDS = 30.0
# A joblet that is gone may be on its way back by itself.
_RETURN_SECONDS = 3.0
_REFUSED_SECONDS = 30.0
# A placement of this age without a report waits for its target.
_START_SECONDS = 1.0


class Provider(Protocol):
    """Makes and removes the machine or process that runs a target's joblet.

    `made.request` is the idempotency key: a repeated request with the same key has no further effect. A call returns
    when the request is taken; the result shows in etcd. Unavailable and OutcomeUnknown: ask again.
    """

    async def create(self, made: Made) -> None: ...

    async def resize(self, made: Made) -> None:
        """To `made.capacity`, without ending running work."""
        ...

    async def remove(self, made: Made) -> None: ...


@dataclass(frozen=True, slots=True)
class Providing:
    """Dependencies of scaling on the outside."""

    providers: Mapping[str, Provider]
    make_identity: Callable[[], str]


class MadeController:
    name = "made"
    kind = "Target"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock, providing: Providing) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._providers = providing.providers
        self._make_identity = providing.make_identity
        # By target: the request that the provider took in this term, and when. Repeated after a while.
        self._taken: dict[str, tuple[str, float]] = {}
        self._missing: dict[str, float] = {}
        self._builder = WorldBuilder(ledgers)
        # Newcomers: when the joblet was first seen, and the unstarted placements elsewhere at that time.
        self._arrived: dict[str, tuple[float, frozenset[str]]] = {}

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.cache.snapshot.names(keys.MADE))

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        if not snapshot.count(keys.MADE):
            return ()
        return [name for name in touched.targets if snapshot.has(keys.MADE, name)]

    async def reconcile(self, key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get(keys.MADE, key)
        made = entry.readable() if entry is not None else None
        if entry is None or made is None:
            self._taken.pop(key, None)
            self._missing.pop(key, None)
            self._arrived.pop(key, None)
            return None
        if made.phase == MadePhase.REMOVING:
            return await self._remove(made, entry)
        if made.want == REMOVE:
            return await self._close(made, entry)
        live = snapshot.live(key)
        if live is not None:
            self._missing.pop(key, None)
        if made.phase == MadePhase.UP:
            return None if live is not None else await self._bring_back(made, entry)
        if live is not None and (made.phase == MadePhase.REQUESTED or live.capacity == made.capacity):
            again = await self._move(made)
            if again is None:
                await self._put(replace(made, phase=MadePhase.UP, error=""), entry)
            return again
        return await self._ask(made, entry)

    async def _move(self, made: Made) -> Again | None:
        """Moves work that waits to be started elsewhere to a newcomer, once, before the newcomer counts as up."""
        world = self._builder.build(self._clock.wall())
        waiting = {unstarted.fulfilment.id: unstarted for unstarted in moves.unstarted(self._ledgers, world)}
        now = self._clock.monotonic()
        since, before = self._arrived.setdefault(made.target, (now, frozenset(waiting)))
        waiting = {name: unstarted for name, unstarted in waiting.items() if name in before}
        if waiting and now < since + _START_SECONDS:
            return Again(after_seconds=since + _START_SECONDS - now)
        del self._arrived[made.target]
        for moving in moves.choose(world, made.target, list(waiting.values())):
            stop = release.stop(moving.fulfilment, moves.REASON, epoch=self._writer.epoch, revision=moving.revision)
            # A refused stop was started or ended meanwhile.
            await self._writer.offer(stop)
        return None

    async def _close(self, made: Made, entry: Entry[Made]) -> Again | None:
        """From here on no work can be placed there; once no work is left, there is no way back."""
        if self._ledgers.cache.snapshot.has(keys.DESIRED, made.target):
            return None
        removing = replace(
            made, phase=MadePhase.REMOVING, request=self._make_identity(), generation=made.generation + 1, error=""
        )
        await self._put(removing, entry, nothing_below(keys.desired_on(made.target)))
        return None

    async def _remove(self, made: Made, entry: Entry[Made]) -> Again | None:
        again = await self._ask(made, entry)
        live = self._ledgers.cache.snapshot.live(made.target)
        if live is not None or self._taken.get(made.target, ("", 0))[0] != made.request:
            # While the joblet lives, the target is not gone, whatever the provider says.
            return again
        config = keys.config("targets", made.target)
        there = self._ledgers.cache.snapshot.get(keys.TARGETS, made.target)
        item = Item(
            compares=(
                mod_is(entry.stored.key, entry.revision),
                mod_is(config, there.revision if there is not None else 0),
                absent(keys.live(made.target)),
                nothing_below(keys.desired_on(made.target)),
            ),
            then=(delete(entry.stored.key), *((delete(config),) if there is not None else ())),
        )
        await self._writer.write([item])
        return None

    async def _bring_back(self, made: Made, entry: Entry[Made]) -> Again | None:
        """Repeats the last request under the same key: the provider knows whether action is needed."""
        now = self._clock.monotonic()
        left = self._missing.setdefault(made.target, now) + _RETURN_SECONDS - now
        if left > 0:
            self._taken.pop(made.target, None)
            return Again(after_seconds=left)
        return await self._ask(made, entry)

    async def _ask(self, made: Made, entry: Entry[Made]) -> Again:
        """Asks the provider, unless the provider took this request a short while ago."""
        request, taken_at = self._taken.get(made.target, ("", 0.0))
        left = taken_at + _ASK_AGAIN_SECONDS - self._clock.monotonic()
        if request == made.request and left > 0:
            return Again(after_seconds=left)
        try:
            await self._call(made)
        except ControlPlaneError as error:
            # Recorded for people, and raised for the runner, which asks again later.
            await self._tell(made, entry, f"{type(error).__name__}: {error}")
            if isinstance(error, Refused):
                return Again(after_seconds=_REFUSED_SECONDS)
            raise
        self._taken[made.target] = (made.request, self._clock.monotonic())
        return Again(after_seconds=_ASK_AGAIN_SECONDS)

    async def _call(self, made: Made) -> None:
        provider = self._providers.get(made.provider)
        if provider is None:
            raise Refused(f"this replica has no provider {made.provider}; its settings say where targets are made")
        if made.phase == MadePhase.REMOVING:
            await provider.remove(made)
        elif made.generation == 1:
            await provider.create(made)
        else:
            await provider.resize(made)

    async def _tell(self, made: Made, entry: Entry[Made], error: str) -> None:
        if made.error != error:
            await self._put(replace(made, error=error), entry, since=made.since)

    async def _put(self, made: Made, entry: Entry[Made], *compares: Compare, since: str = "") -> None:
        now = since or times.show(self._clock.wall())
        new = replace(made, epoch=self._writer.epoch, since=now)
        unchanged = mod_is(entry.stored.key, entry.revision)
        await self._writer.write(
            [Item(compares=(unchanged, *compares), then=(put(entry.stored.key, codec.encode(new)),))]
        )
