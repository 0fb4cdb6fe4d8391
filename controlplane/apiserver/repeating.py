"""Repeating writes whose answer was lost. Only for writes that compare what they change: those happen at most once.

The first one may have happened, or may still happen; whichever comes first, the others find their compare broken.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.model.errors import ControlPlaneError, OutcomeUnknown
from controlplane.store.transaction import Item, Outcome

_TRIES = 4
# A connection that just broke takes a moment to be left.
_PAUSE_SECONDS = 0.05


async def insist(deps: ApiDependencies, item: Item) -> tuple[Outcome, bool]:
    """The outcome, and whether it was asked for more than once; OutcomeUnknown when etcd never said."""
    for attempt in range(1, _TRIES):
        try:
            return await deps.writer.write(item), attempt > 1
        except OutcomeUnknown:
            await deps.clock.sleep(_PAUSE_SECONDS)
    return await deps.writer.write(item), True


async def insist_all(deps: ApiDependencies, items: Sequence[Item]) -> list[Outcome | ControlPlaneError]:
    """The same for many items that need not stay together."""
    outcomes = await deps.writer.write_all(items)
    for _ in range(1, _TRIES):
        unknown = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, OutcomeUnknown)]
        if not unknown:
            break
        await deps.clock.sleep(_PAUSE_SECONDS)
        again = await deps.writer.write_all([items[at] for at in unknown])
        for at, outcome in zip(unknown, again, strict=True):
            outcomes[at] = outcome
    return outcomes
