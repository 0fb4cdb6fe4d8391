"""Spawning shims: one interpreter makes them all, and what is asked of it happens once or not at all."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controlplane.joblet.drivers.process.process_search import joblet_folder_of, open_shim
from controlplane.joblet.drivers.process.spawner import Spawner, fork_server_of

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Stage:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.watched: list[int] = []
        self.spawner = Spawner(data, ENVIRONMENT, self._watch)
        self.born: list[int | None] = []

    def _watch(self, descriptor: int, watched: bool) -> None:
        (self.watched.append if watched else self.watched.remove)(descriptor)

    def ask(self, name: str, *command: str, **environment: str) -> int:
        """Where the shim says that the command runs."""
        run = self.data / name
        (run / "work").mkdir(parents=True)
        told: dict[str, Any] = {
            "command": list(command), "environment": {**ENVIRONMENT, **environment}, "record": '"order":"x"',
            "time_limit": None, "holder": False, "nice": 0, "boot": "b", "until": 0.0,
        }  # fmt: skip
        return self.spawner.spawn(run, told, self.born.append)

    def hear(self, answers: int) -> None:
        """Until so many requests were answered in all."""
        while len(self.born) < answers:
            assert select.select(self.watched, [], [], 20)[0]
            self.spawner.hear()

    def spawn(self, name: str, *command: str, **environment: str) -> int:
        """A descriptor of the shim, when the command runs."""
        heard = self.ask(name, *command, **environment)
        self.hear(len(self.born) + 1)
        assert select.select([heard], [], [], 20)[0]
        assert os.read(heard, 100) == b"running\n"
        os.close(heard)
        born = self.born[-1]
        assert born is not None
        return born

    def end(self, pidfd: int, name: str) -> dict[str, Any]:
        assert select.select([pidfd], [], [], 20)[0]
        return dict(json.loads((self.data / name / "end.json").read_text()))

    def a_fork_server(self) -> int:
        """Started, and so far that its command line can be read."""
        self.spawner.open()
        server = fork_server_of(self.data)
        assert server is not None
        give_up = time.monotonic() + 20
        while server.pid not in dict(shims(self.data)):
            assert time.monotonic() < give_up
            time.sleep(0.01)
        return server.pid

    def close(self) -> None:
        self.spawner.close()
        for pidfd in self.born:
            if pidfd is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)


def pid_of(pidfd: int) -> int:
    found = re.search(r"^Pid:\s+(-?\d+)", Path(f"/proc/self/fdinfo/{pidfd}").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


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


def test_one_fork_server_makes_the_shims_of_all_commands(stage: Stage) -> None:
    server = stage.a_fork_server()
    for number in range(3):
        pidfd = stage.spawn(f"run-{number}", "sh", "-c", f"exit {number}")
        assert stage.end(pidfd, f"run-{number}")["code"] == number
    assert stage.a_fork_server() == server
    assert [pid for pid, _ in shims(stage.data)] == [server]


def test_many_requests_at_once_are_all_answered_in_their_order(stage: Stage) -> None:
    """More than the link takes at once: the rest goes when the fork server has answered."""
    count = 300
    heard = [stage.ask(f"run-{number}", "true") for number in range(count)]
    stage.hear(count)
    for number, pidfd in enumerate(stage.born):
        assert pidfd is not None
        assert stage.end(pidfd, f"run-{number}")["code"] == 0
        os.close(heard[number])


def test_a_shim_is_found_by_its_attempt_without_any_file_of_it(stage: Stage) -> None:
    """By its joblet, when the command removed the evidence; and by `down`, which knows the joblet's folder."""
    pid = pid_of(stage.spawn("runs/one", "sleep", "1000"))
    stage.spawn("runs/two", "sleep", "1000")
    shutil.rmtree(stage.data / "runs")
    found = open_shim(stage.data / "runs" / "one")
    assert found is not None
    assert pid_of(found) == pid
    os.close(found)
    assert open_shim(stage.data / "runs" / "three") is None
    assert joblet_folder_of(pid) == stage.data
    assert (stage.data / "shim.log").read_bytes() == b""


