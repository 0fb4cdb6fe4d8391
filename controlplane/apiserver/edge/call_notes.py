"""CallNote: what is learned of a call on its way through the edge, for the audit log.

The gate makes a note before a call is served; `grpc_calls` adds the request and, of a call that is refused or fails,
the error. A note is found by the task that serves the call, and by the tasks which that task starts.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from google.protobuf.message import Message

from controlplane.model.errors import ControlPlaneError, Forbidden, Unauthenticated

REFUSALS = (Forbidden, Unauthenticated)


class CallNote:
    __slots__ = ("error", "request")

    def __init__(self) -> None:
        self.request: Message | None = None
        self.error: ControlPlaneError | None = None


# None for calls that nobody takes notes of.
NOTE: ContextVar[CallNote | None] = ContextVar("note", default=None)


def object_in(request: Any, answer: Any) -> tuple[str, str]:
    """The name and the owner of the object that a call is about, as far as the messages say; of several, how many."""
    for message in (getattr(answer, "item", None), request):
        name = getattr(message, "name", "") or getattr(message, "id", "")
        if isinstance(name, str) and name:
            return name, str(getattr(message, "owner", "") or getattr(message, "subject", ""))
    for field in ("orders", "objects"):
        several = getattr(request, field, None)
        if several is not None:
            return f"{len(several)} {field}", ""
    return "", ""
