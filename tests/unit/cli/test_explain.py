"""`cpctl explain`, `plan` and `replay`: what a person reads, what a program reads, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.cli import explain_command, plan_command, replay_command
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.model import errors
from controlplane.model.explanation import (
    Ahead,
    Explanation,
    GroupExplanation,
    Plan,
    PlannedPlacement,
    TargetVerdict,
)
from controlplane.replay import Replayed
from controlplane.wire import convert
from controlplane.wire.v1 import explanations_pb2
from tests.unit.cli.test_exit_codes import ORDER, ask, cpctl
from tests.unit.client.scripted_replica import ScriptedReplica, always, failing

FULL = TargetVerdict(
    target="eu-1", fits=False, filter="InsufficientCapacity", need={"cpu": 2, "memory": 2**30},
    have={"cpu": 1, "memory": 2**31}, missing={"cpu": 1}, held_by=("a", "b", "c"), waiting_helps=True,
    sentence="cpu 1 is missing",
)  # fmt: skip
WAITS = GroupExplanation(job="render", count=3, reason="InsufficientCapacity", targets=(FULL,))
EXPLANATION = Explanation(
    order=ORDER, revision=9, conclusion="3 tasks wait for room.", groups=(WAITS,),
    ahead=(Ahead(order="first", priority=90, tasks=4),), ahead_total=7,
)  # fmt: skip
PLAN = Plan(
    placeable=True, revision=9, conclusion="All 3 tasks would be placed.",
    placements=(
        PlannedPlacement(job="render", count=2, target="eu-1"),
        PlannedPlacement(job="render", count=1, target="eu-2", start_in_seconds=90.5),
    ),
)  # fmt: skip
REPLAYED = Replayed(
    cycle=7, epoch=3, revision=99, engine="e-1", expected="a" * 64, got="a" * 64, same=True, placed=2, considered=5
)


def said(found: Explanation) -> explanations_pb2.Explanation:
    return convert.to_wire(found, explanations_pb2.Explanation)


def planned(found: Plan) -> explanations_pb2.Plan:
    return convert.to_wire(found, explanations_pb2.Plan)


def lines(text: str) -> list[list[str]]:
    """The cells of each line."""
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def test_the_conclusion_comes_first_then_the_targets_then_who_is_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    explain_command.show(AnswerPrinter(Format.TABLE), EXPLANATION)
    shown = lines(capsys.readouterr().out)
    assert shown == [
        ["3 tasks wait for room."],
        [],
        ["render x 3: InsufficientCapacity"],
        ["TARGET", "FITS", "REFUSED BY", "MISSING", "HELD BY", "WAITING HELPS", "WHY"],
        ["eu-1", "no", "InsufficientCapacity", "cpu=1", "a,b (and 1 more)", "yes", "cpu 1 is missing"],
        [],
        ["7 tasks of other orders are served before:"],
        ["ORDER", "PRIORITY", "TASKS"],
        ["first", "90", "4"],
        ["and 3 more"],
    ]


def test_wide_also_shows_what_is_needed_and_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    explain_command.show(AnswerPrinter(Format.WIDE), EXPLANATION)
    row = lines(capsys.readouterr().out)[4]
    assert row[3:6] == ["cpu=2,memory=1Gi", "cpu=1,memory=2Gi", "cpu=1"]


def test_an_order_that_nothing_holds_up_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    explain_command.show(
        AnswerPrinter(Format.TABLE), Explanation(order=ORDER, revision=1, conclusion="Nothing of it waits.")
    )
    assert capsys.readouterr().out == "Nothing of it waits.\n"


def test_what_somebody_stored_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = TargetVerdict(target="t", fits=False, sentence="\x1b[2J")
    group = GroupExplanation(job="\x1b[2J", count=1, targets=(verdict,))
    explain_command.show(
        AnswerPrinter(Format.TABLE), Explanation(order="o", revision=1, conclusion="\x1b[2J", groups=(group,))
    )
    assert "\x1b" not in capsys.readouterr().out


async def test_an_explanation_as_json_has_every_field_of_the_contract_and_is_0() -> None:
    code, out, _ = await ask(ScriptedReplica(Orders_Explain=always(said(EXPLANATION))), "explain", ORDER, "-o", "json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["order"], shown["cycle"], shown["revision"]) == (ORDER, None, 9)
    assert shown["groups"][0]["targets"] == [
        {
            "target": "eu-1", "fits": False, "filter": "InsufficientCapacity", "need": {"cpu": 2, "memory": 2**30},
            "have": {"cpu": 1, "memory": 2**31}, "missing": {"cpu": 1}, "held_by": ["a", "b", "c"],
            "waiting_helps": True, "sentence": "cpu 1 is missing",
        }
    ]  # fmt: skip
    assert shown["ahead"] == [{"order": "first", "priority": 90, "tasks": 4}]


async def test_a_past_cycle_is_asked_for_by_its_number() -> None:
    replica = ScriptedReplica(Orders_Explain=always(said(EXPLANATION)))
    code, out, _ = await ask(replica, "explain", ORDER, "--cycle", "12", "-o", "name")
    assert (code, out) == (0, f"{ORDER}\n")
    [(_, request)] = replica.requests
    assert (request.id, request.cycle) == (ORDER, 12)


async def test_history_that_is_gone_is_1_and_says_so() -> None:
    gone = failing(errors.Compacted("cycle 3 saw revision 5, which etcd does not remember any more"))
    answer = await ask(ScriptedReplica(Orders_Explain=gone), "explain", ORDER, "--cycle", "3")
    assert answer == (1, "", "error: Compacted: cycle 3 saw revision 5, which etcd does not remember any more\n")


def test_a_plan_says_where_how_many_and_when(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command.show(AnswerPrinter(Format.TABLE), PLAN)
    assert lines(capsys.readouterr().out) == [
        ["All 3 tasks would be placed."],
        [],
        ["JOB", "COUNT", "TARGET", "STARTS"],
        ["render", "2", "eu-1", "now"],
        ["render", "1", "eu-2", "in about 90s"],
    ]


@pytest.mark.parametrize(("placeable", "code"), [(True, 0), (False, 2)])
async def test_a_plan_that_cannot_be_is_2(placeable: bool, code: int) -> None:
    found = Plan(placeable=placeable, revision=1, conclusion="So it is.", groups=() if placeable else (WAITS,))
    replica = ScriptedReplica(Orders_Plan=always(planned(found)))
    done, out, _ = await ask(replica, "plan", "-f", "-", "-o", "json", stdin=b"kind: Order\npacket: film\n")
    assert done == code
    shown = json.loads(out)
    assert (shown["placeable"], shown["placements"], len(shown["groups"])) == (placeable, [], 0 if placeable else 1)


async def test_a_plan_sends_the_order_and_how_the_world_is_to_differ(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "kind: Target\nname: new\ncapacity: {cpu: 8}\n---\nkind: Target\nname: eu-1\n"
    )
    replica = ScriptedReplica(Orders_Plan=always(planned(PLAN)))
    arguments = ("--with", str(tmp_path / "targets.yaml"), "--without", "a", "--without", "b", "--priority", "70")
    code, out, _ = await ask(replica, "plan", "-f", "-", *arguments, "-o", "name", stdin=b"kind: Order\npacket: film\n")
    assert (code, out) == (0, "eu-1\neu-2\n")
    [(_, request)] = replica.requests
    assert (request.order.packet.name, request.order.id, bool(request.order.owner)) == ("film", "", True)
    assert [target.name for target in request.with_targets] == ["new", "eu-1"]
    assert (list(request.without_targets), request.priority) == (["a", "b"], 70)


@pytest.mark.parametrize(
    "document", [b"kind: Job\nname: a\n", b"kind: Order\npacket: a\n---\nkind: Order\npacket: a\n"]
)
async def test_a_plan_is_for_exactly_one_order(document: bytes) -> None:
    code, out, err = await cpctl("plan", "-f", "-", stdin=document)
    assert (code, out) == (1, "")
    assert err == "error: Invalid: -: must hold exactly one Order\n"


async def test_only_targets_can_be_added_to_the_world(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: Job\nname: a\n")
    code, out, err = await cpctl(
        "plan", "-f", "-", "--with", str(tmp_path / "job.yaml"), stdin=b"kind: Order\npacket: film\n"
    )
    assert (code, out) == (1, "")
    assert err.endswith("job.yaml: document 1: must be a Target\n")


def test_a_replay_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    replay_command.show(AnswerPrinter(Format.TABLE), REPLAYED)
    shown = capsys.readouterr().out
    assert shown.startswith("Cycle 7 (epoch 3, revision 99, engine e-1) decides the same again: 2 of 5 tasks placed")


def test_a_replay_as_json_has_every_field_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    replay_command.show(AnswerPrinter(Format.JSON), REPLAYED)
    fields = ["cycle", "epoch", "revision", "engine", "expected", "got", "same", "placed", "considered"]
    assert list(json.loads(capsys.readouterr().out)) == fields


async def test_a_replay_needs_to_know_where_etcd_is() -> None:
    code, out, err = await cpctl("replay", "--cycle", "1", endpoints="127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("error: Invalid: data-dir: must be given here")
