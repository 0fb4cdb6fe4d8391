"""Repeating writes whose answer was lost. Only for writes that compare what they change: those happen at most once.

The first one may have happened, or may still happen; whichever comes first, the others find their compare broken.
"""

from __future__ import annotations

from collections.abc import Callable

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.model.errors import OutcomeUnknown
from controlplane.store.transaction import Item, Outcome

_TRIES = 4
# A connection that just broke takes a moment to be left.
_PAUSE_SECONDS = 0.05


async def insist(
    deps: ApiDependencies, item: Item, again: Callable[[], Item | None] | None = None
) -> tuple[Outcome, bool]:
    """The outcome, and whether it was asked for more than once; OutcomeUnknown when etcd never said.

    `again` gives what to send instead when it is repeated; None when it must not be repeated any more.
    """
    for attempt in range(1, _TRIES):
        try:
            return await deps.writer.write(item), attempt > 1
        except OutcomeUnknown:
            await deps.clock.sleep(_PAUSE_SECONDS)
            if again is not None:
                other = again()
                if other is None:
                    raise
                item = other
    return await deps.writer.write(item), True
