"""The provider `local` with real joblets, which find no replica: what matters here is who runs, and how often."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from controlplane.aio import processes
from controlplane.model.errors import Refused, StaleAttempt, Unavailable
from controlplane.model.scalepolicy import Made, TargetTemplate
from controlplane.providers import local
from controlplane.providers.local import LocalProvider, made_here

NOBODY = ("127.0.0.1:1",)
MADE = Made(
    id="A", target="farm-1", policy="farm", provider="local", epoch=1, request="A", capacity={"cpu": 2},
    template=TargetTemplate(driver="process", region="eu", labels={"zone": "a", "disk": "ssd"}),
)  # fmt: skip
LARGER = replace(MADE, generation=2, request="B", capacity={"cpu": 4})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.stop(made_here(tmp_path).values())


def started(folder: Path) -> list[list[str]]:
    """The command lines of all joblets of the folder. One that was started a moment ago may have none yet."""
    give_up = time.monotonic() + 20
    while any(process.is_alive() and not processes.arguments_of(process.pid) for process in made_here(folder).values()):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    found = map(processes.arguments_of, processes.pids())
    return [arguments for arguments in found if str(folder / "farm-1") in arguments and "joblet" in arguments]


async def test_however_often_and_by_whom_it_is_asked_for_one_joblet_runs(folder: Path) -> None:
    provider = LocalProvider(folder, NOBODY, os.environ)
    await provider.create(MADE)
    (first,) = made_here(folder).values()
    await provider.create(MADE)
    await LocalProvider(folder, NOBODY, os.environ).create(MADE)
    (folder / "farm-1" / "provider.json").unlink()
    await LocalProvider(folder, NOBODY, os.environ).create(MADE)
    assert made_here(folder) == {"farm-1": first}
    (arguments,) = started(folder)
    options = dict(itertools.pairwise(arguments))
    assert (options["--capacity"], options["--region"], options["--labels"]) == ("cpu=2", "eu", "disk=ssd,zone=a")
    assert "--resizable" in arguments


async def test_another_size_is_another_joblet_and_a_dead_one_is_started_again(folder: Path) -> None:
    provider = LocalProvider(folder, NOBODY, os.environ)
    await provider.create(MADE)
    (first,) = made_here(folder).values()
    await provider.resize(LARGER)
    (second,) = made_here(folder).values()
    assert not first.is_alive()
    assert "cpu=4" in started(folder)[0]
    await asyncio.to_thread(processes.stop, [second])
    await provider.resize(LARGER)
    assert len(started(folder)) == 1
    with pytest.raises(StaleAttempt):
        await provider.create(MADE)
    assert "cpu=4" in started(folder)[0]


async def test_what_was_removed_stays_so_until_it_is_made_anew(folder: Path) -> None:
    provider = LocalProvider(folder, NOBODY, os.environ)
    await provider.create(MADE)
    away = replace(MADE, generation=2, request="C")
    await provider.remove(away)
    await provider.remove(away)
    assert (made_here(folder), started(folder)) == ({}, [])
    with pytest.raises(StaleAttempt):
        await provider.create(MADE)
    assert started(folder) == []
    await provider.create(replace(MADE, id="B", request="D"))
    assert len(started(folder)) == 1
    await provider.remove(away)
    assert len(started(folder)) == 1


async def test_two_replicas_never_work_on_a_target_at_once(folder: Path) -> None:
    (folder / "farm-1").mkdir()
    with local._held(folder / "farm-1"), pytest.raises(Unavailable):
        await LocalProvider(folder, NOBODY, os.environ).create(MADE)
    assert started(folder) == []


@pytest.mark.parametrize("name", ["../../elsewhere", "..", ".", "/etc", "a/b", "A", "", "x" * 64])
async def test_a_name_that_leads_elsewhere_starts_nothing(folder: Path, name: str) -> None:
    inner = folder / "inner"
    inner.mkdir()
    provider = LocalProvider(inner, NOBODY, os.environ)
    for action in (provider.create, provider.resize, provider.remove):
        with pytest.raises(Refused, match="is no name of a target"):
            await action(replace(MADE, target=name))
    assert (os.listdir(folder), os.listdir(inner)) == (["inner"], [])


async def test_what_the_host_has_against_it_is_the_targets_error_and_passes_with_its_cause(folder: Path) -> None:
    (folder / "farm-1").write_text("a file where the folder should be")
    provider = LocalProvider(folder, NOBODY, os.environ)
    with pytest.raises(Unavailable, match=r"this host cannot do it: .*farm-1"):
        await provider.create(MADE)
    (folder / "farm-1").unlink()
    await provider.create(MADE)
    assert len(started(folder)) == 1


async def test_a_null_byte_among_the_arguments_is_refused(folder: Path) -> None:
    provider = LocalProvider(folder, NOBODY, os.environ)
    with pytest.raises(Refused, match="cannot be started"):
        await provider.create(replace(MADE, template=replace(MADE.template, region="a\0b")))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to start a process of another user")
async def test_a_process_of_another_user_is_not_taken_for_the_joblet(folder: Path) -> None:
    home = folder / "farm-1"
    words = ("sh", "-c", "sleep 600; :", "joblet", "--data-dir", str(home))
    stranger = await asyncio.create_subprocess_exec(*words, user=65534, start_new_session=True)
    try:
        await LocalProvider(folder, NOBODY, os.environ).create(MADE)
        (joblet,) = made_here(folder).values()
        assert joblet.pid != stranger.pid
        assert processes.of(stranger.pid) is not None, "it is left alone"
    finally:
        os.killpg(stranger.pid, signal.SIGKILL)
        await stranger.wait()
