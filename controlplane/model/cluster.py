"""ClusterStatus: the etcd that leaders have worked on, and the state of a restore. Resume: a person ends the wait.

An etcd restored from a backup has another cluster id than the backup holds. From then on no task is placed until every
joblet that was alive then has reported to the new etcd, or a person says `resume`; open attempts end as Lost, and later
attempts get numbers above all numbers that any joblet knows.
"""

from __future__ import annotations

from controlplane.model.bounds import Attempts, Count, Line, Many, Revision, Text, TimeOrEmpty
from controlplane.model.object import Object


class ClusterStatus(Object, tag="ClusterStatus", frozen=True, kw_only=True):
    """`restored` counts restores; `waiting_for` are the targets whose joblets were alive in the backup and, after the
    restore, the targets that never came. Attempts are numbered above `attempt_floor`.
    """

    epoch: Revision
    cluster_id: Line
    since: TimeOrEmpty
    restored: Count = 0
    restoring: bool = False
    waiting_for: Many[Line] = ()
    attempt_floor: Attempts = 0


class Resume(Object, tag="Resume", frozen=True, kw_only=True):
    """Do not wait any longer for joblets after the restore that made this cluster."""

    cluster_id: Line
    at: TimeOrEmpty = ""


class ArchiveStatus(Object, tag="ArchiveStatus", frozen=True, kw_only=True):
    """Present while writing the archive fails, and finished orders are kept for that reason."""

    epoch: Revision
    why: Text
    since: TimeOrEmpty
