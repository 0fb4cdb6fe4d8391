"""Explain: why the tasks of an order wait, for every target, and which orders are served before.

An explanation is computed on the same snapshot by the code which decides cycles. The view of a past cycle is computed
from the ledgers of that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import msgspec

from controlplane.cache.isolated import isolated_in
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.placement_hint import PlacementHint
from controlplane.engine import filtering, reason_codes, reasons, refusals, unstarted
from controlplane.engine.decision import Decision
from controlplane.engine.filtering import FITS, first_refusals
from controlplane.engine.guarding import decide_guarded, room_of
from controlplane.engine.room import Room
from controlplane.engine.service import Queue, Rank
from controlplane.engine.signature import Signature, signature_of
from controlplane.engine.world import World
from controlplane.model import times
from controlplane.model.explanation import Ahead, Explanation, GroupExplanation, TargetVerdict
from controlplane.model.isolation import Casualties, Ward, sentence
from controlplane.model.job import Job
from controlplane.survey.backlog import Backlog
from controlplane.survey.world_builder import WorldBuilder

_MOST_AHEAD = 20
_PLENTY = 1 << 40


def explain(ledgers: Ledgers, order: str, now: datetime, cycle: int | None = None) -> Explanation:
    """The order must be under way at this time; an order which is over has no ledger and cannot be explained."""
    ledger, ward = ledgers.orders[order], Casualties()
    backlog, seen = survey(ledgers, now, ward)
    room = room_of(seen, ward)
    world = room.world
    ahead = ahead_of(backlog.queues(), order)
    decision = next_decision(world, backlog, ward)
    going = sum(sum(batch.counts) for batch in decision.batches if batch.order == order)
    if decision.kept is not None and decision.targets == world.floor.names:
        made_for = (made.order for made in world.made_rooms if made.order != order)
        room.kept = decision.kept.only_for((*(each.order for each in ahead), *made_for))
    groups: tuple[GroupExplanation, ...] = ()
    with reporting(ward, order):
        groups = tuple(groups_of(room, ledger, times.show(now)))
    why = why_isolated(ledgers, order, ward)
    if why:
        groups = tuple(_isolated_groups(ledger, groups))
    return Explanation(
        order=order,
        cycle=cycle,
        revision=world.revision,
        conclusion=why or conclusion(ledger, groups, ahead, going, times.show(now)),
        groups=groups,
        ahead=tuple(ahead[:_MOST_AHEAD]),
        ahead_total=sum(one.tasks for one in ahead),
        rule_errors=tuple(rule_errors(world, ledger)) if not why else (),
    )


@contextmanager
def reporting(ward: Ward, order: str) -> Iterator[None]:
    """Reports any error raised inside to the ward as a failure of the order, and swallows the error."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - supervision: the explanation says that the order is isolated
        ward.failed("Order", order, error)


def why_isolated(ledgers: Ledgers, order: str, ward: Casualties) -> str:
    """Why the order is left out, from the leader's record or from an error raised here; empty when the order is not
    left out."""
    known = isolated_in(ledgers.cache.snapshot, "Order", order)
    if known is not None:
        times_ = "once" if known.count == 1 else f"{known.count} times"
        return (
            f"The order is isolated: handling it failed {times_} in {known.part}, since {known.since}: {known.error}. "
            f"It is tried again at {known.again}; a change of the order is taken up sooner."
        )
    error = ward.errors.get(("Order", order))
    return f"The order is isolated: handling it fails: {sentence(error)}." if error is not None else ""


def _isolated_groups(ledger: OrderLedger, groups: Sequence[GroupExplanation]) -> Iterator[GroupExplanation]:
    targets = {group.job: group.targets for group in groups}
    for (job, hint), reason in reasons.isolated_parts(ledger).items():
        count = dict(ledger.jobs[job].parts())[hint]
        yield GroupExplanation(job=job, count=count, reason=reason, targets=targets.get(job, ()))


