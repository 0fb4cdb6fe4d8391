"""The process driver with real joblets, real commands, and a replica that is real up to its store."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from controlplane.model.fulfilment import TaskStop
from tests.component.joblet_replica import a_fulfilment
from tests.component.joblet_stage import Stage, alive, staged, until_file, until_gone


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def test_a_command_runs_and_every_step_is_reported(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "echo out; echo err >&2")
    stage.world.assign(work)
    await stage.started()
    end = await stage.world.until_phase(work.id, "Succeeded")
    assert stage.world.phases(work.id)[0] == "Starting"
    assert (end.tasks[0].exit_code, end.tasks[0].reason) == (0, "")
    assert end.tasks[0].started
    assert end.tasks[0].finished
    assert (stage.run(100) / "stdout").read_text() == "out\n"
    assert (stage.run(100) / "stderr").read_text() == "err\n"
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_an_unknown_target_is_created_like_a_user_would(stage: Stage) -> None:
    await stage.started(capacity={"cpu": 4, "memory": 1024}, owner="ada")
    await stage.world.until(lambda: stage.world.session != "")
    target = stage.world.targets["here"]
    assert (target.driver, target.creator, target.owner) == ("process", "joblet", "ada")
    assert dict(target.capacity.of) == {"cpu": 4, "memory": 1024}


async def test_nothing_is_started_before_its_starting_report_is_stored(stage: Stage) -> None:
    stage.world.answers = ["Unavailable", "Unavailable"]
    work = a_fulfilment(1, "true")
    stage.world.assign(work)
    await stage.started()
    await stage.world.until(lambda: len(stage.world.received) == 2)
    assert not stage.run(100).exists()
    await stage.world.until_phase(work.id, "Succeeded")


async def test_a_task_sees_its_environment_and_its_command_is_expanded(stage: Stage) -> None:
    script = "echo $CONTROLPLANE_ORDER/$CONTROLPLANE_JOB/$CONTROLPLANE_INDEX/$CONTROLPLANE_ATTEMPT/$CONTROLPLANE_TARGET"
    work = a_fulfilment(1, "sh", "-c", script + " $0 $LICENCE", "$(INDEX)-$(LICENCE)", environment={"LICENCE": "s-1"})
    stage.world.assign(work)
    await stage.started()
    await stage.world.until_phase(work.id, "Succeeded")
    assert (stage.run(100) / "stdout").read_text() == f"{work.order}/job-0/100/1/here 100-s-1 s-1\n"


async def test_a_failed_command_tells_its_exit_code_and_the_end_of_its_errors(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "echo no such scene >&2; exit 3")
    stage.world.assign(work)
    await stage.started()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.exit_code, task.reason, task.message) == (3, "Failed", "no such scene")


async def test_a_command_killed_by_a_signal_exits_with_128_and_its_number(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "kill -SEGV $$")
    stage.world.assign(work)
    await stage.started()
    assert (await stage.world.until_phase(work.id, "Failed")).tasks[0].exit_code == 139


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((), "the command is empty"),
        (("/no/such/command",), "/no/such/command: No such file or directory"),
        (("/etc/passwd",), "/etc/passwd: Permission denied"),
    ],
)
async def test_what_cannot_be_started_says_why(stage: Stage, command: tuple[str, ...], message: str) -> None:
    work = a_fulfilment(1, *command)
    stage.world.assign(work)
    await stage.started()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.reason, task.message, task.exit_code) == ("StartError", message, None)


async def test_the_time_limit_ends_a_command_and_all_that_it_began(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "setsid sleep 1000 & echo $! > away; sleep 1000", time_limit=0.5)
    stage.world.assign(work)
    await stage.started()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.reason, task.message) == ("TimedOut", "the time limit of 0.5 s passed")
    assert not alive(int((stage.run(100) / "work" / "away").read_text()))


async def test_a_cancelled_command_gets_a_chance_to_clean_up(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    stage.world.assign(work)
    await stage.started()
    await until_file(stage.run(100) / "stdout", "ready")
    stage.world.assign(msgspec.structs.replace(work, want="stop", reason="Cancelled"))
    task = (await stage.world.until_phase(work.id, "Cancelled")).tasks[0]
    assert task.reason == "Cancelled"
    assert (stage.run(100) / "stdout").read_text() == "ready\ncleaned\n"


async def test_a_stop_that_comes_before_the_start_starts_nothing(stage: Stage) -> None:
    work = msgspec.structs.replace(a_fulfilment(1, "true"), want="stop", reason="Cancelled")
    stage.world.assign(work)
    await stage.started()
    await stage.world.until_phase(work.id, "Cancelled")
    assert not stage.run(100).exists()


async def test_what_is_withdrawn_is_killed_at_once(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done")
    stage.world.assign(work)
    await stage.started()
    pid = int(await until_file(stage.run(100) / "stdout", "\n"))
    stage.world.withdraw(work.id)
    await until_gone(pid, seconds=4)


async def test_progress_and_artefacts_are_reported(stage: Stage) -> None:
    script = """
    echo 40 > $CONTROLPLANE_PROGRESS
    while ! test -e go; do sleep 0.02; done
    echo 90 >> $CONTROLPLANE_PROGRESS
    echo s3://bucket/frame > $CONTROLPLANE_ARTEFACTS; echo not-a-url >> $CONTROLPLANE_ARTEFACTS
    """
    work = a_fulfilment(1, "sh", "-c", script)
    stage.world.assign(work)
    await stage.started()
    await stage.world.until(lambda: any(o.tasks[0].percent == 40 for o in stage.world.history))
    (stage.run(100) / "work" / "go").touch()
    task = (await stage.world.until_phase(work.id, "Succeeded")).tasks[0]
    assert (task.percent, task.artefacts) == (90, ("s3://bucket/frame",))


async def test_each_task_of_a_pack_has_its_own_result(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "exit $((CONTROLPLANE_INDEX - 100))", tasks=3)
    stage.world.assign(work)
    await stage.started()
    end = await stage.world.until_phase(work.id, "Failed")
    assert [task.exit_code for task in end.tasks] == [0, 1, 2]
    assert [task.phase for task in end.tasks] == ["Succeeded", "Failed", "Failed"]


async def test_one_task_of_a_pack_is_stopped_and_the_others_go_on(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "while ! test -e go; do sleep 0.02; done", tasks=3)
    stage.world.assign(work)
    await stage.started()
    await stage.world.until(lambda: any(all(t.phase == "Running" for t in o.tasks) for o in stage.world.history))
    stop = TaskStop(job="job-0", index=101, reason="Moved")
    stage.world.assign(msgspec.structs.replace(work, stop=(stop,)))
    await stage.world.until(lambda: stage.world.history[-1].tasks[1].phase == "Cancelled")
    assert [task.phase for task in stage.world.history[-1].tasks] == ["Running", "Cancelled", "Running"]
    for index in (100, 102):
        (stage.run(index) / "work" / "go").touch()
    end = await stage.world.until_phase(work.id, "Cancelled")
    assert [task.phase for task in end.tasks] == ["Succeeded", "Cancelled", "Succeeded"]
    assert [task.reason for task in end.tasks] == ["", "Moved", ""]


async def test_a_mounted_resource_is_a_file_whose_path_the_task_is_told(stage: Stage) -> None:
    script = 'cat "$1" "$SCENE"; stat -c %a "$SCENE"'
    environment, files = {"SCENE": "/etc/scene.json"}, {"/etc/scene.json": "{}\n"}
    work = a_fulfilment(1, "sh", "-c", script, "-", "$(SCENE)", environment=environment, files=files)
    stage.world.assign(work)
    await stage.started()
    await stage.world.until_phase(work.id, "Succeeded")
    assert (stage.run(100) / "stdout").read_text() == "{}\n{}\n400\n"


async def test_a_stopped_joblet_leaves_its_commands_running(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "echo $$; while ! test -e go; do sleep 0.02; done; exit 7")
    stage.world.assign(work)
    joblet = await stage.started()
    await stage.world.until_phase(work.id, "Running")
    pid = int(await until_file(stage.run(100) / "stdout", "\n"))
    assert await joblet.end(signal.SIGTERM) == 0
    assert alive(pid)
    (stage.run(100) / "work" / "go").touch()
    await until_gone(pid)


@pytest.mark.parametrize("ends", ["before the restart", "after the restart"])
async def test_a_killed_joblet_comes_back_and_the_exit_code_is_not_lost(stage: Stage, ends: str) -> None:
    work = a_fulfilment(1, "sh", "-c", "while ! test -e go; do sleep 0.02; done; exit 7")
    stage.world.assign(work)
    joblet = await stage.started()
    await stage.world.until_phase(work.id, "Running")
    await joblet.end()
    go = stage.run(100) / "work" / "go"
    if ends == "before the restart":
        go.touch()
        await until_file(stage.run(100) / "end.json", "7")
    await joblet.start()
    await stage.world.until(lambda: stage.world.sessions == 2)
    go.touch()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.exit_code, task.reason) == (7, "Failed")
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_joblet_killed_between_the_report_and_the_start_starts_once(stage: Stage) -> None:
    armed = stage.folder / "armed"
    armed.touch()
    work = a_fulfilment(1, "true")
    stage.world.assign(work)
    joblet = await stage.started(failpoints=f"joblet.before-start=crash@{armed}")
    assert joblet.process is not None
    assert await joblet.process.wait() == -signal.SIGKILL
    assert stage.world.phases(work.id) == ["Starting"]
    await joblet.start()
    await stage.world.until_phase(work.id, "Succeeded")
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_joblet_killed_between_the_start_and_the_report_does_not_start_again(stage: Stage) -> None:
    armed = stage.folder / "armed"
    armed.touch()
    work = a_fulfilment(1, "sleep", "0.5")
    stage.world.assign(work)
    joblet = await stage.started(failpoints=f"joblet.after-start=crash@{armed}")
    assert joblet.process is not None
    assert await joblet.process.wait() == -signal.SIGKILL
    await joblet.start()
    await stage.world.until_phase(work.id, "Succeeded")
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_start_without_evidence_is_lost_and_never_repeated(stage: Stage) -> None:
    armed = stage.folder / "armed"
    armed.touch()
    work = a_fulfilment(1, "true")
    stage.world.assign(work)
    joblet = await stage.started(failpoints=f"joblet.before-start=crash@{armed}")
    assert joblet.process is not None
    await joblet.process.wait()
    stage.run(100).mkdir(parents=True)
    await joblet.start()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert task.reason == "Lost"
    assert (stage.run(100) / "abandoned").exists()
    assert not (stage.data / "records.jsonl").read_text()


async def test_what_another_folder_began_is_lost_not_repeated(stage: Stage) -> None:
    armed = stage.folder / "armed"
    armed.touch()
    work = a_fulfilment(1, "true")
    stage.world.assign(work)
    joblet = await stage.started(failpoints=f"joblet.before-start=crash@{armed}")
    assert joblet.process is not None
    await joblet.process.wait()
    stage.world.secret = None
    await stage.started(data_dir=str(stage.folder / "other"))
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert task.reason == "Lost"
    assert not stage.run(100).exists()


async def test_a_killed_shim_takes_its_command_along_and_is_lost(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1000') & wait")
    stage.world.assign(work)
    await stage.started()
    away = int(await until_file(stage.run(100) / "stdout", "\n"))
    os.kill(json.loads((stage.run(100) / "shim.json").read_text())["pid"], signal.SIGKILL)
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.reason, task.message) == ("Lost", "its shim was killed")
    assert not alive(away)
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_command_stopped_from_outside_is_evicted(stage: Stage) -> None:
    work = a_fulfilment(1, "sleep", "1000")
    stage.world.assign(work)
    await stage.started()
    await stage.world.until_phase(work.id, "Running")
    os.kill(json.loads((stage.run(100) / "shim.json").read_text())["pid"], signal.SIGTERM)
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert task.reason == "Evicted"


async def test_a_second_joblet_in_the_same_folder_is_refused(stage: Stage) -> None:
    await stage.started()
    await stage.world.until(lambda: stage.world.session != "")
    second = await stage.started()
    assert second.process is not None
    assert await second.process.wait() == 1
    assert "another joblet lives in" in second.said()
