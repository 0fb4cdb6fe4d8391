"""The folder of one attempt: what it says of progress, artefacts and the end."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from controlplane.joblet.attempt_records import AttemptIdentity
from controlplane.joblet.drivers.process.rundir import MAX_ARTEFACTS, End, RunDir, Spec, Stop
from controlplane.model.fulfilment import TaskRef

REF = TaskRef(job="render", index=0, attempt=1)
SPEC = Spec(subject=AttemptIdentity("O", "render", 0, 1, "F", "T", ()), command=("render",), time_limit=30)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "O.render.0.1")
    run.prepare(SPEC)
    return run


def test_an_attempt_can_be_begun_only_once(run: RunDir) -> None:
    with pytest.raises(FileExistsError):
        run.prepare(SPEC)
    assert run.spec() == SPEC


def test_the_lock_is_free_or_held(run: RunDir) -> None:
    assert run.try_lock() is not None
    assert run.try_lock() is None
    assert run.spec() == SPEC


def test_a_shim_of_an_older_version_holds_its_own_lock(run: RunDir) -> None:
    with (run.path / "lock").open("w") as older:
        fcntl.flock(older, fcntl.LOCK_EX)
        assert run.try_lock() is None
    assert run.try_lock() is not None


def test_a_folder_in_which_nothing_was_prepared_can_be_locked(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert run.try_lock() is not None
    assert run.spec() is None


@pytest.mark.parametrize(
    ("written", "percent"),
    [
        ("", None),
        ("10\n40\n", 40),
        ("40", 40),
        ("99.9\n", 99),
        ("250\n", 100),
        ("-3\n", 0),
        ("half\n", None),
        ("nan", None),
    ],
)
def test_progress_is_the_last_line(run: RunDir, written: str, percent: int | None) -> None:
    run.progress.write_text(written)
    assert run.percent() == percent


def test_artefacts_are_urls_and_not_too_many(run: RunDir) -> None:
    run.artefacts.write_text("s3://b/1\nnothing\nhttps://" + "a" * 2048 + "\n" + "s3://b/2 \n" * 150)
    assert run.urls() == ("s3://b/1", *["s3://b/2"] * (MAX_ARTEFACTS - 1))


@pytest.mark.parametrize(
    ("end", "phase", "reason", "exit_code"),
    [
        (End(how="exited", code=0), "Succeeded", "", 0),
        (End(how="exited", code=3), "Failed", "Failed", 3),
        (End(how="timed_out", code=143), "Failed", "TimedOut", None),
        (End(how="not_started", code=2), "Failed", "StartError", None),
        (End(how="lost", code=137), "Failed", "Lost", None),
        (End(how="stopped", code=143), "Failed", "Evicted", None),
    ],
)
def test_every_end_has_its_phase_and_reason(
    run: RunDir, end: End, phase: str, reason: str, exit_code: int | None
) -> None:
    task = run.observe_end(REF, end)
    assert (task.phase, task.reason, task.exit_code) == (phase, reason, exit_code)


def test_a_stop_that_was_asked_for_is_a_cancellation(run: RunDir) -> None:
    run.write_stop(Stop(reason="Preempted"))
    task = run.observe_end(REF, End(how="stopped", code=143))
    assert (task.phase, task.reason) == ("Cancelled", "Preempted")


def test_the_message_is_the_end_of_the_errors(run: RunDir) -> None:
    (run.path / "stderr").write_text("x" * 10_000 + "the end\n")
    message = run.observe_end(REF, End(how="exited", code=1)).message
    assert message.endswith("xthe end")
    assert len(message) == 200


def test_a_file_that_was_written_half_is_not_there(run: RunDir) -> None:
    (run.path / "end.json").write_text('{"how":"exi')
    assert run.end() is None
