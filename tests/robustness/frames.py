"""Reading a link's transcripts: which fenced transactions were said, how far they got, what etcd answered.

Just enough of HTTP/2 and gRPC for that: messages in DATA frames, by stream. Compressed or padded ones do not occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aetcd import rpc
from google.protobuf.message import DecodeError

from controlplane.store import keys
from tests.robustness.link import Link, Transcript

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD = 9
_MESSAGE_HEAD = 5
_DATA = 0


@dataclass(frozen=True, slots=True)
class Spoken:
    """One gRPC message on one stream; `complete_at` is where in the transcript its last byte is."""

    stream: int
    message: bytes
    complete_at: int


@dataclass(frozen=True, slots=True)
class FencedWrite:
    """`passed`: all of it has reached etcd. `succeeded` is what etcd answered, None while it has not."""

    passed: bool
    succeeded: bool | None

    @property
    def answered(self) -> bool:
        return self.succeeded is not None


def spoken(said: bytes) -> Iterator[Spoken]:
    """Messages that are complete."""
    at = len(_PREFACE) if said.startswith(_PREFACE) else 0
    streams: dict[int, bytearray] = {}
    while at + _FRAME_HEAD <= len(said):
        length = int.from_bytes(said[at : at + 3], "big")
        kind, stream = said[at + 3], int.from_bytes(said[at + 5 : at + 9], "big") & 0x7FFFFFFF
        body = said[at + _FRAME_HEAD : at + _FRAME_HEAD + length]
        at += _FRAME_HEAD + length
        if kind != _DATA or at > len(said):
            continue
        buffer = streams.setdefault(stream, bytearray())
        buffer += body
        while len(buffer) >= _MESSAGE_HEAD:
            size = int.from_bytes(buffer[1:_MESSAGE_HEAD], "big")
            if len(buffer) < _MESSAGE_HEAD + size:
                break
            yield Spoken(stream, bytes(buffer[_MESSAGE_HEAD : _MESSAGE_HEAD + size]), at)
            del buffer[: _MESSAGE_HEAD + size]


def fenced_writes(link: Link) -> list[FencedWrite]:
    """Every transaction that compares a leader key, in the order in which they were said on each connection."""
    return [write for carried in link.connections for write in _writes(carried.up, carried.down)]


def _writes(up: Transcript, down: Transcript) -> Iterator[FencedWrite]:
    answers = {answer.stream: answer for answer in spoken(bytes(down.said))}
    for request in spoken(bytes(up.said)):
        if not _is_fenced(request.message):
            continue
        answer = answers.get(request.stream)
        succeeded = rpc.TxnResponse.FromString(answer.message).succeeded if answer is not None else None
        yield FencedWrite(request.complete_at <= up.passed, succeeded)


def _is_fenced(message: bytes) -> bool:
    try:
        request = rpc.TxnRequest.FromString(message)
    except DecodeError:
        return False
    nested = any(operation.HasField("request_txn") for operation in request.success)
    return nested and any(compare.key.startswith(keys.CANDIDATES.prefix.encode()) for compare in request.compare)
