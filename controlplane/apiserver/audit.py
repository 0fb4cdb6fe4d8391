"""The audit log: one JSON line for every mutating or refused call.

A record says who called, by which credential, from where, what was asked of which object, and the decision. A record
has no field for the content of a request, and `via` is the id of a credential, never the credential: so no secret gets
here, as long as reasons quote none.

`write` waits while the queue of the log is full, `refuse` never waits. Refusals cost an attacker nothing, so a source
(host and subject) gets ten lines a second and one line with the sum of its other refusals. Refusals may fill half of
the queue, so that a flood of them delays no mutating call. `aio/line_log.py` says what a broken or hanging disk does:
calls go on, lost lines are counted, and a line with the verb `lost` tells their `count`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final, Literal

import msgspec

from controlplane.aio import line_log
from controlplane.aio.clock import Clock
from controlplane.aio.line_log import LineLog
from controlplane.model import times

Decision = Literal["allowed", "refused", "failed"]

# Longer texts are cut. JSON escapes a character with 6 bytes (12 beyond U+FFFF), so a line stays below 32 KiB.
MOST_CHARACTERS: Final = 256
REFUSALS_A_SECOND: Final = 10
MOST_SOURCES: Final = 256
# Stands in a sum for a text in which the refusals differ.
DIFFERENT: Final = "*"
_WINDOW_SECONDS: Final = 1.0


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`failed`: the call was allowed, but did not succeed. `count` calls are summed up in this record.

    `via` is the id of the credential, `peer` the address of the caller, `owner` the owner of the object.
    """

    time: str
    subject: str
    via: str = ""
    peer: str = ""
    method: str
    verb: str
    kind: str = ""
    name: str = ""
    owner: str = ""
    decision: Decision
    reason: str = ""
    revision: int = 0
    request_id: str = ""
    count: int = 1


_TEXTS: Final = tuple(
    name for name in AuditRecord.__struct_fields__ if name not in ("time", "decision", "revision", "count")
)


class AuditLog:
    """Made and called on the event loop. `path` "-" is stdout, "" no audit at all."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        most_lines: int = line_log.MOST_LINES,
        patience_seconds: float = line_log.PATIENCE_SECONDS,
    ) -> None:
        self._clock = clock
        self._most_lines = most_lines
        self._lines: LineLog | None = None
        if path:
            self._lines = LineLog(
                path, clock, about_lost=self._about_lost, most_lines=most_lines, patience_seconds=patience_seconds
            )
        self._sums = RefusalSums()
        self._summing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def enabled(self) -> bool:
        return self._lines is not None

    def start(self) -> None:
        if self._lines is not None:
            self._lines.start()

    async def write(self, record: AuditRecord) -> None:
        """Returns when the record is queued; waits while the queue is full, for the log's patience at most.

        A cancelled call leaves no record, but counts as a lost line. Of a change that was made, the caller shields
        `write` from the cancellation of its client.
        """
        if self._lines is not None:
            await self._lines.put(line_of(bounded(record)))

    def refuse(self, record: AuditRecord) -> None:
        """Never waits: the record is queued, or added to the sum of its source, which is queued within seconds."""
        if self._lines is None:
            return
        if self._closed:
            self._lines.lose(1)
            return
        record = bounded(record)
        if not self._sums.take_turn(record) or not self._offer(record):
            self._sums.add(record)
        if self._summing is None or self._summing.done():
            self._summing = asyncio.get_running_loop().create_task(self._write_sums())

    def reopen(self) -> None:
        """Opens the file anew, after a rotation by rename. No line is lost. For a handler of SIGHUP on the loop."""
        if self._lines is not None:
            self._lines.reopen()

    async def close(self, seconds: float = line_log.CLOSE_SECONDS) -> None:
        """Writes all records and sums; returns after `seconds` even if the file hangs. Later records are lost."""
        if self._lines is None or self._closed:
            return
        self._closed = True
        if self._summing is not None:
            self._summing.cancel()
        await self._lines.close(seconds, last=[line_of(record) for record in self._sums.take()])

    def _offer(self, record: AuditRecord) -> bool:
        return self._lines is not None and self._lines.offer(line_of(record), most_lines=self._most_lines // 2)

    async def _write_sums(self) -> None:
        """Ends after a second without refusals. A sum that finds no room goes on in the next second."""
        while self._sums:
            await self._clock.sleep(_WINDOW_SECONDS)
            for record in self._sums.take():
                if not self._offer(record):
                    self._sums.add(record)

    def _about_lost(self, count: int) -> bytes:
        now = times.show(self._clock.wall())
        reason = "lines of the audit log were not written"
        record = AuditRecord(
            time=now, subject="", method="", verb="lost", kind="audit", decision="failed", reason=reason, count=count
        )
        return line_of(record)


class RefusalSums:
    """The refusals of each source in the current second. Beyond `MOST_SOURCES`, all other sources count as one."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], int] = {}
        self._sums: dict[tuple[str, str], AuditRecord] = {}

    def __bool__(self) -> bool:
        return bool(self._turns)

    def take_turn(self, record: AuditRecord) -> bool:
        """Whether the source may have a line for this refusal alone."""
        source = self._source_of(record)
        turn = self._turns.get(source, 0)
        self._turns[source] = turn + 1
        return turn < REFUSALS_A_SECOND

    def add(self, record: AuditRecord) -> None:
        source = self._source_of(record)
        self._turns.setdefault(source, 0)
        record = msgspec.structs.replace(record, peer=host_of(record.peer))
        before = self._sums.get(source)
        self._sums[source] = record if before is None else sum_of(before, record)

    def take(self) -> list[AuditRecord]:
        """The sums of the second that ends here. The next second begins without sources."""
        sums = list(self._sums.values())
        self._sums.clear()
        self._turns.clear()
        return sums

    def _source_of(self, record: AuditRecord) -> tuple[str, str]:
        source = host_of(record.peer), record.subject
        if source in self._turns or len(self._turns) < MOST_SOURCES:
            return source
        return DIFFERENT, DIFFERENT


def sum_of(first: AuditRecord, second: AuditRecord) -> AuditRecord:
    """Both records as one: texts in which they differ are `DIFFERENT`, the time is the time of the first."""
    different = {name: DIFFERENT for name in _TEXTS if getattr(first, name) != getattr(second, name)}
    revision = first.revision if first.revision == second.revision else 0
    return msgspec.structs.replace(first, revision=revision, count=first.count + second.count, **different)


def host_of(peer: str) -> str:
    """The address without its port. gRPC names peers like ipv4:127.0.0.1:50051, ipv6:%5B::1%5D:50051 and unix:/path."""
    host, _, port = peer.rpartition(":")
    has_port = peer.startswith(("ipv4:", "ipv6:")) or peer.count(":") == 1
    return host if has_port and host and port.isdigit() else peer


def bounded(record: AuditRecord) -> AuditRecord:
    """The record with texts that are short, and that UTF-8 can encode."""
    changed = {name: short for name in _TEXTS if (short := _short(text := getattr(record, name))) is not text}
    return msgspec.structs.replace(record, **changed) if changed else record


def line_of(record: AuditRecord) -> bytes:
    """JSON in ASCII: no text of a caller can begin a line or steer a terminal."""
    return json.dumps(msgspec.structs.asdict(record), separators=(",", ":")).encode() + b"\n"


def _short(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 1] + "…"
    return text if text.isascii() else text.encode(errors="replace").decode()
