"""Records of orders that are gone, so that no identity runs twice.

Finished orders are deleted after `clean_up`, by which time their identity is too old to be used again. `clean_up` may
be made longer, so that the newest identity ever cleaned up is on record, and only moves forward. An order deleted
earlier by its user leaves a mark until then.
"""

from __future__ import annotations

from controlplane.model.bounds import Line, Revision, Time, TimeOrEmpty
from controlplane.model.object import Object

# An identity further ahead of a replica's clock is refused: its order could not be cleaned up for as long.
AHEAD_SECONDS = 300.0


class Cleaned(Object, tag="Cleaned", frozen=True, kw_only=True):
    """`status/cleaned`: no identity of this moment or before is used again, unless its order is there."""

    epoch: Revision
    through: Time


class DeletedOrder(Object, tag="DeletedOrder", frozen=True, kw_only=True):
    """`status/deleted/<order>`: a final order deleted by its user, kept until the identity is too old anyhow."""

    order: Line
    epoch: Revision
    at: TimeOrEmpty
