"""What follows from a snapshot of a restored etcd."""

from __future__ import annotations

import msgspec

from controlplane.cache import restore_state
from controlplane.controller_manager.restoring import noted
from controlplane.engine.world import row_of
from controlplane.model.cluster import ClusterStatus, Resume
from controlplane.model.target import Live, TargetStatus
from controlplane.store import keys
from tests.builders import NOW, a_fulfilment, a_session, a_target, an_order
from tests.picture import Told

STATUS = ClusterStatus(epoch=1, cluster_id="old", since=NOW)
RESTORING = ClusterStatus(
    epoch=2, cluster_id="new", since=NOW, restored=1, restoring=True, waiting_for=("t1", "t2")
)  # fmt: skip


def a_live(target: str, cluster: str, known: int = 0) -> Live:
    return msgspec.structs.replace(a_session(target, cpu=4), cluster=cluster, known_attempt=known)


def waiting(told: Told) -> list[str]:
    return restore_state.waiting_for(told.ledgers.cache.snapshot)


def note(told: Told, cluster: str) -> ClusterStatus | None:
    return noted(told.ledgers.cache.snapshot, cluster, epoch=7, now=NOW)


def test_the_first_leader_writes_down_its_etcd_and_later_ones_nothing() -> None:
    told = Told()
    first = note(told, "old")
    assert first == ClusterStatus(epoch=7, cluster_id="old", since=NOW)
    told.write({keys.CLUSTER_STATUS: first})
    assert note(told, "old") is None


def test_another_cluster_id_is_a_restore_that_waits_for_whoever_was_alive() -> None:
    told = Told()
    order = an_order()
    carried = a_fulfilment(order.identity).task(0).on("carrying")
    told.write({keys.config("targets", name): a_target(name) for name in ("live", "ready", "carrying", "dead", "new")})
    told.write({keys.live("live"): a_live("live", "old"), keys.desired("carrying", carried.identity): carried.build()})
    for name, phase in (("ready", "Ready"), ("dead", "Failed"), ("carrying", "Failed")):
        told.write({keys.target_status(name): TargetStatus(target=name, epoch=1, phase=phase)})
    told.write({keys.CLUSTER_STATUS: msgspec.structs.replace(STATUS, attempt_floor=3), keys.live("gone"): b"{}"})
    found = note(told, "new")
    assert found is not None
    assert (found.restoring, found.restored, found.epoch, found.attempt_floor) == (True, 1, 7, 3)
    assert found.waiting_for == ("carrying", "live", "ready")


def test_who_has_reported_deleted_targets_and_a_persons_word_end_the_waiting() -> None:
    told = Told()
    told.write(
        {keys.CLUSTER_STATUS: RESTORING, **{keys.config("targets", name): a_target(name) for name in ("t1", "t2")}}
    )
    assert waiting(told) == ["t1", "t2"]
    told.write({keys.live("t1"): a_live("t1", "old")})
    assert waiting(told) == ["t1", "t2"], "a session of before is no report"
    told.write({keys.live("t1"): a_live("t1", "new")})
    assert waiting(told) == ["t2"]
    told.write({keys.RESTORE: Resume(cluster_id="old")})
    assert waiting(told) == ["t2"], "a word about an earlier restore is none about this one"
    told.write({keys.RESTORE: Resume(cluster_id="new")})
    assert waiting(told) == []
    told.write({keys.RESTORE: None, keys.config("targets", "t2"): None})
    assert waiting(told) == []


def test_no_target_takes_work_while_the_restore_is_under_way() -> None:
    told = Told()
    told.write(
        {
            keys.config("targets", "t1"): a_target("t1", cpu=4),
            keys.live("t1"): a_live("t1", "new"),
            keys.target_status("t1"): TargetStatus(target="t1", epoch=1, phase="Ready"),
            keys.CLUSTER_STATUS: RESTORING,
        }
    )
    row = row_of("t1", told.ledgers.cache.snapshot, told.ledgers)
    assert row is not None
    assert not row.ready
    told.write({keys.CLUSTER_STATUS: msgspec.structs.replace(RESTORING, restoring=False)})
    row = row_of("t1", told.ledgers.cache.snapshot, told.ledgers)
    assert row is not None
    assert row.ready


def test_the_highest_attempt_that_joblets_of_this_etcd_knew_counts() -> None:
    told = Told()
    told.write(
        {keys.live("t1"): a_live("t1", "new", 3), keys.live("t2"): a_live("t2", "old", 9), keys.live("t3"): b"x"}
    )
    assert restore_state.known_attempt(told.ledgers.cache.snapshot, "new") == 3
