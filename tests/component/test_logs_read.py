"""What a task wrote reaches whoever asks any replica, from a real joblet's folder."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from controlplane.model.errors import Invalid, NotFound, Refused, Unavailable
from controlplane.model.fulfilment import Observed, ObservedTask
from controlplane.store import codec, keys
from tests.component.joblet_stage import alive
from tests.component.logs_stage import TARGET, LogsStage, a_stage
from tests.etcd import Etcd

TWO = "echo out; echo err >&2"


@pytest.fixture
async def stage(etcd: Etcd, tmp_path: Path) -> AsyncIterator[LogsStage]:
    async with a_stage(etcd, tmp_path) as stage:
        yield stage


def waiting_for(gate: Path, then: str = "echo later") -> str:
    return f"echo first; until [ -e {gate} ]; do sleep 0.02; done; {then}"


async def test_a_replica_without_the_joblets_stream_passes_the_log_on(stage: LogsStage) -> None:
    near, far = await stage.an_api(), await stage.an_api()
    await stage.a_joblet(near)
    order = await stage.an_order()
    placed = await stage.place(order, "sh", "-c", TWO)
    await stage.until_phase(placed, "Succeeded")
    assert not far.server.logs.has(TARGET)
    for api in (near, far):
        assert await stage.logs(api, order).rest() == b"out\nerr\n"
        assert await stage.logs(api, order, job="job-1", index=0, stream="stderr").rest() == b"err\n"


async def test_a_follower_waits_for_the_start_hears_what_comes_and_ends_with_the_task(
    stage: LogsStage, tmp_path: Path
) -> None:
    api = await stage.an_api()
    await stage.a_joblet(api)
    order = await stage.an_order()
    reader = stage.logs(api, order, follow=True)
    waiting = asyncio.ensure_future(reader.until(b"first\n"))
    await stage.until(lambda: reader.notes)
    assert "has not started yet: it is Pending" in reader.notes[0]
    placed = await stage.place(order, "sh", "-c", waiting_for(tmp_path / "gate"))
    assert await waiting == b"first\n"
    (tmp_path / "gate").touch()
    assert await reader.until(b"later\n") == b"later\n"
    ending = asyncio.ensure_future(reader.rest())
    await stage.until_phase(placed, "Succeeded")
    await stage.end(placed)
    assert await ending == b""


async def test_a_follower_goes_on_with_the_next_attempt(stage: LogsStage) -> None:
    api = await stage.an_api()
    await stage.a_joblet(api)
    order = await stage.an_order()
    first = await stage.place(order, "sh", "-c", "echo one; exit 3")
    await stage.until_phase(first, "Failed")
    reader = stage.logs(api, order, follow=True)
    assert await reader.until(b"one\n") == b"one\n"
    following = asyncio.ensure_future(reader.rest())
    await stage.end(first, "retry")
    await stage.until(lambda: any("waits for its next attempt" in note for note in reader.notes))
    second = await stage.place(order, "echo", "two", attempt=2)
    await stage.until_phase(second, "Succeeded")
    await stage.end(second)
    assert await following == b"two\n"
    assert reader.attempts == [1, 2]
    assert await stage.logs(api, order, previous=True).rest() == b"one\n"
    assert await stage.logs(api, order, attempt=1).rest() == b"one\n"
    assert await stage.logs(api, order).rest() == b"two\n"


async def test_a_joblet_that_changes_replicas_costs_a_follower_no_byte(stage: LogsStage, tmp_path: Path) -> None:
    first, second, asked = await stage.an_api(), await stage.an_api(), await stage.an_api()
    await stage.a_joblet(first, second)
    has, other = (first, second) if first.server.logs.has(TARGET) else (second, first)
    order = await stage.an_order()
    script = f"i=0; until [ -e {tmp_path / 'gate'} ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo last"
    await stage.place(order, "sh", "-c", script)
    reader = stage.logs(asked, order, follow=True)
    told = await reader.until(b"line 9\n")
    await has.server.stop()
    await stage.until(lambda: other.server.logs.has(TARGET))
    told += await reader.until(b"line 30\n")
    (tmp_path / "gate").touch()
    told += await reader.until(b"last\n")
    run = stage.joblets.data / "runs" / f"{order}.job-1.0.1" / "stdout"
    assert told == run.read_bytes()
    stage.apis.remove(has)
    await has.close()


async def test_a_reader_goes_on_at_another_replica_where_it_stopped(stage: LogsStage) -> None:
    near, far = await stage.an_api(), await stage.an_api()
    await stage.a_joblet(near)
    order = await stage.an_order()
    placed = await stage.place(order, "sh", "-c", "echo 0123456789; echo err >&2")
    await stage.until_phase(placed, "Succeeded")
    resume = {"attempt": 1, "start": {"stdout": 5, "stderr": 4}}
    assert await stage.logs(far, order, resume=resume).rest() == b"56789\n"
    assert await stage.logs(near, order, tail_lines=1).rest() == b"0123456789\nerr\n"


async def test_output_is_there_after_the_end_for_as_long_as_the_joblet_keeps_it(stage: LogsStage) -> None:
    api = await stage.an_api()
    await stage.a_joblet(api)
    order = await stage.an_order()
    placed = await stage.place(order, "echo", "kept")
    await stage.until_phase(placed, "Succeeded")
    await stage.end(placed)
    assert await stage.logs(api, order).rest() == b"kept\n"
    shutil.rmtree(stage.joblets.data / "runs" / f"{order}.job-1.0.1")
    gone = await stage.logs(api, order).refusal()
    assert isinstance(gone, NotFound)
    assert f"attempt 1 of job-1/0 on target {TARGET}: nothing is kept of it any more" in str(gone)
    assert isinstance(await stage.logs(api, order, follow=True).refusal(), NotFound)


async def test_a_dead_target_is_named(stage: LogsStage) -> None:
    near, far = await stage.an_api(), await stage.an_api()
    await near.set(joblet_lease=2, heartbeat=0.5, target_grace=3)
    joblet = await stage.a_joblet(near)
    order = await stage.an_order()
    placed = await stage.place(order, "echo", "kept")
    await stage.until_phase(placed, "Succeeded")
    await stage.end(placed)
    await joblet.end(signal.SIGKILL)
    for api in (near, far):
        for follow in (False, True):
            away = await stage.logs(api, order, follow=follow).refusal()
            assert isinstance(away, Unavailable)
            assert f"target {TARGET} keeps the logs of job-1/0, and its joblet is not there" in str(away)


async def test_what_never_started_says_why(stage: LogsStage) -> None:
    api = await stage.an_api()
    order = await stage.an_order()
    never = await stage.logs(api, order).refusal()
    assert isinstance(never, NotFound)
    assert "job-1/0 has not started yet: it is Pending" in str(never)
    placed = await stage.place(order, "true")
    assert f"placed on target {TARGET}" in str(await stage.logs(api, order).refusal())
    await stage.end(placed, "retry")


async def test_a_command_that_could_not_be_started_says_why_instead_of_showing_nothing(stage: LogsStage) -> None:
    api = await stage.an_api()
    await stage.a_joblet(api)
    order = await stage.an_order()
    first = await stage.place(order, "/nonexistent/program")
    await stage.until_phase(first, "Failed")
    why = f"attempt 1 of job-1/0 could not be started on target {TARGET}: StartError: /nonexistent/program: No such"
    assert why in str(await stage.logs(api, order).refusal())
    reader = stage.logs(api, order, follow=True)
    following = asyncio.ensure_future(reader.rest())
    await stage.until(lambda: any(why in note for note in reader.notes))
    await stage.end(first, "retry")
    second = await stage.place(order, "echo", "two", attempt=2)
    await stage.until_phase(second, "Succeeded")
    await stage.end(second)
    assert await following == b"two\n"


async def test_a_placed_task_that_does_not_start_says_what_its_target_says(stage: LogsStage) -> None:
    api = await stage.an_api()
    order = await stage.an_order()
    placed = await stage.place(order, "true")
    ref = placed.tasks[0]
    task = ObservedTask(
        job=ref.job, index=ref.index, attempt=1, phase="Starting", reason="ImageError", message="ErrImagePull: refused"
    )
    seen = Observed(id=placed.id, target=TARGET, session="s", report=1, phase="Starting", tasks=(task,))
    await api.put(keys.observed(TARGET, placed.id), codec.encode(seen))
    await stage.caught_up()
    told = str(await stage.logs(api, order).refusal())
    assert f"it is placed on target {TARGET}: ImageError: ErrImagePull: refused" in told


@pytest.mark.parametrize(
    ("fields", "kind", "field"),
    [
        ({"order": "x"}, Invalid, "id"),
        ({"order": "01HZZZZZZZZZZZZZZZZZZZZZZZ"}, NotFound, "id"),
        ({"stream": "stdin"}, Invalid, "stream"),
        ({"attempt": -1}, Invalid, "attempt"),
        ({"attempt": 1}, NotFound, "attempt"),
        ({"job": "nothing"}, NotFound, "job"),
        ({"index": 9}, NotFound, "index"),
        ({"min_revision": -1}, Invalid, "min_revision"),
    ],
)
async def test_a_bad_question_is_refused_with_its_field(
    stage: LogsStage, fields: dict[str, object], kind: type[Refused], field: str
) -> None:
    api = await stage.an_api()
    order = str(fields.pop("order", "")) or await stage.an_order()
    refused = await stage.logs(api, order, **fields).refusal()
    assert type(refused) is kind, refused
    assert getattr(refused, "field", "") == field


async def test_a_simulated_target_has_no_logs(stage: LogsStage) -> None:
    api = await stage.an_api()
    await stage.a_joblet(api, driver="simulated")
    order = await stage.an_order()
    placed = await stage.place(order, "true")
    await stage.until_phase(placed, "Succeeded")
    refused = await stage.logs(api, order).refusal()
    assert type(refused) is Refused
    assert "simulated" in str(refused)


async def test_a_reader_that_leaves_ends_the_reading_at_the_joblet(stage: LogsStage, tmp_path: Path) -> None:
    near, far = await stage.an_api(), await stage.an_api()
    joblet = await stage.a_joblet(near)
    order = await stage.an_order()
    await stage.place(order, "sh", "-c", waiting_for(tmp_path / "gate"))
    reader = stage.logs(far, order, follow=True)
    await reader.until(b"first\n")
    assert joblet.process is not None
    pid, log = joblet.process.pid, f"{order}.job-1.0.1/stdout"
    assert any(log in file for file in open_files(pid))
    reader.call.cancel()
    await stage.until(lambda: not any(log in file for file in open_files(pid)))
    assert alive(pid)


def open_files(pid: int) -> list[str]:
    """What is closed while this looks is left out."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(file.readlink()))
    return found
