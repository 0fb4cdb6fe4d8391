"""A recurring order as a user meets it: applied from a file on a running `up`, looked at, and over after its runs."""

from __future__ import annotations

import sys

import pytest

from tests.integration.folder import Folder, eventually

RUNS = 3
DOCUMENT = f"""
kind: Order
packet: {{jobs: [{{job: {{command: ["{sys.executable}", --version]}}}}]}}
schedule: {{cron: "* * * * * *", tz: Europe/Berlin, missed: all, limit: {RUNS}}}
"""


@pytest.mark.timeout(400)
def test_a_recurring_order_makes_its_runs_and_is_over(folder: Folder) -> None:
    started = folder.up()
    assert started.returncode == 0, started.stderr
    file = folder.path / "recurring.yaml"
    file.write_text(DOCUMENT)
    assert folder.cpctl("plan", "-f", str(file))["placeable"]
    (applied,) = folder.cpctl("apply", "-f", str(file))
    template = applied["id"]
    explained = folder.cpctl("explain", template)["conclusion"]
    assert "recurs (* * * * * *, Europe/Berlin)" in explained or "is over" in explained
    eventually(lambda: folder.cpctl("get", "order", template)["status"]["phase"] == "Succeeded")
    orders = folder.cpctl("get", "orders")["items"]
    runs = [order for order in orders if order["template"] == template]
    assert [run["status"]["phase"] for run in runs] == ["Succeeded"] * RUNS
    assert len({run["scheduled"] for run in runs}) == RUNS
    assert [order["tasks_total"] for order in orders if order["id"] == template] == [1]
    assert folder.cpctl("get", "order", template)["tasks"] == []
    wide = folder.call("cpctl", "get", "orders", "-o", "wide").stdout
    assert f"{RUNS} runs" in wide
    assert "* * * * * * Europe/Berlin" in wide
    assert "cron=* * * * * *" in folder.call("cpctl", "describe", "order", template).stdout
    assert folder.call("cpctl", "verify").returncode == 0
