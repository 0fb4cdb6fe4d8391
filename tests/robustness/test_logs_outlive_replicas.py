"""A log that is followed while every replica goes away, one after the other, has neither a gap nor a repeat."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.fault_reports import Tell
from tests.robustness.upped import Upped, an_up

ROUND = 40


async def pids(upped: Upped) -> list[int]:
    return [replica["pid"] for replica in upped.up_json()["replicas"]]


async def started_again(upped: Upped, pid: int) -> None:
    """By `up`: the death of the next one must not leave nobody to ask."""
    async with asyncio.timeout(60):
        while pid in await pids(upped):
            await asyncio.sleep(0.05)


async def until_line(reader: asyncio.subprocess.Process, told: bytearray, number: int) -> None:
    assert reader.stdout is not None
    async with asyncio.timeout(100):
        while b"\n%d\n" % number not in told:
            block = await reader.stdout.read(1 << 16)
            assert block, "it ended too early"
            told += block


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_followed_log_goes_on_without_each_of_the_replicas(
    tmp_path: Path, tell: Tell, number: signal.Signals
) -> None:
    """The replica that was asked, the one that has the joblet, and the leader are among them."""
    async with an_up(tmp_path / "up", targets=1) as upped:
        stop = tmp_path / "stop"
        script = f"i=0; until [ -e {stop} ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo $i"
        job = {"name": "say", "command": ["sh", "-c", script]}
        order_file = tmp_path / "order.json"
        order_file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": job}]}}))
        order = (await upped.cpctl("submit", "-f", str(order_file)))["id"]
        command = [sys.executable, "-m", "controlplane.cli.cpctl", "logs", "--data-dir", str(upped.folder), order, "-f"]
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        told = bytearray(b"\n")
        try:
            await until_line(reader, told, 5)
            for pid in await pids(upped):
                os.kill(pid, number)
                try:
                    last = int(bytes(told).split(b"\n")[-2])
                    await until_line(reader, told, last + ROUND)
                finally:
                    if number == signal.SIGSTOP:
                        os.kill(pid, signal.SIGCONT)
                if number == signal.SIGKILL:
                    await started_again(upped, pid)
                await upped.phase("local-1", "Ready")
            stop.touch()
            assert reader.stdout is not None
            async with asyncio.timeout(100):
                told += await reader.stdout.read()
                assert await reader.wait() == 0
        finally:
            if reader.returncode is None:
                reader.kill()
        lines = bytes(told).split()
        assert lines == [b"%d" % number for number in range(len(lines))]
        tell(f"{number.name}: {len(lines)} lines without each of 3 replicas")
