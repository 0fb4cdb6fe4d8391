"""The rules of a list of failure policies: every policy can decide, with the fields of its action only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from controlplane.apiserver.admission import fields
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.failure import ACTIONS, PREEMPTED, REASONS
from controlplane.model.job import FailureMatch, FailurePolicy
from controlplane.model.task import TaskEvent

MAX_POLICIES = 64
MAX_LIMIT = 1000
MAX_BACKOFF = 86400 * 365
_ANYTHING = FailureMatch()


def check(policies: Sequence[FailurePolicy], field: str) -> None:
    _few(policies, field)
    before = _Before()
    for position, policy in enumerate(policies):
        here = f"{field}[{position}]"
        fields.one_of(policy.action, ACTIONS, f"{here}.action")
        _match(policy.on or _ANYTHING, f"{here}.on")
        _retry(policy, here)
        wider = before.add(policy.on or _ANYTHING)
        if wider is not None:
            rule = f"can never decide: {field}[{wider}] matches all that it matches, and the first match decides"
            raise Invalid(f"{here}.on", rule)


def _match(on: FailureMatch, field: str) -> None:
    _few(on.exit_codes, f"{field}.exit_codes")
    for index, code in enumerate(on.exit_codes):
        # 0 is success: no policy is asked then.
        fields.number(code, f"{field}.exit_codes[{index}]", least=1, most=255)
    _few(on.reasons, f"{field}.reasons")
    for index, reason in enumerate(on.reasons):
        fields.one_of(reason, REASONS, f"{field}.reasons[{index}]")
    _few(on.attempts, f"{field}.attempts")
    for index, attempt in enumerate(on.attempts):
        fields.number(attempt, f"{field}.attempts[{index}]", least=1, most=2**31 - 1)


def _retry(policy: FailurePolicy, here: str) -> None:
    said = {"limit": policy.limit, "backoff": policy.backoff, "backoff_cap": policy.backoff_cap}
    for name, value in (*said.items(), ("elsewhere", policy.elsewhere or None)):
        if value is not None and policy.action != TaskEvent.RETRY:
            raise Invalid(f"{here}.{name}", f"belongs to the action retry, not to {policy.action}")
    if policy.limit is not None:
        fields.number(policy.limit, f"{here}.limit", least=0, most=MAX_LIMIT)
    if policy.backoff is not None:
        fields.number(policy.backoff, f"{here}.backoff", least=0, most=MAX_BACKOFF)
    if policy.backoff_cap is not None:
        fields.number(policy.backoff_cap, f"{here}.backoff_cap", least=0, most=MAX_BACKOFF)
        if policy.backoff_cap < (policy.backoff or 0):
            raise Invalid(f"{here}.backoff_cap", f"must not be below backoff, which is {policy.backoff}")


class _Before:
    """The policies so far, as sets of positions (bits of an integer), so that each policy is looked at once."""

    def __init__(self) -> None:
        self._position = 0
        # For exit codes, reasons and attempts: the policies with a value listed; those without a list, which match all.
        self._listing: tuple[dict[object, int], ...] = ({}, {}, {})
        self._open = [0, 0, 0]

    def add(self, on: FailureMatch) -> int | None:
        """The first earlier policy which matches all cases of this policy."""
        covering = (1 << self._position) - 1
        for part, values in enumerate((on.exit_codes, on.reasons, on.attempts)):
            covering &= self._holding(part, values)
            self._note(part, values)
        self._position += 1
        return (covering & -covering).bit_length() - 1 if covering else None

    def _holding(self, part: int, values: Collection[object]) -> int:
        """The policies which match all of the values: by a list with the values, or by an empty list.

        An empty list matches all reasons but Preempted.
        """
        holding = -1 if values else self._open[part]
        for value in values:
            holding &= self._listing[part].get(value, 0) | (self._open[part] if value != PREEMPTED else 0)
        return holding

    def _note(self, part: int, values: Collection[object]) -> None:
        own = 1 << self._position
        if not values:
            self._open[part] |= own
        for value in values:
            self._listing[part][value] = self._listing[part].get(value, 0) | own


def _few(values: Sequence[object], field: str) -> None:
    if len(values) > MAX_POLICIES:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_POLICIES} items", field=field)
