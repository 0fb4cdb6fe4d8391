"""A real replica that is asked anything: calls of raw bytes with credentials of every role, raw bytes to its ports."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from controlplane.aio.clock import chance
from controlplane.cluster_key import ClusterKey
from controlplane.model.access import SECRET_BYTES, Token, token_digest, token_text
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put
from controlplane.wire import transport
from tests.component.access_requests import requests_for
from tests.component.access_stage import OTHER_TARGET, TARGET, Work, methods, plane_objects
from tests.component.api_stage import mint
from tests.component.fuzzing import Fuzzer
from tests.robustness.world import World

# Ends a term by its meaning, not by its content: asked for last.
ENDS_A_TERM = "StepDown"
_AT_ONCE = 16
_CALL_SECONDS = 2.0
_STREAM_MESSAGES = 3
_CLASS_NAMES = re.compile(r"Traceback|File \"|\b[A-Z]\w*(?:Error|Exception)\b(?! Code)|\bobject at 0x")
_NEVER = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED)
# The words of the client's own library, about a call that the replica had refused while the request was being sent.
_OF_THE_CLIENT = ("Internal error from Core", "Stream removed", "RST_STREAM")
ADA = Work("ada")
_WORDS = (b"GET", b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"X" * 300, b"\xff")
_PATHS = (
    b"/livez", b"/readyz", b"/leaderz", b"/", b"/metrics", b"*", b"//x", b"/../../etc/passwd", b"/%00%ff",
    b"/livez?" + b"a=b&" * 500, b"/" + b"x" * 9000, b"http://[::1/livez", b"/livez#\xe9", b"",
)  # fmt: skip
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/2.0", b"junk")
_HEADERS = (
    b"Host: x", b"Host: x", b"Authorization: Bearer cp_x", b"Authorization: \xff\xfe", b"Content-Length: -1",
    b"Content-Length: 9999999999999", b"Content-Length: 5", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Expect: 100-continue", b"Expect: junk", b"Host: [::1",
    b"Accept-Encoding: \0",
    b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
    b"Cookie: " + b"a=b; " * 900, b"X: " + b"y" * 20_000, b"Range: bytes=9-1", b"If-Modified-Since: never",
    b"Content-Type: multipart/form-data; boundary=\xe9", b"Content-Encoding: br", b": empty", b"no colon",
    b" folded: x", b"\0: \0", b"Sec-WebSocket-Key: x",
)  # fmt: skip


@dataclass
class Findings:
    """`bad` are the answers that no client may get."""

    asked: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    by_method: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def note(self, method: str, role: str, raw: bytes, code: grpc.StatusCode, text: str) -> None:
        self.asked += 1
        self.codes[code.name] += 1
        self.by_method.setdefault(method, Counter())[code.name] += 1
        if any(words in text for words in _OF_THE_CLIENT):
            return
        if code in _NEVER or _CLASS_NAMES.search(text):
            self.bad.append(f"{method} by {role}: {code.name}: {text[:300]} for {raw[:200]!r} ({len(raw)} bytes)")


async def furnish(world: World) -> dict[str, str]:
    """Objects for requests to be about, and a token for each role."""
    contents: dict[str, Any] = {}
    roles: dict[str, tuple[str, dict[str, Any]]] = {
        "admin": ("root", {"roles": ("admin",)}),
        "operator": ("olga", {"roles": ("operator",)}),
        "submitter": ("ada", {"roles": ("submitter",)}),
        "viewer": ("vera", {"roles": ("viewer",)}),
        "bounded": ("vince", {"roles": ("viewer",), "owner": "ada"}),
        "joblet": ("joan", {"roles": ("joblet",), "targets": (TARGET, OTHER_TARGET, "new-target")}),
    }
    tokens = {"nobody": "", "junk": "cp_junk"}
    for role, (subject, fields) in roles.items():
        tokens[role] = token_text(chance(SECRET_BYTES))
        token = Token(id=mint.make(), subject=subject, digest=token_digest(tokens[role]), **fields)
        contents[f"{keys.TOKENS.prefix}{token.id}"] = token
    tokens["replica"] = ClusterKey(b"k" * 32).replica_credential(world.leader.grpc)
    contents |= {key: item for key, item in plane_objects().items() if key.startswith(f"{keys.ROOT}config/")}
    item = Item(then=tuple(put(key, codec.encode(struct)) for key, struct in contents.items()))
    await world.witness.store.commit(item)
    return tokens


async def fuzz_grpc(
    address: str, chosen: Sequence[MethodDescriptor], tokens: dict[str, str], fuzzer: Fuzzer, count: int
) -> Findings:
    """`count` inputs, each for another method and role in turn, some of them at once."""
    findings = Findings()
    roles = list(tokens)
    # The administrator gets furthest, so it asks as often as all others.
    turns = [(method, role) for method in chosen for role in (*roles, *["admin"] * len(roles))]
    fuzzer.random.shuffle(turns)
    inputs = iter(range(count))
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:

        async def ask_on() -> None:
            for number in inputs:
                method, role = turns[number % len(turns)]
                raw = fuzzer.request(requests_for(method, ADA)[0])
                more = [raw, fuzzer.request(requests_for(method, ADA)[0])] if method.client_streaming else [raw]
                code, text = await _call(channel, method, more, transport.credentials(tokens[role]))
                findings.note(method.full_name, role, raw, code, text)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(ask_on())
    return findings


async def _call(
    channel: grpc.aio.Channel, method: MethodDescriptor, raw: Sequence[bytes], metadata: transport.Metadata
) -> tuple[grpc.StatusCode, str]:
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any
    try:
        if not method.server_streaming:
            call = channel.unary_unary(path)
            await call(raw[0], metadata=metadata, timeout=_CALL_SECONDS)
            return grpc.StatusCode.OK, ""
        if method.client_streaming:
            call = channel.stream_stream(path)(metadata=metadata, timeout=_CALL_SECONDS)
            with suppress(asyncio.InvalidStateError):
                for message in raw:
                    await call.write(message)
                await call.done_writing()
        else:
            begin: Any = channel.unary_stream(path)
            call = begin(raw[0], metadata=metadata, timeout=_CALL_SECONDS)
        for _ in range(_STREAM_MESSAGES):
            if await call.read() is grpc.aio.EOF:
                return await call.code(), await call.details() or ""
        call.cancel()
        return grpc.StatusCode.OK, ""
    except grpc.aio.AioRpcError as error:
        trailing = "".join(f" {key}={value!r}" for key, value in error.trailing_metadata() or ())
        return error.code(), f"{error.details()}{trailing}"


async def fuzz_http(address: str, fuzzer: Fuzzer, count: int) -> Findings:
    """Requests of HTTP/1.1, nearly valid ones among them, and bytes that are none."""
    findings = Findings()
    for _ in range(count):
        raw = _http_request(fuzzer)
        answer = (await exchange(address, raw)).decode(errors="replace")
        findings.asked += 1
        status = answer.partition("\r\n")[0].split(" ")[1] if answer.startswith("HTTP/1.") else "closed"
        findings.codes[status] += 1
        if (status[0] == "5" and status != "503") or _CLASS_NAMES.search(answer):
            findings.bad.append(f"HTTP {status}: {answer[:400]} for {raw[:200]!r} ({len(raw)} bytes)")
    return findings


def _http_request(fuzzer: Fuzzer) -> bytes:
    random = fuzzer.random
    if random.random() < 0.1:
        return random.randbytes(random.choice((1, 20, 400, 9000))) + b"\r\n\r\n"
    word, path, version = random.choice(_WORDS), random.choice(_PATHS), random.choice(_VERSIONS)
    headers = random.choices(_HEADERS, k=random.randint(0, 5))
    if random.random() < 0.5:
        word, version, headers = b"GET", b"HTTP/1.1", [b"Host: x", random.choice(_HEADERS)]
    body = random.choice(
        (b"", b"", b"hello", b"ffffffffffffffff\r\nx\r\n", b"0\r\n\r\n", b"-1\r\n", random.randbytes(200))
    )
    raw = b" ".join((word, path, version)) + b"\r\n" + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + body
    return raw if random.random() < 0.9 else raw[: random.randrange(len(raw))]


async def exchange(address: str, raw: bytes) -> bytes:
    """All that comes back until the other side is silent or closes; this side writes nothing more."""
    host, _, port = address.rpartition(":")
    answer = b""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(raw)
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    while part := await reader.read(65_536):
                        answer += part
        finally:
            writer.close()
    return answer


def memory_bytes(pid: int) -> int:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def without_the_end_of_a_term() -> list[MethodDescriptor]:
    return [method for method in methods() if method.name != ENDS_A_TERM]


def end_of_a_term() -> list[MethodDescriptor]:
    return [method for method in methods() if method.name == ENDS_A_TERM]
