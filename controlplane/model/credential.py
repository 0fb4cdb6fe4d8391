"""The credential of an enrolled joblet: how long its text is good, when the joblet renews it, and what it allows.

A replica decides about the end of a credential by its own clock and tells durations; the joblet measures them by its
own clock, so that no two clocks are compared. Pure: no clock, no chance, no files.
"""

from __future__ import annotations

import msgspec

ENROLMENT_SECONDS = 3600.0
MOST_ENROLMENT_SECONDS = 30 * 86400.0
# Targets of one joblet process.
MOST_TARGETS = 5000
LEAST_LIFETIME_SECONDS = 7
_RENEWALS_A_LIFETIME = 7
_MOST_FORMER_SECONDS = 600.0
# A text is good for a lifetime at most, so that older texts are known to no backup.
_MOST_FORMER = _RENEWALS_A_LIFETIME + 1
# Joblets that were enrolled at the same time renew apart: each up to this part earlier.
_EARLY = 0.2
# Shares of the time between two renewals.
_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.1


def renew_after_seconds(lifetime_seconds: float) -> float:
    """A renewal that fails may be tried for six sevenths of the lifetime."""
    return lifetime_seconds / _RENEWALS_A_LIFETIME


def former_seconds(lifetime_seconds: float) -> float:
    """How long a renewed text stays good: a joblet whose answer was lost asks again with the former text."""
    return min(_MOST_FORMER_SECONDS, renew_after_seconds(lifetime_seconds) / 2)


class StoredCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What a joblet keeps in its folder. `token` is the text that it shows, '' before its enrolment was answered.

    `next_token` is a text whose digest was sent, or is about to be: etcd may have it while the answer is missing.
    `former` are texts from before, newest first: after a restore etcd may know one of them. `renewed` is a time of the
    joblet's own wall clock, in seconds.
    """

    targets: tuple[str, ...]
    driver: str
    id: str
    token: str = ""
    next_token: str = ""
    former: tuple[str, ...] = ()
    renewed: float = 0.0
    renew_after: float = 0.0

    def allows(self, targets: tuple[str, ...], driver: str) -> bool:
        """Whether the credential can be shown for these targets with this driver."""
        return self.driver == driver and set(targets) <= set(self.targets)

    def renewed_at(self, now: float, renew_after: float) -> StoredCredential:
        """The credential after the answer about `next_token`."""
        former = (self.token, *self.former)[:_MOST_FORMER] if self.token else self.former
        return msgspec.structs.replace(
            self, token=self.next_token, next_token="", former=former, renewed=now, renew_after=renew_after
        )

    def candidates(self) -> tuple[str, ...]:
        """The texts that a replica may know, most likely first."""
        return tuple(dict.fromkeys(filter(None, (self.token, self.next_token, *self.former))))


def seconds_until_renewal(stored: StoredCredential, now: float, draw: float) -> float:
    """0 when a renewal is due, also when the clock was set back; `draw` is a random number from 0 to 1."""
    age = now - stored.renewed
    if age < 0:
        return 0.0
    return max(stored.renew_after * (1.0 - _EARLY * draw) - age, 0.0)


def retry_bounds(renew_after: float) -> tuple[float, float]:
    """The shortest and the longest pause between two tries to renew, in seconds."""
    least = min(1.0, max(renew_after * _LEAST_PAUSE, 0.05))
    return least, max(least, min(60.0, renew_after * _MOST_PAUSE))