def rule_errors(world: World, ledger: OrderLedger) -> list[str]:
    """The errors of rules which do not compile, and of rules which failed for this order; each error once."""
    found = [f"rule {name} does not compile: {why}" for name, why in sorted(world.book.broken.items())]
    for resolved in ledger.resolved.jobs:
        ruling = world.book.rule(world.book.facts(ledger.order, resolved.job), world.floor.targets, world.now)
        found.extend(str(error) for error in ruling.errors)
    return list(dict.fromkeys(found))


def survey(
    ledgers: Ledgers, now: datetime, ward: Casualties | None = None, *, preempting: bool = False
) -> tuple[Backlog, World]:
    """The backlog of waiting orders and the world, as at the beginning of a cycle: without orders and targets which the
    ward holds or which raise. `preempting`: for a planned order, not submitted, which may displace other work."""
    ward = ward if ward is not None else Casualties()
    builder, backlog = WorldBuilder(ledgers, ward), Backlog(ledgers, ward)
    backlog.update(list(ledgers.orders), now, builder.book(ledgers.cache.snapshot))
    world = builder.build(now, spread_orders=backlog.apart, preempting=preempting or backlog.preempting)
    backlog.leave_out(ward.orders)
    return backlog, world


def groups_of(room: Room, ledger: OrderLedger, now: str) -> list[GroupExplanation]:
    """A group explanation for each job with waiting tasks, with a further group for tasks which must avoid the target
    of an earlier attempt; tasks in back-off form groups of their own."""
    jobs = {resolved.job.name: resolved.job for resolved in ledger.resolved.jobs}
    found: list[GroupExplanation] = []
    for (name, hint), reason in reasons.of_parts(room, ledger, now).items():
        waiting, backing_off = reasons.waiting_and_backing_off(ledger, name, hint, reason, now)
        verdicts = _verdicts(room, ledger, jobs[name], hint, reason)
        counted = ((waiting, reason), (backing_off, reason_codes.BACKING_OFF))
        found += [
            GroupExplanation(job=name, count=count, reason=why, targets=verdicts) for count, why in counted if count
        ]
    return found


def _verdicts(room: Room, ledger: OrderLedger, job: Job, hint: PlacementHint, reason: str) -> tuple[TargetVerdict, ...]:
    signature = signature_of(ledger, job, room.world.book.facts(ledger.order, job), hint)
    verdicts = verdicts_of(room, signature)
    if reason != reason_codes.QUOTA:
        return verdicts
    ever = _ever_within_quota(room, ledger, signature)
    return tuple(_by_quota(verdict, helps=ever) if verdict.fits else verdict for verdict in verdicts)


def _ever_within_quota(room: Room, ledger: OrderLedger, signature: Signature) -> bool:
    """Whether the quota allows such a task, or all of a gang, once all work of the owner is over."""
    owners = room.owners.without_use_of(ledger.order.owner)
    if ledger.resolved.gang:
        return not reasons.gang_beyond_quota(room, ledger, owners)
    return owners.allowance(ledger.order.owner, signature) > 0


def verdicts_of(room: Room, signature: Signature) -> tuple[TargetVerdict, ...]:
    return tuple(
        refusals.verdict(room, signature, row, None if code == FITS else filtering.CODES[code])
        for row, code in enumerate(first_refusals(room, signature).tolist())
    )


def _by_quota(verdict: TargetVerdict, *, helps: bool) -> TargetVerdict:
    why = "its owner has as much as its quota allows" if helps else "its owner's quota does not allow that much at all"
    return TargetVerdict(
        target=verdict.target,
        fits=False,
        filter=reason_codes.QUOTA,
        waiting_helps=helps,
        sentence=f"{verdict.target} would take it, but {why}",
    )


