"""The process of a hosted joblet: an ordinary joblet that lives no longer than its replica.

The kubeconfig is in a file without a name, inherited by the child alone. The identity of the joblet is the first line
of stdin. stdin closes when the replica ends, in any way, and the joblet ends with its stdin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from controlplane.model import texts
from controlplane.model.hosting import HostedIdentity

STOP_SECONDS = 3.0
_MOST_LINE = 200


class JobletProcess:
    """A running joblet. Its log lines are passed on without the texts of `hidden`."""

    def __init__(self, process: asyncio.subprocess.Process, hidden: Sequence[str]) -> None:
        self._process = process
        self._hidden = [text for text in hidden if text]
        self._last_line = ""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> tuple[int, str]:
        """The exit code, negative for a signal, and the last line of the joblet's stderr."""
        code = await self._process.wait()
        await self._reading
        return code, self._last_line

    async def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL after a grace; the process is gone when `stop` returns."""
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
        """Copies the joblet's log lines to the stderr of the replica."""
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:
                # A line beyond the limit: its end comes as the next line.
                continue
            if not line:
                return
            text = self._redacted(line.decode(errors="replace").rstrip())
            if text:
                self._last_line = texts.cut(text, _MOST_LINE)
                print(texts.escaped(text), file=sys.stderr, flush=True)  # noqa: T201

    def _redacted(self, text: str) -> str:
        for hidden in self._hidden:
            text = text.replace(hidden, "(hidden)")
        return text


async def start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    kubeconfig: str,
    identity: HostedIdentity,
    hidden: Sequence[str],
) -> JobletProcess:
    """`argv` lacks the option for the kubeconfig, which is added here; `hidden` are texts to be kept out of logs."""
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
    process.stdin.write(msgspec.json.encode(identity) + b"\n")
    return JobletProcess(process, (identity.secret, identity.token, *hidden))