def test_a_shim_keeps_nothing_of_what_it_was_told(stage: Stage) -> None:
    """Its stdin stays open for its name; who may look into it finds no secret there."""
    pid = pid_of(stage.spawn("one", "sleep", "1000", SECRET="s3cret"))
    assert Path(f"/proc/{pid}/fd/0").read_bytes() == b""


def test_a_command_sees_nothing_of_the_fork_server(stage: Stage) -> None:
    looks = "readlink /proc/self/fd/0; ls /proc/self/fd | wc -w; pwd; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    assert stage.end(stage.spawn("one", "sh", "-c", looks), "one")["code"] == 0
    stdin, descriptors, folder, *signals = (stage.data / "one" / "stdout").read_text().split("\n")[:-1]
    assert (stdin, int(descriptors), folder) == ("/dev/null", 4, f"{stage.data}/one/work")
    # The C library has signals 32 and 33 to itself.
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in signals] == [0, 0]


def test_a_shim_has_a_session_of_its_own_and_leaves_no_dead_process(stage: Stage) -> None:
    server = stage.a_fork_server()
    pid = pid_of(stage.spawn("one", "sleep", "1000"))
    assert os.getsid(pid) == pid != os.getsid(server)
    signal.pidfd_send_signal(stage.born[0] or 0, signal.SIGTERM)
    stage.end(stage.born[0] or 0, "one")
    give_up = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_what_is_told_may_be_large(stage: Stage) -> None:
    pidfd = stage.spawn("one", "sh", "-c", "test ${#BIG} -eq 100000", BIG="x" * 100_000)
    assert stage.end(pidfd, "one")["code"] == 0


def test_after_a_dead_fork_server_there_is_another(stage: Stage) -> None:
    server = stage.a_fork_server()
    running = stage.spawn("one", "sleep", "1000")
    os.kill(server, signal.SIGKILL)
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    assert stage.end(stage.spawn("two", "true"), "two")["code"] == 0
    assert not select.select([running], [], [], 0)[0], "its shims live on"
    assert stage.a_fork_server() != server
    assert not Path(f"/proc/{server}").exists()


def test_a_fork_server_that_dies_idle_is_noticed(stage: Stage) -> None:
    server = stage.a_fork_server()
    os.kill(server, signal.SIGKILL)
    assert select.select(stage.watched, [], [], 20)[0]
    stage.spawner.hear()
    assert stage.watched == []


def test_what_a_fork_server_was_asked_for_when_it_died_is_not_known_and_never_asked_again(stage: Stage) -> None:
    """A stopped one cannot fork: the request waits in its link and dies with it."""
    server = stage.a_fork_server()
    os.kill(server, signal.SIGSTOP)
    heard = stage.ask("one", "touch", "../ran")
    os.kill(server, signal.SIGKILL)
    stage.hear(1)
    assert stage.born == [None]
    os.close(heard)
    assert stage.end(stage.spawn("two", "true"), "two")["code"] == 0
    assert not (stage.data / "one" / "ran").exists()


def test_a_shim_that_begins_late_starts_nothing_that_was_abandoned(stage: Stage) -> None:
    server = stage.a_fork_server()
    os.kill(server, signal.SIGSTOP)
    heard = stage.ask("one", "touch", "../ran")
    (stage.data / "one" / "abandoned").touch()
    os.kill(server, signal.SIGCONT)
    stage.hear(1)
    assert select.select([stage.born[0] or 0], [], [], 20)[0]
    os.close(heard)
    assert not (stage.data / "one" / "ran").exists()


def test_a_fork_server_goes_when_nothing_comes(stage: Stage) -> None:
    server = stage.a_fork_server()
    stage.spawner.close()
    os.waitpid(server, 0)
    assert not (stage.data / "records.jsonl").exists()


def test_a_killed_joblets_fork_server_goes_too(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        Spawner(tmp_path, ENVIRONMENT, lambda _descriptor, _watched: None).open()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    give_up = time.monotonic() + 20
    while list(shims(tmp_path)):
        assert time.monotonic() < give_up
        time.sleep(0.01)
