"""Stopping processes by pid and start time, and the commands of tasks through their shims."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from controlplane.aio import processes
from controlplane.joblet.drivers.process.spawner import Spawner
from controlplane.model.errors import AlreadyExists
from controlplane.standalone import recorded_processes
from controlplane.standalone.layout import Layout, write_json
from controlplane.standalone.task_commands import stop_commands


@contextmanager
def child(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said "up"."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import signal, time; {code}; print('up', flush=True); time.sleep(600)")


def found(process: subprocess.Popen[bytes]) -> processes.Process:
    seen = processes.of(process.pid)
    assert seen is not None
    return seen


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    with child(*python("signal.signal(signal.SIGTERM, signal.SIG_IGN)")) as process:
        processes.stop([found(process)], grace_seconds=0.2)
        assert process.wait() == -signal.SIGKILL


def test_a_reused_pid_is_left_alone() -> None:
    with child(*python("pass")) as process:
        earlier = dataclasses.replace(found(process), ticks=found(process).ticks - 1)
        assert not earlier.is_alive()
        processes.stop([earlier], grace_seconds=0.1)
        assert process.poll() is None


def test_a_record_of_another_boot_is_left_alone() -> None:
    with child(*python("pass")) as process:
        earlier = dataclasses.replace(found(process), boot="another")
        processes.stop([earlier], grace_seconds=0.1)
        assert process.poll() is None


def test_a_zombie_counts_as_gone() -> None:
    with child(*python("pass")) as process:
        seen = found(process)
        os.kill(process.pid, signal.SIGKILL)
        assert processes.wait_gone([seen], 5.0)
        assert not seen.is_alive()


def test_what_a_dead_supervisor_left_is_found_by_its_record(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with child(*python("pass")) as etcd, child(*python("pass")) as replica:
        gone = dataclasses.replace(found(etcd), ticks=0)
        record = recorded_processes.ProcessRecord(
            parts={"etcd": found(etcd), "replica-1": found(replica), "local-1": gone}
        )
        write_json(layout.processes_json, msgspec.to_builtins(record))
        assert sorted(recorded_processes.parts(layout)) == ["etcd", "replica-1"]
        assert recorded_processes.stop(layout, commands=True) == 2
        assert (etcd.wait(), replica.wait()) == (-signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"parts": 3}', '{"parts": {"etcd": null}}'])
def test_a_record_that_is_not_whole_stops_nothing(tmp_path: Path, content: str) -> None:
    layout = Layout(tmp_path)
    layout.processes_json.write_text(content)
    assert recorded_processes.supervisor(layout) is None
    assert recorded_processes.stop(layout, commands=False) == 0


def test_a_folder_is_held_by_one_supervisor(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    lock = layout.take_lock()
    with pytest.raises(AlreadyExists, match="already runs from"):
        layout.take_lock()
    os.close(lock)
    os.close(layout.take_lock())


def run_shim(data: Path, run: Path, *command: str) -> processes.Process:
    """A shim whose command runs."""
    (run / "work").mkdir(parents=True)
    told = {
        "command": list(command), "environment": {"PATH": "/usr/bin:/bin"}, "record": '"order":"x"',
        "time_limit": None, "holder": False, "nice": 0, "boot": "b", "until": 0.0,
    }  # fmt: skip
    links: list[int] = []
    born: list[int | None] = []
    spawner = Spawner(data, {"PATH": "/usr/bin:/bin"}, lambda link, _watched: links.append(link))
    heard = spawner.spawn(run, told, born.append)
    while not born:
        select.select(links, [], [])
        spawner.hear()
    select.select([heard], [], [])
    assert os.read(heard, 100) == b"running\n"
    os.close(heard)
    os.close(born[0] or 0)
    spawner.close()
    shim = processes.of(json.loads((run / "shim.json").read_text())["pid"])
    assert shim is not None
    return shim


def test_commands_are_stopped_with_all_they_started_and_their_end_is_not_recorded(tmp_path: Path) -> None:
    data = tmp_path / "joblets" / "local-1"
    daemon = "import os, time; os.setsid(); open('daemon', 'w').write(str(os.getpid())); time.sleep(600)"
    shim = run_shim(data, data / "runs" / "a", "sh", "-c", f'{sys.executable} -c "{daemon}" & echo $$; wait')
    beside = run_shim(tmp_path / "other" / "local-1", tmp_path / "other" / "local-1" / "run", "sleep", "600")
    try:
        commands = processes.descendants([shim])
        assert stop_commands(tmp_path / "joblets") == 1
        assert commands
        assert not shim.is_alive()
        assert not any(command.is_alive() for command in commands)
        assert processes.descendants([beside]), "another control plane's command was stopped"
        assert not (data / "runs" / "a" / "end.json").exists()
    finally:
        shim.send(signal.SIGKILL)
        beside.send(signal.SIGKILL)


def test_json_files_are_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "up.json"
    write_json(file, {"a": 1})
    write_json(file, {"a": 2})
    assert json.loads(file.read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]


def test_processes_of_others_are_not_own() -> None:
    assert processes.is_own(os.getpid())
    assert not processes.is_own(2**22 + 1)
    stranger = subprocess.Popen(("sleep", "600"), user=65534) if os.geteuid() == 0 else None
    try:
        assert not processes.is_own(stranger.pid if stranger is not None else 1)
    finally:
        if stranger is not None:
            stranger.kill()
            stranger.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to start a process of another user")
@pytest.mark.parametrize("words", [("run-0",), ("-", "run-0"), ()])
def test_a_shim_of_another_user_is_left_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    joblets = tmp_path / "joblets"
    shown = [str(joblets / "shim.py"), *(str(joblets / word) if word != "-" else word for word in words)]
    stranger = subprocess.Popen(("sh", "-c", "sleep 600; :", *shown), user=65534, start_new_session=True)
    try:
        assert stop_commands(joblets) == 0
        assert stranger.poll() is None
    finally:
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()


def test_a_process_that_keeps_its_memory_private_cannot_be_read_by_its_own_user() -> None:
    look = "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)"
    code = f"import ctypes; from controlplane.aio import processes; {look}; processes.keep_memory_private(); {look}"
    with child(*python(code)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert processes.is_own(process.pid), "it is still found"
        if os.geteuid() != 0:
            with pytest.raises(PermissionError):
                Path(f"/proc/{process.pid}/environ").read_bytes()
