"""Writes of users: admitted while etcd has space, and repeated until etcd answers.

While etcd is short of space, requests which make etcd grow are refused with the reason. Reads, cancels, deletes,
settings (which may shorten how long objects are kept) and reports of joblets go on as far as etcd takes them. A
repeated submit of a known identity is answered, since it writes nothing.

Only a write which compares the keys it changes is repeated after a lost answer, and acts at most once: the first try
may have acted, or may still act, but whichever try acts first, the others find their compare broken.
"""

from __future__ import annotations

from collections.abc import Callable

from controlplane.apiserver.api_ports import Writes
from controlplane.model.errors import LimitExceeded, OutcomeUnknown
from controlplane.model.space import Level
from controlplane.store.transaction import Item, Outcome

_TRIES = 4
# A moment until a broken connection is given up.
_PAUSE_SECONDS = 0.05


async def write_until_answered(
    writes: Writes, item: Item, again: Callable[[], Item | None] | None = None
) -> tuple[Outcome, bool]:
    """The outcome, and whether the write was tried more than once; OutcomeUnknown when etcd never answered.

    `again` gives the item for a repetition; None when the write must not be repeated.
    """
    for attempt in range(1, _TRIES):
        try:
            return await writes.writer.write(item), attempt > 1
        except OutcomeUnknown:
            await writes.clock.sleep(_PAUSE_SECONDS)
            if again is not None:
                other = again()
                if other is None:
                    raise
                item = other
    return await writes.writer.write(item), True


def check_room(writes: Writes) -> None:
    """LimitExceeded while etcd is nearly full, by the last look of this replica, a moment ago."""
    space = writes.space.now
    if space is not None and space.level is Level.FULL:
        # Without the number of bytes, which tells of the work of all owners.
        state = "out of space" if space.alarm else "short of space"
        raise LimitExceeded(
            f"nothing new is taken while etcd is {state}: the settings `clean_up` and `history` say what is "
            "kept, and `cpctl status` tells operators what helps"
        )
