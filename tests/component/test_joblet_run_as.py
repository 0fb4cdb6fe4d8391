"""Commands of another user (`--run-as`): what a task can reach, and what it cannot. Real users, so only as root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.joblet.drivers.process.process_search import kill_group_members
from controlplane.model.fulfilment import Fulfilment
from tests.component.joblet_replica import a_fulfilment
from tests.component.joblet_stage import Joblet, Stage, alive, staged, until_file, until_gone

USER = "nobody"
FOREVER = "while :; do sleep 0.05; done"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as another user")


class RunAsStage:
    """A stage whose joblets run commands as USER. `area` holds the folders of the commands."""

    def __init__(self, stage: Stage, area: Path) -> None:
        self.stage = stage
        self.world = stage.world
        self.area = area

    async def started(self, run_as: str = USER) -> Joblet:
        return await self.stage.started(run_as=run_as, task_dir=str(self.area))

    def home(self, index: int) -> Path:
        """The folder of the command, as the command itself sees it."""
        return self.area / self.stage.run(index).name / "run"

    def group(self, index: int) -> int:
        return int(json.loads((self.stage.run(index) / "spec.json").read_text())["run_as"]["gid"])

    async def said(self, work: Fulfilment, phase: str = "Succeeded") -> str:
        """What the command of the first task wrote to stdout, once it has ended."""
        await self.world.until_phase(work.id, phase)
        return (self.stage.run(work.tasks[0].index) / "stdout").read_text()

    async def tried(self, script: str, number: int = 1) -> str:
        """What a script says of its attempts; each of them prints `no` when it is refused."""
        work = a_fulfilment(number, "sh", "-c", script)
        self.world.assign(work)
        return await self.said(work)


def peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RunAsStage]:
    # pytest's own folders are closed to other users.
    above = Path(tempfile.mkdtemp(prefix="run-as-", dir="/tmp"))
    os.chmod(above, 0o711)
    try:
        async with staged(tmp_path) as inner:
            yield RunAsStage(inner, above / "tasks")
            for spec in inner.data.glob("runs/*/spec.json"):
                identity = json.loads(spec.read_text()).get("run_as")
                while identity and kill_group_members(identity["gid"]):
                    pass
    finally:
        shutil.rmtree(above)


async def test_a_command_and_its_files_belong_to_the_user(stage: RunAsStage) -> None:
    script = (
        "id -u; id -g; id -G; pwd; umask; ulimit -c; grep NoNewPrivs /proc/self/status; ls /proc/self/fd;"
        "cat $SCENE; echo 50 > $CONTROLPLANE_PROGRESS; echo s3://made/it > $CONTROLPLANE_ARTEFACTS;"
        "touch $TMPDIR/x made; grep processes /proc/self/limits | xargs;"
        "echo again > /dev/stdout; env | cut -d= -f1 | sort | xargs; echo $HOME $USER; grep CapEff /proc/self/status"
    )
    environment, files = {"SCENE": "/etc/scene.json"}, {"/etc/scene.json": "scene\n"}
    work = a_fulfilment(1, "sh", "-c", script, environment=environment, files=files)
    stage.world.assign(work)
    await stage.started()
    lines = (await stage.said(work)).splitlines()
    user, home, group = pwd.getpwnam(USER), stage.home(100), stage.group(100)
    assert lines[:4] == [str(user.pw_uid), str(group), f"{group} {user.pw_gid}", str(home / "work")]
    assert lines[4:7] == ["0022", "0", "NoNewPrivs:\t1"]
    # Three of the command, and that of ls.
    assert lines[7:11] == ["0", "1", "2", "3"]
    assert lines[11:14] == ["scene", "Max processes 4096 4096 processes", "again"]
    assert set(lines[14].split()) <= {
        "CONTROLPLANE_ARTEFACTS", "CONTROLPLANE_ATTEMPT", "CONTROLPLANE_INDEX", "CONTROLPLANE_JOB",
        "CONTROLPLANE_ORDER", "CONTROLPLANE_PROGRESS", "CONTROLPLANE_TARGET", "HOME", "LANG", "LC_ALL", "LOGNAME",
        "PATH", "PWD", "SCENE", "SHELL", "TMPDIR", "TZ", "USER",
    }  # fmt: skip
    assert lines[15:] == [f"{user.pw_dir} {USER}", "CapEff:\t0000000000000000"]
    task = (await stage.world.until_phase(work.id, "Succeeded")).tasks[0]
    assert (task.percent, list(task.artefacts)) == (50, ["s3://made/it"])
    for path in (home, home / "work" / "made", home / "files" / "0", home / "progress", home / "tmp" / "x"):
        assert (path.stat().st_uid, path.stat().st_gid) == (user.pw_uid, group)
    assert stat.S_IMODE((home / "files" / "0").stat().st_mode) == 0o400
    entry = home.parent.stat()
    assert (entry.st_uid, entry.st_gid, stat.S_IMODE(entry.st_mode)) == (0, group, 0o710)


async def test_a_task_reads_nothing_of_the_joblet_and_cannot_signal_it(stage: RunAsStage) -> None:
    joblet = await stage.started()
    assert joblet.process is not None
    data, pid = stage.stage.data, joblet.process.pid
    await stage.world.until(lambda: stage.world.session != "")
    reads = [data / "secret", data / "records.jsonl", data / "runs", f"/proc/{pid}/environ", f"/proc/{pid}/fd",
             f"/proc/{pid}/mem", f"/proc/{pid}/cwd/", f"/proc/{pid}/root/"]  # fmt: skip
    script = ";".join(f"ls {path} >/dev/null 2>&1 && head -c 1 {path} && echo read {path} || echo no" for path in reads)
    signals = ";".join(f"kill -TERM {other} 2>/dev/null && echo killed || echo no" for other in (pid, "$PPID"))
    said = await stage.tried(f"{script}; {signals}; echo > {data}/x 2>/dev/null && echo wrote || echo no")
    assert said.split() == ["no"] * (len(reads) + 3)
    assert joblet.process.returncode is None
    # The test itself would see what the task could not.
    assert (data / "secret").read_text()


async def test_a_task_reads_neither_key_nor_kubeconfig_nor_memory_of_the_users_of_the_machine(
    stage: RunAsStage, tmp_path: Path
) -> None:
    keys = [tmp_path / "secret.key", tmp_path / "kubeconfig", stage.area.parent / "etcd.key"]
    for key in keys:
        key.write_text("a key\n")
        key.chmod(0o600)
    await stage.started()
    assert (await stage.tried(";".join(f"cat {key} 2>/dev/null || echo no" for key in keys))).split() == ["no"] * 3


async def test_a_task_cannot_look_into_another_task_of_the_same_user(stage: RunAsStage) -> None:
    await stage.started()
    hide = "echo hidden > secret; chmod 777 secret . ..; chmod 777 ../..; echo $$ > ../pid; echo ready;"
    victim = a_fulfilment(1, "sh", "-c", hide + FOREVER, environment={"API_TOKEN": "s3cret"})
    stage.world.assign(victim)
    await until_file(stage.stage.run(100) / "stdout", "ready")
    home, pid = stage.home(100), (stage.home(100) / "pid").read_text().strip()
    reads = [home / "work" / "secret", f"{home}/", f"{stage.area}/", f"/proc/{pid}/environ", f"/proc/{pid}/cwd/secret",
             f"/proc/{pid}/root{home}/work/secret", f"/proc/{pid}/fd/1", f"/proc/{pid}/mem"]  # fmt: skip
    tries = ";".join(
        f"(ls {path} && head -c 1 {path}) >/dev/null 2>&1 && echo read {path} || echo no" for path in reads
    )
    assert (await stage.tried(tries, number=2)).split() == ["no"] * len(reads)
    # Only the group tells the two tasks apart, and the task itself may read all of that.
    assert stage.group(100) != stage.group(200)
    assert alive(int(pid))


@pytest.mark.parametrize(
    "replace",
    [
        "ln -s {secret} $CONTROLPLANE_PROGRESS; ln -s {secret} $CONTROLPLANE_ARTEFACTS",
        "mkfifo $CONTROLPLANE_PROGRESS $CONTROLPLANE_ARTEFACTS",
        "truncate -s 10G $CONTROLPLANE_PROGRESS $CONTROLPLANE_ARTEFACTS",
        "mkdir $CONTROLPLANE_PROGRESS $CONTROLPLANE_ARTEFACTS",
        "mv .. ../../moved 2>/dev/null; rm -rf ../work ../tmp; ln -s / ../work",
    ],
)
async def test_files_that_a_task_replaces_are_neither_followed_nor_waited_for(
    stage: RunAsStage, tmp_path: Path, replace: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42\nhttps://secret.example/key\n")
    joblet = await stage.started()
    work = a_fulfilment(1, "sh", "-c", replace.format(secret=secret) + "; sleep 1.5; echo done; exit 3")
    stage.world.assign(work)
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.exit_code, task.percent, list(task.artefacts)) == (3, None, [])
    assert (stage.stage.run(100) / "stdout").read_text() == "done\n"
    assert "secret" not in stage.world.history[-1].tasks[0].message
    # The joblet goes on.
    assert (await stage.tried("echo next", number=2)) == "next\n"
    assert joblet.process is not None
    assert peak_kib(joblet.process.pid) < 1 << 20


async def test_a_cancelled_command_of_another_user_is_killed_with_all_that_it_began(stage: RunAsStage) -> None:
    await stage.started()
    work = a_fulfilment(1, "sh", "-c", f"trap '' TERM; setsid sleep 1000 & echo $!; {FOREVER}")
    stage.world.assign(work)
    pid = int(await until_file(stage.stage.run(100) / "stdout", "\n"))
    stage.world.withdraw(work.id)
    await until_gone(pid)
    assert kill_group_members(stage.group(100)) == 0


async def test_a_joblet_that_was_killed_adopts_the_commands_of_the_user(stage: RunAsStage) -> None:
    first = await stage.started()
    script = "echo 30 > $CONTROLPLANE_PROGRESS; echo ready; until test -e go; do sleep 0.02; done; exit 7"
    work = a_fulfilment(1, "sh", "-c", script)
    stage.world.assign(work)
    await until_file(stage.stage.run(100) / "stdout", "ready")
    await first.end(signal.SIGKILL)
    await stage.started()
    await stage.world.until(lambda: any(seen.tasks[0].percent == 30 for seen in stage.world.history))
    (stage.home(100) / "work" / "go").touch()
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.exit_code, task.percent) == (7, 30)


@pytest.mark.parametrize("run_as", [USER, ""])
async def test_the_rest_of_a_command_is_killed_when_its_shim_was_killed(stage: RunAsStage, run_as: str) -> None:
    """Found by its group, which a command cannot change, though it cleared its environment; also by a later joblet
    that runs commands as its own user."""
    first = await stage.started()
    work = a_fulfilment(1, "sh", "-c", "env -i setsid sleep 1000 & echo $!; wait")
    stage.world.assign(work)
    pid = int(await until_file(stage.stage.run(100) / "stdout", "\n"))
    await stage.world.until_phase(work.id, "Running")
    await first.end(signal.SIGKILL)
    os.kill(json.loads((stage.stage.run(100) / "shim.json").read_text())["pid"], signal.SIGKILL)
    await (stage.started() if run_as else stage.stage.started())
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert task.reason == "Lost"
    assert not alive(pid)


async def test_folders_in_the_area_without_an_attempt_are_removed_at_the_start(stage: RunAsStage) -> None:
    first = await stage.started()
    await stage.tried("true")
    await first.end()
    shutil.rmtree(stage.stage.run(100))
    foreign = stage.area / "not-of-an-attempt"
    foreign.mkdir()
    await stage.started()
    await stage.tried("true", number=2)
    assert {path.name for path in stage.area.iterdir()} == {"lock", foreign.name, stage.stage.run(200).name}


async def test_a_command_that_cannot_be_started_says_why(stage: RunAsStage, tmp_path: Path) -> None:
    private = tmp_path / "private.sh"
    private.write_text("#!/bin/sh\n")
    private.chmod(0o700)
    await stage.started()
    work = a_fulfilment(1, str(private))
    stage.world.assign(work)
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.reason, task.message) == ("StartError", f"{private}: Permission denied")


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"run_as": "no-such-user"}, "run_as: there is no user 'no-such-user' on this machine"),
        ({"run_as": "root"}, "run_as: root is root"),
        ({"run_as": USER, "task_dir": "{tmp}/tasks"}, "cannot enter {tmp}"),
        ({"run_as": USER, "task_dir": "/tmp"}, "must be a folder for nothing else"),
    ],
)
async def test_a_user_that_cannot_be_used_is_refused_at_the_start(
    stage: RunAsStage, tmp_path: Path, more: dict[str, str], rule: str
) -> None:
    # The folder that pytest made for this user alone.
    tmp = next(folder for folder in reversed(tmp_path.parents) if not folder.stat().st_mode & stat.S_IXOTH)
    joblet = await stage.stage.started(**{name: value.format(tmp=tmp) for name, value in more.items()})
    assert joblet.process is not None
    assert await joblet.process.wait() == 1
    assert rule.format(tmp=tmp) in joblet.said()
    assert stat.S_IMODE(os.stat("/tmp").st_mode) == 0o1777


async def test_a_joblet_of_root_says_at_each_start_that_commands_run_as_root(stage: RunAsStage) -> None:
    joblet = await stage.stage.started()
    await stage.world.until(lambda: stage.world.session != "")
    assert joblet.said().count("commands run as root") == 1
    await joblet.end()
    await stage.started()
    await stage.world.until(lambda: stage.world.sessions >= 1)
    assert stage.stage.joblets[-1].said().count("commands run as root") == 1


async def test_the_folder_of_a_joblet_is_closed_to_others_and_of_no_other_user(stage: RunAsStage) -> None:
    data = stage.stage.data
    first = await stage.stage.started()
    await stage.tried("true")
    await first.end()
    os.chmod(data, 0o755)
    second = await stage.stage.started()
    await stage.tried("true", number=2)
    for path in (data, data / "runs", stage.stage.run(200), stage.stage.run(200) / "stdout", data / "records.jsonl"):
        assert path.stat().st_mode & 0o077 == 0, path
    await second.end()
    os.chown(data, pwd.getpwnam(USER).pw_uid, -1)
    third = await stage.stage.started()
    assert third.process is not None
    assert await third.process.wait() == 1
    assert f"data_dir: {data} belongs to another user" in third.said()
    os.chown(data, 0, -1)


async def test_an_open_folder_with_other_files_is_not_taken_for_that_of_a_joblet(stage: RunAsStage) -> None:
    data = stage.stage.data
    os.mkdir(data)
    os.chmod(data, 0o755)
    (data / "other").touch()
    joblet = await stage.stage.started()
    assert joblet.process is not None
    assert await joblet.process.wait() == 1
    assert "is open to other users" in joblet.said()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not installed")
async def test_a_command_of_the_joblets_own_user_cannot_read_its_memory(stage: RunAsStage) -> None:
    """Without --run-as, and without the capabilities of root. The shim, which keeps no secrets, can be read."""
    joblet = stage.stage.a_joblet()
    await joblet.start("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    await stage.world.until(lambda: stage.world.session != "")
    assert joblet.process is not None
    looks = [f"/proc/{joblet.process.pid}/environ", f"/proc/{joblet.process.pid}/fd/0", "/proc/$PPID/environ"]
    script = "; ".join(f"head -c 0 {path} 2>/dev/null && echo read || echo no" for path in looks)
    work = a_fulfilment(1, "sh", "-c", script)
    stage.world.assign(work)
    assert (await stage.said(work)).split() == ["no", "no", "read"]
