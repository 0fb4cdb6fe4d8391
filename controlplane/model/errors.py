"""Errors, named by what the caller must do.

ControlPlaneError
├── Refused              do not retry: the request is wrong, or not allowed in this state
│   ├── Invalid          a field breaks a rule; `field` and `rule` say which
│   ├── NotFound
│   ├── AlreadyExists
│   ├── Forbidden        the caller is known, and has no right to do this
│   ├── Unauthenticated  the caller is not known: credentials are missing, wrong or over
│   ├── LimitExceeded    too much or too large; with `retry_after_seconds`, try again then
│   ├── IllegalTransition
│   └── StaleAttempt     a report of an old attempt or session
├── Conflict             re-read, then retry
├── Unavailable          retry: it certainly did not apply
├── OutcomeUnknown       re-read, then decide: it may have applied, or may still apply
├── Deposed              stop acting: another replica leads
├── Compacted            the asked revision is gone: relist
└── Broken               a rule of the system itself is violated: crash loudly
"""

from __future__ import annotations


class ControlPlaneError(Exception):
    """Root of all errors that this system raises on purpose."""


class Refused(ControlPlaneError):
    """The request cannot succeed as it is; `field` names the offending field when there is one."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Invalid(Refused):
    """A field breaks a rule. The message always reads `<field>: <rule>`."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}", field=field)
        self.rule = rule


class NotFound(Refused):
    pass


class AlreadyExists(Refused):
    pass


class Forbidden(Refused):
    pass


class Unauthenticated(Refused):
    pass


class LimitExceeded(Refused):
    """A limit is reached. `retry_after_seconds` is set when waiting helps: then send the same request again."""

    def __init__(self, message: str, *, field: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message, field=field)
        self.retry_after_seconds = retry_after_seconds


class IllegalTransition(Refused):
    pass


class StaleAttempt(Refused):
    pass


class Conflict(ControlPlaneError):
    pass


class Unavailable(ControlPlaneError):
    pass


class OutcomeUnknown(ControlPlaneError):
    pass


class Deposed(ControlPlaneError):
    pass


class Compacted(ControlPlaneError):
    """The revision asked for is compacted; `revision` is the oldest remaining revision (0: unknown)."""

    def __init__(self, message: str, *, revision: int = 0) -> None:
        super().__init__(message)
        self.revision = revision


class Broken(ControlPlaneError):
    pass