def ahead_of(queues: list[Queue], order: str) -> list[Ahead]:
    """Orders served before, by priority, deadline and age; fairness between owners may still change the order of
    service."""
    waiting = [(-queue.priority, group) for queue in queues for group in queue.groups]
    first = min(((priority, group.rank) for priority, group in waiting if group.order == order), default=None)
    tasks: Counter[str] = Counter()
    places: dict[str, tuple[int, Rank]] = {}
    for priority, group in waiting:
        place = (priority, group.rank)
        if first is not None and group.order != order and place < first:
            tasks[group.order] += group.count
            places[group.order] = min(places.get(group.order, place), place)
    ordered = sorted(places.items(), key=lambda pair: pair[1])
    return [Ahead(order=name, priority=-place[0], tasks=tasks[name]) for name, place in ordered]


def next_decision(world: World, backlog: Backlog, ward: Ward) -> Decision:
    """The decision of the next cycle, without a cycle budget, if the world does not change."""
    unbounded = msgspec.structs.replace(world.settings, cycle_budget=_PLENTY)
    return decide_guarded(replace(world, settings=unbounded), backlog.queues, ward)[1]


def conclusion(
    ledger: OrderLedger, groups: Sequence[GroupExplanation], ahead: Sequence[Ahead], going: int, now: str
) -> str:
    """A line of text for a person: the waiting tasks, and the placed tasks which do not start."""
    waits = _waits(ledger, groups, ahead, going, now)
    unstarted_tasks = unstarted.sentence_of(ledger)
    return " ".join(filter(None, (waits, unstarted_tasks))) or "Nothing of this order waits."


def _waits(
    ledger: OrderLedger, groups: Sequence[GroupExplanation], ahead: Sequence[Ahead], going: int, now: str
) -> str:
    """The sentence about waiting tasks; empty when no task waits."""
    waiting = sum(group.count for group in groups)
    if not waiting:
        held = ledger.counts().held
        if held:
            who = "task is" if held == 1 else "tasks are"
            return f"{held} {who} held until somebody says `cpctl release`; nothing else of this order waits."
        return ""
    front = f"{waiting} {'task waits' if waiting == 1 else 'tasks wait'}"
    if going >= waiting:
        return f"{front} for the next cycle only."
    if going:
        return f"{front}; {going} of them for the next cycle only."
    worst = max(groups, key=lambda group: group.count)
    return f"{front}: {_because(ledger, worst, ahead, now)}"


def _because(ledger: OrderLedger, group: GroupExplanation, ahead: Sequence[Ahead], now: str) -> str:
    match group.reason:
        case reason_codes.PAUSED:
            return "the order is paused. `cpctl resume` lets it go on."
        case reason_codes.NOT_BEFORE:
            return f"it is not to start before {ledger.order.not_before}."
        case reason_codes.WAITS_FOR_JOBS:
            return f"{group.job} comes after {', '.join(ledger.waits_for(group.job))}, which did not succeed yet."
        case reason_codes.BACKING_OFF:
            return f"it failed before and is tried again at {ledger.jobs[group.job].next_time(now) or 'a later time'}."
        case reason_codes.NO_TARGETS:
            return "there is no target."
        case reason_codes.GANG:
            return "it is a gang, and there is no room for all of it at once."
    fits = [verdict for verdict in group.targets if verdict.fits]
    if fits and ahead:
        return f"{len(ahead)} {'order goes' if len(ahead) == 1 else 'orders go'} first and leave no room."
    if fits:
        return "it goes into one of the next cycles."
    return _nearest(group)


def _nearest(group: GroupExplanation) -> str:
    """The nearest miss, and whether waiting helps."""
    near = [verdict for verdict in group.targets if verdict.filter == group.reason] or list(group.targets)
    best = min(near, key=lambda verdict: (not verdict.waiting_helps, _gap(verdict), verdict.target))
    holders = f" Held by {', '.join(best.held_by)}." if best.held_by else ""
    hope = "Waiting helps." if best.waiting_helps else "Waiting does not help: change the order or the targets."
    return f"no target takes it; nearest: {best.sentence}.{holders} {hope}"


def _gap(verdict: TargetVerdict) -> float:
    """The missing part of the needed amounts; the largest over all quantities."""
    return max((amount / verdict.need[name] for name, amount in verdict.missing.items()), default=0.0)
