"""One hosted joblet: an ordinary joblet process that lives no longer than whoever started it.

The kubeconfig is in a file without a name that only the child inherits; who it is comes as the first line of its
stdin, whose end, however this process ends, is the child's end too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from controlplane.model import texts
from controlplane.model.hosting import Papers

STOP_SECONDS = 3.0
_MOST_LINE = 200


class Child:
    """`say` of a child that ended is the last line that it wrote to stderr, without anything of `hidden` in it."""

    def __init__(self, process: asyncio.subprocess.Process, hidden: Sequence[str]) -> None:
        self._process = process
        self._hidden = [text for text in hidden if text]
        self._last = ""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> tuple[int, str]:
        """Its exit code, negative for a signal, and its last words."""
        code = await self._process.wait()
        await self._reading
        return code, self._last

    async def stop(self) -> None:
        """Politely, then not; it is gone when this returns."""
        try:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_SECONDS):
                        await self._process.wait()
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        """What it logs goes where this process logs."""
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:
                # Longer than a line may be: its end comes as the next one.
                continue
            if not line:
                return
            text = self._redacted(line.decode(errors="replace").rstrip())
            if text:
                self._last = texts.cut(text, _MOST_LINE)
                print(texts.escaped(text), file=sys.stderr, flush=True)  # noqa: T201

    def _redacted(self, text: str) -> str:
        for hidden in self._hidden:
            text = text.replace(hidden, "(hidden)")
        return text


async def start(
    argv: Sequence[str], environment: Mapping[str, str], kubeconfig: str, papers: Papers, hidden: Sequence[str]
) -> Child:
    """`argv` without the kubeconfig, whose place is added; `hidden` is what nobody may see of what it says."""
    descriptor = os.memfd_create("kubeconfig", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, kubeconfig.encode())
        process = await asyncio.create_subprocess_exec(
            *argv,
            "--kubeconfig",
            f"/dev/fd/{descriptor}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(descriptor,),
            env=dict(environment),
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(papers) + b"\n")
    return Child(process, (papers.secret, *hidden))
