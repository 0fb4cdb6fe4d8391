"""Commands about the control plane itself: the leader steps down, a restore ends without some joblets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from controlplane.apiserver.api_ports import ElectionPort, Reads, ReplicaIdentity, Writes
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import write_until_answered
from controlplane.cache import restore_state
from controlplane.model import times
from controlplane.model.cluster import Resume
from controlplane.model.errors import IllegalTransition, Refused, Unavailable
from controlplane.model.leadership import Term
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item

# A forwarded call is not forwarded again.
FORWARDED = "x-controlplane-forwarded"


async def step_down(
    call: Call, replica: ReplicaIdentity, election: ElectionPort, forward: Callable[[Term], Awaitable[int]]
) -> int:
    """The epoch of the ended term. `forward` asks the replica of a term, with the header FORWARDED."""
    term = election.leader()
    if term is None:
        raise Unavailable("nobody leads at the moment")
    if term.id == replica.id:
        try:
            return await election.step_down()
        except Refused as error:
            raise Unavailable(f"leadership is moving: {error}") from None
    if call.has_header(FORWARDED):
        raise Unavailable("leadership is moving; try again")
    return await forward(term)


class EndedRestore(NamedTuple):
    """`not_reported`: the targets without a report of their joblets."""

    revision: int
    not_reported: list[str]


async def end_restore(_call: Call, reads: Reads, writes: Writes) -> EndedRestore:
    """A person's word: work goes on without the joblets which have not come back. May be repeated without harm.

    IllegalTransition when no restore waits for joblets.
    """
    snapshot = reads.cache.snapshot
    cluster = snapshot.cluster_status()
    if cluster is None or not cluster.restoring:
        raise IllegalTransition("no restore is under way: nothing waits for joblets")
    word = Resume(cluster_id=cluster.cluster_id, at=times.show(writes.clock.wall()))
    waited = restore_state.waiting_for(snapshot)
    item = Item(then=(transaction.put(keys.RESTORE, codec.encode(word)),))
    outcome, _ = await write_until_answered(writes, item)
    return EndedRestore(outcome.revision, waited)
