"""Scale policies on a running control plane: real joblets are started, resized and stopped as work comes and goes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.providers.local import made_here
from tests.integration.folder import SECONDS, Folder, eventually


class Farm(Folder):
    def start(self) -> None:
        started = self.call("controlplane", "up", "--detach", "--replicas", "2", "--targets", "0")
        assert started.returncode == 0, started.stderr

    def apply(self, **document: Any) -> None:
        file = self.path / "object.json"
        file.write_text(json.dumps(document))
        self.cpctl("apply", "-f", str(file))

    def policy(self, name: str, **change: Any) -> None:
        given = {
            "kind": "ScalePolicy", "name": name, "provider": "local", "metric": "queue", "threshold": 0, "max": 5,
            "step": 2, "cool_down": "500ms", "idle": "3s",
        }  # fmt: skip
        self.apply(**(given | change))

    def submit_many(self, count: int, *command: str, cpu: float = 1, labels: dict[str, str] | None = None) -> str:
        job = {"command": list(command), "requests": {"cpu": cpu}, "labels": labels or {}}
        file = self.path / "order.json"
        file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": job, "count": count}]}}))
        identity: str = self.cpctl("submit", "-f", str(file))["id"]
        return identity

    def status(self, name: str) -> Any:
        return self.cpctl("get", "scalepolicy", name)["status"]

    def phase(self, order: str) -> str:
        phase: str = self.cpctl("get", "order", order)["status"]["phase"]
        return phase

    def joblets(self) -> list[str]:
        return sorted(made_here((self.path / "joblets").resolve()))

    def kill_the_leader(self) -> None:
        leader = self.cpctl("leader")["id"]
        os.kill(next(one["pid"] for one in self.up_json()["replicas"] if one["id"] == leader), signal.SIGKILL)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    made = Farm(tmp_path / "data")
    made.start()
    yield made
    made.call("controlplane", "down")


def seen(holds: Callable[[], bool]) -> float:
    """After how many seconds it came true."""
    begun = time.monotonic()
    eventually(holds)
    return time.monotonic() - begun


def shown(farm: Farm, name: str) -> None:
    """With `-s` the timeline can be read."""
    for step in farm.status(name)["timeline"]:
        sys.stdout.write(f"{step['at']} {step['action']:<6} {step['target']:<8} {step['targets']} {step['why']}\n")


def steps(farm: Farm, name: str) -> list[str]:
    return [step["action"] for step in farm.status(name)["timeline"]]


@pytest.mark.timeout(4 * SECONDS)
def test_one_becomes_five_under_a_burst_and_one_again_when_idle_over_the_death_of_the_leader(
    farm: Farm, tmp_path: Path
) -> None:
    """The burst waits for the five, however long they take to start."""
    farm.policy("farm", min=1, template={"capacity": {"cpu": 2}, "labels": {"made": "yes"}})
    eventually(lambda: bool(farm.status("farm")["up"] == 1))
    gate = tmp_path / "gate"
    order = farm.submit_many(80, "sh", "-c", f"until test -e {gate}; do sleep 0.2; done")
    eventually(lambda: bool(farm.status("farm")["targets"] >= 3))
    farm.kill_the_leader()
    up = seen(lambda: bool(farm.status("farm")["up"] == 5))
    assert farm.joblets() == [f"farm-{number}" for number in range(1, 6)]
    gate.touch()
    eventually(lambda: farm.phase(order) == "Succeeded")
    down = seen(lambda: len(farm.cpctl("get", "targets")["items"]) == 1)
    sys.stdout.write(f"five up {up:.1f} s after the leader died, one left {down:.1f} s after the end\n")
    shown(farm, "farm")
    status = farm.status("farm")
    assert (status["targets"], status["up"], len(status["made"])) == (1, 1, 1)
    assert farm.joblets() == [status["made"][0]["target"]]
    grown = [step["target"] for step in status["timeline"] if step["action"] == "grow"]
    assert sorted(grown) == [f"farm-{number}" for number in range(1, 6)]
    tasks = farm.cpctl("get", "order", order)["tasks"]
    assert {(task["phase"], task["attempt"]) for task in tasks} == {("Succeeded", 1)}
    verdicts = {one["promise"]: one for one in farm.cpctl("verify")["promises"]}
    assert [name for name, one in verdicts.items() if one["ok"] is False] == []
    stopped = farm.call("controlplane", "down")
    assert stopped.returncode == 0
    assert farm.alive() == []


@pytest.mark.timeout(4 * SECONDS)
def test_a_target_gets_larger_while_its_command_runs_on_and_smaller_again(farm: Farm) -> None:
    farm.policy("tall", max=1, min=1, sizes=[{"capacity": {"cpu": 1}}, {"capacity": {"cpu": 3}}])
    eventually(lambda: bool(farm.status("tall")["up"] == 1))
    first = farm.submit_many(1, "sleep", "600")
    eventually(lambda: farm.task(first)["phase"] == "Running")
    second = farm.submit_many(2, "true")
    eventually(lambda: farm.phase(second) == "Succeeded")
    eventually(lambda: steps(farm, "tall") == ["grow", "resize", "resize"])
    whys = [step["why"] for step in farm.status("tall")["timeline"]]
    assert [why.split(":")[0] for why in whys[1:]] == ["to cpu 3", "to cpu 1"]
    eventually(lambda: bool(farm.status("tall")["made"][0]["phase"] == "Up"))
    task = farm.task(first)
    assert (task["phase"], task["attempt"], task["target"]) == ("Running", 1, "tall-1")
    shown(farm, "tall")
    assert farm.call("cpctl", "delete", "scalepolicy", "tall").returncode == 0
    third = farm.submit_many(1, "true")
    why = "tall-1 takes no new work: it is being removed by scale policy tall"
    eventually(lambda: farm.cpctl("explain", third)["groups"][0]["targets"][0]["sentence"] == why)
    assert farm.task(first)["phase"] == "Running"
    assert farm.joblets() == ["tall-1"], "nothing with work on it is removed"
    farm.cpctl("cancel", first)
    eventually(lambda: farm.joblets() == [] and farm.cpctl("get", "targets")["items"] == [])
