"""`cpctl` where carelessness would cost something: options said twice, typos, targets that live, texts that steer."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from pathlib import Path

import pytest
import yaml

from controlplane.cli import log_setup
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.model import errors, texts
from controlplane.wire.v1 import cluster_pb2, common_pb2, fulfilments_pb2, jobs_pb2, targets_pb2
from tests.unit.cli.test_exit_codes import ask, cpctl
from tests.unit.client.scripted_replica import ScriptedReplica, always, failing

STEERING = "\x1b[2J\x9b31m\u202eevil\x07"
ALIVE = targets_pb2.Target(
    name="eu-1", status=targets_pb2.TargetStatus(phase="Ready"), live=targets_pb2.Live(session="s")
)
DRAINED = targets_pb2.Target(name="eu-1", drain=True, live=targets_pb2.Live(session="s"))
SILENT = targets_pb2.Target(name="eu-1")
BUSY = fulfilments_pb2.ListFulfilmentsResponse(items=[fulfilments_pb2.Fulfilment(id="f")])


async def test_apply_takes_several_files_as_one(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text(f"kind: Job\nname: {name}\n")
    replica = ScriptedReplica(Cluster_Apply=always(cluster_pb2.ApplyResponse()))
    files = [word for name in ("a", "b", "c") for word in ("-f", str(tmp_path / f"{name}.yaml"))]
    code, _, _ = await ask(replica, "apply", *files)
    assert code == 0
    [(_, request)] = replica.requests
    assert [item.job.name for item in request.objects] == ["a", "b", "c"]


async def test_what_is_wrong_in_the_second_file_is_named_there(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Job\nname: a\n")
    (tmp_path / "b.yaml").write_text("kind: Job\nname: b\n")
    refusing = failing(errors.Invalid("objects[1].name", "is not liked"))
    replica = ScriptedReplica(Cluster_Apply=refusing)
    _, _, err = await ask(replica, "apply", "-f", str(tmp_path / "a.yaml"), "-f", str(tmp_path / "b.yaml"))
    assert f"{tmp_path}/b.yaml: document 1: name: is not liked" in err


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "-f", "a.yaml", "-f", "b.yaml"),
        ("submit", "--file", "a.yaml", "-f", "b.yaml"),
        ("plan", "-f", "a.yaml", "-f", "b.yaml"),
        ("run", "--count", "2", "--count", "3", "--", "true"),
        ("get", "orders", "--limit", "1", "--limit=2"),
        ("apply", "-f", "-", "-f", "-"),
    ],
)
async def test_what_can_be_said_only_once_is_refused_when_said_twice(words: tuple[str, ...]) -> None:
    replica = ScriptedReplica()
    code, out, err = await ask(replica, *words)
    assert (code, out) == (1, "")
    assert "twice" in err or "once" in err
    assert replica.requests == []


async def test_how_to_print_may_be_said_again() -> None:
    replica = ScriptedReplica(Jobs_List=always(jobs_pb2.ListJobsResponse(items=[jobs_pb2.Job(name="a")])))
    assert (await ask(replica, "get", "jobs", "-o", "wide", "-o", "name"))[:2] == (0, "a\n")


DESTRUCTIVE = ["restore", "end-restore", "delete", "cancel", "drain", "step-down", "move", "drill", "cordon", "pause"]


@pytest.mark.parametrize("word", ["retry", *(f"{name}x" for name in DESTRUCTIVE), *(name[:-1] for name in DESTRUCTIVE)])
async def test_a_typo_never_leads_to_what_stops_or_removes_something(word: str) -> None:
    code, _, err = await cpctl(word)
    assert code == 1
    assert f"No such command '{word}'" in err
    assert not any(f"'{name}'" in err for name in DESTRUCTIVE)


async def test_a_typo_of_a_harmless_command_is_helped() -> None:
    assert "Did you mean 'describe'?" in (await cpctl("descrbe"))[2]


def replica_with(
    target: targets_pb2.Target, fulfilments: fulfilments_pb2.ListFulfilmentsResponse | None = None
) -> ScriptedReplica:
    return ScriptedReplica(
        Targets_Get=always(target),
        Targets_Delete=always(common_pb2.DeleteResponse(revision=9)),
        Fulfilments_List=always(fulfilments or fulfilments_pb2.ListFulfilmentsResponse()),
    )


async def test_a_script_does_not_delete_a_live_target_by_accident() -> None:
    replica = replica_with(ALIVE)
    code, out, err = await ask(replica, "delete", "target", "eu-1")
    assert (code, out) == (1, "")
    assert "error: IllegalTransition: target 'eu-1' is Ready, and its joblet is connected: drain it first" in err
    assert "--yes" in err
    assert replica.count("Targets.Delete") == 0


@pytest.mark.parametrize(
    ("target", "more"),
    [(ALIVE, ["--yes"]), (ALIVE, ["-y"]), (DRAINED, []), (SILENT, [])],
    ids=["yes", "y", "drained", "silent"],
)
async def test_a_person_who_said_so_is_not_asked_again(target: targets_pb2.Target, more: list[str]) -> None:
    replica = replica_with(target)
    assert (await ask(replica, "delete", "target", "eu-1", *more))[:2] == (0, "Target eu-1 deleted\n")
    assert replica.count("Targets.Delete") == 1


async def test_work_on_a_target_is_for_the_replica_to_refuse() -> None:
    replica = replica_with(ALIVE, BUSY)
    await ask(replica, "delete", "target", "eu-1")
    assert replica.count("Targets.Delete") == 1


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
async def test_at_a_terminal_the_person_is_asked(answer: str, deleted: int) -> None:
    replica = replica_with(ALIVE)
    master, slave = pty.openpty()
    try:
        async with replica.serve():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "controlplane.cli.cpctl", "delete", "target", "eu-1",
                "--endpoints", replica.endpoint,
                stdin=slave, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            os.write(master, answer.encode())
            out, err = await process.communicate()
    finally:
        os.close(master)
        os.close(slave)
    assert replica.count("Targets.Delete") == deleted
    assert process.returncode == (0 if deleted else 1)
    assert b"Delete it?" in err
    assert (b"deleted" in out) == bool(deleted)


async def test_what_a_server_says_does_not_steer_the_terminal() -> None:
    refusing = failing(errors.NotFound(f"there is no {STEERING}"))
    _, out, err = await ask(ScriptedReplica(Jobs_Get=refusing), "get", "job", "a")
    assert not texts.steers(out + err)
    assert "\\x1b[2J" in err
    warning = common_pb2.Warning(field="x", message=STEERING)
    applied = always(cluster_pb2.ApplyResponse(warnings=[warning]))
    _, out, err = await ask(ScriptedReplica(Cluster_Apply=applied), "apply", "-f", "-", stdin=b"kind: Job\nname: a\n")
    assert not texts.steers(out + err)
    assert "warning: x:" in err


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML, Format.TABLE, Format.NAME])
def test_data_does_not_steer_the_terminal_and_programs_read_it_as_it_is(
    form: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"name": STEERING, "also": "zażółć"}
    out = AnswerPrinter(form)
    out.value(value)
    out.line(value)
    out.text(STEERING)
    shown = capsys.readouterr().out
    assert not texts.steers(shown)
    if form == Format.YAML:
        assert yaml.safe_load(shown.partition("---")[0]) == value
    else:
        assert json.JSONDecoder().raw_decode(shown)[0] == value


def test_a_log_line_does_not_steer_the_terminal() -> None:
    fields = {"event": "joblet connected", "instance": STEERING, "error": ValueError(STEERING)}
    line = log_setup._line(None, "info", fields)
    assert not texts.steers(line)
    assert "\n" not in line
    assert "evil" in line
