"""The shim alone, as a real process: what it promises without any joblet."""

from __future__ import annotations

import errno
import fcntl
import json
import marshal
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.joblet.drivers.process import shim
from controlplane.joblet.drivers.process.rundir import RunDir

SOURCE = shim.__file__
FOREVER = "while :; do sleep 0.05; done"


class Shim:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.run = data / "run"
        (self.run / "work").mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, **more: Any) -> None:
        told = {
            "folder": str(self.run),
            "command": list(command),
            "environment": {"PATH": os.environ["PATH"]},
            "record": '"order":"O"',
            "time_limit": None,
            "holder": False,
            "nice": 0,
            "boot": "boot-1",
            "until": 0.0,
            **more,
        }
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        arguments = [sys.executable, "-I", "-S", SOURCE, SOURCE, str(self.data)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, start_new_session=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self.process.stdin is not None
        self.process.stdin.write(marshal.dumps(told))
        self.process.stdin.close()

    def until_running(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"running\n"

    def until_said(self) -> str:
        give_up = time.monotonic() + 20
        while not (said := (self.run / "stdout").read_text()).endswith("\n"):
            assert time.monotonic() < give_up
            time.sleep(0.01)
        return said.strip()

    def end(self) -> dict[str, Any]:
        assert self.process is not None
        self.process.wait(timeout=20)
        return dict(json.loads((self.run / "end.json").read_text()))

    def events(self) -> list[str]:
        lines = (self.data / "records.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Shim]:
    made = Shim(tmp_path)
    yield made
    made.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_keeps_the_exit_code(one: Shim) -> None:
    one.start("sh", "-c", "exit 7")
    end = one.end()
    assert (end["how"], end["code"]) == ("exited", 7)
    assert one.events() == ["started", "ended"]


def test_a_signal_is_told_as_128_and_its_number(one: Shim) -> None:
    one.start("sh", "-c", "kill -KILL $$")
    assert one.end()["code"] == 137


def test_a_command_that_is_not_there_is_told_by_its_error_number(one: Shim) -> None:
    one.start("/no/such/command")
    end = one.end()
    assert (end["how"], end["code"]) == ("not_started", 2)


def test_an_argument_that_no_program_can_get_is_told_too(one: Shim) -> None:
    one.start("echo", "a\0b")
    assert one.end()["how"] == "not_started"


def test_nothing_of_a_command_outlives_its_end(one: Shim) -> None:
    one.start("sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1000') & while ! test -s ../stdout; do sleep 0.01; done")
    one.end()
    assert not is_alive(int(one.until_said()))


def test_a_stop_ends_politely(one: Shim) -> None:
    one.start("sh", "-c", f"trap 'touch ../bye; exit 0' TERM; echo ready; {FOREVER}")
    one.until_running()
    one.until_said()
    assert one.process is not None
    one.process.send_signal(signal.SIGTERM)
    assert one.end()["how"] == "stopped"
    assert (one.run / "bye").exists()


def test_a_stop_that_comes_while_it_begins_is_not_lost(one: Shim) -> None:
    one.start("sh", "-c", FOREVER)
    assert one.process is not None
    one.process.send_signal(signal.SIGTERM)
    assert one.end()["how"] == "stopped"


def test_a_stop_at_once_does_not_wait_for_the_stubborn(one: Shim) -> None:
    one.start("sh", "-c", f"trap '' TERM; echo ready; {FOREVER}")
    one.until_running()
    one.until_said()
    (one.run / "stop.json").write_text('{"reason":"Withdrawn","at_once":true}')
    assert one.process is not None
    one.process.send_signal(signal.SIGTERM)
    end = one.end()
    assert (end["how"], end["code"]) == ("stopped", 137)


def test_the_time_limit_is_its_own(one: Shim) -> None:
    one.start("sh", "-c", FOREVER, time_limit=0.1)
    assert one.end()["how"] == "timed_out"


def test_a_holder_whose_confirmation_runs_out_is_killed(one: Shim) -> None:
    one.start("sh", "-c", FOREVER, holder=True, until=time.monotonic() + 1)
    assert one.end()["how"] == "lost"
    assert one.events() == ["started", "ended"]


def test_a_holder_without_any_confirmation_is_not_begun(one: Shim) -> None:
    """Its joblet was stopped before it asked for this, and what it holds may be another's by now."""
    one.start("touch", "../ran", holder=True)
    assert one.end()["how"] == "lost"
    assert not (one.run / "ran").exists()
    assert not (one.data / "records.jsonl").exists()


def test_a_holder_lives_as_long_as_it_is_confirmed(one: Shim) -> None:
    now = time.monotonic()
    (one.data / "confirmed").write_text(f"{now + 0.6} {now} boot-1")
    one.start("sh", "-c", FOREVER, holder=True, until=now + 0.3)
    end = one.end()
    assert end["how"] == "lost"
    assert time.monotonic() >= now + 0.6


@pytest.mark.parametrize("confirmed", ["{later} {later} boot-1", "{later} 0 boot-2", "nonsense"])
def test_a_confirmation_that_does_not_follow_on_is_none(one: Shim, confirmed: str) -> None:
    """A gap before it, another boot, or nothing that can be read."""
    now = time.monotonic()
    (one.data / "confirmed").write_text(confirmed.format(later=now + 1000))
    one.start("sh", "-c", FOREVER, holder=True, until=now)
    assert one.end()["how"] == "lost"


def test_what_holds_nothing_needs_no_confirmation(one: Shim) -> None:
    one.start("sleep", "0.2")
    assert one.end()["how"] == "exited"


def test_an_abandoned_attempt_is_not_begun(one: Shim) -> None:
    lock = os.open(one.run / "spec.json", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    one.start("touch", "../ran")
    (one.run / "abandoned").touch()
    os.close(lock)
    assert one.process is not None
    assert one.process.wait(timeout=20) == 0
    assert not (one.run / "ran").exists()
    assert not (one.data / "records.jsonl").exists()


def test_the_command_dies_with_a_killed_shim(one: Shim) -> None:
    one.start("sh", "-c", "echo $$; exec sleep 1000")
    one.until_running()
    pid = int(one.until_said())
    assert one.process is not None
    one.process.kill()
    one.process.wait()
    give_up = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_the_command_has_the_usual_signals_whoever_ignored_some(one: Shim) -> None:
    before = {name: signal.signal(name, signal.SIG_IGN) for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)}
    try:
        one.start("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    one.end()
    masks = [int(line.split()[1], 16) for line in (one.run / "stdout").read_text().splitlines()]
    assert masks == [0, 0]


@pytest.mark.parametrize("holder", [False, True])
def test_commands_step_back_but_not_what_has_to_kill_in_time(one: Shim, holder: bool) -> None:
    until = time.monotonic() + 60
    one.start("sh", "-c", "cut -d' ' -f19 /proc/self/stat; exec sleep 1000", holder=holder, nice=7, until=until)
    one.until_running()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(one.until_said()) == max(7, own)
    assert one.process is not None
    assert os.getpriority(os.PRIO_PROCESS, one.process.pid) == (own if holder else max(7, own))
    one.process.send_signal(signal.SIGTERM)
    assert one.end()["how"] == "stopped"


def later(seconds: float) -> float:
    """On the clock that a holder's promise counts on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + seconds


def test_a_holder_lives_by_a_clock_that_a_suspend_does_not_stop(one: Shim) -> None:
    """What CLOCK_MONOTONIC says of the same promise no longer counts once the joblet writes the other."""
    far = time.monotonic() + 1000
    (one.data / "confirmed").write_text(f"{far} 0 boot-1")
    (one.data / "confirmed.boottime").write_text(f"{later(-1)} 0 boot-1 {far}")
    one.start("sh", "-c", FOREVER, holder=True, until_boottime=later(0.5))
    assert one.end()["how"] == "lost"


def test_a_holder_lives_as_long_as_the_joblet_confirms_on_that_clock(one: Shim) -> None:
    began, until = later(0), later(0.9)
    (one.data / "confirmed.boottime").write_text(f"{until} {began} boot-1 {time.monotonic() + 0.9}")
    one.start("sh", "-c", FOREVER, holder=True, until_boottime=later(0.3))
    assert one.end()["how"] == "lost"
    assert later(0) >= until


def test_a_joblet_of_an_older_version_confirms_too(one: Shim) -> None:
    """It took over from one of this version, and writes one of the two files only."""
    now = time.monotonic()
    (one.data / "confirmed.boottime").write_text(f"{later(0.2)} {later(0)} boot-1 {now + 0.2}")
    (one.data / "confirmed").write_text(f"{now + 1} {now} boot-1")
    one.start("sh", "-c", FOREVER, holder=True, until_boottime=later(0.1))
    assert one.end()["how"] == "lost"
    assert time.monotonic() >= now + 1


@pytest.mark.parametrize("obstacle", ["mkdir", "mkfifo", "ln -s /dev/full"])
@pytest.mark.parametrize("name", ["end.json", "end.json.new"])
def test_the_end_is_kept_whatever_stands_in_its_way(one: Shim, obstacle: str, name: str) -> None:
    one.start("sh", "-c", f"{obstacle} ../{name}; exit 7")
    assert one.process is not None
    one.process.wait(timeout=20)
    end = RunDir(one.run).end()
    assert end is not None
    assert (end.how, end.code) == ("exited", 7)


def test_the_end_is_kept_when_nothing_more_can_be_made_in_its_folder(one: Shim) -> None:
    one.start("sh", "-c", "chmod 500 ..; mkdir ../end.json.new 2>/dev/null; mkdir -p ../end.json.new; exit 7")
    assert one.process is not None
    one.process.wait(timeout=20)
    end = RunDir(one.run).end()
    assert end is not None
    assert end.code == 7


def test_a_stop_is_not_kept_waiting_by_what_the_command_put_in_its_place(one: Shim) -> None:
    one.start("sh", "-c", f"mkfifo ../stop.json; trap 'exit 0' TERM; echo ready; {FOREVER}")
    one.until_running()
    one.until_said()
    assert one.process is not None
    one.process.send_signal(signal.SIGTERM)
    assert one.end()["how"] == "stopped"


def test_a_start_that_cannot_be_recorded_is_no_start(one: Shim) -> None:
    (one.data / "records.jsonl").symlink_to("/dev/full")
    one.start("touch", "../ran")
    end = one.end()
    assert (end["how"], end["code"]) == ("not_started", errno.ENOSPC)
    assert not (one.run / "ran").exists()


def test_of_much_output_the_last_part_is_kept(one: Shim) -> None:
    one.start("sh", "-c", "yes | head -c 8388608; echo the end", output_limit=1 << 20)
    assert one.end()["code"] == 0
    assert (one.run / "stdout").stat().st_size == (8 << 20) + 8
    assert (one.run / "stdout").stat().st_blocks * 512 < 2 << 20
    assert (one.run / "stdout").read_bytes().endswith(b"y\nthe end\n")
