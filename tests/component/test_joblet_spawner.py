"""Spawning shims: one is ready beforehand, and what it becomes does not differ from one that was not."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.joblet.drivers.spawner import Spawner

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Stage:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.spawner = Spawner(data, ENVIRONMENT)
        self.pids: list[int] = []

    def spawn(self, name: str, *command: str, **environment: str) -> int:
        """Returns when the command runs."""
        run = self.data / name
        (run / "work").mkdir(parents=True)
        told: dict[str, Any] = {
            "command": list(command), "environment": {**ENVIRONMENT, **environment}, "record": '"order":"x"',
            "time_limit": None, "holder": False, "boot": "b", "until": 0.0,
        }  # fmt: skip
        pid, heard = self.spawner.spawn(run, told)
        self.pids.append(pid)
        select.select([heard], [], [], 20)
        assert os.read(heard, 100) == b"running\n"
        os.close(heard)
        return pid

    def end(self, pid: int, name: str) -> dict[str, Any]:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        self.pids.remove(pid)
        return dict(json.loads((self.data / name / "end.json").read_text()))

    def spares(self) -> list[int]:
        """Shims of this folder that wait for something to run."""
        return [pid for pid, arguments in shims(self.data) if set(arguments[-2]) == {"-"}]

    def a_spare(self) -> int:
        """Made, and so far that its command line can be read."""
        self.spawner.keep_ready()
        give_up = time.monotonic() + 20
        while not (found := self.spares()):
            assert time.monotonic() < give_up
            time.sleep(0.01)
        (spare,) = found
        return spare

    def close(self) -> None:
        self.spawner.close()
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def shims(data: Path) -> Iterator[tuple[int, list[str]]]:
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if len(arguments) > 3 and arguments[-1] == str(data):
            yield int(pid), arguments


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_the_spare_shim_takes_the_next_command_and_no_other_is_started(stage: Stage) -> None:
    spare = stage.a_spare()
    stage.spawner.keep_ready()
    pid = stage.spawn("one", "sh", "-c", "exit 7")
    assert pid == spare
    assert (stage.end(pid, "one")["how"], stage.spares()) == ("exited", [])


@pytest.mark.parametrize("ready", [True, False])
def test_the_command_line_of_a_shim_names_its_attempt(stage: Stage, ready: bool) -> None:
    """`verify` and `down` find the shims of attempts by it."""
    if ready:
        stage.spawner.keep_ready()
    pid = stage.spawn("one", "sleep", "1000")
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert f"{stage.data}/one\0".encode() in command
    assert command.decode().split("\0")[:-1][-1] == str(stage.data)
    assert b"---" not in command
    assert (stage.data / "one" / "shim.log").exists()


def test_a_command_does_not_see_whether_its_shim_was_ready(stage: Stage) -> None:
    looks = (
        "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; ls /proc/self/fd; pwd; grep Sig /proc/self/status"
    )
    seen = []
    for name in ("ready", "own"):
        if name == "ready":
            stage.spawner.keep_ready()
        pid = stage.spawn(name, "sh", "-c", looks, NAME=name)
        assert stage.end(pid, name)["code"] == 0
        seen.append((stage.data / name / "stdout").read_text().replace(f"/{name}/", "/"))
    assert seen[0] == seen[1]


def test_without_a_spare_shim_or_with_a_dead_one_another_is_started(stage: Stage) -> None:
    first = stage.spawn("one", "true")
    assert stage.end(first, "one")["code"] == 0
    spare = stage.a_spare()
    os.kill(spare, signal.SIGKILL)
    os.waitid(os.P_PID, spare, os.WEXITED | os.WNOWAIT)
    second = stage.spawn("two", "true")
    assert second != spare
    assert stage.end(second, "two")["code"] == 0
    stage.spawner.keep_ready()
    assert not Path(f"/proc/{spare}").exists()


def test_what_is_more_than_a_pipe_takes_gets_a_shim_of_its_own(stage: Stage) -> None:
    spare = stage.a_spare()
    pid = stage.spawn("one", "sh", "-c", "test ${#BIG} -eq 100000", BIG="x" * 100_000)
    assert pid != spare
    assert stage.end(pid, "one")["code"] == 0
    assert stage.spares() == [spare]


def test_a_spare_shim_goes_when_nothing_comes(stage: Stage) -> None:
    spare = stage.a_spare()
    stage.spawner.close()
    os.waitpid(spare, 0)
    assert not (stage.data / "records.jsonl").exists()


def test_a_spare_shim_that_stands_still_is_left_alone_and_starts_nothing_later(stage: Stage) -> None:
    """A stopped one cannot read: what it was told waits in its pipe, and so does the attempt that is its own."""
    spare = stage.a_spare()
    os.kill(spare, signal.SIGSTOP)
    run = stage.data / "one"
    (run / "work").mkdir(parents=True)
    told: dict[str, Any] = {
        "command": ["touch", "../ran"], "environment": ENVIRONMENT, "record": '"order":"x"', "time_limit": None,
        "holder": False, "boot": "b", "until": 0.0,
    }  # fmt: skip
    pid, heard = stage.spawner.spawn(run, told)
    assert pid == spare
    stage.pids.append(pid)
    (run / "abandoned").touch()
    os.kill(spare, signal.SIGCONT)
    os.waitpid(pid, 0)
    stage.pids.remove(pid)
    os.close(heard)
    assert not (run / "ran").exists()


def test_a_killed_joblets_spare_shim_goes_too(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        Spawner(tmp_path, ENVIRONMENT).keep_ready()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    give_up = time.monotonic() + 20
    while list(shims(tmp_path)):
        assert time.monotonic() < give_up
        time.sleep(0.01)
