"""What a joblet says of its machine and its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.joblet.stats import Machine, WorkCounter
from tests.builders import a_fulfilment
from tests.clock import ManualClock

MEMORY = "MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:    {} kB\n"
CPU = "processor\t: 0\nmodel name\t: A Fast One\nmodel name\t: A Fast One\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "loadavg").write_text("1.26 0.80 0.50 2/300 4242\n")
    (tmp_path / "meminfo").write_text(MEMORY.format(8192000))
    (tmp_path / "cpuinfo").write_text(CPU)
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 0 0\n")
    return tmp_path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_hardware_is_what_the_system_says(proc: Path, clock: ManualClock) -> None:
    hardware = Machine(str(proc), clock, proc).hardware()
    assert (hardware.cpu_model, hardware.memory) == ("A Fast One", 16384000 * 1024)
    assert min(hardware.cpus, hardware.disk) > 0
    assert hardware.os
    assert hardware.kernel


def test_stats_are_rounded_to_what_a_person_calls_a_change(proc: Path, clock: ManualClock) -> None:
    machine = Machine(str(proc), clock, proc)
    first = machine.stats()
    assert (first["load"], first["memory_free"]) == (1.3, 8192000 * 1024)
    (proc / "meminfo").write_text(MEMORY.format(8192100))
    (proc / "loadavg").write_text("1.31 0.80 0.50 2/300 4242\n")
    clock.pass_seconds(5)
    second = machine.stats()
    assert {name: second[name] for name in first} == first


def test_processor_use_is_that_since_the_last_time(proc: Path, clock: ManualClock) -> None:
    machine = Machine(str(proc), clock, proc)
    assert "cpu_percent" not in machine.stats()
    (proc / "stat").write_text("cpu  400 0 200 1300 100 0 0 0 0 0\n")
    clock.pass_seconds(5)
    assert machine.stats()["cpu_percent"] == 40


def test_the_machine_is_not_read_for_every_target(proc: Path, clock: ManualClock) -> None:
    machine = Machine(str(proc), clock, proc)
    first = machine.stats()
    (proc / "loadavg").write_text("9.00 0.80 0.50 2/300 4242\n")
    assert machine.stats() == first
    clock.pass_seconds(1)
    assert machine.stats()["load"] == 9


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path, clock: ManualClock) -> None:
    machine = Machine(str(tmp_path / "not" / "made" / "yet"), clock, tmp_path)
    assert set(machine.stats()) == {"disk_free"}
    assert machine.hardware().cpu_model == ""


def test_work_is_counted_by_its_end_and_lately(clock: ManualClock) -> None:
    work = WorkCounter(clock)
    assert work.stats() == {"succeeded": 0, "failed": 0, "cancelled": 0, "per_minute": 0}
    work.ended(a_fulfilment("o").task(0).task(1).observed("Succeeded"))
    clock.pass_seconds(40)
    work.ended(a_fulfilment("o").task(2).observed("Failed"))
    work.ended(a_fulfilment("o").task(3).observed("Running"))
    assert work.stats() == {"succeeded": 2, "failed": 1, "cancelled": 0, "per_minute": 3}
    clock.pass_seconds(30)
    assert work.stats() == {"succeeded": 2, "failed": 1, "cancelled": 0, "per_minute": 1}
