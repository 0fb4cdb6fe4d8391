"""`cpctl top`, `get events` and `describe` on a running `up`: what a person sees of what happened."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 100.0


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(module, *arguments), capture_output=True, text=True, timeout=SECONDS)

    def command(self, module: str, *arguments: str) -> list[str]:
        """The options come first: behind `--` they would belong to the command."""
        front = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(self.folder)]
        return [*front, *arguments[1:]]

    def ask(self, *arguments: str) -> Any:
        answer = self.call("cpctl", *arguments, "-o", "json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def table(self, *arguments: str) -> str:
        answer = self.call("cpctl", *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def submit(self, *command: str) -> str:
        file = self.folder / "order.json"
        file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": {"command": list(command)}}]}}))
        identity: str = self.ask("submit", "-f", str(file))["id"]
        return identity

    def reasons(self, about: str) -> list[str]:
        return [event["reason"] for event in self.ask("get", "events", "--about", about)["items"]]


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("up") / "data")
    started = made.call("controlplane", "up", "--detach", "--replicas", "2", "--targets", "1")
    assert started.returncode == 0, started.stderr
    yield made
    made.call("controlplane", "down")


@pytest.mark.timeout(300)
def test_an_order_that_was_changed_paused_and_cancelled_tells_so(cluster: Cluster) -> None:
    order = cluster.submit("sleep", "60")
    cluster.ask("update", "order", order, "--priority", "90")
    cluster.ask("pause", order)
    eventually(lambda: "Paused" in cluster.reasons(f"order/{order}"))
    cluster.ask("cancel", order)
    eventually(lambda: "Cancelled" in cluster.reasons(f"order/{order}"))
    assert cluster.reasons(f"order/{order}") == ["Changed", "PauseWished", "Paused", "CancelWished", "Cancelled"]
    events = cluster.ask("get", "events", "--about", f"order/{order}")["items"]
    assert "priority 50 -> 90" in events[0]["message"]
    assert events[-1]["by"].startswith("controller_manager@replica-")
    assert cluster.ask("get", "event", events[0]["id"]) == events[0]


@pytest.mark.timeout(300)
def test_describe_shows_why_an_order_failed(cluster: Cluster) -> None:
    order = cluster.submit("sh", "-c", "exit 7")
    eventually(lambda: "Failed" in cluster.reasons(f"order/{order}"))
    shown = cluster.table("describe", "order", order)
    assert "Events:" in shown
    assert "exit code 7" in shown.partition("Events:")[2]
    described = cluster.ask("describe", "order", order)
    assert [event["reason"] for event in described["events"]] == ["AttemptFailed", "Failed"]
    assert {event["type"] for event in described["events"]} == {"Warning"}


@pytest.mark.timeout(300)
def test_top_shows_targets_with_their_stats_and_the_totals(cluster: Cluster) -> None:
    before = cluster.ask("top")["totals"]["orders"]["succeeded"]
    for _ in range(3):
        cluster.submit("true")
    eventually(lambda: cluster.ask("top")["totals"]["orders"]["succeeded"] == before + 3)
    eventually(lambda: cluster.ask("top")["targets"][0]["stats"].get("succeeded", 0) >= 3)
    shown = cluster.ask("top")
    [target] = shown["targets"]
    assert (target["name"], target["phase"]) == ("local-1", "Ready")
    assert {"load", "memory_free", "disk_free", "running", "per_minute"} <= set(target["stats"])
    assert target["hardware"]["cpus"] > 0
    assert (shown["totals"]["targets"]["total"], shown["totals"]["queued"]) == (1, 0)
    table = cluster.table("top")
    assert table.startswith("NAME")
    assert "orders/s" in table.splitlines()[-1]
    assert cluster.ask("top", "orders")["orders"] == []
    assert cluster.call("cpctl", "top", "nothing").returncode == 1


@pytest.mark.timeout(300)
def test_totals_and_events_go_on_when_the_leader_changes(cluster: Cluster) -> None:
    order = cluster.submit("true")
    eventually(lambda: cluster.ask("get", "order", order)["status"]["phase"] == "Succeeded")
    eventually(lambda: cluster.ask("top")["totals"]["open_orders"] == 0)
    before = cluster.ask("top")["totals"]["orders"]["total"]
    elected = cluster.ask("get", "events", "--about", "cluster/leader")["items"]
    assert cluster.call("cpctl", "step-down").returncode == 0
    eventually(lambda: len(cluster.ask("get", "events", "--about", "cluster/leader")["items"]) == len(elected) + 1)
    order = cluster.submit("true")
    eventually(lambda: cluster.ask("top")["totals"]["orders"]["total"] == before + 1)


@pytest.mark.timeout(300)
def test_events_and_totals_can_be_watched(cluster: Cluster) -> None:
    watches = [
        subprocess.Popen(cluster.command("cpctl", *what, "-o", "json"), stdout=subprocess.PIPE, text=True)
        for what in (("get", "events", "--about", "rule/watched", "--watch"), ("top", "--watch"))
    ]
    lines: list[list[str]] = [[], []]
    readers = [
        threading.Thread(target=lambda watch=watch, into=into: into.extend(watch.stdout))
        for watch, into in zip(watches, lines, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        eventually(lambda: bool(lines[1]))
        file = cluster.folder / "rule.yaml"
        file.write_text("kind: Rule\nname: watched\nwhen: 'false'\nthen: {forbid: true}\n")
        cluster.ask("apply", "-f", str(file))
        eventually(lambda: bool(lines[0]))
        seen = len(lines[1])
        cluster.submit("true")
        eventually(lambda: len(lines[1]) > seen)
    finally:
        for watch in watches:
            watch.terminate()
            watch.wait(SECONDS)
        for reader in readers:
            reader.join(SECONDS)
        for watch in watches:
            assert watch.stdout is not None
            watch.stdout.close()
    told = json.loads(lines[0][0])
    assert (told["type"], told["object"]["reason"], told["object"]["about"]["name"]) == ("put", "Created", "watched")
    assert {"totals", "targets"} == set(json.loads(lines[1][-1]))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("get", "orders", "--about", "order/x"), "about"),
        (("get", "events", "--about", "nothing/x"), "kind"),
        (("get", "events", "--about", "/x"), "about"),
    ],
)
def test_a_wrong_question_is_refused_by_its_field(cluster: Cluster, arguments: tuple[str, ...], field: str) -> None:
    answer = cluster.call("cpctl", *arguments)
    assert answer.returncode == 1
    assert f"Invalid: {field}" in answer.stderr


@pytest.mark.timeout(300)
def test_the_promises_hold_with_all_that_is_kept(cluster: Cluster) -> None:
    verdicts = {one["promise"]: one["ok"] for one in cluster.ask("verify")["promises"]}
    assert [promise for promise, ok in verdicts.items() if ok is False] == []
    assert verdicts["P1"] is True
