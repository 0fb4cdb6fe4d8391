"""The rules of reports, and the meaning of a refused write. Pure.

A report is stored only while its session holds the target, its fulfilment is desired and no other report came after the
revision of its base: etcd compares all three. Two more rules are checked here before: the report speaks of the placed
attempts, and no phase goes back.
"""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.joblets.replica_messages import Answer
from controlplane.apiserver.joblets.session import Session, name_of
from controlplane.model import identity, sane, slimming, texts
from controlplane.model.bounds import INT32
from controlplane.model.errors import (
    Broken,
    Conflict,
    ControlPlaneError,
    IllegalTransition,
    Invalid,
    LimitExceeded,
    NotFound,
    StaleAttempt,
)
from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask
from controlplane.model.task import REPORTED, AttemptPhase, may_report
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Outcome

MAX_REASON = 256
MAX_MESSAGE = 4096
MAX_ARTEFACTS = 100
MAX_ARTEFACT = 2048
MAX_REPORT_BYTES = 512 << 10


def clipped(observed: Observed) -> Observed:
    """The report with its texts cut to the stored length: a long text must not keep an end from being stored."""
    if not any(len(task.reason) > MAX_REASON or len(task.message) > MAX_MESSAGE for task in observed.tasks):
        return observed
    tasks = tuple(
        replace(task, reason=task.reason[:MAX_REASON], message=texts.cut(task.message, MAX_MESSAGE))
        for task in observed.tasks
    )
    return replace(observed, tasks=tasks)


def check(observed: Observed, session: Session) -> None:
    """The rules which need no knowledge beyond the report and its session."""
    identity.check(observed.id)
    if observed.target != session.target:
        raise Invalid("target", f"must be {session.target}, the target of this stream")
    if observed.session != session.name:
        raise StaleAttempt(f"session {observed.session} is not {session.name}, that of this stream", field="session")
    if observed.report < 1:
        raise Invalid("report", "must count from 1 on")
    _check_phase(observed.phase, "phase")
    for at, task in enumerate(observed.tasks):
        _check_task(task, f"tasks[{at}]")
    sane.check(observed)


def _check_task(task: ObservedTask, path: str) -> None:
    _check_phase(task.phase, f"{path}.phase")
    if task.percent is not None and not 0 <= task.percent <= 100:
        raise Invalid(f"{path}.percent", f"must be between 0 and 100, not {task.percent}")
    if task.exit_code is not None and not -INT32 - 1 <= task.exit_code <= INT32:
        raise Invalid(f"{path}.exit_code", f"must be between {-INT32 - 1} and {INT32}, not {task.exit_code}")
    if len(task.artefacts) > MAX_ARTEFACTS:
        raise Invalid(f"{path}.artefacts", f"must not be more than {MAX_ARTEFACTS}")
    if any(len(url) > MAX_ARTEFACT for url in task.artefacts):
        raise Invalid(f"{path}.artefacts", f"must be URLs of at most {MAX_ARTEFACT} characters")


def _check_phase(phase: str, path: str) -> None:
    if phase not in REPORTED:
        raise Invalid(path, f"must be one of {', '.join(AttemptPhase)}, not {phase[:MAX_REASON]!r}")


def check_attempts(observed: Observed, desired: Fulfilment) -> None:
    placed = sorted([(task.job, task.index, task.attempt) for task in desired.tasks])
    reported = sorted([(task.job, task.index, task.attempt) for task in observed.tasks])
    if reported != placed:
        raise StaleAttempt(f"fulfilment {desired.id} carries other attempts than the report says", field="tasks")


def check_progress(observed: Observed, stored: Observed) -> None:
    """An end stays the same end, and a running task does not start again."""
    _check_step(stored.phase, observed.phase, f"fulfilment {observed.id}")
    before = {(task.job, task.index): task.phase for task in stored.tasks}
    for task in observed.tasks:
        phase = before.get((task.job, task.index))
        if phase is not None:
            _check_step(phase, task.phase, f"task {task.job}[{task.index}] of fulfilment {observed.id}")


def _check_step(before: str, after: str, subject: str) -> None:
    if not may_report(before, after):
        raise IllegalTransition(f"{subject} is {before}, which {after} cannot follow", field="phase")


def item_of(observed: Observed, base_revision: int, session: Session) -> Item:
    desired = keys.desired(session.target, observed.id)
    inventory = keys.observed(session.target, observed.id)
    value = codec.encode(observed)
    if len(value) > MAX_REPORT_BYTES:
        # An end has to be stored, however much the task named.
        value = codec.encode(replace(observed, tasks=slimming.slim(observed.tasks, MAX_REPORT_BYTES // 2)))
    if len(value) > MAX_REPORT_BYTES:
        raise LimitExceeded(f"a report must not be above {MAX_REPORT_BYTES} bytes, but has {len(value)}")
    return Item(
        compares=(
            session.holds,
            transaction.present(desired),
            transaction.mod_is(inventory, base_revision),
        ),
        then=(transaction.put(inventory, value),),
        otherwise=(session.look, transaction.get(desired), transaction.get(inventory)),
    )


def judge(outcome: Outcome, session: Session, answer: Answer) -> None:
    """Fills the answer by the outcome of the write."""
    if outcome.succeeded:
        answer.observed_revision = answer.revision = outcome.revision
        return
    live, desired, inventory = outcome.found
    answer.revision = max((value.mod_revision for value in outcome.found if value is not None), default=0)
    if live is None or live.lease != session.lease:
        holder = f"session {name_of(live.lease)} holds it" if live is not None else "nobody holds it"
        refuse(answer, StaleAttempt(f"session {session.name} no longer holds target {session.target}: {holder}"))
    elif desired is None:
        refuse(answer, NotFound(f"fulfilment {answer.fulfilment} is no longer desired on {session.target}"))
    else:
        answer.observed_revision = inventory.mod_revision if inventory is not None else 0
        why = f"fulfilment {answer.fulfilment} has a report at revision {answer.observed_revision}"
        refuse(answer, Conflict(why))
        if inventory is not None and _is_sound(inventory.value):
            answer.stored = inventory.value


def refuse(answer: Answer, error: ControlPlaneError) -> None:
    answer.code = type(error).__name__
    answer.why = str(error)


def _is_sound(value: bytes) -> bool:
    """Unreadable values are not shown: their revision is enough to write a better value over them."""
    try:
        codec.decode(value, Observed)
    except Broken:
        return False
    return True
